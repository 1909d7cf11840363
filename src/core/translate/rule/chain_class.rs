//! The identity of a filter chain.
//!
//! Hosts share a filter chain only if everything that it decides about a connection is the same for
//! them. The class of a chain is therefore its whole content, and its name has every field: two
//! hosts whose chains differ in anything, such as the client roots, never share one.

use std::fmt;

use gatewright_objects::model::{
    CertificateSource, Chain, ClientValidation, FrontendId, Handler, Hostname, IdentityHeaders,
    IdentityRemoval, OtherListeners, TableId, Termination, TlsParams, TlsVersion, ValidationMode,
    VirtualHost, WeightedTarget, is_identity_header,
};

/// The class of a filter chain, within its frontend. Printed as the chain's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChainClass {
    /// The purpose of its connections.
    pub(crate) purpose: Purpose,
    /// The hostname of the wildcard or catch-all listener of this chain; `None` if each connection
    /// belongs to the listener whose hostname is the SNI.
    pub(crate) listener: Option<Hostname>,
    /// TLS termination; `None` if bytes are passed through.
    pub(crate) tls: Option<Termination>,
}

/// The purpose of a filter chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// HTTP, routed by the scope of the request's host.
    Scopes(IdentityRemoval),
    /// HTTP, routed by the listener's table.
    Table,
    /// TCP, to the cluster of the SNI.
    TcpBySni,
    /// TCP of this one hostname, to weighted backends.
    Tcp(Hostname, Vec<WeightedTarget>),
    /// Closes connections, to exclude hostnames from wider listeners.
    Closed,
}

impl Purpose {
    /// HTTP of a host, at a wildcard or catch-all listener if it is `wide`: the chain of such a
    /// listener has many hosts, and must not change with one of them.
    pub(crate) fn of_host(host: &VirtualHost, wide: bool) -> Self {
        let keeps = host.identity_headers == IdentityHeaders::Keep;
        let mut headers = host.routes.iter().flat_map(|route| &route.matches.headers);
        let is_late = wide || keeps || headers.any(|header| is_identity_header(&header.name));
        Self::Scopes(if is_late {
            IdentityRemoval::Late
        } else {
            IdentityRemoval::Early
        })
    }
}

impl ChainClass {
    /// The chain that closes every connection.
    pub(crate) fn closed() -> Self {
        Self {
            purpose: Purpose::Closed,
            listener: None,
            tls: None,
        }
    }

    /// True if a handshake for a name without an owner is refused: its certificate is requested by
    /// the SNI, and there is none.
    pub(crate) fn refuses_unknown_names(&self) -> bool {
        let by_sni = self
            .tls
            .as_ref()
            .is_some_and(|tls| tls.certificate == CertificateSource::BySni);
        by_sni && self.listener.is_none() && matches!(self.purpose, Purpose::Scopes(_))
    }

    /// The class that a host with session tickets has without them.
    pub(crate) fn without_tickets(&self) -> Option<Self> {
        let tls = self.tls.as_ref()?;
        let CertificateSource::Resumed { .. } = tls.certificate else {
            return None;
        };
        let tls = Termination {
            certificate: CertificateSource::BySni,
            params: TlsParams::default(),
            ..tls.clone()
        };
        Some(Self {
            tls: Some(tls),
            ..self.clone()
        })
    }

    /// The chain of this class, on a frontend whose other listeners are `elsewhere`.
    pub(crate) fn chain(&self, frontend: &FrontendId, elsewhere: OtherListeners) -> Chain {
        let Self {
            purpose,
            listener,
            tls,
        } = self;
        let handler = match purpose {
            Purpose::Scopes(identity_headers) => Handler::Scopes {
                listener: listener.clone(),
                elsewhere,
                identity_headers: *identity_headers,
            },
            Purpose::Table => Handler::Table(TableId {
                frontend: frontend.clone(),
                listener: listener
                    .clone()
                    .expect("a table is that of a wildcard or catch-all listener"),
            }),
            Purpose::TcpBySni => Handler::TcpBySni,
            Purpose::Tcp(_, shares) => Handler::Tcp(shares.clone()),
            Purpose::Closed => Handler::Tcp(Vec::new()),
        };
        Chain {
            tls: tls.clone(),
            handler,
        }
    }

    /// The prefix of the names of chains to the table of a wildcard or catch-all listener.
    pub(crate) fn table_prefix(listener: &Hostname) -> String {
        format!("table:{listener}")
    }
}

