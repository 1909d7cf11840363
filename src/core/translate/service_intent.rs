//! Services of Gateways of the dedicated fleet, as they are to be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::inputs::ServiceType;
use crate::model::{ObjectName, TransportPort};

/// The Service that a Gateway is to have, and what is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredService {
    /// Its name.
    pub name: ObjectName,
    /// The Gateway.
    pub gateway: ObjectName,
    /// Its type.
    pub kind: ServiceType,
    /// Which load balancer, if one is chosen.
    pub load_balancer_class: Option<String>,
    /// The address that the Gateway asks for.
    pub address: Option<IpAddr>,
    /// The address within the cluster that the Gateway asks for.
    pub cluster_ip: Option<IpAddr>,
    /// The port of the Envoys for each port, of the same transport.
    pub targets: BTreeMap<TransportPort, u16>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The Envoys.
    pub envoys: BTreeSet<IpAddr>,
}

/// What is to be behind a Service of somebody's for a Gateway that stands on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredSlices {
    /// What their names begin with.
    pub prefix: String,
    /// The Service.
    pub service: ObjectName,
    /// The Gateway.
    pub gateway: ObjectName,
    /// The ports of the Envoys by the names of the Service's ports; none where nothing is to lead to the Gateway.
    pub ports: BTreeMap<String, TransportPort>,
    /// Their labels.
    pub labels: BTreeMap<String, String>,
    /// Their annotations.
    pub annotations: BTreeMap<String, String>,
    /// The Envoys.
    pub envoys: BTreeSet<IpAddr>,
}

/// The intent for a Gateway's Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceIntent {
    /// It is to be like this.
    Wanted(Box<DesiredService>),
    /// It is somebody's, and this is to be behind it.
    Behind(Box<DesiredSlices>),
    /// It stays as it is, with its address: the Gateway is not served now for something that may be put right.
    Left,
}

impl ServiceIntent {
    /// The name of the Service that is wanted, or stood on.
    pub fn name(&self) -> Option<&ObjectName> {
        match self {
            ServiceIntent::Wanted(desired) => Some(&desired.name),
            ServiceIntent::Behind(desired) => Some(&desired.service),
            ServiceIntent::Left => None,
        }
    }
}
