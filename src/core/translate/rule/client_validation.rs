//! Client certificate validation at the listeners of a Gateway (GEP-91).
//!
//! A port makes the same demand on all its clients, so that a connection that was opened for one of
//! its hosts never reaches another host with a weaker check (GEP-3567). Without any CA certificate
//! left to check against, no client is accepted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ca_bundles;
use super::surroundings::Surroundings;
use crate::key::Verdict;
use gatewright_objects::inputs::{FrontendTls, FrontendValidation, Gateway, Kind};
use gatewright_objects::model::{ClientValidation, ObjectName, Reason, RootsName, ValidationMode};

/// The demand of a listener on clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// No certificate is required.
    #[default]
    Anybody,
    /// Certificates are validated.
    Checked(ClientValidation),
    /// Certificates are required that nobody can have: there are no CA certificates to validate
    /// against. The listener keeps its hostname, and closes every connection.
    Nobody,
}

impl Clients {
    /// Ok if any client can be accepted.
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Clients::Anybody | Clients::Checked(_) => Ok(()),
            Clients::Nobody => Err((
                Reason::NoValidCACertificate,
                "no CA certificate is there to check clients against: every connection is closed"
                    .to_owned(),
            )),
        }
    }
}

/// The demands of a Gateway on clients, by port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientPolicy {
    default: Option<Arc<PortPolicy>>,
    ports: BTreeMap<u16, Option<Arc<PortPolicy>>>,
}

/// The demand of one port on clients.
#[derive(Clone, Debug, PartialEq)]
struct PortPolicy {
    mode: ValidationMode,
    /// The name of the client roots, if there are any.
    roots: Option<RootsName>,
    /// Ok if every reference resolves.
    resolved: Verdict,
}

impl ClientPolicy {
    /// Evaluates a Gateway.
    pub(crate) fn of(gateway: &Gateway, around: &Surroundings<'_>) -> Self {
        let Some(frontend) = gateway.frontend_tls.as_deref() else {
            return Self::default();
        };
        let evaluated = |port: Option<u16>, validation: &FrontendValidation| {
            let (roots, resolved) = union(&gateway.meta.name, validation, around);
            let name = RootsName {
                gateway: gateway.meta.name.clone(),
                port,
            };
            Arc::new(PortPolicy {
                mode: validation.mode,
                roots: roots.map(|_| name),
                resolved,
            })
        };
        let FrontendTls { default, ports } = frontend;
        Self {
            default: default.as_ref().map(|default| evaluated(None, default)),
            ports: ports
                .iter()
                .map(|(port, own)| (*port, own.as_ref().map(|own| evaluated(Some(*port), own))))
                .collect(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<PortPolicy>> {
        self.default.iter().chain(self.ports.values().flatten())
    }

    /// True if some port accepts clients without a valid certificate.
    pub(crate) fn is_insecure(&self) -> bool {
        self.all()
            .any(|policy| policy.mode == ValidationMode::AllowInsecureFallback)
    }

    /// The names of all client roots with certificates.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &RootsName> {
        self.all().filter_map(|policy| policy.roots.as_ref())
    }

    /// The demand of a port on clients, and whether every reference resolves; `None` if it requires
    /// no certificates.
    pub(crate) fn of_port(&self, port: u16) -> Option<(Clients, &Verdict)> {
        let policy = self.ports.get(&port).unwrap_or(&self.default).as_deref()?;
        let clients = match &policy.roots {
            Some(roots) => Clients::Checked(ClientValidation {
                mode: policy.mode,
                roots: roots.clone(),
            }),
            None => Clients::Nobody,
        };
        Some((clients, &policy.resolved))
    }
}

/// The CA certificates that a validation refers to, and whether all references resolve.
pub(crate) fn union(
    gateway: &ObjectName,
    validation: &FrontendValidation,
    around: &Surroundings<'_>,
) -> (Option<Arc<str>>, Verdict) {
    let Surroundings {
        store,
        settings,
        now,
    } = *around;
    ca_bundles::union(&validation.references, now, |_, reference, before| {
        ca_bundles::look_up(
            reference,
            (store, now),
            Reason::InvalidCACertificateKind,
            |name| {
        if store.permits(Kind::Gateway, &gateway.namespace, Kind::ConfigMap, name) {
            return Ok(());
        }
        let note = store.unwatched(name);
        let text = format!(
            "ConfigMap {name} is in another namespace and no ReferenceGrant permits it{note}"
        );
        Err((Reason::RefNotPermitted, text))
    },
        )
        .and_then(|found| {
            ca_bundles::bundle(before, found, &settings.limits.object)
                .map(|()| found)
                .map_err(|(reason, text)| {
                    (
                        reason,
                        format!("with {} {}: {text}", reference.kind, reference.name),
                    )
                })
        })
        .map_err(|(reason, text)| (reason, format!("caCertificateRefs: {text}")))
    })
}
