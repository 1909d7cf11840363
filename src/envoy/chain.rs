//! Filter chains: TLS termination and the network filters after it.

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, SubstitutionFormatString, TransportSocket, data_source::Specifier, substitution_format_string::Format,
    transport_socket,
};
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, filter};
use envoy_types::pb::envoy::extensions::filters::common::set_filter_state::v3::{FilterStateValue, filter_state_value};
use envoy_types::pb::envoy::extensions::filters::network::set_filter_state::v3::Config as SetFilterState;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy,
    tcp_proxy::{ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight},
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::cert_mappers::sni::v3::Sni;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::cert_selectors::on_demand_secret::v3::Config as OnDemand;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext,
    certificate_validation_context::TrustChainVerification,
    common_tls_context::{CombinedCertificateValidationContext, ValidationContextType},
    downstream_tls_context::SessionTicketKeysType,
};
use envoy_types::pb::envoy::r#type::v3::HashPolicy;
use envoy_types::pb::google::protobuf::BoolValue;
use prost::{Message, Name};

use super::connection_manager::{self, Http, Routes};
use super::failure_log;
use super::name::{keyed, stat_prefix};
use super::proto::{ads, any, extension, seconds};
use super::request_hash;
use super::secret::{sds, tls_parameters};
use super::{Edge, REFUSED, limits};
use gatewright_core::model::{
    CertificateSource, Chain, ChainName, ClientValidation, FrontendId, Handler, SecretName, Target,
    Termination, ValidationMode, WeightedTarget,
};

/// The chain of a plain-HTTP frontend.
pub(super) fn plain(frontend: &FrontendId, http: Http<'_>, edge: &Edge) -> FilterChain {
    FilterChain {
        name: "http".to_owned(),
        filters: vec![connection_manager::filter(
            frontend,
            http,
            Routes::Plain,
            edge,
        )],
        ..Default::default()
    }
}

/// The chain of a TCP frontend.
pub(super) fn tcp(frontend: &FrontendId, shares: &[WeightedTarget], edge: &Edge) -> FilterChain {
    FilterChain {
        name: "tcp".to_owned(),
        filters: vec![hashed(frontend, shares, edge)],
        ..Default::default()
    }
}

/// A chain of a TLS frontend.
pub(super) fn tls(
    frontend: &FrontendId,
    http: Http<'_>,
    name: &ChainName,
    chain: &Chain,
    edge: &Edge,
) -> FilterChain {
    let Chain { tls, handler } = chain;
    let filters = match handler {
        Handler::Scopes {
            listener,
            elsewhere,
            identity_headers,
        } => {
            let routes = Routes::Scopes {
                listener: listener.as_ref(),
                elsewhere,
                identity_headers: *identity_headers,
            };
            vec![connection_manager::filter(frontend, http, routes, edge)]
        }
        Handler::Table(table) => vec![connection_manager::filter(
            frontend,
            http,
            Routes::Table(table),
            edge,
        )],
        Handler::TcpBySni => vec![
            cluster_by_sni(frontend),
            tcp_proxy(frontend, to(REFUSED), Vec::new(), edge),
        ],
        Handler::Tcp(targets) => vec![hashed(frontend, targets, edge)],
    };
    FilterChain {
        name: name.to_string(),
        filters,
        transport_socket: tls.as_ref().map(transport_socket),
        transport_socket_connect_timeout: tls
            .as_ref()
            .and_then(|_| seconds(limits::HANDSHAKE_SECONDS)),
        ..Default::default()
    }
}

/// A chain that closes every connection.
pub(super) fn closed() -> FilterChain {
    let proxy = TcpProxy {
        stat_prefix: "closed".to_owned(),
        cluster_specifier: Some(to(REFUSED)),
        ..Default::default()
    };
    FilterChain {
        name: "closed".to_owned(),
        filters: vec![network_filter("envoy.filters.network.tcp_proxy", &proxy)],
        ..Default::default()
    }
}

