//! Plans the writes that bring the Service of a Gateway of the dedicated fleet to the desired
//! state. Pure.
//!
//! Compares the fields that we want with those of the Service and its slices; fields that the
//! server or other managers add are ignored. Objects that we do not own are left alone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::adoption::{Marks, Ownership, judge};
use crate::write::as_written::{content, differences_of_content};
use crate::write::object_write::ObjectWrite;
use gatewright_core::inputs::{
    EndpointSlice, MANAGER, MadeService, MadeSlice, SLICES_BY, Service, ServiceType, SliceEndpoint,
};
use gatewright_core::model::{ObjectName, Transport, TransportPort};
use gatewright_core::translate::{DesiredService, DesiredSlices};

/// The maximum number of endpoints of one slice (`EndpointSlice.endpoints`).
const SLICE: usize = 1000;

/// The writes for a Gateway, and the conflict that prevents the others.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The writes, in order.
    pub(crate) steps: Vec<ObjectWrite>,
    /// Our slices that no Envoy belongs into any more, with their UIDs: their endpoints are Envoys
    /// that no longer exist.
    pub(crate) idle: Vec<(ObjectName, String)>,
    /// The message about an object of another owner that has a name which we need.
    pub(crate) trouble: Option<String>,
}

/// The Gateway that is the owner of what is made for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) uid: &'a str,
    /// True if it is being deleted. Then nothing is taken over for it: objects that lose their
    /// owner by a deletion without cascade would be deleted along.
    pub(crate) is_deleting: bool,
}

/// Returns the plan for a Gateway. `slices` looks up a slice by its name; `behind` iterates over
/// all slices of the Service.
pub(crate) fn plan<'a>(
    desired: &DesiredService,
    owner: Owner<'_>,
    service: Option<&Service>,
    slices: impl Fn(&ObjectName) -> Option<&'a EndpointSlice>,
    behind: impl Iterator<Item = &'a EndpointSlice>,
) -> Plan {
    let mut plan = Plan::default();
    let gateway_uid = owner.uid;
    match service.map(|service| service.made.as_deref()) {
        None => plan.steps.push(ObjectWrite::Create(service_document(
            desired,
            gateway_uid,
            None,
            desired.cluster_ip,
        ))),
        // A Service that we do not own, or one of a deleted Gateway of the same name.
        Some(None) => return plan,
        Some(Some(there)) if !owner.may_have(ownership(there, desired, gateway_uid)) => {
            return plan;
        }
        Some(Some(there)) => {
            // The one that it has it keeps (`ServiceSpec.clusterIP`), which the Gateway says.
            let document = service_document(
                desired,
                gateway_uid,
                Some(there),
                desired
                    .cluster_ip
                    .filter(|ip| service.is_some_and(|service| service.cluster_ips.contains(ip))),
            );
            if there.owner.is_empty() || !is_as_desired(there, desired, &document) {
                plan.steps
                    .push(ObjectWrite::Apply(document, there.uid.clone()));
            }
        }
    }
    let service_changes = !plan.steps.is_empty();
    plan_slices(
        &mut plan,
        &behind_ours(desired),
        owner,
        service_changes,
        slices,
        behind,
    );
    plan
}

/// Returns the plan of the slices behind a Service that the Gateway names. `behind` iterates over
/// all slices that were made for it behind any such Service.
pub(crate) fn plan_behind<'a>(
    desired: &DesiredSlices,
    owner: Owner<'_>,
    slices: impl Fn(&ObjectName) -> Option<&'a EndpointSlice>,
    behind: impl Iterator<Item = &'a EndpointSlice>,
) -> Plan {
    let mut plan = Plan::default();
    plan_slices(&mut plan, desired, owner, false, slices, behind);
    plan
}

