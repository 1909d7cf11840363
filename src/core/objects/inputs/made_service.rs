//! The fields of a Service that we made for a Gateway. The Service is also the record of which
//! Envoy port belongs to which port of the Gateway; all replicas follow it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use crate::model::{ObjectName, Transport, TransportPort};

/// The annotation with the name of the Gateway: a label value cannot hold every name.
pub const EXPOSES: &str = "gatewright.io/gateway";
/// The annotation on an EndpointSlice of ours with the name of the Service, made by a user, that
/// the Gateway stands on.
pub const STANDS_ON: &str = "gatewright.io/stands-on";
/// The value of `app.kubernetes.io/managed-by` on objects that we make.
pub const MANAGER: &str = "gatewright";
/// The label with that value.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The label that names the controller of an EndpointSlice (`discovery.k8s.io/v1`,
/// `LabelManagedBy`).
pub const SLICES_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The parts that we use of a Service that we made for a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeService {
    /// The Gateway.
    pub gateway: ObjectName,
    /// `metadata.uid` of the Service.
    pub uid: String,
    /// The UID of the Gateway that is its owner reference; empty if it has lost its owner.
    pub owner: String,
    /// True if our field manager applied fields of it.
    pub is_applied: bool,
    /// Its type, as written.
    pub kind: String,
    /// `spec`, as written.
    pub spec: Value,
    /// `spec.loadBalancerClass`
    pub load_balancer_class: Option<String>,
    /// `spec.loadBalancerIP`
    pub load_balancer_ip: Option<String>,
    /// The Envoy port for each port of the Gateway.
    pub targets: BTreeMap<TransportPort, u16>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// The parts that we use of an EndpointSlice that we made for a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeSlice {
    /// `metadata.uid` of the slice.
    pub uid: String,
    /// The UID of the Gateway that is its owner reference; empty if it has lost its owner.
    pub owner: String,
    /// True if our field manager applied fields of it.
    pub is_applied: bool,
    /// Its labels if it has lost its owner.
    pub labels: BTreeMap<String, String>,
    /// `addressType`, `ports` and `endpoints`, as written.
    pub content: Value,
    /// Set for a lent slice, which is behind a Service that a user made: it is the record of which
    /// Envoy ports belong to the Gateway; all replicas follow it.
    pub lent: Option<LentSlice>,
}

/// The parts that we use of a lent slice: an EndpointSlice that we made behind a Service that a
/// user made.
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
    /// Reads an EndpointSlice; `None` for one that we did not make.
    pub(super) fn read(object: &EndpointSlice) -> Option<Box<Self>> {
        let meta = &object.metadata;
        let owner = owner(meta)?;
        let labels = meta.labels.as_ref()?;
        let ours = labels
            .get(SLICES_BY)
            .is_some_and(|manager| manager == MANAGER);
        let annotations = meta
            .annotations
            .as_ref()
            .filter(|annotations| annotations.contains_key(STANDS_ON));
        if !ours {
            return None;
        }
        let lent = annotations
            .zip(meta.namespace.as_deref())
            .map(|(annotations, namespace)| LentSlice {
                gateway: ObjectName::new(namespace, owner.gateway),
                labels: labels.clone(),
                annotations: annotations.clone(),
            });
        Some(Box::new(Self {
            uid: meta.uid.clone().unwrap_or_default(),
            owner: owner.uid.to_owned(),
            is_applied: is_applied(meta),
            labels: if owner.uid.is_empty() {
                labels.clone()
            } else {
                BTreeMap::new()
            },
            content: json!({"addressType": object.address_type, "ports": object.ports, "endpoints": object.endpoints}),
            lent,
        }))
    }
}

impl MadeService {
    /// True if the Service is of type LoadBalancer.
    pub fn is_balanced(&self) -> bool {
        self.kind == "LoadBalancer"
    }

    /// Reads a Service; `None` for one that we did not make.
    pub(super) fn read(object: &Service) -> Option<Box<Self>> {
        let meta = &object.metadata;
        let labels = meta.labels.clone().unwrap_or_default();
        let annotations = meta.annotations.clone().unwrap_or_default();
        let owner = owner(meta)?;
        let ours = labels
            .get(MANAGED_BY)
            .is_some_and(|manager| manager == MANAGER);
        let gateway = annotations
            .get(EXPOSES)
            .filter(|gateway| ours && **gateway == owner.gateway)?;
        let spec = object.spec.as_ref()?;
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            let transport = Transport::of(port.protocol.as_deref())?;
            Some((
                TransportPort {
                    number: number(&port.port)?,
                    transport,
                },
                target(&port.target_port)?,
            ))
        });
        Some(Box::new(Self {
            gateway: ObjectName::new(meta.namespace.as_deref()?, gateway.as_str()),
            uid: meta.uid.clone().unwrap_or_default(),
            owner: owner.uid.to_owned(),
            is_applied: is_applied(meta),
            kind: spec.type_.clone().unwrap_or_default(),
            spec: serde_json::to_value(spec).unwrap_or_default(),
            load_balancer_class: spec.load_balancer_class.clone(),
            load_balancer_ip: spec.load_balancer_ip.clone(),
            targets: ports.collect(),
            labels,
            annotations,
        }))
    }
}

/// The Gateway that an object was made for.
struct Owner<'a> {
    /// Its UID; empty if the object has lost its owner reference.
    uid: &'a str,
    gateway: &'a str,
}

/// Returns the Gateway that is the controlling owner of an object; of an object without such an
/// owner, the one that its annotation names.
fn owner(meta: &ObjectMeta) -> Option<Owner<'_>> {
    let mut owners = meta.owner_references.iter().flatten();
    if let Some(owner) = owners.find(|owner| owner.controller == Some(true)) {
        return (owner.kind == "Gateway").then_some(Owner {
            uid: &owner.uid,
            gateway: &owner.name,
        });
    }
    let gateway = meta.annotations.as_ref()?.get(EXPOSES)?;
    Some(Owner { uid: "", gateway })
}

/// Returns whether our field manager applied fields of an object.
fn is_applied(meta: &ObjectMeta) -> bool {
    meta.managed_fields.iter().flatten().any(|entry| {
        entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
    })
}

fn number(port: &i32) -> Option<u16> {
    u16::try_from(*port).ok()
}

fn target(port: &Option<IntOrString>) -> Option<u16> {
    match port {
        Some(IntOrString::Int(target)) => number(target),
        _ => None,
    }
}
