//! Tests of namespaces at a Gateway that admits them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::*;
use crate::published::Published;
use crate::rule::ownership::shared_frontend;
use crate::{Change, Engine, Fact, Fleet, Settings, StatusBody};
use gatewright_objects::inputs::{HOST_LABEL, Kind, Object, ObjectChange, ObjectKey};
use gatewright_objects::model::{Action, ConditionType, ObjectName, Target};

mod owner;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// A Gateway of `infra` that admits routes of all namespaces, with a clock.
struct Site {
    engine: Engine,
    published: Published,
    now: SystemTime,
}

fn put(value: Value) -> Change {
    Change::put(Object::parse(value).expect("an object"))
}

fn name(text: &str) -> Hostname {
    Hostname::parse(text).expect("a hostname")
}

/// Listeners: name, port, protocol, hostname.
fn gateway(listeners: &[(&str, u16, &str, &str)]) -> Value {
    fn listener((name, port, protocol, host): &(&str, u16, &str, &str)) -> Value {
        let mut listener = json!({"name": name, "protocol": protocol, "port": port,
            "allowedRoutes": {"namespaces": {"from": "All"}}});
        if !host.is_empty() {
            listener["hostname"] = json!(host);
        }
        if *protocol == "TLS" {
            listener["tls"] = json!({"mode": "Passthrough"});
        }
        listener
    }
    let listeners: Vec<Value> = listeners.iter().map(listener).collect();
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "infra"},
        "spec": {"gatewayClassName": "g", "listeners": listeners}})
}

fn route(namespace: &str, created: u8, section: &str, hosts: &[&str], path: &str) -> Value {
    let mut parent = json!({"name": "edge", "namespace": "infra"});
    if !section.is_empty() {
        parent["sectionName"] = json!(section);
    }
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": format!("r{}", path.trim_end_matches('/').replace(['/', '.'], "-")),
            "namespace": namespace, "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
        "spec": {"parentRefs": [parent], "hostnames": hosts, "rules": [
            {"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}]}]}})
}

impl Site {
    fn new(fleet: Fleet, recording: Recording) -> Self {
        let addresses = vec![[127, 0, 0, 1].into()];
        let settings = Settings {
            fleet,
            recording,
            hold: 3600,
            ..Settings::new("c", addresses)
        };
        let mut site = Self {
            engine: Engine::new(settings),
            published: Published::default(),
            now: UNIX_EPOCH + Duration::from_secs(1_000_000),
        };
        site.put(
            json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"},
            "spec": {"controllerName": "c"}}),
        );
        for namespace in ["infra", "alice", "mallory"] {
            site.put(
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": namespace},
                "spec": {"ports": [{"port": 80}]}}),
            );
        }
        site.put(gateway(&[
            ("http", 80, "HTTP", ""),
            ("wide", 8080, "HTTP", "*.x.org"),
            ("one", 8081, "HTTP", "s.x.org"),
        ]));
        site
    }

    fn apply(&mut self, changes: Vec<Change>) {
        self.now += Duration::from_secs(1);
        self.published.take(self.engine.apply(changes, self.now));
    }

    fn put(&mut self, value: Value) {
        self.apply(vec![put(value)]);
    }

    fn delete(&mut self, route: &Value) {
        let Change::Object(ObjectChange::Put(object)) = put(route.clone()) else {
            panic!("an object")
        };
        self.apply(vec![Change::delete(object.key())]);
    }

    /// The namespaces whose backends serve a host on a port, as Envoy would look it up, or a text
    /// that none does.
    fn served(&self, port: u16, host: &str) -> String {
        let host = name(host);
        let own = FrontendId::tcp(ObjectName::new("infra", "edge"), port);
        let common = shared_frontend(gatewright_objects::model::TransportPort::tcp(port));
        let of = |id: &FrontendId| Some(self.published.scopes(id)).filter(|all| !all.is_empty());
        let Some(scopes) = of(&own).or_else(|| of(&common)) else {
            return "closed".to_owned();
        };
        let names = std::iter::once(host.clone())
            .chain(host.covering())
            .chain([Hostname::any()]);
        let Some(found) = names.into_iter().find_map(|name| scopes.get(&name)) else {
            return "nobody".to_owned();
        };
        let backends = found
            .routes
            .iter()
            .flat_map(|route| match &route.rule.action {
                Action::Forward(shares) => shares.clone(),
                _ => Vec::new(),
            });
        let mut all: Vec<String> = backends
            .map(|share| match share.target {
                Target::Backend(backend) => backend.port.service.namespace.to_string(),
                Target::Invalid => "invalid".to_owned(),
            })
            .collect();
        all.sort();
        all.dedup();
        if all.is_empty() {
            "nobody".to_owned()
        } else {
            all.join("+")
        }
    }

    /// `Accepted` of a route: its reason and message.
    fn told(&self, route: &Value) -> (&'static str, String) {
        fn text<'a>(field: &str, route: &'a Value) -> &'a str {
            route["metadata"][field].as_str().expect("a text")
        }
        let key = ObjectKey::new(
            Kind::HTTPRoute,
            ObjectName::new(text("namespace", route), text("name", route)),
        );
        let StatusBody::Route(status) = self.engine.status(&key).expect("a status").body else {
            panic!("a route's")
        };
        let accepted = &status.parents[0].1[0];
        (accepted.reason.as_str(), accepted.message.clone())
    }

    /// Records the proposals, as the keeper of the record does.
    fn keep(&mut self) -> usize {
        let proposals = self.engine.ledger().proposals();
        let all: Vec<Change> = proposals
            .map(|(what, owner)| Change::Fact(Fact::Recorded(what.clone(), owner.cloned())))
            .collect();
        let count = all.len();
        self.apply(all);
        count
    }
}

