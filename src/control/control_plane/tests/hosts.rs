//! Answers of what changed: together they are the whole answer, and none has more than what a
//! change is about.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;

use super::explained::wildcard_certificate;
use super::*;
use crate::host_query::{HostQuery, HostsAnswer};
use gatewright_core::hosts::HostRow;

/// A page: what it was told, and until when.
struct Page {
    rows: BTreeMap<String, HostRow>,
    revision: Option<u64>,
}

impl Page {
    fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            revision: None,
        }
    }

    /// Asks what changed, and returns the answer.
    fn follow(&mut self, live: &mut ControlPlane) -> HostsAnswer {
        let answer = ask(live, self.revision);
        self.revision = Some(answer.revision);
        if answer.whole {
            self.rows.clear();
        }
        for host in &answer.gone {
            self.rows.remove(host);
        }
        let rows = answer.hosts.iter().cloned();
        self.rows.extend(rows.map(|row| (row.host.clone(), row)));
        answer
    }
}

fn ask(live: &mut ControlPlane, after: Option<u64>) -> HostsAnswer {
    live.hosts(&HostQuery { after }, Timestamp::UNIX_EPOCH)
}

fn object(api: &str, kind: &str, (namespace, name): (&str, &str), spec: Value) -> Value {
    json!({"apiVersion": api, "kind": kind, "metadata": {"namespace": namespace, "name": name},
        "spec": spec})
}

const API: &str = "gateway.networking.k8s.io/v1";
const OWN: &str = "gatewright.io/v1alpha1";

fn edge(listeners: &[Value], is_redirecting: bool) -> Value {
    let from = json!({"namespaces": {"from": "All"}});
    let parameters = json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": "edge"});
    let infrastructure = is_redirecting.then(|| json!({"parametersRef": parameters}));
    let mut spec =
        json!({"gatewayClassName": "g", "listeners": listeners, "allowedListeners": from});
    if let Some(infrastructure) = infrastructure {
        spec["infrastructure"] = infrastructure;
    }
    object(API, "Gateway", ("a", "edge"), spec)
}

fn listener(name: &str, protocol: &str, port: u16, hostname: Option<&str>, secret: &str) -> Value {
    let mut listener = json!({"name": name, "protocol": protocol, "port": port,
        "allowedRoutes": {"namespaces": {"from": "All"}}});
    if let Some(hostname) = hostname {
        listener["hostname"] = hostname.into();
    }
    if protocol == "HTTPS" {
        listener["tls"] = json!({"certificateRefs": [{"name": secret}]});
    }
    listener
}

fn route(name: (&str, &str), hostnames: &[&str], parent: &str, service: &str) -> Value {
    let kind = if parent == "edge" {
        "Gateway"
    } else {
        "ListenerSet"
    };
    let backends = json!([{"name": service, "namespace": "a", "port": 80}]);
    let parents = json!([{"kind": kind, "namespace": "a", "name": parent}]);
    let spec = json!({"parentRefs": parents, "hostnames": hostnames,
        "rules": [{"backendRefs": backends}]});
    object(API, "HTTPRoute", name, spec)
}

fn service(name: &str) -> Value {
    let spec = json!({"ports": [{"port": 80}]});
    object("v1", "Service", ("a", name), spec)
}

fn policy(kind: &str, target: (&str, &str), rules: Value) -> Value {
    let (target_kind, name) = target;
    let group = if target_kind == "Service" {
        ""
    } else {
        "gateway.networking.k8s.io"
    };
    let mut spec = rules;
    spec["targetRefs"] = json!([{"group": group, "kind": target_kind, "name": name}]);
    object(OWN, kind, ("a", "policy"), spec)
}

fn any_gateway() -> impl Strategy<Value = Value> {
    let optional = [
        listener("http", "HTTP", 80, None, ""),
        listener("https", "HTTPS", 443, Some("*.example.org"), "cert"),
        listener("own", "HTTPS", 443, Some("a.example.org"), "missing"),
        listener("bad", "SMTP", 25, None, ""),
    ];
    (
        proptest::sample::subsequence(optional.to_vec(), 1..=4),
        any::<bool>(),
    )
        .prop_map(|(listeners, is_redirecting)| edge(&listeners, is_redirecting))
}

fn any_set() -> impl Strategy<Value = Value> {
    select(vec!["b.example.org", "*.b.example.org", "c.example.net"]).prop_map(|hostname| {
        let listeners = json!([listener("set", "HTTP", 80, Some(hostname), "")]);
        let spec = json!({"parentRef": {"name": "edge"}, "listeners": listeners});
        object(API, "ListenerSet", ("a", "set"), spec)
    })
}

fn any_route() -> impl Strategy<Value = Value> {
    let hostnames = vec![
        "a.example.org",
        "b.example.org",
        "*.example.org",
        "c.example.net",
    ];
    (
        select(vec![("a", "r"), ("a", "s"), ("b", "r")]),
        proptest::sample::subsequence(hostnames, 0..=2),
        select(vec!["edge", "edge", "set"]),
        select(vec!["web", "other", "missing"]),
    )
        .prop_map(|(name, hostnames, parent, service)| route(name, &hostnames, parent, service))
}