fn transport_socket(termination: &Termination) -> TransportSocket {
    let Termination {
        certificate,
        alpn,
        params,
        clients,
    } = termination;
    let common = CommonTlsContext {
        tls_params: Some(tls_parameters(params)),
        alpn_protocols: alpn.clone(),
        validation_context_type: clients.as_ref().map(validation_context),
        ..Default::default()
    };
    let require_client_certificate = clients.as_ref().map(|clients| BoolValue {
        value: match clients.mode {
            ValidationMode::AllowValidOnly => true,
            ValidationMode::AllowInsecureFallback => false,
        },
    });
    let context = match certificate {
        CertificateSource::BySni => {
            let selector = OnDemand {
                config_source: ads(),
                certificate_mapper: Some(extension(
                    "envoy.tls.certificate_mappers.sni",
                    // Connections without SNI never reach this chain; if one did, no certificate
                    // has this name.
                    &Sni {
                        default_value: "-".to_owned(),
                    },
                )),
                ..Default::default()
            };
            DownstreamTlsContext {
                common_tls_context: Some(CommonTlsContext {
                    custom_tls_certificate_selector: Some(extension(
                        "envoy.tls.certificate_selectors.on_demand_secret",
                        &selector,
                    )),
                    ..common
                }),
                // The certificate selector rejects session resumption of either kind.
                disable_stateful_session_resumption: true,
                require_client_certificate,
                session_ticket_keys_type: Some(
                    SessionTicketKeysType::DisableStatelessSessionResumption(true),
                ),
                ..Default::default()
            }
        }
        CertificateSource::Fixed(name) => DownstreamTlsContext {
            common_tls_context: Some(CommonTlsContext {
                tls_certificate_sds_secret_configs: vec![sds(name)],
                ..common
            }),
            require_client_certificate,
            ..Default::default()
        },
        CertificateSource::Resumed {
            certificate,
            tickets,
        } => DownstreamTlsContext {
            common_tls_context: Some(CommonTlsContext {
                tls_certificate_sds_secret_configs: vec![sds(certificate)],
                ..common
            }),
            require_client_certificate,
            // Sessions are in the tickets alone: other Envoys know none that this one had.
            disable_stateful_session_resumption: true,
            session_ticket_keys_type: Some(
                SessionTicketKeysType::SessionTicketKeysSdsSecretConfig(sds(tickets)),
            ),
            ..Default::default()
        },
    };
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any(&context))),
    }
}

/// The validation of client certificates. The CA certificates are a secret, so that they are
/// replaced without a change of the chain and its connections; the mode is a field of the chain.
fn validation_context(clients: &ClientValidation) -> ValidationContextType {
    let ClientValidation { mode, roots } = clients;
    let roots = sds(&SecretName::Roots(roots.clone()));
    match mode {
        ValidationMode::AllowValidOnly => {
            ValidationContextType::ValidationContextSdsSecretConfig(roots)
        }
        ValidationMode::AllowInsecureFallback => {
            ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
                default_validation_context: Some(CertificateValidationContext {
                    trust_chain_verification: TrustChainVerification::AcceptUntrusted.into(),
                    ..Default::default()
                }),
                validation_context_sds_secret_config: Some(roots),
                ..Default::default()
            })
        }
    }
}

/// A filter that selects the cluster of frontend and SNI for the tcp_proxy behind it. Without such
/// a cluster the connection is reset.
fn cluster_by_sni(frontend: &FrontendId) -> Filter {
    let format = SubstitutionFormatString {
        format: Some(Format::TextFormatSource(DataSource {
            specifier: Some(Specifier::InlineString(keyed(
                frontend,
                &"%REQUESTED_SERVER_NAME%",
            ))),
            ..Default::default()
        })),
        ..Default::default()
    };
    let value = FilterStateValue {
        key: Some(filter_state_value::Key::ObjectKey(
            "envoy.tcp_proxy.cluster".to_owned(),
        )),
        value: Some(filter_state_value::Value::FormatString(format)),
        ..Default::default()
    };
    network_filter(
        "envoy.filters.network.set_filter_state",
        &SetFilterState {
            on_new_connection: vec![value],
            ..Default::default()
        },
    )
}

/// A filter that forwards connections to targets, by the hash that these have.
fn hashed(frontend: &FrontendId, targets: &[WeightedTarget], edge: &Edge) -> Filter {
    let hash = request_hash::of_connections(targets);
    tcp_proxy(frontend, weighted(targets), hash, edge)
}

fn tcp_proxy(
    frontend: &FrontendId,
    cluster: ClusterSpecifier,
    hash_policy: Vec<HashPolicy>,
    edge: &Edge,
) -> Filter {
    let proxy = TcpProxy {
        stat_prefix: stat_prefix(frontend),
        idle_timeout: seconds(edge.tcp_idle_seconds),
        cluster_specifier: Some(cluster),
        hash_policy,
        access_log: vec![failure_log::of_connections()],
        ..Default::default()
    };
    network_filter("envoy.filters.network.tcp_proxy", &proxy)
}

/// Weighted clusters; an invalid share goes to the cluster [`REFUSED`], and so does everything if
/// no weight is left.
fn weighted(targets: &[WeightedTarget]) -> ClusterSpecifier {
    let clusters: Vec<ClusterWeight> = targets
        .iter()
        .filter(|share| share.weight > 0)
        .map(|share| ClusterWeight {
            name: match &share.target {
                Target::Backend(id) => id.to_string(),
                Target::Invalid => REFUSED.to_owned(),
            },
            weight: share.weight,
            ..Default::default()
        })
        .collect();
    match clusters.as_slice() {
        [] => to(REFUSED),
        [only] => to(&only.name),
        _ => ClusterSpecifier::WeightedClusters(WeightedCluster { clusters }),
    }
}

fn to(cluster: &str) -> ClusterSpecifier {
    ClusterSpecifier::Cluster(cluster.to_owned())
}

