//! Tests of which endpoints are used, as addresses become reserved and free again.

mod conditions;
mod names;

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::*;
use crate::{Change, Delta, EndpointPolicy, Engine, Fleet, OwnSocket, Settings, StatusBody};
use gatewright_objects::channel::Channel;
use gatewright_objects::inputs::{Kind, Located, Node, Object, ObjectKey, Pod};
use gatewright_objects::model::{AppProtocol, BackendId, ConditionType, Status};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// An engine with its latest endpoints and its latest verdict on the route's references.
struct Told {
    engine: Engine,
    endpoints: BTreeMap<String, Vec<String>>,
    verdict: Option<String>,
}

impl Told {
    /// A Gateway and a route of mallory's to her Service.
    fn new(settings: Settings) -> Self {
        let mut told = Self {
            engine: Engine::new(settings),
            endpoints: BTreeMap::new(),
            verdict: None,
        };
        told.put(
            json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "ours"},
            "spec": {"controllerName": "c"}}),
        );
        told.put(gateway(80));
        told.put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute",
            "metadata": {"name": "r", "namespace": "mallory"},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": ["m.example.org"],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}));
        told.put(service("mallory", "web", json!({"ports": [{"port": 80}]})));
        told
    }

    /// An engine in a cluster, whose Envoys are behind `ours/envoy`.
    fn in_cluster() -> Self {
        Self::new(Settings {
            fleet: Fleet::Shared,
            envoys: Some(ObjectName::new("ours", "envoy")),
            endpoints: EndpointPolicy {
                loopback: false,
                denied: Vec::new(),
            },
            ..Settings::new("c", vec![])
        })
    }

    fn put(&mut self, object: Value) {
        self.apply(Change::put(Object::parse(object).expect("an object")));
    }

    fn apply(&mut self, change: Change) {
        let Delta {
            resources,
            statuses,
            ..
        } = self.engine.apply(vec![change], SystemTime::UNIX_EPOCH);
        for (key, resource) in resources {
            let ResourceKey::Endpoints(cluster) = key else {
                continue;
            };
            match resource {
                Some(Resource::Endpoints(endpoints)) => {
                    let Addresses::Alike(addresses) = endpoints.addresses else {
                        panic!("of one Service port")
                    };
                    let addresses = addresses.iter().map(ToString::to_string).collect();
                    self.endpoints.insert(cluster.to_string(), addresses);
                }
                _ => {
                    self.endpoints.remove(&cluster.to_string());
                }
            }
        }
        let key = ObjectKey::new(Kind::HTTPRoute, ObjectName::new("mallory", "r"));
        let Some(Some(status)) = statuses.get(&key) else {
            return;
        };
        let StatusBody::Route(route) = &status.body else {
            panic!("a route's status")
        };
        let resolved = route.parents[0]
            .1
            .iter()
            .find(|c| c.kind == ConditionType::ResolvedRefs)
            .expect("it is told");
        self.verdict = (resolved.status != Status::True)
            .then(|| format!("{}: {}", resolved.reason.as_str(), resolved.message));
    }

    /// Sets the addresses of mallory's slice, which belong to pods of hers.
    fn list(&mut self, addresses: &[&str], port: u16) {
        for address in addresses {
            self.run("mallory", &pod_at(address), &[address]);
        }
        self.put(slice("mallory", "web", addresses, port));
    }

    /// Sets the addresses of a pod.
    fn run(&mut self, namespace: &str, name: &str, addresses: &[&str]) {
        let pod = Pod(located(namespace, name, addresses));
        self.apply(Change::put(Object::Pod(pod)));
    }

    fn used(&self) -> Vec<&str> {
        self.endpoints["mallory/web:80"]
            .iter()
            .map(String::as_str)
            .collect()
    }

    /// True if the verdict refuses an endpoint for the reason `why`.
    fn refused(&self, why: &str) -> bool {
        self.verdict
            .as_ref()
            .is_some_and(|text| text.starts_with("EndpointNotPermitted") && text.contains(why))
    }
}

