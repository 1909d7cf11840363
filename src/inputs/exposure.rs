//! A Service that we made for a Gateway: what stands in it, and where it is reached. It is also the record of which
//! port of the Envoys belongs to which port of the Gateway, which all replicas go by.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::model::{ObjectName, Reached};

/// The annotation with the name of the Gateway: a label cannot hold every name.
pub const EXPOSES: &str = "gatewright.io/gateway";
/// The value of `app.kubernetes.io/managed-by` on what we make.
pub const MANAGER: &str = "gatewright";
/// The label with that value.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// What we need to know of such a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The Gateway.
    pub gateway: ObjectName,
    /// `metadata.uid` of the Service.
    pub uid: String,
    /// The UID of the Gateway that it was made for.
    pub owner: String,
    /// Its type, as written.
    pub kind: String,
    /// `spec.loadBalancerClass`
    pub load_balancer_class: Option<String>,
    /// `spec.loadBalancerIP`
    pub load_balancer_ip: Option<String>,
    /// The port of the Envoys for each port of the Gateway.
    pub targets: BTreeMap<u16, u16>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Where it is reached.
    pub addresses: Vec<Reached>,
}

impl Exposure {
    /// Reads one; `None` for a Service that is somebody else's.
    pub(super) fn read(object: &Service) -> Option<Box<Self>> {
        let meta = &object.metadata;
        let labels = meta.labels.clone().unwrap_or_default();
        let annotations = meta.annotations.clone().unwrap_or_default();
        let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let ours = labels.get(MANAGED_BY).is_some_and(|manager| manager == MANAGER) && owner.kind == "Gateway";
        let gateway = annotations.get(EXPOSES).filter(|gateway| ours && **gateway == owner.name)?;
        let spec = object.spec.as_ref()?;
        let number = |port: &i32| u16::try_from(*port).ok();
        let target = |port: &Option<IntOrString>| match port {
            Some(IntOrString::Int(target)) => number(target),
            _ => None,
        };
        let ports = spec.ports.iter().flatten();
        Some(Box::new(Self {
            gateway: ObjectName::new(meta.namespace.as_deref()?, gateway.as_str()),
            uid: meta.uid.clone().unwrap_or_default(),
            owner: owner.uid.clone(),
            kind: spec.type_.clone().unwrap_or_default(),
            load_balancer_class: spec.load_balancer_class.clone(),
            load_balancer_ip: spec.load_balancer_ip.clone(),
            targets: ports.filter_map(|port| Some((number(&port.port)?, target(&port.target_port)?))).collect(),
            addresses: reached(object, spec),
            labels,
            annotations,
        }))
    }
}

/// Where the ports of a Service are those of the Gateway: at the load balancer, else at the addresses within the
/// cluster.
pub(super) fn reached(object: &Service, spec: &ServiceSpec) -> Vec<Reached> {
    let ip = |ip: &String| ip.parse().ok().map(Reached::Ip);
    let mut all: Vec<Reached> = if spec.type_.as_deref() == Some("LoadBalancer") {
        let balancer = object.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
        let name = |name: &String| Reached::Hostname(Arc::from(name.as_str()));
        ingress.iter().filter_map(|at| at.ip.as_ref().and_then(ip).or_else(|| at.hostname.as_ref().map(name))).collect()
    } else {
        spec.cluster_ips.iter().flatten().filter_map(ip).collect()
    };
    all.sort();
    all.dedup();
    all
}