#[test]
fn a_hostname_belongs_to_the_routes_of_whoever_was_first_on_every_port() {
    for fleet in [Fleet::Own, Fleet::Shared] {
        let mut site = Site::new(fleet, Recording::ThisProcess);
        let hers = route("alice", 9, "", &["a.x.org"], "/");
        site.put(hers.clone());
        let theirs = route("mallory", 1, "", &["a.x.org", "m.x.org"], "/login");
        site.put(theirs.clone());
        for port in [80, 8080] {
            assert_eq!(
                &*site.served(port, "a.x.org"),
                "alice",
                "alice has her host"
            );
            assert_eq!(&*site.served(port, "m.x.org"), "mallory", "mallory has his");
        }
        let (reason, text) = site.told(&theirs);
        assert_eq!(reason, "HostnameConflict");
        assert!(
            text.starts_with("hostname a.x.org: ") && !text.contains("alice"),
            "{text}"
        );
        assert_eq!(site.told(&hers).0, "Accepted");
        // Reserved for a while; after that the next claimant gets it.
        site.delete(&hers);
        assert_eq!(site.served(80, "a.x.org"), "nobody");
        site.put(hers.clone());
        assert_eq!(site.served(80, "a.x.org"), "alice");
        site.delete(&hers);
        site.now += Duration::from_secs(3600);
        site.apply(Vec::new());
        assert_eq!(
            &*site.served(80, "a.x.org"),
            "mallory",
            "the freed host is mallory's"
        );
        assert_eq!(site.told(&theirs).0, "Accepted", "he is told so");
    }
}

#[test]
fn within_a_namespace_rules_are_merged_and_the_listeners_own_namespace_is_always_served() {
    let mut site = Site::new(Fleet::Own, Recording::ThisProcess);
    site.put(route("alice", 9, "", &["a.x.org"], "/"));
    site.put(route("alice", 8, "", &["a.x.org"], "/more"));
    let own = route("infra", 7, "", &["a.x.org"], "/status");
    site.put(own.clone());
    assert_eq!(
        &*site.served(80, "a.x.org"),
        "alice+infra",
        "the rules of both are merged"
    );
    assert_eq!(
        site.told(&own).0,
        "Accepted",
        "the route of the listener's namespace is accepted"
    );
}

