//! What has to be written so that a Gateway of the dedicated fleet has the Service that it is to have. Pure.
//!
//! Compared is what stands in the Service and in its slices with what is wished; what the server fills in, and what
//! others put beside, does not matter. What is somebody else's is left alone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::inputs::{EndpointSlice, Exposure, MANAGER, Service};
use crate::model::ObjectName;
use crate::translate::ServiceWish;

/// So many endpoints fit into one slice (`EndpointSlice.endpoints`).
const SLICE: usize = 1000;
/// Who manages a slice, to the controllers of Kubernetes.
const SLICES_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// Something to write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Create this, if nothing is there.
    Create(Value),
    /// Apply this over what is there.
    Apply(Value),
}

/// What is to be done for a Gateway with this UID. `slices` are those of the wished Service.
pub(super) fn steps(
    wish: &ServiceWish,
    gateway_uid: &str,
    service: Option<&Service>,
    slices: &BTreeMap<ObjectName, &EndpointSlice>,
) -> Vec<Step> {
    let mut all = Vec::new();
    match service.map(|service| service.exposure.as_deref()) {
        None => all.push(Step::Create(service_document(wish, gateway_uid))),
        // Somebody else's, or that of a Gateway that was there before this one.
        Some(None) => return Vec::new(),
        Some(Some(there)) if there.gateway != wish.gateway || there.owner != gateway_uid => return Vec::new(),
        Some(Some(there)) if !is_as_wished(there, wish) => all.push(Step::Apply(service_document(wish, gateway_uid))),
        Some(Some(_)) => {}
    }
    let service_changes = !all.is_empty();
    for (name, v4, addresses) in parts(wish) {
        let name = ObjectName::new(wish.name.namespace.clone(), name);
        let same = slices.get(&name).is_some_and(|slice| {
            let ports: BTreeMap<String, u16> =
                slice.ports.iter().map(|(name, port)| (name.to_string(), *port)).collect();
            let mut there = slice.addresses.clone();
            there.sort();
            slice.service.as_ref() == Some(&wish.name) && ports == port_names(wish) && there == addresses
        });
        // What we know of a slice says nothing of its labels: they change with those of the Service.
        if !same || service_changes {
            all.push(Step::Apply(slice_document(wish, gateway_uid, &name, v4, &addresses)));
        }
    }
    all
}

fn is_as_wished(there: &Exposure, wish: &ServiceWish) -> bool {
    let has = |there: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>| {
        wanted.iter().all(|(key, value)| there.get(key) == Some(value))
    };
    there.kind == wish.kind.as_str()
        && (wish.load_balancer_class.is_none() || there.load_balancer_class == wish.load_balancer_class)
        && there.load_balancer_ip == wish.address.map(|ip| ip.to_string())
        && there.targets == wish.targets
        && has(&there.labels, &wish.labels)
        && has(&there.annotations, &wish.annotations)
}

fn port_names(wish: &ServiceWish) -> BTreeMap<String, u16> {
    wish.targets.iter().map(|(port, target)| (format!("p{port}"), *target)).collect()
}

/// The slices by name, each with whether it is of IPv4 and its sorted addresses: of one family, as the API wants it.
fn parts(wish: &ServiceWish) -> Vec<(String, bool, Vec<IpAddr>)> {
    let mut all = Vec::new();
    for (family, v4) in [("v4", true), ("v6", false)] {
        let addresses: Vec<IpAddr> = wish.envoys.iter().filter(|ip| ip.is_ipv4() == v4).copied().collect();
        if addresses.is_empty() && !v4 {
            continue;
        }
        let mut chunks: Vec<Vec<IpAddr>> = addresses.chunks(SLICE).map(<[IpAddr]>::to_vec).collect();
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        for (index, chunk) in chunks.into_iter().enumerate() {
            let number = if index == 0 { String::new() } else { format!("-{index}") };
            all.push((format!("{}-{family}{number}", wish.name.name), v4, chunk));
        }
    }
    all
}

fn metadata(wish: &ServiceWish, name: &ObjectName, gateway_uid: &str) -> Value {
    json!({
        "name": &*name.name, "namespace": &*name.namespace,
        "labels": wish.labels, "annotations": wish.annotations,
        "ownerReferences": [{
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": &*wish.gateway.name,
            "uid": gateway_uid, "controller": true,
        }],
    })
}