fn located(namespace: &str, name: &str, addresses: &[&str]) -> Located {
    Located {
        name: ObjectName::new(namespace, name),
        addresses: addresses
            .iter()
            .map(|text| text.parse::<IpAddr>().expect("an address").to_canonical())
            .collect(),
    }
}

/// The name of the pod that [`slice`] names for an address.
fn pod_at(address: &str) -> String {
    format!("pod-{}", address.replace([':', '.'], "-"))
}

fn gateway(port: u16) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "mallory"},
        "spec": {"gatewayClassName": "ours", "listeners": [{"name": "l", "protocol": "HTTP", "port": port}]}})
}

fn service(namespace: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

fn slice(namespace: &str, service: &str, addresses: &[&str], port: u16) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{service}-1"), "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service}},
        "endpoints": addresses.iter().map(|ip| json!({"addresses": [ip],
            "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod_at(ip)}})).collect::<Vec<_>>(),
        "ports": [{"port": port}]})
}

fn deleted(kind: Kind, namespace: &str, name: &str) -> Change {
    Change::delete(ObjectKey::new(kind, ObjectName::new(namespace, name)))
}

#[test]
fn a_refused_endpoint_is_left_out_and_told_until_it_is_gone() {
    let mut told = Told::in_cluster();
    told.list(&["10.1.0.1", "169.254.169.254", "127.0.0.1"], 8080);
    assert_eq!(told.used(), ["10.1.0.1:8080"], "what may be used is used");
    let expected = "EndpointNotPermitted: Service mallory/web port 80: nothing is sent to endpoints 127.0.0.1:8080 \
                    (loopback), 169.254.169.254:8080 (link-local, where clouds keep credentials): have its \
                    EndpointSlices list its own pods";
    assert_eq!(told.verdict.as_deref(), Some(expected));
    told.list(
        &[
            "169.254.0.1",
            "169.254.0.2",
            "169.254.0.3",
            "169.254.0.4",
            "169.254.0.5",
        ],
        8080,
    );
    assert!(told.used().is_empty());
    assert!(told.refused("and 2 more"), "{:?}", told.verdict);
    told.list(&["10.1.0.1"], 8080);
    assert_eq!(
        told.used(),
        vec!["10.1.0.1:8080"],
        "the permitted endpoint is used"
    );
    assert_eq!(told.verdict, None, "nothing is refused any more");
}

/// A refused endpoint of an authorization server is told by the listener whose filter names the
/// server.
#[test]
fn a_listener_tells_the_refused_endpoints_of_its_authorization_server() {
    let mut told = Told::new(Settings {
        fleet: Fleet::Shared,
        envoys: Some(ObjectName::new("ours", "envoy")),
        endpoints: EndpointPolicy {
            loopback: false,
            denied: Vec::new(),
        },
        channel: Channel::Experimental,
        ..Settings::new("c", vec![])
    });
    let auth = json!({"protocol": "HTTP", "http": {}, "backendRef": {"name": "login", "port": 80}});
    let filters = json!({"requests": [{"type": "ExternalAuth", "externalAuth": auth}]});
    let mut guarded = gateway(80);
    guarded["spec"]["listeners"][0]["filters"] = filters;
    told.put(service(
        "mallory",
        "login",
        json!({"ports": [{"port": 80}]}),
    ));
    told.put(guarded);
    told.put(slice("mallory", "login", &["169.254.169.254"], 8080));
    fn resolved(told: &Told) -> gatewright_objects::model::Condition {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("mallory", "edge"));
        let StatusBody::Gateway(gateway) = told.engine.status(&key).expect("a status").body else {
            panic!("a Gateway")
        };
        let conditions = gateway
            .listeners
            .into_iter()
            .flat_map(|listener| listener.conditions);
        conditions
            .into_iter()
            .find(|c| c.kind == ConditionType::ResolvedRefs)
            .expect("it is told")
    }
    let refused = resolved(&told);
    assert_eq!(
        refused.status,
        Status::False,
        "the listener is not accepted"
    );
    assert_eq!(
        refused.reason,
        Reason::EndpointNotPermitted,
        "because of the endpoint"
    );
    assert!(
        refused.message.contains("169.254.169.254:8080"),
        "{}",
        refused.message
    );
    // The status is reported anew when the endpoint is gone.
    let gone = Change::put(Object::parse(slice("mallory", "login", &[], 8080)).expect("a slice"));
    let Delta { statuses, .. } = told.engine.apply(vec![gone], SystemTime::UNIX_EPOCH);
    assert!(
        statuses.keys().any(|key| key.kind == Kind::Gateway),
        "{statuses:?}"
    );
    assert_eq!(resolved(&told).status, Status::True);
}