#[test]
fn an_owned_hostname_is_excluded_from_wider_hostnames_of_others() {
    let mut site = Site::new(Fleet::Own, Recording::ThisProcess);
    site.put(route("infra", 1, "http", &[], "/platform"));
    let everything = route("mallory", 1, "", &[], "/");
    site.put(everything.clone());
    // Alice has the hostname on one port alone; on the other the listener's own namespace answers.
    site.put(route("alice", 9, "wide", &["a.x.org"], "/"));
    assert_eq!(
        &*site.served(8080, "a.x.org"),
        "alice",
        "the owner is served"
    );
    assert_eq!(
        &*site.served(80, "a.x.org"),
        "infra",
        "her host is not mallory's on the other port"
    );
    assert_eq!(
        &*site.served(8080, "b.x.org"),
        "mallory",
        "another name below the wildcard is mallory's"
    );
    assert_eq!(
        &*site.served(80, "b.x.org"),
        "infra+mallory",
        "the installation is served beside him"
    );
    // Her wildcard owns the names below it; names below the listener's own hostname belong to no
    // one namespace.
    site.put(route("alice", 9, "wide", &["*.a.x.org"], "/wild"));
    let below = route("mallory", 1, "", &["in.a.x.org"], "/below");
    site.put(below.clone());
    assert_eq!(
        &*site.served(8080, "in.a.x.org"),
        "alice",
        "what is below the owner's wildcard is hers"
    );
    assert_eq!(
        &*site.served(80, "in.a.x.org"),
        "infra",
        "it is not mallory's on the other port"
    );
    assert_eq!(site.told(&below).0, "HostnameConflict");
    site.put(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mallory",
        "labels": {HOST_LABEL: "in.a.x.org"}}}),
    );
    assert_eq!(site.told(&below).0, "Accepted", "the platform gave it");
    assert_eq!(
        &*site.served(80, "in.a.x.org"),
        "mallory",
        "the platform gave it"
    );
    site.delete(&everything);
    site.now += Duration::from_secs(3600);
    site.apply(Vec::new());
    assert_eq!(
        &*site.served(80, "a.x.org"),
        "infra",
        "the host of alice is not mallory's"
    );
    assert_eq!(
        &*site.served(8080, "b.x.org"),
        "nobody",
        "the route has no other port"
    );
}

#[test]
fn a_route_without_hostnames_has_no_name_that_the_platform_granted_to_another_namespace() {
    let mut site = Site::new(Fleet::Own, Recording::ThisProcess);
    site.put(route("mallory", 1, "", &[], "/"));
    assert_eq!(site.served(80, "n.a.org"), "mallory", "nobody has it");
    fn label(host: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "alice",
        "labels": {HOST_LABEL: host}}})
    }
    site.put(label("a.org"));
    assert_eq!(
        [80, 8080].map(|port| site.served(port, "*.a.org")),
        ["nobody"; 2],
        "hers, also without a route"
    );
    assert_eq!(&*site.served(80, "a.org"), "nobody", "nothing else is");
    assert_eq!(&*site.served(80, "n.b.org"), "mallory", "nothing else is");
    let listed = route("mallory", 1, "", &["n.a.org", "*.n.a.org"], "/listed");
    site.put(listed.clone());
    assert_eq!(site.told(&listed).0, "HostnameConflict");
    site.put(route("alice", 9, "", &["n.a.org"], "/"));
    assert_eq!(
        &*site.served(80, "n.a.org"),
        "alice",
        "the granted name is alice's"
    );
    assert_eq!(
        &*site.served(80, "*.a.org"),
        "nobody",
        "her wildcard is not mallory's"
    );
    site.put(label("c.org"));
    assert_eq!(
        site.served(80, "*.a.org"),
        "mallory",
        "the platform took it back"
    );
}

#[test]
fn a_wildcard_as_wide_as_the_listener_or_a_public_suffix_takes_no_name_below() {
    let mut site = Site::new(Fleet::Own, Recording::ThisProcess);
    site.put(route(
        "mallory",
        1,
        "",
        &["*.org", "*.x.org", "*.y.net"],
        "/",
    ));
    let hers = route("alice", 9, "", &["a.x.org", "a.z.org"], "/");
    site.put(hers.clone());
    assert_eq!(site.told(&hers).0, "Accepted", "her route is accepted");
    assert_eq!(&*site.served(80, "a.z.org"), "alice", "alice is served");
    let late = route("alice", 9, "", &["a.y.net"], "/late");
    site.put(late.clone());
    assert_eq!(
        site.told(&late).0,
        "HostnameConflict",
        "the later route conflicts"
    );
    assert_eq!(
        &*site.served(80, "a.y.net"),
        "mallory",
        "the first one is served"
    );
}