/// Different classes of one frontend have different names, except that backends of a single
/// hostname are not in the name.
impl fmt::Display for ChainClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            purpose,
            listener,
            tls,
        } = self;
        f.write_str(match (purpose, listener, tls) {
            (Purpose::Scopes(_), None, _) => "https",
            (Purpose::Scopes(_), Some(_), _) => "hosts",
            (Purpose::Table, ..) => "table",
            (Purpose::TcpBySni | Purpose::Tcp(..), _, Some(_)) => "tls",
            (Purpose::TcpBySni | Purpose::Tcp(..), _, None) => "passthrough",
            (Purpose::Closed, ..) => "closed",
        })?;
        if let Some(listener) = listener {
            write!(f, ":{listener}")?;
        }
        if let Some(Termination {
            certificate,
            alpn,
            params,
            clients,
        }) = tls
        {
            let usual: &[&str] = match purpose {
                Purpose::Scopes(_) | Purpose::Table => &["h2", "http/1.1"],
                Purpose::TcpBySni | Purpose::Tcp(..) | Purpose::Closed => &[],
            };
            if alpn != usual {
                write!(f, "+{}", alpn.join("+"))?;
            }
            match (certificate, listener) {
                (CertificateSource::BySni, None) => {}
                (CertificateSource::BySni, Some(_)) => f.write_str(":by-sni")?,
                // The hostname's own certificate, of which a frontend has one at most.
                (CertificateSource::Fixed(name), Some(own))
                    if name.to_string().ends_with(&format!("/{own}")) => {}
                (CertificateSource::Fixed(name), _) => write!(f, ":{name}")?,
                // The keys of its tickets are those of the hostname as well.
                (
                    CertificateSource::Resumed {
                        certificate,
                        tickets: _,
                    },
                    _,
                ) => write!(f, ":tickets:{certificate}")?,
            }
            write_params(f, params)?;
            match clients {
                None => {}
                Some(ClientValidation {
                    mode: ValidationMode::AllowValidOnly,
                    roots,
                }) => write!(f, ";clients={roots}")?,
                Some(ClientValidation {
                    mode: ValidationMode::AllowInsecureFallback,
                    roots,
                }) => {
                    write!(f, ";any-clients={roots}")?;
                }
            }
        }
        match (purpose, listener) {
            (Purpose::Tcp(of, _), _) => write!(f, "|{of}"),
            // Not the usual ones.
            (Purpose::Scopes(IdentityRemoval::Late), None) => f.write_str(";identity=late"),
            (Purpose::Scopes(IdentityRemoval::Early), Some(_)) => f.write_str(";identity=early"),
            (Purpose::Scopes(_) | Purpose::Table | Purpose::TcpBySni | Purpose::Closed, _) => {
                Ok(())
            }
        }
    }
}