#[test]
fn an_address_is_taken_from_tenants_when_it_becomes_the_installations_and_given_back() {
    let mut told = Told::in_cluster();
    told.list(&["10.1.0.1", "::ffff:10.1.0.2", "10.1.0.3"], 8080);
    assert_eq!(told.used().len(), 3);
    // An address of an Envoy, one of the Envoys' Service, and one of another tenant's Service.
    told.put(slice("ours", "envoy", &["10.1.0.1"], 80));
    assert!(
        told.refused("10.1.0.1:8080 (an address of Gatewright and its Envoys)"),
        "{:?}",
        told.verdict
    );
    let mut balanced = service(
        "ours",
        "envoy",
        json!({"type": "LoadBalancer", "ports": [{"port": 80}]}),
    );
    balanced["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.1.0.2"}]}});
    told.put(balanced);
    told.put(service(
        "bob",
        "db",
        json!({"clusterIPs": ["10.1.0.3"], "ports": [{"port": 5432}]}),
    ));
    assert!(told.used().is_empty(), "{:?}", told.endpoints);
    assert!(
        told.refused("10.1.0.3:8080 (the address of a Service)"),
        "{:?}",
        told.verdict
    );
    assert!(!told.refused("bob"), "nobody learns whose");
    told.apply(deleted(Kind::EndpointSlice, "ours", "envoy-1"));
    told.apply(deleted(Kind::Service, "ours", "envoy"));
    told.apply(deleted(Kind::Service, "bob", "db"));
    assert_eq!(told.used().len(), 3, "all endpoints are used again");
    assert_eq!(told.verdict, None, "nothing is refused");
}

#[test]
fn the_api_server_is_nobodys_backend() {
    let mut told = Told::in_cluster();
    told.put(slice("default", "kubernetes", &["192.0.2.10"], 6443));
    told.list(&["192.0.2.10"], 6443);
    assert!(
        told.refused("an address of the API server") && told.used().is_empty(),
        "{:?}",
        told.verdict
    );
}

/// Otherwise a tenant could take another's endpoints away with a load balancer that requests their
/// address.
#[test]
fn addresses_in_objects_of_tenants_are_not_reserved() {
    let mut told = Told::in_cluster();
    told.list(&["10.1.0.1"], 8080);
    let mut claimed = service(
        "bob",
        "lb",
        json!({"type": "LoadBalancer", "externalIPs": ["10.1.0.1"],
        "loadBalancerIP": "10.1.0.1", "clusterIPs": ["10.9.0.1"], "ports": [{"port": 80}]}),
    );
    claimed["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.1.0.1"}]}});
    told.put(claimed);
    told.put(slice("bob", "kubernetes", &["10.1.0.1"], 80));
    assert_eq!(told.used(), vec!["10.1.0.1:8080"], "the endpoint is used");
    assert_eq!(told.verdict, None, "nothing is refused");
}