/// Adds the writes of slices. With `all` each slice is written, even if it seems to be as desired.
fn plan_slices<'a>(
    plan: &mut Plan,
    desired: &DesiredSlices,
    owner: Owner<'_>,
    all: bool,
    slices: impl Fn(&ObjectName) -> Option<&'a EndpointSlice>,
    behind: impl Iterator<Item = &'a EndpointSlice>,
) {
    let gateway_uid = owner.uid;
    let mut idle: BTreeMap<ObjectName, String> = behind
        .filter_map(|slice| {
            let made = slice
                .made
                .as_ref()
                .filter(|made| made.owner == gateway_uid)?;
            Some((slice.meta.name.clone(), made.uid.clone()))
        })
        .collect();
    for (name, v4, endpoints) in parts(desired) {
        let name = ObjectName::new(desired.service.namespace.clone(), name);
        idle.remove(&name);
        let document = || slice_document(desired, gateway_uid, &name, v4, &endpoints);
        let Some(there) = slices(&name) else {
            plan.steps.push(ObjectWrite::Create(document()));
            continue;
        };
        let made = there
            .made
            .as_ref()
            .filter(|made| owner.may_have(ownership_of_slice(made, &document())));
        let Some(made) = made else {
            let text = format!(
                "EndpointSlice {name} belongs to another owner: remove it, or give the Gateway another name"
            );
            plan.trouble.get_or_insert(text);
            continue;
        };
        // Of a slice behind a Service of ours we keep no labels: they are written together with
        // those of the Service.
        let is_orphan = made.owner.is_empty();
        let marked = made.lent.as_ref().is_none_or(|there| {
            has(&there.labels, &desired.labels) && has(&there.annotations, &desired.annotations)
        });
        let document = document();
        let same = there.service.as_ref() == Some(&desired.service)
            && differences_of_content("EndpointSlice", &content(&document), &made.content)
                .is_empty();
        if is_orphan || !same || !marked || all {
            plan.steps
                .push(ObjectWrite::Apply(document, made.uid.clone()));
        }
    }
    plan.idle.extend(idle);
}

/// Returns the slices that belong behind a Service of ours.
fn behind_ours(desired: &DesiredService) -> DesiredSlices {
    DesiredSlices {
        prefix: desired.name.name.to_string(),
        service: desired.name.clone(),
        gateway: desired.gateway.clone(),
        ports: port_names(desired),
        labels: desired.labels.clone(),
        annotations: desired.annotations.clone(),
        envoys: desired.envoys.clone(),
    }
}

/// Returns whether all wanted entries are present with their values.
fn has(there: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted
        .iter()
        .all(|(key, value)| there.get(key) == Some(value))
}

impl Owner<'_> {
    /// Returns whether an object may be written for it.
    fn may_have(self, ownership: Ownership) -> bool {
        match ownership {
            Ownership::Ours => true,
            Ownership::Orphan => !self.is_deleting,
            Ownership::Foreign => false,
        }
    }
}

/// Returns whose a slice is. One that has lost its owner has the Envoys of an earlier time.
fn ownership_of_slice(there: &MadeSlice, document: &Value) -> Ownership {
    fn without_envoys(content: &Value) -> Value {
        let mut content = content.clone();
        content["endpoints"].take();
        for port in content["ports"].as_array_mut().into_iter().flatten() {
            port["port"].take();
        }
        content
    }
    let marks = Marks {
        owner: &there.owner,
        labels: &there.labels,
        is_applied: there.is_applied,
    };
    judge(document, marks, || {
        let (wanted, found) = (
            without_envoys(&content(document)),
            without_envoys(&there.content),
        );
        differences_of_content("EndpointSlice", &wanted, &found).is_empty()
    })
}

