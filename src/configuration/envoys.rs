//! The Envoys of an installation, and how they connect.

use std::net::IpAddr;
use std::time::Duration;

use garde::Validate;
use gatewright_control::envoy_identity::instance_of;
use gatewright_control::fleet_views::FleetViews;
use gatewright_core::model::{EnvoyFleet, ObjectName, Zone};
use gatewright_core::translate::DedicatedEnvoys;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xds::{Certificates, View, Views};

use super::{StatisticsPort, TrafficMetrics};

/// The Envoys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Envoys {
    /// Name of the Service of the shared fleet's Envoys, in the controller's namespace
    pub service: String,
    /// Addresses of the shared fleet, for the status of Gateways of a cluster. Empty: the addresses
    /// of that Service
    pub addresses: Vec<IpAddr>,
    /// Addresses on which Envoys of a cluster listen. Empty: those of the Gateway
    pub bind: Vec<IpAddr>,
    /// Name of the Service of the Envoys of fleet Dedicated, in the controller's namespace. They
    /// authenticate as that fleet, with credentials Secret by Secret gatewright-envoy-dedicated.
    /// Without it the Envoys of `service` serve both fleets and can read the certificates of both
    pub dedicated_service: Option<String>,
    /// Name of the PodTemplate of the Envoys of fleet Isolated, in the controller's namespace;
    /// requires credentials Pod or Both. Without it Gateways of fleet Isolated are refused
    pub isolated_pod_template: Option<String>,
    /// Client certificates by which Envoys authenticate to the xDS server
    pub credentials: Credentials,
    /// Lifetime of a pod's certificate, in seconds; it is renewed when a third of it is left
    #[garde(range(min = 15, max = 86_400))]
    pub certificate_seconds: u64,
    /// Duration of each step of a rotation of the xDS CA, in seconds; it must be long enough for
    /// every Envoy to get the CA certificates of the step before (docs/security.md)
    #[garde(range(min = 5, max = 604_800))]
    pub ca_overlap_seconds: u64,
    /// Maximum number of xDS streams at this replica. An Envoy has one
    #[garde(dive)]
    pub streams: Streams,
    /// Maximum number of host certificates in the memory of an Envoy, of 45 KB each: a larger one,
    /// with a chain of more than 3.5 KiB, counts for more. Beyond it, a certificate is fetched on
    /// demand and replaces those that were fetched longest ago
    #[garde(range(min = 100, max = 1_000_000))]
    pub host_certificates: usize,
    /// Zone of the Envoy that standalone starts: of a Service with trafficDistribution the
    /// endpoints of this zone are preferred. In a cluster the bootstrap of each Envoy has it
    pub zone: Option<Zone>,
    /// The counts of Envoys for each namespace, beside their own statistics. A changed value closes
    /// connections at the next start, after their next response
    pub traffic_metrics: TrafficMetrics,
    /// In standalone: the port of Envoy's statistics for Prometheus, at /stats/prometheus. In a
    /// cluster the bootstrap of each Envoy has it
    #[garde(dive)]
    pub statistics: Option<StatisticsPort>,
}

/// Maximum numbers of xDS streams at a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Streams {
    /// Of one client address; of an IPv6 /64, 16 times as many. Raise it if several Envoys share
    /// an address, for example behind a NAT
    #[garde(range(min = 1, max = 1_000_000))]
    pub per_address: u32,
    /// Of a fleet
    #[garde(range(min = 1, max = 1_000_000))]
    pub per_fleet: u32,
    /// Of a pod with its own certificate
    #[garde(range(min = 1, max = 1024))]
    pub per_pod: u32,
}

/// The kinds of client certificates that are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Credentials {
    /// The certificate of their fleet, from a Secret that the controller creates
    #[default]
    Secret,
    /// A certificate for each pod, issued for the pod's service account token; no Secret is created
    Pod,
    /// Either: for Envoys outside of pods beside those of pods
    Both,
}

impl Default for Envoys {
    fn default() -> Self {
        Self {
            service: "gatewright-envoy".to_owned(),
            addresses: Vec::new(),
            bind: Vec::new(),
            dedicated_service: None,
            isolated_pod_template: None,
            credentials: Credentials::Secret,
            certificate_seconds: 86_400,
            ca_overlap_seconds: 3600,
            streams: Streams::default(),
            host_certificates: 5000,
            zone: None,
            traffic_metrics: TrafficMetrics::Off,
            statistics: None,
        }
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            per_address: 16,
            per_fleet: 1024,
            per_pod: 4,
        }
    }
}

impl Envoys {
    /// The Envoys that serve Gateways of the dedicated fleet, in the controller's namespace.
    pub fn dedicated(&self, namespace: &str) -> DedicatedEnvoys {
        match &self.dedicated_service {
            None => DedicatedEnvoys::OfSharedFleet,
            Some(name) => DedicatedEnvoys::Apart(ObjectName::new(namespace, name.as_str())),
        }
    }

    /// The views that Envoys can read.
    pub fn views(&self) -> FleetViews {
        match self.dedicated_service {
            Some(_) => FleetViews::apart(),
            None => View::new(EnvoyFleet::Shared.to_string()).into(),
        }
    }

    /// The fleets that have Envoys of their own, and an identity each.
    pub fn fleets(&self) -> Vec<EnvoyFleet> {
        let all = EnvoyFleet::OF_MANY.into_iter();
        all.filter(|fleet| *fleet == EnvoyFleet::Shared || self.dedicated_service.is_some())
            .collect()
    }

    /// How long the certificate of a pod lasts.
    pub fn certificate_life(&self) -> Duration {
        Duration::from_secs(self.certificate_seconds)
    }

    /// The memory of an Envoy for certificates of hosts, in bytes.
    pub fn certificate_memory(&self) -> usize {
        self.host_certificates * xds::Limits::USUAL_SECRET_MEMORY
    }
}

impl Credentials {
    /// True if the Secrets of fleets are created, and their certificates accepted.
    pub fn of_fleets(self) -> bool {
        self != Credentials::Pod
    }

    /// True if pods get certificates.
    pub fn of_pods(self) -> bool {
        self != Credentials::Secret
    }

    /// The accepted certificates, each with its view.
    pub fn certificates(self, views: Views) -> Certificates {
        match self {
            Credentials::Secret => Certificates::new(views),
            Credentials::Pod => Certificates::of_instances(views, instance_of),
            Credentials::Both => Certificates::new(views).or_instances(instance_of),
        }
    }
}