#[test]
fn a_labelled_namespace_may_have_addresses_of_others_but_not_special_ones_nor_listeners() {
    let mut told = Told::in_cluster();
    told.put(slice("ours", "envoy", &["192.0.2.1"], 80));
    told.list(&["192.0.2.1"], 9100);
    assert!(told.used().is_empty());
    fn namespace(labels: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mallory", "labels": labels}})
    }
    told.put(namespace(json!({"gatewright.io/endpoints": "any"})));
    assert_eq!(
        told.used(),
        vec!["192.0.2.1:9100"],
        "a backend on the host network"
    );
    assert_eq!(told.verdict, None, "a backend on the host network");
    told.list(&["192.0.2.1", "169.254.169.254"], 80);
    assert!(told.used().is_empty());
    assert!(
        told.refused("192.0.2.1:80 (where Envoy listens itself)"),
        "{:?}",
        told.verdict
    );
    told.list(&["192.0.2.1"], 9100);
    told.put(namespace(json!({"gatewright.io/endpoints": "none"})));
    assert!(told.used().is_empty());
}

#[test]
fn own_services_of_the_installation_have_their_own_endpoints() {
    let mut told = Told::in_cluster();
    told.put(slice("ours", "echo", &["10.1.0.9"], 8080));
    told.put(service("ours", "echo", json!({"ports": [{"port": 80}]})));
    told.put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "own", "namespace": "ours"},
        "spec": {"parentRefs": [{"name": "edge", "namespace": "mallory"}], "hostnames": ["own.example.org"],
            "rules": [{"backendRefs": [{"name": "echo", "port": 80}]}]}}));
    let mut open = gateway(80);
    open["spec"]["listeners"][0]["allowedRoutes"] = json!({"namespaces": {"from": "All"}});
    told.put(open);
    assert_eq!(told.endpoints["ours/echo:80"], ["10.1.0.9:8080"]);
}

/// Without a cluster: backends and Envoy are on the same machine.
#[test]
fn a_listener_of_envoy_is_no_backend_in_whatever_order_they_come() {
    for addresses in [["127.0.0.1"], ["0.0.0.0"]] {
        let reached = addresses.map(|ip| ip.parse().expect("an address")).to_vec();
        let mut told = Told::new(Settings::new("c", reached));
        told.list(&["127.0.0.1", "::ffff:127.0.0.1"], 8080);
        assert_eq!(told.used().len(), 2, "loopback is where backends are");
        told.put(gateway(8080));
        assert!(told.used().is_empty(), "{:?}", told.endpoints);
        assert!(
            told.refused("where Envoy listens itself"),
            "{:?}",
            told.verdict
        );
        told.list(&["127.0.0.1"], 8081);
        assert_eq!(
            told.used(),
            vec!["127.0.0.1:8081"],
            "another port of the machine"
        );
        assert_eq!(told.verdict, None, "another port of the machine");
        told.list(&["127.0.0.1"], 8080);
        told.put(gateway(80));
        assert_eq!(
            told.used(),
            vec!["127.0.0.1:8080"],
            "the endpoint is used again"
        );
        assert_eq!(told.verdict, None, "nothing is refused");
    }
}

#[test]
fn a_responder_of_the_program_is_the_backend_of_its_own_service_alone() {
    fn own(address: &str, service: Option<ObjectName>) -> OwnSocket {
        OwnSocket {
            address: address.parse().expect("an address"),
            service,
        }
    }
    let everywhere = own("0.0.0.0:8089", None);
    for (sockets, refused) in [
        (vec![own("127.0.0.1:8089", None)], true),
        (
            vec![own(
                "127.0.0.1:8089",
                Some(ObjectName::new("ours", "responder")),
            )],
            true,
        ),
        (vec![everywhere], true),
        (
            vec![own(
                "127.0.0.1:8089",
                Some(ObjectName::new("mallory", "web")),
            )],
            false,
        ),
        (vec![own("127.0.0.1:8090", None)], false),
    ] {
        let mut told = Told::new(Settings {
            own_sockets: sockets.clone(),
            ..Settings::new("c", vec![])
        });
        told.list(&["127.0.0.1", "::ffff:127.0.0.1"], 8089);
        assert_eq!(told.used().is_empty(), refused, "{sockets:?}");
        assert_eq!(
            told.refused("127.0.0.1:8089 (where Gatewright listens itself)"),
            refused,
            "{:?}",
            told.verdict
        );
    }
}