#[test]
fn hostnames_are_shared_at_exact_listeners_or_by_parameter() {
    let mut site = Site::new(Fleet::Own, Recording::ThisProcess);
    let routes = [
        route("alice", 9, "one", &[], "/a"),
        route("mallory", 9, "one", &[], "/m"),
    ];
    routes.iter().for_each(|route| site.put(route.clone()));
    assert_eq!(site.served(8081, "s.x.org"), "alice+mallory");
    let both = [
        route("alice", 9, "http", &["b.x.org"], "/ab"),
        route("mallory", 9, "http", &["b.x.org"], "/mb"),
    ];
    both.iter().for_each(|route| site.put(route.clone()));
    fn consent(
        setting: &str,
        site: &mut Site,
        both: &[Value; 2],
    ) -> (String, String, &'static str) {
        let mut spec = json!({"fleet": "Shared"});
        if !setting.is_empty() {
            spec["routeHostnames"] = json!(setting);
        }
        site.put(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"name": "p", "namespace": "infra"}, "spec": spec}),
        );
        let mut with = gateway(&[("http", 80, "HTTP", ""), ("one", 8081, "HTTP", "s.x.org")]);
        with["spec"]["infrastructure"] = json!({"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "name": "p"}});
        site.put(with);
        (
            site.served(8081, "s.x.org"),
            site.served(80, "b.x.org"),
            site.told(&both[1]).0,
        )
    }
    let shared = "alice+mallory".to_owned();
    let alices = "alice".to_owned();
    assert_eq!(
        consent("", &mut site, &both),
        (shared.clone(), alices.clone(), "HostnameConflict")
    );
    assert_eq!(
        consent("Shared", &mut site, &both),
        (shared.clone(), shared.clone(), "Accepted")
    );
    assert_eq!(
        consent("Owned", &mut site, &both),
        (alices.clone(), alices.clone(), "HostnameConflict")
    );
    assert_eq!(
        consent("", &mut site, &both),
        (shared, alices, "HostnameConflict")
    );
}

#[test]
fn the_owner_of_a_hostname_at_an_exact_listener_owns_it_at_wider_ones() {
    let mut site = Site::new(Fleet::Own, Recording::ThisProcess);
    site.put(route("alice", 9, "one", &[], "/"));
    let theirs = route("mallory", 1, "http", &["s.x.org"], "/.well-known");
    site.put(theirs.clone());
    assert_eq!(
        site.told(&theirs).0,
        "HostnameConflict",
        "the route of the other conflicts"
    );
    assert_eq!(
        &*site.served(80, "s.x.org"),
        "nobody",
        "nobody else is served"
    );
    site.put(route("mallory", 1, "http", &[], "/"));
    assert_eq!(
        &*site.served(80, "s.x.org"),
        "nobody",
        "the owned host is not served at the wider listener"
    );
    assert_eq!(&*site.served(80, "t.x.org"), "mallory", "another one is");
}

#[test]
fn in_a_cluster_a_hostname_of_routes_is_served_once_it_is_recorded() {
    let mut site = Site::new(Fleet::Own, Recording::OtherProcess);
    site.keep();
    let hers = route("alice", 9, "", &["a.x.org"], "/");
    site.put(hers.clone());
    assert_eq!(
        site.told(&hers).0,
        "Pending",
        "the route waits for the record"
    );
    assert_eq!(&*site.served(80, "a.x.org"), "nobody", "nobody is served");
    assert_eq!(site.keep(), 1, "the claim is recorded");
    assert_eq!(site.told(&hers).0, "Accepted", "the route is accepted");
    assert_eq!(&*site.served(80, "a.x.org"), "alice", "its owner is served");
    let theirs = route("mallory", 1, "", &["a.x.org"], "/");
    site.put(theirs.clone());
    assert_eq!(site.keep(), 0, "nothing is recorded anew");
    assert_eq!(
        site.told(&theirs).0,
        "HostnameConflict",
        "the other route conflicts"
    );
}

