//! Settings of an installation for tenancy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatewright_objects::inputs::Source;
use gatewright_objects::limits::Limits;
use gatewright_objects::model::Hostname;
use gatewright_objects::ownership::Recording;

/// Settings of an installation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// True if ListenerSets can be written.
    pub listener_sets: bool,
    /// The certificate source of TenantGateways that name none. With cert-manager, Issuers and
    /// Certificates are among the desired objects; certificates that we issue are wanted
    /// certificates.
    pub certificates: Source,
    /// True if cert-manager is installed.
    pub cert_manager: bool,
    /// The ACME directories that TenantGateways may name, beside those of `spec.issuerName`; `None`
    /// permits any.
    pub directories: Option<BTreeSet<String>>,
    /// The writer of the record of the first claimants of hostnames. They come first at Gateways of
    /// ours; among others, elsewhere, and without a record `cozy-*` namespaces do, then the
    /// smallest `namespace/name`.
    pub recording: Option<Recording>,
    /// True if the record decides at Gateways of other data planes as well; else the smallest
    /// claimant has a hostname there, as the Cozystack gateway page specifies.
    pub recorded_elsewhere: bool,
    /// The number of seconds for which a recorded hostname stays reserved for the namespace that
    /// released it.
    pub hold: u64,
    /// Limits of a namespace: here of its part of the record.
    pub limits: Limits,
    /// The ports of Gateways: 80 and 443, unless an unprivileged program serves them itself.
    pub ports: Ports,
    /// True if namespaces without a host label may publish hostnames, beside the TenantGateway's
    /// own namespace and those that it attaches.
    pub unlabelled: bool,
    /// Hostnames that one namespace alone may have, or none (`None`).
    pub reserved: BTreeMap<Hostname, Option<Arc<str>>>,
    /// The class of Gateways whose TenantGateway names none.
    pub class: String,
    /// The namespace of cert-manager, whose challenge routes may attach to port 80.
    pub cert_manager_namespace: String,
    /// The Service of our HTTP-01 responder, for Gateways of other data planes; `None` if no routes
    /// can lead there.
    pub solver: Option<SolverService>,
}

impl Default for Settings {
    fn default() -> Self {
        let ports = Ports {
            http: 80,
            https: 443,
        };
        Self {
            listener_sets: true,
            certificates: Source::CertManager,
            cert_manager: true,
            directories: None,
            recording: None,
            recorded_elsewhere: false,
            hold: 0,
            limits: Limits::NONE,
            ports,
            unlabelled: false,
            reserved: BTreeMap::new(),
            class: "cilium".to_owned(),
            cert_manager_namespace: "cozy-cert-manager".to_owned(),
            solver: None,
        }
    }
}

/// The Service of our HTTP-01 responder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SolverService {
    /// Its namespace, which the routes to it have too.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// True if the responder runs; if not, routes of an earlier run are to be deleted.
    pub answers: bool,
}

/// The ports of a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The port of plain HTTP.
    pub http: u16,
    /// The port of TLS.
    pub https: u16,
}
