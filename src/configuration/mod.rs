//! The configuration of an installation: one document for every command that serves or judges
//! objects, so that `lint` and `translate` cannot disagree with the running program.
//!
//! [`load`] reads it from a file and from `--set`. Flags of a command are what differs by process:
//! paths, addresses to listen on, names. Nothing here is a secret: credentials are files.

mod connections;
mod envoys;
mod explain;
mod external_names;
mod internal_ca;
mod issuance;
mod load;
mod manifests;
mod override_path;
mod tenancy;
mod traffic_metrics;

use std::collections::BTreeMap;
use std::sync::Arc;

use garde::Validate;
use gatewright_control::certificates::{IssuerSettings, Network};
use gatewright_core::channel::Channel;
use gatewright_core::limits::Limits;
use gatewright_core::namespaces::Namespaces;
use gatewright_core::translate::{SYSTEM_ROOTS, Unlisted};
use gatewright_envoy::{Edge, UdpSessions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::connections::Connections;
pub use self::envoys::{Credentials, Envoys};
pub use self::explain::{Field, explain, reference, schema};
pub use self::external_names::BackendNames;
pub use self::internal_ca::InternalCa;
pub use self::load::{ConfigurationError, load, load_text};
pub use self::manifests::{Manifests, SecretDirectory};
pub use self::tenancy::{
    CertificateSource, HostnameClaims, ReservedHostname, Tenancy, TenantDirectories, Unlabelled,
};
pub use self::traffic_metrics::{StatisticsPort, TrafficMetrics};

/// The controller name of GatewayClasses that are ours.
pub const CONTROLLER: &str = "gatewright.io/gateway-controller";

/// The configuration of an installation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Configuration {
    /// Version of the document
    pub api_version: ApiVersion,
    /// Kind of the document
    pub kind: DocumentKind,
    /// The Gateway API: which fields are served, and for whom
    pub gateway_api: GatewayApi,
    /// Namespaces that a controller watches, beside its own. Objects of other namespaces are
    /// ignored, and Roles in the listed ones are sufficient (docs/security.md). Empty: all
    #[serde(deserialize_with = "namespaces")]
    pub namespaces: Vec<String>,
    /// Manifests of a directory, which standalone reads
    #[garde(dive)]
    pub manifests: Manifests,
    /// The Envoys, and how they connect
    #[garde(dive)]
    pub envoys: Envoys,
    /// Connections of clients, and to backends. A changed value closes connections at the next
    /// start, because Envoy replaces its filter chains or clusters
    #[garde(dive)]
    pub connections: Connections,
    /// Backends
    #[garde(dive)]
    pub backends: Backends,
    /// TenantGateways, and the hostnames of tenants
    #[garde(dive)]
    pub tenancy: Tenancy,
    /// ACME issuers by name. Listeners name one in the TLS option gatewright.io/issuer,
    /// TenantGateways in the annotation gatewright.io/issuer (docs/certificates.md)
    pub issuers: BTreeMap<String, IssuerSettings>,
    /// Namespaces whose listeners may use an issuer without rules (allow). TenantGateways always
    /// may, for their granted hostnames. Without it: nobody; everybody if manifests of a directory
    /// are read and no issuer has a rule
    pub issuers_for: Option<Unlisted>,
    /// The internal CA
    #[garde(dive)]
    pub internal_ca: InternalCa,
    /// Limits of the objects of a namespace
    #[garde(dive)]
    pub limits: Limits,
    /// The metrics of a controller
    pub metrics: Metrics,
    /// The Lease by which the replicas of a controller elect the one that writes
    #[garde(dive)]
    pub lease: Lease,
}

/// The version of the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// The only one
    #[default]
    #[serde(rename = "config.gatewright.io/v1alpha1")]
    V1Alpha1,
}

/// The kind of the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DocumentKind {
    /// The only one
    #[default]
    Configuration,
}

/// The Gateway API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GatewayApi {
    /// Release channel whose fields are served. In a cluster the CRDs of that channel must be
    /// installed
    pub channel: Channel,
    /// controllerName of the GatewayClasses of a controller; a second installation in the cluster
    /// needs another one
    pub controller_name: String,
}

impl Default for GatewayApi {
    fn default() -> Self {
        Self {
            channel: Channel::Standard,
            controller_name: CONTROLLER.to_owned(),
        }
    }
}

/// The backends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Backends {
    /// Networks whose endpoints of Services are not used, for example those of nodes. Link-local
    /// and multicast addresses, metadata services of clouds and Envoy's own listeners are always
    /// denied (docs/endpoints.md)
    pub denied_networks: Vec<Network>,
    /// Services of type ExternalName and XBackends, whose endpoints are the addresses of a name
    #[garde(dive)]
    pub external_names: BackendNames,
    /// Path, in the filesystem of each Envoy, of the system's root certificates, for
    /// BackendTLSPolicies with wellKnownCACertificates: System; empty if Envoys have no such file
    pub system_roots: String,
}

impl Default for Backends {
    fn default() -> Self {
        Self {
            denied_networks: Vec::new(),
            external_names: BackendNames::default(),
            system_roots: SYSTEM_ROOTS.to_owned(),
        }
    }
}

impl Backends {
    /// The path of the root certificates of an Envoy's system; `None` if it has none.
    pub fn system_roots(&self) -> Option<Arc<str>> {
        Some(self.system_roots.as_str())
            .filter(|file| !file.is_empty())
            .map(Arc::from)
    }

    /// The networks of endpoints that are not used.
    pub fn denied_networks(&self) -> Vec<ipnet::IpNet> {
        self.denied_networks
            .iter()
            .map(|network| network.0)
            .collect()
    }
}

/// The metrics of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// Access to /metrics
    pub access: MetricsAccess,
}

/// Access to the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MetricsAccess {
    /// Every client that can reach the port
    #[default]
    Open,
    /// Clients with a token that the API server authenticates (TokenReview), of a user with the
    /// verb get on the non-resource URL /metrics (SubjectAccessReview)
    Authorized,
}

/// The Lease of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Lease {
    /// Duration in seconds: another replica takes over this long after the last renewal
    #[garde(range(min = 3, max = 600))]
    pub seconds: u64,
}

impl Default for Lease {
    fn default() -> Self {
        Self { seconds: 15 }
    }
}

impl Configuration {
    /// The settings that Envoys have in all listeners and clusters.
    pub fn edge(&self, sessions: UdpSessions) -> Edge {
        Edge {
            traffic: self.envoys.traffic_metrics.into(),
            ..self.connections.edge(sessions, &self.limits)
        }
    }

    /// The namespaces that a controller watches, with its own.
    pub fn watched(&self, own: &str) -> Namespaces {
        Namespaces::listed(&self.namespaces, own)
    }
}

fn namespaces<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    names
        .iter()
        .map(|name| Namespaces::check(name).map_err(serde::de::Error::custom))
        .collect()
}