fn service_document(wish: &ServiceWish, gateway_uid: &str) -> Value {
    let port = |(port, target): (&u16, &u16)| json!({"name": format!("p{port}"), "port": port, "targetPort": target, "protocol": "TCP"});
    let mut spec = json!({"type": wish.kind.as_str(), "ports": wish.targets.iter().map(port).collect::<Vec<_>>()});
    if let Some(class) = &wish.load_balancer_class {
        spec["loadBalancerClass"] = json!(class);
    }
    if let Some(ip) = &wish.address {
        spec["loadBalancerIP"] = json!(ip.to_string());
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(wish, &wish.name, gateway_uid), "spec": spec})
}

fn slice_document(wish: &ServiceWish, gateway_uid: &str, name: &ObjectName, v4: bool, addresses: &[IpAddr]) -> Value {
    let mut metadata = metadata(wish, name, gateway_uid);
    metadata["labels"]["kubernetes.io/service-name"] = json!(&*wish.name.name);
    metadata["labels"][SLICES_BY] = json!(MANAGER);
    let ports = port_names(wish);
    let ports = ports.iter().map(|(name, port)| json!({"name": name, "port": port, "protocol": "TCP"}));
    let endpoint = |ip: &IpAddr| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": if v4 { "IPv4" } else { "IPv6" },
        "ports": ports.collect::<Vec<_>>(),
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::inputs::{EXPOSES, MANAGED_BY, Object, ServiceType};

    fn wish() -> ServiceWish {
        ServiceWish {
            name: ObjectName::new("a", "g-c"),
            gateway: ObjectName::new("a", "g"),
            kind: ServiceType::ClusterIP,
            load_balancer_class: None,
            address: None,
            targets: BTreeMap::from([(443, 20_001)]),
            labels: BTreeMap::from([(MANAGED_BY.to_owned(), MANAGER.to_owned())]),
            annotations: BTreeMap::from([(EXPOSES.to_owned(), "g".to_owned())]),
            envoys: BTreeSet::from([IpAddr::from([10, 0, 0, 1])]),
        }
    }

    fn parsed(value: Value) -> Object {
        Object::parse_admitted(value).expect("what we write can be read")
    }

    /// The steps when this is there.
    fn check(there: &[Value], wish: &ServiceWish, uid: &str) -> Vec<Step> {
        let objects: Vec<Object> = there.iter().cloned().map(parsed).collect();
        let service = objects.iter().find_map(|o| if let Object::Service(s) = o { Some(s) } else { None });
        let slices = objects.iter().filter_map(|o| match o {
            Object::EndpointSlice(slice) => Some((slice.meta.name.clone(), slice)),
            _ => None,
        });
        steps(wish, uid, service, &slices.collect())
    }

    fn documents(steps: &[Step]) -> Vec<Value> {
        steps
            .iter()
            .map(|step| match step {
                Step::Create(value) | Step::Apply(value) => value.clone(),
            })
            .collect()
    }

    #[test]
    fn what_was_written_is_not_written_again_and_what_differs_is() {
        let made = documents(&check(&[], &wish(), "u"));
        assert_eq!(made.iter().map(|m| &m["kind"]).collect::<Vec<_>>(), ["Service", "EndpointSlice"]);
        assert_eq!(check(&made, &wish(), "u"), []);
        let moved = ServiceWish { targets: BTreeMap::from([(443, 20_002)]), ..wish() };
        assert_eq!(check(&made, &moved, "u").len(), 2, "Service and slice have the port");
        let more = ServiceWish { envoys: BTreeSet::from([IpAddr::from([10, 0, 0, 2])]), ..wish() };
        assert_eq!(check(&made, &more, "u").len(), 1, "only the slice has the Envoys");
        let none = ServiceWish { envoys: BTreeSet::new(), ..wish() };
        assert_eq!(check(&made, &none, "u").len(), 1, "an empty slice is written, not left with who is gone");
    }

    #[test]
    fn what_is_of_somebody_else_is_left_alone() {
        let mut theirs = documents(&check(&[], &wish(), "u"));
        assert_eq!(check(&theirs, &wish(), "another"), [], "it goes with the Gateway of that name before it");
        theirs[0]["metadata"]["labels"] = json!({});
        assert_eq!(check(&theirs, &wish(), "u"), []);
    }
}