/// A ListenerSet that extends the Gateway of `infra`, with a route to everything it has.
fn set(namespace: &str, created: u8, listeners: &[(&str, u16, &str, &str)]) -> Vec<Change> {
    let mut of = gateway(listeners);
    of["kind"] = json!("ListenerSet");
    of["metadata"] = json!({"name": "set", "namespace": namespace,
        "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")});
    of["spec"] = json!({"parentRef": {"name": "edge", "namespace": "infra"}, "listeners": of["spec"]["listeners"]});
    let mut route = route(namespace, created, "", &[], "/set");
    route["spec"]["parentRefs"] = json!([{"kind": "ListenerSet", "name": "set"}]);
    vec![put(of), put(route)]
}

#[test]
fn of_listener_sets_of_several_namespaces_the_first_has_a_hostname_whatever_it_claims_to_be() {
    for fleet in [Fleet::Own, Fleet::Shared] {
        let mut site = Site::new(fleet, Recording::ThisProcess);
        let mut own = gateway(&[("http", 80, "HTTP", "o.org")]);
        own["spec"]["allowedListeners"] = json!({"namespaces": {"from": "All"}});
        site.put(own);
        site.apply(set("mallory", 1, &[("own", 80, "HTTP", "m.org")]));
        site.apply(set(
            "alice",
            9,
            &[("l", 80, "HTTP", "a.org"), ("w", 80, "HTTP", "*.w.org")],
        ));
        // Claims of an older one: a name that is new to it; a name below her wildcard; a name on
        // another port; everything.
        for listener in [
            ("l", 80, "HTTP", "a.org"),
            ("l", 80, "HTTP", "b.w.org"),
            ("l", 81, "HTTP", "a.org"),
        ] {
            site.apply(set("mallory", 1, &[("own", 80, "HTTP", "m.org"), listener]));
            assert_eq!(&*site.served(80, "a.org"), "alice", "{listener:?}");
            assert_eq!(&*site.served(80, "b.w.org"), "alice", "{listener:?}");
            let key = ObjectKey::new(Kind::ListenerSet, ObjectName::new("mallory", "set"));
            let StatusBody::ListenerSet(told) = site.engine.status(&key).expect("a status").body
            else {
                panic!()
            };
            let accepted = &told.listeners[1].conditions[0];
            assert_eq!(accepted.reason, Reason::HostnameConflict, "{listener:?}");
            assert!(
                accepted.message.contains("belongs to another namespace"),
                "{}",
                accepted.message
            );
        }
        // The catch-all that the Gateway released is free again.
        site.now += Duration::from_secs(3600);
        site.apply(set(
            "mallory",
            1,
            &[("own", 80, "HTTP", "m.org"), ("any", 81, "HTTP", "")],
        ));
        assert_eq!(
            &*site.served(81, "x.org"),
            "mallory",
            "the own name is served"
        );
        assert_eq!(
            &*site.served(81, "a.org"),
            "nobody",
            "that of another is not"
        );
        // A route at the Gateway's own listener does not get the hostname of a ListenerSet either.
        let mut own = gateway(&[("http", 80, "HTTP", "o.org"), ("wide", 82, "HTTP", "*.org")]);
        own["spec"]["allowedListeners"] = json!({"namespaces": {"from": "All"}});
        site.put(own);
        site.put(route("infra", 1, "wide", &[], "/platform"));
        let theirs = route("mallory", 1, "wide", &["a.org", "c.org"], "/");
        site.put(theirs.clone());
        assert_eq!(
            site.told(&theirs).0,
            "HostnameConflict",
            "the other route conflicts"
        );
        assert_eq!(
            &*site.served(82, "a.org"),
            "infra",
            "the installation is served"
        );
        assert_eq!(site.served(82, "c.org"), "mallory");
    }
}
