//! Decisions of an installation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::inputs::Source;
use crate::model::Hostname;

/// Decisions of an installation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether ListenerSets can be written.
    pub listener_sets: bool,
    /// The issuer where a TenantGateway names none. cert-manager's Issuers and Certificates are among the desired objects;
    /// what we issue is wanted.
    pub certificates: Source,
    /// Whether somebody takes what is written for cert-manager.
    pub cert_manager: bool,
    /// The ACME directories that TenantGateways may name, beside those of `spec.issuerName`; `None`: any.
    pub directories: Option<BTreeSet<String>>,
    /// The precedence of several claimants.
    pub claims: Precedence,
    /// For how many seconds a recorded hostname stays reserved for whom it was given up by.
    pub hold: u64,
    /// The ports of Gateways: 80 and 443, but where an unprivileged program serves them itself.
    pub ports: Ports,
    /// Whether namespaces without the label that tells their hostnames publish any, beside the TenantGateway's own and those
    /// that it attaches.
    pub unlabelled: bool,
    /// Hostnames that one namespace alone may have, or nobody.
    pub reserved: BTreeMap<Hostname, Option<Arc<str>>>,
    /// The class of Gateways whose TenantGateway names none.
    pub class: String,
    /// The namespace whose challenge routes may attach to port 80.
    pub cert_manager_namespace: String,
    /// The Service that answers challenges for Gateways that somebody else serves; none where no routes can lead there.
    pub solver: Option<SolverService>,
}

impl Default for Settings {
    fn default() -> Self {
        let ports = Ports { http: 80, https: 443 };
        Self {
            listener_sets: true,
            certificates: Source::CertManager,
            cert_manager: true,
            directories: None,
            claims: Precedence::Smallest,
            hold: 0,
            ports,
            unlabelled: false,
            reserved: BTreeMap::new(),
            class: "cilium".to_owned(),
            cert_manager_namespace: "cozy-cert-manager".to_owned(),
            solver: None,
        }
    }
}

/// The Service behind which challenges are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SolverService {
    /// Its namespace, where the routes to it stand as well.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// Whether anybody answers there; where not, routes of an earlier run are not wanted any more.
    pub answers: bool,
}

/// Ports of a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Of plain HTTP.
    pub http: u16,
    /// Of TLS.
    pub https: u16,
}

/// The precedence of several claimants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// `cozy-*` namespaces, then the smallest `namespace/name`.
    Smallest,
    /// The namespace that had the hostname first, as recorded; among new ones as above.
    FirstCome,
    /// The same, where several go by one record: a hostname is nobody's before it is recorded whose it is.
    Recorded,
}