pub(super) fn network_filter<M: Message + Name>(name: &str, config: &M) -> Filter {
    Filter {
        name: name.to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(any(config))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{backend, frontend, share, to as to_backend};
    use gatewright_core::model::{AppProtocol, ObjectName, RootsName, SecretName, TlsParams};

    fn context(certificate: CertificateSource) -> DownstreamTlsContext {
        context_with(certificate, None)
    }

    fn context_with(
        certificate: CertificateSource,
        clients: Option<ValidationMode>,
    ) -> DownstreamTlsContext {
        let roots = RootsName {
            gateway: ObjectName::new("infra", "edge"),
            port: Some(443),
        };
        let clients = clients.map(|mode| ClientValidation { mode, roots });
        let termination = Termination {
            certificate,
            alpn: vec!["h2".into()],
            params: TlsParams::default(),
            clients,
        };
        let Some(transport_socket::ConfigType::TypedConfig(config)) =
            transport_socket(&termination).config_type
        else {
            panic!("a configuration")
        };
        DownstreamTlsContext::decode(config.value.as_slice()).expect("a TLS context")
    }

    #[test]
    fn certificates_by_sni_switch_both_kinds_of_resumption_off() {
        let made = context(CertificateSource::BySni);
        assert!(made.disable_stateful_session_resumption);
        let off = SessionTicketKeysType::DisableStatelessSessionResumption(true);
        assert_eq!(made.session_ticket_keys_type, Some(off));
    }

    #[test]
    fn a_fixed_certificate_resumes_and_has_a_name_that_no_sni_has() {
        let made = context(CertificateSource::Fixed(SecretName::Fixed(
            frontend(443),
            "*.a.org".into(),
        )));
        assert!(
            !made.disable_stateful_session_resumption && made.session_ticket_keys_type.is_none()
        );
        let common = made.common_tls_context.expect("a common context");
        assert_eq!(
            common.tls_certificate_sds_secret_configs[0].name,
            "sds/infra/edge:443/*.a.org"
        );
    }

    #[test]
    fn a_host_with_session_tickets_has_keys_of_its_own_and_no_cache() {
        let made = context(CertificateSource::Resumed {
            certificate: SecretName::Fixed(frontend(443), "a.org".into()),
            tickets: SecretName::Tickets(frontend(443), crate::testdata::host("a.org")),
        });
        assert!(made.disable_stateful_session_resumption);
        let Some(SessionTicketKeysType::SessionTicketKeysSdsSecretConfig(keys)) =
            made.session_ticket_keys_type
        else {
            panic!("keys by SDS")
        };
        assert_eq!(keys.name, "sds/tickets@infra/edge:443/a.org");
        let common = made.common_tls_context.expect("a common context");
        assert!(common.custom_tls_certificate_selector.is_none());
        assert_eq!(
            common.tls_certificate_sds_secret_configs[0].name,
            "sds/infra/edge:443/a.org"
        );
    }

    #[test]
    fn clients_are_checked_whatever_the_certificate_comes_from() {
        let fixed = CertificateSource::Fixed(SecretName::Fixed(frontend(443), "*.a.org".into()));
        for certificate in [CertificateSource::BySni, fixed] {
            let none = context(certificate.clone());
            assert_eq!(none.require_client_certificate, None);
            assert_eq!(
                none.common_tls_context
                    .expect("a common context")
                    .validation_context_type,
                None
            );
            let strict = context_with(certificate.clone(), Some(ValidationMode::AllowValidOnly));
            assert_eq!(
                strict.require_client_certificate,
                Some(BoolValue { value: true })
            );
            let common = strict.common_tls_context.expect("a common context");
            let Some(ValidationContextType::ValidationContextSdsSecretConfig(roots)) =
                common.validation_context_type
            else {
                panic!("roots by SDS, and nothing that weakens the check")
            };
            assert_eq!(roots.name, "sds/roots@infra/edge:443");
            let lax = context_with(certificate, Some(ValidationMode::AllowInsecureFallback));
            assert_eq!(
                lax.require_client_certificate,
                Some(BoolValue { value: false })
            );
            let common = lax.common_tls_context.expect("a common context");
            let Some(ValidationContextType::CombinedValidationContext(combined)) =
                common.validation_context_type
            else {
                panic!("roots by SDS, and how they are used")
            };
            let how = combined
                .default_validation_context
                .expect("how they are used");
            assert_eq!(
                how.trust_chain_verification(),
                TrustChainVerification::AcceptUntrusted
            );
        }
    }

    #[test]
    fn an_invalid_tcp_share_keeps_its_weight_and_is_refused() {
        let tcp = backend("tls", AppProtocol::Tcp);
        let targets = [
            share(Target::Backend(tcp), 3),
            share(Target::Invalid, 1),
            to_backend("off", 0),
        ];
        let ClusterSpecifier::WeightedClusters(made) = weighted(&targets) else {
            panic!("weighted clusters")
        };
        let pairs: Vec<_> = made
            .clusters
            .iter()
            .map(|c| (c.name.as_str(), c.weight))
            .collect();
        assert_eq!(pairs, [("default/tls:80/tcp", 3), (REFUSED, 1)]);
        assert_eq!(weighted(&[to_backend("off", 0)]), to(REFUSED));
    }
}