/// Returns whose a Service is. One that has lost its owner has the Envoy ports of an earlier time.
fn ownership(there: &MadeService, desired: &DesiredService, gateway_uid: &str) -> Ownership {
    if there.gateway != desired.gateway {
        return Ownership::Foreign;
    }
    fn without_targets(spec: &Value) -> Value {
        let mut spec = spec.clone();
        for port in spec["ports"].as_array_mut().into_iter().flatten() {
            port["targetPort"].take();
        }
        spec
    }
    let document = service_document(desired, gateway_uid, Some(there), None);
    let marks = Marks {
        owner: &there.owner,
        labels: &there.labels,
        is_applied: there.is_applied,
    };
    judge(&document, marks, || {
        let wanted = json!({"spec": without_targets(&document["spec"])});
        let found = json!({"spec": without_targets(&there.spec)});
        differences_of_content("Service", &wanted, &found).is_empty()
    })
}

fn is_as_desired(there: &MadeService, desired: &DesiredService, document: &Value) -> bool {
    let (wanted, found) = (
        json!({"spec": document["spec"]}),
        json!({"spec": there.spec}),
    );
    differences_of_content("Service", &wanted, &found).is_empty()
        && there.load_balancer_ip == desired.address.map(|ip| ip.to_string())
        && has(&there.labels, &desired.labels)
        && has(&there.annotations, &desired.annotations)
}

/// Returns the port of the Envoys for each port name of the Service.
fn port_names(desired: &DesiredService) -> BTreeMap<String, TransportPort> {
    desired
        .targets
        .iter()
        .map(|(port, target)| {
            (
                port_name(*port),
                TransportPort {
                    number: *target,
                    transport: port.transport,
                },
            )
        })
        .collect()
}

/// Returns the name of a port of a Service: TCP and UDP may share a number.
fn port_name(port: TransportPort) -> String {
    match port.transport {
        Transport::Tcp => format!("p{}", port.number),
        Transport::Udp => format!("p{}-udp", port.number),
    }
}

/// An Envoy behind a Service.
type Envoy = (IpAddr, SliceEndpoint);

/// Returns the slices: the name, whether it is of IPv4, and its endpoints, sorted by address; the
/// API allows one address family per slice. Empty where there is no port.
fn parts(desired: &DesiredSlices) -> Vec<(String, bool, Vec<Envoy>)> {
    let mut all = Vec::new();
    if desired.ports.is_empty() {
        return all;
    }
    for (family, v4) in [("v4", true), ("v6", false)] {
        let of_family = desired.envoys.iter().filter(|(ip, _)| ip.is_ipv4() == v4);
        let endpoints: Vec<Envoy> = of_family.map(|(ip, envoy)| (*ip, envoy.clone())).collect();
        if endpoints.is_empty() && !v4 {
            continue;
        }
        let mut chunks: Vec<Vec<Envoy>> = endpoints.chunks(SLICE).map(<[Envoy]>::to_vec).collect();
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        for (index, chunk) in chunks.into_iter().enumerate() {
            let number = if index == 0 {
                String::new()
            } else {
                format!("-{index}")
            };
            all.push((format!("{}-{family}{number}", desired.prefix), v4, chunk));
        }
    }
    all
}

/// Returns the metadata of an object that is made for a Gateway, with these labels and annotations.
fn metadata(
    name: &ObjectName,
    marks: [&BTreeMap<String, String>; 2],
    gateway: (&ObjectName, &str),
) -> Value {
    let ([labels, annotations], (gateway, uid)) = (marks, gateway);
    json!({
        "name": &*name.name, "namespace": &*name.namespace, "labels": labels, "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": &*gateway.name, "uid": uid,
            "controller": true,
        }],
    })
}

