//! Intents for Services of Gateways of the dedicated fleet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use gatewright_objects::inputs::{ExternalTrafficPolicy, ServiceType, SliceEndpoint};
use gatewright_objects::model::{ObjectName, TransportPort};

/// The Service that a Gateway is to have, and its endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredService {
    /// Its name.
    pub name: ObjectName,
    /// The Gateway.
    pub gateway: ObjectName,
    /// Its type.
    pub kind: ServiceType,
    /// `spec.loadBalancerClass`, if one is chosen.
    pub load_balancer_class: Option<String>,
    /// `spec.externalTrafficPolicy`; `None` for a Service that is not reached from outside.
    pub external_traffic_policy: Option<ExternalTrafficPolicy>,
    /// The address that the Gateway requests.
    pub address: Option<IpAddr>,
    /// The address within the cluster that the Gateway asks for.
    pub cluster_ip: Option<IpAddr>,
    /// The Envoy port for each port, of the same transport.
    pub targets: BTreeMap<TransportPort, u16>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The Envoys by address.
    pub envoys: BTreeMap<IpAddr, SliceEndpoint>,
}

/// The lent slices of a Gateway that stands on a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredSlices {
    /// The prefix of their names.
    pub prefix: String,
    /// The Service.
    pub service: ObjectName,
    /// The Gateway.
    pub gateway: ObjectName,
    /// The Envoy ports by the names of the Service's ports; empty if nothing is to lead to the
    /// Gateway.
    pub ports: BTreeMap<String, TransportPort>,
    /// Their labels.
    pub labels: BTreeMap<String, String>,
    /// Their annotations.
    pub annotations: BTreeMap<String, String>,
    /// The Envoys by address.
    pub envoys: BTreeMap<IpAddr, SliceEndpoint>,
}

/// The intent for a Gateway's Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceIntent {
    /// Create or update the Service like this.
    Wanted(Box<DesiredService>),
    /// The Service belongs to a user; create or update lent slices behind it.
    Slices(Box<DesiredSlices>),
    /// Leave the Service as it is, with its address: the Gateway is not served now for a reason
    /// that may be temporary.
    Left,
}

impl ServiceIntent {
    /// The name of the wanted Service, or of the one that the Gateway stands on.
    pub fn name(&self) -> Option<&ObjectName> {
        match self {
            ServiceIntent::Wanted(desired) => Some(&desired.name),
            ServiceIntent::Slices(desired) => Some(&desired.service),
            ServiceIntent::Left => None,
        }
    }
}