#[test]
fn clusters_of_one_service_port_have_an_assignment_each_and_one_list_of_addresses() {
    let mut told = Told::in_cluster();
    told.list(&["10.1.0.1"], 8080);
    let port = ServicePort::tcp(ObjectName::new("mallory", "web"), 80);
    let h2c = ClusterId::Backend(BackendId::new(port.clone(), AppProtocol::H2c));
    let mut dirty = Dirty::default();
    let (service_endpoints, emissions, store) = told.engine.service_endpoints_mut();
    service_endpoints.set_targets(
        h2c.clone(),
        Some(ClusterTargets::One(port.clone())),
        store,
        &mut dirty,
    );
    assert!(dirty.endpoints.is_empty(), "the addresses are known");
    assert_eq!(
        dirty.assignments.take(),
        [h2c.clone()].into(),
        "no other assignment is touched"
    );
    compile_assignment(h2c.clone(), service_endpoints, emissions, &mut dirty);
    let made = dirty.done().resources.remove(&ResourceKey::Endpoints(h2c));
    let Some(Some(Resource::Endpoints(made))) = made else {
        panic!("an assignment")
    };
    let Addresses::Alike(addresses) = made.addresses else {
        panic!("of one Service port")
    };
    assert!(
        Arc::ptr_eq(
            &addresses,
            &told.engine.service_endpoints().ports[&port].addresses
        ),
        "kept once"
    );
}

#[test]
fn an_installation_is_told_from_others_by_its_namespace() {
    let mut told = Told::in_cluster();
    let before = told.engine.service_endpoints().cdn_id();
    fn namespace(name: &str, uid: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": uid}})
    }
    told.put(namespace("mallory", "1"));
    assert_eq!(told.engine.service_endpoints().cdn_id(), before);
    told.put(namespace("ours", "1"));
    let one = told.engine.service_endpoints().cdn_id();
    told.put(namespace("ours", "2"));
    assert!(one != before && told.engine.service_endpoints().cdn_id() != one);
}

/// A tenant who may write EndpointSlices may write any field of one, labels included: only the pods
/// themselves are proof.
#[test]
fn an_endpoint_counts_while_it_is_the_pod_that_it_names() {
    let mut told = Told::in_cluster();
    let address = "10.1.0.1";
    told.put(slice("mallory", "web", &[address], 80));
    let why =
        "10.1.0.1:80 (not the address of a running pod of this namespace that its targetRef names)";
    assert!(
        told.refused(why) && told.used().is_empty(),
        "{:?}",
        told.verdict
    );
    told.run("alice", &pod_at(address), &[address]);
    told.run("mallory", "another", &[address]);
    told.run("mallory", &pod_at(address), &["10.1.0.2"]);
    assert!(
        told.refused(why),
        "of another namespace, of another name, at another address: {:?}",
        told.verdict
    );
    told.run("mallory", &pod_at(address), &["fd00::1", address]);
    assert_eq!(
        told.used(),
        vec!["10.1.0.1:80"],
        "the endpoint of the pod is used"
    );
    assert_eq!(told.verdict, None, "nothing is refused");
    told.list(&["::ffff:10.1.0.3"], 80);
    assert_eq!(told.used().len(), 1, "another form of the same address");
    assert_eq!(told.verdict, None, "another form of the same address");
    told.list(&["10.1.0.1"], 80);
    told.run("mallory", &pod_at(address), &[]);
    assert!(
        told.used().is_empty() && told.refused(why),
        "its address may be another's next"
    );
    told.run("mallory", &pod_at(address), &[address]);
    told.apply(deleted(Kind::Pod, "mallory", &pod_at(address)));
    assert!(told.used().is_empty() && told.refused(why));
    // Without a targetRef, or with that of another kind or namespace, it belongs to no pod.
    told.run("mallory", &pod_at(address), &[address]);
    for target in [
        Value::Null,
        json!({"kind": "Node", "name": pod_at(address)}),
        json!({"kind": "Pod", "namespace": "alice", "name": pod_at(address)}),
    ] {
        let mut other = slice("mallory", "web", &[address], 80);
        other["endpoints"][0]["targetRef"] = target;
        told.put(other);
        assert!(
            told.used().is_empty() && told.refused(why),
            "{:?}",
            told.verdict
        );
    }
    let mut unnamed = slice("mallory", "web", &[address], 80);
    unnamed["endpoints"][0]["targetRef"] = json!({"kind": "Pod", "name": pod_at(address)});
    told.put(unnamed);
    assert_eq!(
        told.used(),
        vec!["10.1.0.1:80"],
        "the endpoint of the pod is used"
    );
    assert_eq!(told.verdict, None, "nothing is refused");
}