fn service_document(
    desired: &DesiredService,
    gateway_uid: &str,
    there: Option<&MadeService>,
    cluster_ip: Option<IpAddr>,
) -> Value {
    fn port((port, target): (&TransportPort, &u16)) -> Value {
        json!({"name": port_name(*port), "port": port.number, "targetPort": target, "protocol": port.transport.as_str()})
    }
    let mut spec = json!({"type": desired.kind.as_str(), "ports": desired.targets.iter().map(port).collect::<Vec<_>>()});
    // The class of an existing load balancer is immutable (`ServiceSpec.loadBalancerClass`): with
    // another class the whole write would be rejected.
    let balanced =
        there.filter(|there| there.is_balanced() && desired.kind == ServiceType::LoadBalancer);
    let class = balanced.map_or(&desired.load_balancer_class, |there| {
        &there.load_balancer_class
    });
    if let Some(class) = class {
        spec["loadBalancerClass"] = json!(class);
    }
    if let Some(policy) = desired.external_traffic_policy {
        spec["externalTrafficPolicy"] = json!(policy.as_str());
    }
    if let Some(ip) = &desired.address {
        spec["loadBalancerIP"] = json!(ip.to_string());
    }
    if let Some(ip) = cluster_ip {
        spec["clusterIP"] = json!(ip.to_string());
    }
    let marks = [&desired.labels, &desired.annotations];
    let metadata = metadata(&desired.name, marks, (&desired.gateway, gateway_uid));
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
}

