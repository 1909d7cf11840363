//! A Service that we made for a Gateway: what stands in it. It is also the record of which port of the Envoys belongs to
//! which port of the Gateway, which all replicas go by.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::model::{ObjectName, Transport, TransportPort};

/// The annotation with the name of the Gateway: a label cannot hold every name.
pub const EXPOSES: &str = "gatewright.io/gateway";
/// The annotation with the name of the Service of somebody's that a slice of ours leads to a Gateway.
pub const STANDS_ON: &str = "gatewright.io/stands-on";
/// The value of `app.kubernetes.io/managed-by` on what we make.
pub const MANAGER: &str = "gatewright";
/// The label with that value.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The label that tells the controllers of Kubernetes who manages a slice (`discovery.k8s.io/v1`, `LabelManagedBy`).
pub const SLICES_BY: &str = "endpointslice.kubernetes.io/managed-by";

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
    pub targets: BTreeMap<TransportPort, u16>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// What we need to know of a slice of endpoints that we made for a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeSlice {
    /// `metadata.uid` of the slice.
    pub uid: String,
    /// The UID of the Gateway that it was made for.
    pub owner: String,
    /// What more is to be known of one behind a Service that is somebody's: it is the record of which ports of the Envoys
    /// belong to the Gateway, which all replicas go by.
    pub lent: Option<LentSlice>,
}

/// What more we need to know of a slice that we made behind a Service of somebody's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentSlice {
    /// The Gateway.
    pub gateway: ObjectName,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

impl MadeSlice {
    /// Reads one; `None` for a slice that is somebody else's.
    pub(super) fn read(meta: &ObjectMeta) -> Option<Box<Self>> {
        let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let labels = meta.labels.as_ref()?;
        let ours = labels.get(SLICES_BY).is_some_and(|manager| manager == MANAGER);
        let annotations = meta.annotations.as_ref().filter(|annotations| annotations.contains_key(STANDS_ON));
        let lent = || {
            Some(LentSlice {
                gateway: ObjectName::new(meta.namespace.as_deref()?, owner.name.as_str()),
                labels: labels.clone(),
                annotations: annotations?.clone(),
            })
        };
        let made = || Self { uid: meta.uid.clone().unwrap_or_default(), owner: owner.uid.clone(), lent: lent() };
        (ours && owner.kind == "Gateway").then(|| Box::new(made()))
    }
}

impl Exposure {
    /// Whether it is a load balancer's.
    pub fn is_balanced(&self) -> bool {
        self.kind == "LoadBalancer"
    }

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
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            let transport = Transport::of(port.protocol.as_deref())?;
            Some((TransportPort { number: number(&port.port)?, transport }, target(&port.target_port)?))
        });
        Some(Box::new(Self {
            gateway: ObjectName::new(meta.namespace.as_deref()?, gateway.as_str()),
            uid: meta.uid.clone().unwrap_or_default(),
            owner: owner.uid.clone(),
            kind: spec.type_.clone().unwrap_or_default(),
            load_balancer_class: spec.load_balancer_class.clone(),
            load_balancer_ip: spec.load_balancer_ip.clone(),
            targets: ports.collect(),
            labels,
            annotations,
        }))
    }
}