#[test]
fn addresses_of_nodes_are_no_backends_of_tenants() {
    let mut told = Told::in_cluster();
    told.list(&["192.0.2.7"], 10250);
    assert_eq!(told.used().len(), 1);
    fn node(addresses: &[&str]) -> Change {
        Change::put(Object::Node(Node(located("", "n1", addresses))))
    }
    told.apply(node(&["192.0.2.7", "203.0.113.7"]));
    assert!(
        told.refused("192.0.2.7:10250 (the address of a node)") && told.used().is_empty(),
        "{:?}",
        told.verdict
    );
    told.apply(node(&["203.0.113.7"]));
    assert_eq!(told.used().len(), 1, "the endpoint is used");
    assert_eq!(told.verdict, None, "nothing is refused");
    told.apply(node(&["192.0.2.7"]));
    told.apply(Change::delete(ObjectKey::new(
        Kind::Node,
        ObjectName::new("", "n1"),
    )));
    assert_eq!(told.used().len(), 1, "the endpoint is used again");
    assert_eq!(told.verdict, None, "nothing is refused");
}

#[test]
fn a_labelled_namespace_may_have_backends_outside_but_not_where_a_gateway_is_reached() {
    let mut told = Told::in_cluster();
    told.put(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "mallory", "labels": {"gatewright.io/endpoints": "any"}}}));
    told.put(slice("mallory", "web", &["203.0.113.9"], 443));
    assert_eq!(told.used(), vec!["203.0.113.9:443"], "a machine outside");
    assert_eq!(told.verdict, None, "a machine outside");
    let mut made = service(
        "bob",
        "edge-own",
        json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.9"],
        "ports": [{"port": 443, "targetPort": 20_001}]}),
    );
    made["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "gatewright"});
    made["metadata"]["annotations"] = json!({"gatewright.io/gateway": "edge"});
    made["metadata"]["ownerReferences"] = json!([{"apiVersion": GATEWAY, "kind": "Gateway", "name": "edge", "uid": "1", "controller": true}]);
    made["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}});
    told.put(made.clone());
    assert!(told.refused("203.0.113.9:443 (where Envoy listens itself)") && told.used().is_empty());
    told.put(slice("mallory", "web", &["203.0.113.9"], 8443));
    assert_eq!(
        told.used(),
        ["203.0.113.9:8443"],
        "another port, which may be another's"
    );
    told.put(slice("mallory", "web", &["10.96.0.9"], 443));
    assert!(
        told.refused("10.96.0.9:443 (where Envoy listens itself)"),
        "{:?}",
        told.verdict
    );
    // Otherwise a tenant could take another's endpoints away with a load balancer that requests
    // their address.
    told.list(&["203.0.113.9"], 443);
    assert_eq!(told.used(), vec!["203.0.113.9:443"], "it is her pod's");
    assert_eq!(told.verdict, None, "it is her pod's");
    told.put(slice("mallory", "web", &["203.0.113.10"], 443));
    told.apply(deleted(Kind::Service, "bob", "edge-own"));
    assert_eq!(
        told.used(),
        vec!["203.0.113.10:443"],
        "the endpoint outside is used"
    );
    assert_eq!(told.verdict, None, "nothing is refused");
}

const READY: [Option<bool>; 3] = [Some(true), Some(true), Some(false)];
const ENDING: [Option<bool>; 3] = [Some(false), Some(true), Some(true)];