fn slice_document(
    desired: &DesiredSlices,
    gateway_uid: &str,
    name: &ObjectName,
    v4: bool,
    endpoints: &[Envoy],
) -> Value {
    let marks = [&desired.labels, &desired.annotations];
    let mut metadata = metadata(name, marks, (&desired.gateway, gateway_uid));
    metadata["labels"]["kubernetes.io/service-name"] = json!(&*desired.service.name);
    metadata["labels"][SLICES_BY] = json!(MANAGER);
    let ports = desired
        .ports
        .iter()
        .map(|(name, port)| json!({"name": name, "port": port.number, "protocol": port.transport.as_str()}));
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": if v4 { "IPv4" } else { "IPv6" },
        "ports": ports.collect::<Vec<_>>(),
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn endpoint((ip, envoy): &Envoy) -> Value {
    let conditions = if envoy.terminating {
        json!({"ready": false, "serving": true, "terminating": true})
    } else {
        json!({"ready": true})
    };
    let mut endpoint = json!({"addresses": [ip.to_string()], "conditions": conditions});
    if let Some(node) = &envoy.node {
        endpoint["nodeName"] = json!(node);
    }
    endpoint
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::inputs::{EXPOSES, MANAGED_BY, Object, STANDS_ON, ServiceType};

    /// Ready Envoys without a known node.
    fn envoys(addresses: &[&str]) -> BTreeMap<IpAddr, SliceEndpoint> {
        addresses
            .iter()
            .map(|ip| (ip.parse().expect("an address"), SliceEndpoint::default()))
            .collect()
    }

    fn desired() -> DesiredService {
        DesiredService {
            name: ObjectName::new("a", "g-c"),
            gateway: ObjectName::new("a", "g"),
            kind: ServiceType::ClusterIP,
            load_balancer_class: None,
            external_traffic_policy: None,
            address: None,
            cluster_ip: None,
            targets: BTreeMap::from([(TransportPort::tcp(443), 20_001)]),
            labels: BTreeMap::from([(MANAGED_BY.to_owned(), MANAGER.to_owned())]),
            annotations: BTreeMap::from([(EXPOSES.to_owned(), "g".to_owned())]),
            envoys: envoys(&["10.0.0.1"]),
        }
    }

    fn parsed(value: Value) -> Object {
        Object::parse_admitted(value).expect("what we write can be read")
    }

    /// Returns the plan when these objects exist.
    fn check(there: &[Value], desired: &DesiredService, uid: &str) -> Plan {
        let objects: Vec<Object> = there.iter().cloned().map(parsed).collect();
        let service = objects.iter().find_map(|o| {
            if let Object::Service(s) = o {
                Some(s)
            } else {
                None
            }
        });
        let slice = |name: &ObjectName| {
            objects.iter().find_map(|o| match o {
                Object::EndpointSlice(slice) if slice.meta.name == *name => Some(slice),
                _ => None,
            })
        };
        let behind = objects.iter().filter_map(|o| match o {
            Object::EndpointSlice(slice) if slice.service.as_ref() == Some(&desired.name) => {
                Some(slice)
            }
            _ => None,
        });
        let owner = Owner {
            uid,
            is_deleting: false,
        };
        plan(desired, owner, service, slice, behind)
    }

    /// Returns the manifests that the plan writes, with the UIDs that the server would assign.
    fn written(plan: &Plan) -> Vec<Value> {
        fn document(step: &ObjectWrite) -> Value {
            match step {
                ObjectWrite::Create(value) | ObjectWrite::Apply(value, _) => value.clone(),
                other => panic!("{other:?}"),
            }
        }
        let mut all: Vec<Value> = plan.steps.iter().map(document).collect();
        for document in &mut all {
            document["metadata"]["uid"] = json!(format!(
                "uid of the {}",
                document["kind"].as_str().unwrap_or_default()
            ));
        }
        all
    }

    #[test]
    fn an_equal_object_is_not_written_again_and_a_different_one_is() {
        let made = written(&check(&[], &desired(), "u"));
        assert_eq!(
            made.iter().map(|m| &m["kind"]).collect::<Vec<_>>(),
            ["Service", "EndpointSlice"]
        );
        assert_eq!(check(&made, &desired(), "u"), Plan::default());
        let moved = check(
            &made,
            &DesiredService {
                targets: BTreeMap::from([(TransportPort::tcp(443), 20_002)]),
                ..desired()
            },
            "u",
        );
        let uids: Vec<&str> = moved
            .steps
            .iter()
            .map(|step| {
                if let ObjectWrite::Apply(_, uid) = step {
                    &**uid
                } else {
                    ""
                }
            })
            .collect();
        assert_eq!(
            uids,
            ["uid of the Service", "uid of the EndpointSlice"],
            "both have the port"
        );
        let more = DesiredService {
            envoys: envoys(&["10.0.0.2"]),
            ..desired()
        };
        assert_eq!(
            check(&made, &more, "u").steps.len(),
            1,
            "only the slice has the Envoys"
        );
        let none = DesiredService {
            envoys: BTreeMap::new(),
            ..desired()
        };
        assert_eq!(
            check(&made, &none, "u").steps.len(),
            1,
            "an empty slice is written, not left with who is gone"
        );
    }

    /// Service proxies forward `Local` connections to endpoints of their node, and to terminating
    /// ones while none is ready.
    #[test]
    fn slices_say_where_envoys_run_and_which_terminate() {
        fn on(node: &str, terminating: bool) -> SliceEndpoint {
            SliceEndpoint {
                zone: None,
                terminating,
                node: Some(node.into()),
            }
        }
        fn of(all: [(&str, SliceEndpoint); 2]) -> DesiredService {
            DesiredService {
                envoys: all
                    .map(|(ip, envoy)| (ip.parse().expect("an address"), envoy))
                    .into(),
                ..desired()
            }
        }
        let both = of([
            ("10.0.0.1", on("one", false)),
            ("10.0.0.2", on("two", true)),
        ]);
        let made = written(&check(&[], &both, "u"));
        let endpoints = json!([
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "one"},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true, "terminating": true}, "nodeName": "two"},
        ]);
        assert_eq!(made[1]["endpoints"], endpoints);
        assert_eq!(
            check(&made, &both, "u"),
            Plan::default(),
            "what was written is as desired"
        );
        for other in [
            of([("10.0.0.1", on("one", true)), ("10.0.0.2", on("two", true))]),
            of([
                ("10.0.0.1", on("other", false)),
                ("10.0.0.2", on("two", true)),
            ]),
        ] {
            assert_eq!(
                check(&made, &other, "u").steps.len(),
                1,
                "the slice is written"
            );
        }
    }

    #[test]
    fn a_service_with_another_policy_for_outside_connections_is_written() {
        use gatewright_core::inputs::ExternalTrafficPolicy::{Cluster, Local};
        fn by(policy: gatewright_core::inputs::ExternalTrafficPolicy) -> DesiredService {
            DesiredService {
                kind: ServiceType::NodePort,
                external_traffic_policy: Some(policy),
                ..desired()
            }
        }
        let made = written(&check(&[], &by(Local), "u"));
        assert_eq!(made[0]["spec"]["externalTrafficPolicy"], "Local");
        assert_eq!(
            check(&made, &by(Local), "u"),
            Plan::default(),
            "what was written is as desired"
        );
        let moved = written(&check(&made, &by(Cluster), "u"));
        assert_eq!(moved[0]["spec"]["externalTrafficPolicy"], "Cluster");
    }

    #[test]
    fn tcp_and_udp_of_one_number_are_two_ports() {
        fn dns(transport: Transport) -> TransportPort {
            TransportPort {
                number: 53,
                transport,
            }
        }
        let targets =
            BTreeMap::from([(dns(Transport::Tcp), 20_001), (dns(Transport::Udp), 20_002)]);
        let both = DesiredService {
            targets,
            ..desired()
        };
        let made = written(&check(&[], &both, "u"));
        fn shown(ports: &Value) -> Vec<(String, u64, String)> {
            fn port(port: &Value) -> (String, u64, String) {
                let number = port["targetPort"]
                    .as_u64()
                    .or(port["port"].as_u64())
                    .expect("a number");
                (
                    port["name"].as_str().expect("a name").to_owned(),
                    number,
                    port["protocol"].as_str().expect("one").to_owned(),
                )
            }
            ports.as_array().expect("ports").iter().map(port).collect()
        }
        let expected = [
            ("p53".to_owned(), 20_001, "TCP".to_owned()),
            ("p53-udp".to_owned(), 20_002, "UDP".to_owned()),
        ];
        assert_eq!(shown(&made[0]["spec"]["ports"]), expected);
        assert_eq!(shown(&made[1]["ports"]), expected);
        assert_eq!(check(&made, &both, "u"), Plan::default());
    }

    #[test]
    fn a_slice_goes_with_the_last_envoy_of_its_family_and_no_other_does() {
        let both = DesiredService {
            envoys: envoys(&["10.0.0.1", "fd00::1"]),
            ..desired()
        };
        let mut made = written(&check(&[], &both, "u"));
        assert_eq!(made.len(), 3);
        assert_eq!(check(&made, &both, "u"), Plan::default());
        let gone = check(&made, &desired(), "u");
        assert!(gone.steps.is_empty());
        let uid = "uid of the EndpointSlice".to_owned();
        assert_eq!(gone.idle, [(ObjectName::new("a", "g-c-v6"), uid)]);
        // A slice of another owner behind the Service.
        made[2]["metadata"]["labels"]
            .as_object_mut()
            .expect("labels")
            .remove(SLICES_BY);
        assert_eq!(check(&made, &desired(), "u"), Plan::default());
    }

    #[test]
    fn objects_of_others_are_left_alone() {
        let made = written(&check(&[], &desired(), "u"));
        assert_eq!(
            check(&made, &desired(), "another"),
            Plan::default(),
            "it goes with the Gateway of that name before it"
        );
        let mut theirs = made.clone();
        theirs[0]["metadata"]["labels"] = json!({});
        assert_eq!(check(&theirs, &desired(), "u"), Plan::default());

        // A slice of another owner: the Service and the slice of the other family are made all the
        // same, and the conflict is reported.
        let more = DesiredService {
            envoys: envoys(&["10.0.0.2", "::1"]),
            ..desired()
        };
        let another =
            json!([{"kind": "Gateway", "name": "g", "uid": "another", "controller": true}]);
        for (field, value) in [("labels", json!({})), ("ownerReferences", another)] {
            let mut slice = made[1].clone();
            slice["metadata"][field] = value;
            let plan = check(&[slice], &more, "u");
            let names: Vec<Value> = written(&plan)
                .iter()
                .map(|m| m["metadata"]["name"].clone())
                .collect();
            assert_eq!(names, ["g-c", "g-c-v6"]);
            let text = plan.trouble.expect("it is told");
            assert!(
                text.contains("EndpointSlice a/g-c-v4 belongs to another owner"),
                "{text}"
            );
        }
    }

    /// Returns objects that have lost their owner by a restore.
    fn orphans(made: &[Value]) -> Vec<Value> {
        let mut all = made.to_vec();
        for object in &mut all {
            object["metadata"]["ownerReferences"].take();
        }
        all
    }

    #[test]
    fn what_has_lost_its_owner_is_taken_over_by_its_labels_and_what_it_is() {
        let made = written(&check(&[], &desired(), "u"));
        let restored = DesiredService {
            targets: BTreeMap::from([(TransportPort::tcp(443), 20_007)]),
            envoys: envoys(&["10.0.0.9"]),
            ..desired()
        };
        let plan = check(&orphans(&made), &restored, "u");
        let uids: Vec<&str> = plan
            .steps
            .iter()
            .map(|step| match step {
                ObjectWrite::Apply(_, uid) => uid.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(uids, ["uid of the Service", "uid of the EndpointSlice"]);
        assert_eq!(plan.trouble, None, "nothing is in the way");

        let mut other = orphans(&made);
        other[0]["spec"]["type"] = json!("NodePort");
        assert_eq!(
            check(&other, &restored, "u"),
            Plan::default(),
            "not what is wanted"
        );
        other[0]["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply"}]);
        assert_eq!(
            check(&other, &restored, "u").steps.len(),
            2,
            "we applied it"
        );
        let labelled = DesiredService {
            labels: BTreeMap::from([
                (MANAGED_BY.to_owned(), MANAGER.to_owned()),
                ("more".to_owned(), "x".to_owned()),
            ]),
            ..restored.clone()
        };
        assert_eq!(
            check(&other, &labelled, "u"),
            Plan::default(),
            "a label is missing"
        );

        let objects: Vec<Object> = orphans(&made).into_iter().map(parsed).collect();
        let service = objects.iter().find_map(|object| match object {
            Object::Service(service) => Some(service),
            _ => None,
        });
        let owner = Owner {
            uid: "u",
            is_deleting: true,
        };
        let nothing = super::plan(&restored, owner, service, |_| None, std::iter::empty());
        assert_eq!(nothing, Plan::default(), "its Gateway is being deleted");
    }

    fn behind(ports: &[(&str, u16)]) -> DesiredSlices {
        DesiredSlices {
            prefix: "g-web".to_owned(),
            service: ObjectName::new("a", "web"),
            gateway: ObjectName::new("a", "g"),
            ports: ports
                .iter()
                .map(|(name, port)| ((*name).to_owned(), TransportPort::tcp(*port)))
                .collect(),
            labels: desired().labels,
            annotations: BTreeMap::from([(STANDS_ON.to_owned(), "web".to_owned())]),
            envoys: desired().envoys,
        }
    }

    /// Returns the plan behind a named Service when these slices exist, which were made for the
    /// Gateway `g`.
    fn check_behind(there: &[Value], desired: &DesiredSlices) -> Plan {
        let objects: Vec<Object> = there.iter().cloned().map(parsed).collect();
        let slices = || {
            objects.iter().filter_map(|o| {
                if let Object::EndpointSlice(s) = o {
                    Some(s)
                } else {
                    None
                }
            })
        };
        fn lent(slice: &&EndpointSlice) -> bool {
            slice.made.as_ref().is_some_and(|made| made.lent.is_some())
        }
        plan_behind(
            desired,
            Owner {
                uid: "u",
                is_deleting: false,
            },
            |name| slices().find(|slice| slice.meta.name == *name),
            slices().filter(lent),
        )
    }

    #[test]
    fn behind_a_service_of_somebodys_are_slices_of_ours_and_nothing_else_is_written() {
        let made = written(&check_behind(&[], &behind(&[("https", 20_001)])));
        assert_eq!(
            made.iter().map(|made| &made["kind"]).collect::<Vec<_>>(),
            ["EndpointSlice"]
        );
        assert_eq!(made[0]["metadata"]["name"], "g-web-v4");
        assert_eq!(
            made[0]["metadata"]["labels"]["kubernetes.io/service-name"],
            "web"
        );
        assert_eq!(
            made[0]["ports"],
            json!([{"name": "https", "port": 20_001, "protocol": "TCP"}])
        );
        assert_eq!(
            check_behind(&made, &behind(&[("https", 20_001)])),
            Plan::default()
        );
        // A changed port, label or annotation is written, since no Service of ours has it.
        fn label(key: &str) -> DesiredSlices {
            let mut desired = behind(&[("https", 20_001)]);
            desired.labels.insert(key.to_owned(), "x".to_owned());
            desired
        }
        for other in [
            behind(&[("https", 20_002)]),
            behind(&[("https", 20_001), ("more", 20_002)]),
            label("team"),
        ] {
            let plan = check_behind(&made, &other);
            assert!(
                matches!(&plan.steps[..], [ObjectWrite::Apply(_, uid)] if uid == "uid of the EndpointSlice")
            );
            assert!(plan.idle.is_empty());
        }
        // After a change to another Service, or to none, the existing slices are removed.
        let idle = [(
            ObjectName::new("a", "g-web-v4"),
            "uid of the EndpointSlice".to_owned(),
        )];
        let elsewhere = DesiredSlices {
            prefix: "g-other".to_owned(),
            service: ObjectName::new("a", "other"),
            ..behind(&[("https", 20_001)])
        };
        let moved = check_behind(&made, &elsewhere);
        assert_eq!(moved.steps.len(), 1, "one slice is moved");
        assert_eq!(&moved.idle[..], &idle[..], "the idle ports are the same");
        let nothing = check_behind(&made, &behind(&[]));
        assert_eq!(nothing.steps.len(), 0, "nothing is written");
        assert_eq!(&nothing.idle[..], &idle[..], "the idle ports are the same");
        // A slice of another owner is left alone, and the conflict is reported.
        let mut theirs = made.clone();
        theirs[0]["metadata"]["ownerReferences"] = json!([]);
        let plan = check_behind(&theirs, &behind(&[("https", 20_002)]));
        assert!(plan.steps.is_empty() && plan.idle.is_empty());
        assert!(
            plan.trouble
                .expect("it is told")
                .contains("EndpointSlice a/g-web-v4 belongs to another owner")
        );
    }

    #[test]
    fn a_load_balancer_keeps_its_class_whatever_else_changes() {
        fn balanced(class: Option<&str>, target: u16) -> DesiredService {
            DesiredService {
                kind: ServiceType::LoadBalancer,
                load_balancer_class: class.map(str::to_owned),
                targets: BTreeMap::from([(TransportPort::tcp(443), target)]),
                ..desired()
            }
        }
        let made = written(&check(&[], &balanced(Some("example.org/a"), 20_001), "u"));
        for other in [Some("example.org/b"), None] {
            assert_eq!(
                check(&made, &balanced(other, 20_001), "u"),
                Plan::default(),
                "a write would be refused"
            );
            let moved = written(&check(&made, &balanced(other, 20_002), "u"));
            assert_eq!(moved[0]["spec"]["loadBalancerClass"], "example.org/a");
            assert_eq!(moved[0]["spec"]["ports"][0]["targetPort"], 20_002);
        }
        let plain = written(&check(&made, &desired(), "u"));
        assert_eq!(
            plain[0]["spec"]["loadBalancerClass"],
            Value::Null,
            "one of another type has none"
        );
        let again = written(&check(
            &plain,
            &balanced(Some("example.org/b"), 20_001),
            "u",
        ));
        assert_eq!(again[0]["spec"]["loadBalancerClass"], "example.org/b");
    }
}