fn any_policy() -> impl Strategy<Value = Value> {
    let targets = vec![
        ("Gateway", "edge"),
        ("ListenerSet", "set"),
        ("HTTPRoute", "r"),
        ("Service", "web"),
    ];
    (select(targets), any::<bool>()).prop_map(|(target, is_valid)| {
        if target.0 == "Service" {
            let balancing = json!({"loadBalancer": {"type": "LeastRequest"}});
            policy("TrafficPolicy", target, balancing)
        } else if is_valid {
            let limit = json!({"requestBody": {"maxBytes": 1024}});
            policy("TrafficPolicy", target, limit)
        } else {
            let users = json!({"basicAuth": {"users": {"name": "missing"}}});
            policy("AccessPolicy", target, users)
        }
    })
}

fn any_other() -> impl Strategy<Value = Value> {
    let grant = json!({"from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute",
        "namespace": "b"}], "to": [{"group": "", "kind": "Service"}]});
    let grant = object(
        "gateway.networking.k8s.io/v1beta1",
        "ReferenceGrant",
        ("a", "grant"),
        grant,
    );
    let parameters = json!({"plainHttp": "Redirect"});
    let parameters = object(OWN, "GatewayParameters", ("a", "edge"), parameters);
    select(vec![service("web"), service("other"), grant, parameters])
}

/// An object.
#[derive(Clone)]
enum Written {
    Manifest(Value),
    Certificate,
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Manifest(value) => write!(f, "{value}"),
            Self::Certificate => f.write_str("a certificate"),
        }
    }
}

impl Written {
    fn change(self) -> Change {
        match self {
            Self::Manifest(value) => Change::put(Object::parse(value).expect("an object")),
            Self::Certificate => wildcard_certificate(),
        }
    }
}

/// An object, and whether it is deleted.
fn any_change() -> impl Strategy<Value = (Written, bool)> {
    let objects = prop_oneof![
        2 => any_gateway(),
        1 => any_set(),
        4 => any_route(),
        2 => any_policy(),
        2 => any_other(),
    ];
    let objects = objects.prop_map(Written::Manifest);
    let all = prop_oneof![10 => objects, 1 => Just(Written::Certificate)];
    (all, proptest::bool::weighted(0.3))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_changed_adds_up_to_the_whole(changes in proptest::collection::vec(any_change(), 1..30)) {
        let mut live = live();
        put(&mut live, edge(&[listener("http", "HTTP", 80, None, "")], false));
        envoys(&mut live, &[Generation::MAX]);
        let _ = live.acknowledgement_events(Duration::ZERO);
        let mut page = Page::new();
        page.follow(&mut live);
        for (written, is_deleted) in changes {
            let change = written.change();
            let key = change.key().expect("an object");
            apply(&mut live, if is_deleted { Change::delete(key.clone()) } else { change });
            let answer = page.follow(&mut live);
            prop_assert!(!answer.whole, "a change of {} is not one of everything", key);
            let whole = ask(&mut live, None).hosts;
            let rows: Vec<HostRow> = page.rows.values().cloned().collect();
            prop_assert_eq!(rows, whole, "after {}, deleted: {}", key, is_deleted);
        }
    }
}

#[test]
fn the_rows_of_an_answer_are_those_of_the_change_however_many_hosts_there_are() {
    for hosts in [10, 1_000] {
        let mut live = live();
        put(
            &mut live,
            edge(&[listener("http", "HTTP", 80, None, "")], false),
        );
        put(&mut live, service("web"));
        envoys(&mut live, &[Generation::MAX]);
        let _ = live.acknowledgement_events(Duration::ZERO);
        for number in 0..hosts {
            let host = format!("h{number}.example.org");
            let name = format!("r{number}");
            put(&mut live, route(("a", &name), &[&host], "edge", "web"));
        }
        let mut page = Page::new();
        assert!(
            page.follow(&mut live).whole,
            "the first answer is the whole"
        );
        // The first object with a fault, another, and none again; each also changes the number of
        // routes in the status of the Gateway.
        for changed in [
            route(("a", "new"), &["new.example.org"], "edge", "missing"),
            route(("a", "new"), &["other.example.org"], "edge", "missing"),
            route(("a", "new"), &["other.example.org"], "edge", "web"),
            policy(
                "TrafficPolicy",
                ("HTTPRoute", "new"),
                json!({"requestBody": {"maxBytes": 9}}),
            ),
        ] {
            put(&mut live, changed.clone());
            let answer = page.follow(&mut live);
            assert!(!answer.whole, "{changed} is one of {hosts} hosts");
            assert!(answer.hosts.len() == 1, "{changed}: {:?}", answer.hosts);
        }
        apply(
            &mut live,
            Change::delete(ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", "new"))),
        );
        let answer = page.follow(&mut live);
        assert!(answer.hosts.is_empty(), "{:?}", answer.hosts);
        assert_eq!(answer.gone.len(), 1, "{:?}", answer.gone);
    }
}