/// Writes the fields that are set; for the default nothing.
fn write_params(f: &mut fmt::Formatter<'_>, params: &TlsParams) -> fmt::Result {
    let TlsParams {
        min,
        max,
        ciphers,
        curves,
        signature_algorithms,
    } = params;
    for (name, version) in [("min", min), ("max", max)] {
        match version {
            None => {}
            Some(TlsVersion::V1_2) => write!(f, ";{name}=1.2")?,
            Some(TlsVersion::V1_3) => write!(f, ";{name}=1.3")?,
        }
    }
    for (name, list) in [
        ("ciphers", ciphers),
        ("curves", curves),
        ("signatures", signature_algorithms),
    ] {
        if !list.is_empty() {
            write!(f, ";{name}={}", list.join(","))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::secret_names::fixed_name;
    use gatewright_objects::model::{ObjectName, RootsName, SecretName};
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).expect("a hostname")
    }

    fn frontend() -> FrontendId {
        FrontendId::tcp(ObjectName::new("infra", "edge"), 443)
    }

    fn list(of: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
        subsequence(of, 0..=of.len()).prop_map(|list| list.into_iter().map(str::to_owned).collect())
    }

    fn params() -> impl Strategy<Value = TlsParams> {
        fn version() -> prop::sample::Select<Option<TlsVersion>> {
            select(vec![None, Some(TlsVersion::V1_2), Some(TlsVersion::V1_3)])
        }
        let lists = (list(&["c", "d"]), list(&["c", "d"]), list(&["c", "d"]));
        (version(), version(), lists).prop_map(
            |(min, max, (ciphers, curves, signature_algorithms))| TlsParams {
                min,
                max,
                ciphers,
                curves,
                signature_algorithms,
            },
        )
    }

    fn hostnames() -> impl Strategy<Value = Hostname> {
        select(vec![Hostname::any(), host("*.a.org"), host("*.b.a.org")])
    }

    fn termination() -> impl Strategy<Value = Termination> {
        let fixed = prop_oneof![hostnames(), Just(host("x.a.org"))];
        let resumed = select(vec![host("x.a.org"), host("y.a.org")]);
        let certificate = prop_oneof![
            Just(CertificateSource::BySni),
            resumed.prop_map(|hostname| CertificateSource::Resumed {
                certificate: fixed_name(&frontend(), &hostname),
                tickets: SecretName::Tickets(frontend(), hostname),
            }),
            fixed.prop_map(|hostname| CertificateSource::Fixed(fixed_name(&frontend(), &hostname))),
        ];
        let clients = proptest::option::of(clients());
        (certificate, list(&["h2", "http/1.1"]), params(), clients).prop_map(
            |(certificate, alpn, params, clients)| Termination {
                certificate,
                alpn,
                params,
                clients,
            },
        )
    }

    fn clients() -> impl Strategy<Value = ClientValidation> {
        let mode = select(vec![
            ValidationMode::AllowValidOnly,
            ValidationMode::AllowInsecureFallback,
        ]);
        let gateway = select(vec![
            ObjectName::new("infra", "edge"),
            ObjectName::new("infra", "inner"),
        ]);
        let roots = (gateway, select(vec![None, Some(443), Some(8443)]));
        (mode, roots).prop_map(|(mode, (gateway, port))| ClientValidation {
            mode,
            roots: RootsName { gateway, port },
        })
    }

    /// Any class that a frontend may have.
    fn classes() -> impl Strategy<Value = ChainClass> {
        let purpose = prop_oneof![
            select(vec![IdentityRemoval::Early, IdentityRemoval::Late]).prop_map(Purpose::Scopes),
            Just(Purpose::TcpBySni),
            select(vec![host("x.a.org"), host("y.a.org")])
                .prop_map(|of| Purpose::Tcp(of, Vec::new())),
        ];
        prop_oneof![
            Just(ChainClass::closed()),
            (purpose, proptest::option::of(hostnames()), termination()).prop_map(
                |(purpose, listener, tls)| ChainClass {
                    purpose,
                    listener,
                    tls: Some(tls)
                }
            ),
            (hostnames(), termination()).prop_map(|(listener, tls)| ChainClass {
                purpose: Purpose::Table,
                listener: Some(listener),
                tls: Some(tls)
            }),
            select(vec![
                Purpose::TcpBySni,
                Purpose::Tcp(host("x.a.org"), Vec::new())
            ])
            .prop_map(|purpose| ChainClass {
                purpose,
                listener: None,
                tls: None
            }),
        ]
    }

    proptest! {
        #[test]
        fn one_name_stands_for_one_class(one in classes(), other in classes()) {
            prop_assert_eq!(one == other, one.to_string() == other.to_string(), "{} and {}", one, other);
        }

        /// Two random classes seldom differ in a single field.
        #[test]
        fn any_field_of_the_termination_sets_chains_apart(
            class in classes().prop_filter("ends TLS", |class| class.tls.is_some()),
            (other, fields) in (termination(), any::<[bool; 4]>()),
        ) {
            let own = class.tls.clone().expect("filtered");
            let [certificate, alpn, params, clients] = fields;
            let tls = Termination {
                certificate: if certificate { other.certificate } else { own.certificate.clone() },
                alpn: if alpn { other.alpn } else { own.alpn.clone() },
                params: if params { other.params } else { own.params.clone() },
                clients: if clients { other.clients } else { own.clients.clone() },
            };
            let changed = ChainClass { tls: Some(tls.clone()), ..class.clone() };
            prop_assert_eq!(own == tls, class.to_string() == changed.to_string(), "{} and {}", class, changed);
        }
    }

    #[test]
    fn names_are_short_where_nothing_is_asked_for() {
        fn usual(certificate: CertificateSource, alpn: &[&str]) -> Termination {
            Termination {
                certificate,
                alpn: alpn.iter().copied().map(str::to_owned).collect(),
                params: TlsParams::default(),
                clients: None,
            }
        }
        fn name(purpose: Purpose, listener: Option<Hostname>, tls: Termination) -> String {
            ChainClass {
                purpose,
                listener,
                tls: Some(tls),
            }
            .to_string()
        }
        fn own() -> CertificateSource {
            CertificateSource::Fixed(fixed_name(&frontend(), &host("*.a.org")))
        }
        fn wide() -> Option<Hostname> {
            Some(host("*.a.org"))
        }
        assert_eq!(
            name(
                Purpose::Scopes(IdentityRemoval::Early),
                None,
                usual(CertificateSource::BySni, &["h2", "http/1.1"])
            ),
            "https"
        );
        assert_eq!(
            name(
                Purpose::Scopes(IdentityRemoval::Early),
                None,
                usual(CertificateSource::BySni, &["h2"])
            ),
            "https+h2"
        );
        assert_eq!(
            name(
                Purpose::Scopes(IdentityRemoval::Late),
                wide(),
                usual(own(), &["h2", "http/1.1"])
            ),
            "hosts:*.a.org"
        );
        assert_eq!(
            name(Purpose::Table, wide(), usual(own(), &["h2", "http/1.1"])),
            "table:*.a.org"
        );
        assert_eq!(
            name(Purpose::TcpBySni, wide(), usual(own(), &[])),
            "tls:*.a.org"
        );
        let fixed = CertificateSource::Fixed(SecretName::Fixed(frontend(), "x.a.org".into()));
        let newest = TlsParams {
            min: Some(TlsVersion::V1_3),
            ..TlsParams::default()
        };
        let roots = RootsName {
            gateway: ObjectName::new("infra", "edge"),
            port: Some(443),
        };
        let clients = Some(ClientValidation {
            mode: ValidationMode::AllowValidOnly,
            roots,
        });
        let tls = Termination {
            certificate: fixed,
            alpn: Vec::new(),
            params: newest,
            clients,
        };
        let only = Purpose::Tcp(host("x.a.org"), Vec::new());
        assert_eq!(
            name(only, None, tls),
            "tls:sds/infra/edge:443/x.a.org;min=1.3;clients=infra/edge:443|x.a.org"
        );
    }
}
