//! Endpoints by name: judged whenever the name is resolved.

use serde_json::json;

use super::*;
use crate::Fact;
use gatewright_objects::external_name::{ExternalName, ExternalNames, NamePolicy, NameResolution};
use gatewright_objects::limits::{Limits, NamespaceLimits};

const NAME: &str = "api.example.org";

/// Settings with which names are looked up, and may not lead into 10.0.0.0/8 but to one address.
fn naming(settings: Settings) -> Settings {
    Settings {
        external_names: ExternalNames::On(NamePolicy {
            denied: vec!["10.0.0.0/8".parse().expect("a network")],
            allowed: vec!["10.9.9.9/32".parse().expect("a network")],
            ..NamePolicy::default()
        }),
        ..settings
    }
}

fn external(name: &str) -> Value {
    service(
        "mallory",
        "web",
        json!({"type": "ExternalName", "externalName": name, "ports": [{"port": 80, "targetPort": 8080}]}),
    )
}

/// The addresses of a name, as a fact.
fn resolved(name: &str, addresses: &[&str], problem: Option<&str>) -> Change {
    let resolution = NameResolution {
        name: ExternalName::parse(name).expect("a name"),
        addresses: addresses
            .iter()
            .map(|text| text.parse::<IpAddr>().expect("an address"))
            .collect(),
        problem: problem.map(Arc::from),
    };
    Change::Fact(Fact::Resolved(
        ObjectName::new("mallory", "web"),
        resolution,
    ))
}

fn told(settings: Settings) -> Told {
    let mut told = Told::new(naming(settings));
    told.put(external(NAME));
    told
}

#[test]
fn names_are_refused_unless_the_operator_opens_them() {
    let mut told = Told::new(Settings::new("c", vec![]));
    told.put(external(NAME));
    let verdict = told.verdict.expect("it is refused");
    assert!(verdict.starts_with("UnsupportedValue"), "{verdict}");
    assert!(
        verdict.contains("backends.externalNames.enabled"),
        "{verdict}"
    );
    assert!(!told.engine.awaits_names(), "no name is wanted");
}

/// Names that are wanted now, or not any more.
type Names = BTreeMap<ObjectName, Option<ExternalName>>;

fn put(engine: &mut Engine, value: Value) -> Names {
    let change = Change::put(Object::parse(value).expect("an object"));
    engine.apply(vec![change], SystemTime::UNIX_EPOCH).names
}

fn wanted(name: Option<&str>) -> Names {
    let name = name.map(|text| ExternalName::parse(text).expect("a name"));
    BTreeMap::from([(ObjectName::new("mallory", "web"), name)])
}

fn route_to(backend: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "r", "namespace": "mallory"},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": ["m.example.org"],
            "rules": [{"backendRefs": [{"name": backend, "port": 80}]}]}})
}

#[test]
fn a_name_is_wanted_while_a_route_leads_there() {
    let mut engine = Engine::new(naming(Settings::new("c", vec![])));
    put(
        &mut engine,
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "ours"},
            "spec": {"controllerName": "c"}}),
    );
    put(&mut engine, gateway(80));
    let news = put(&mut engine, external(NAME));
    assert!(news.is_empty(), "no route leads there");
    let news = put(&mut engine, route_to("web"));
    assert_eq!(news, wanted(Some(NAME)));
    let news = put(&mut engine, external("API.example.org."));
    assert!(news.is_empty(), "it is the same name");
    let news = put(&mut engine, external("other.example.org"));
    assert_eq!(news, wanted(Some("other.example.org")));
    let news = put(&mut engine, external("web.other.svc.cluster.local"));
    assert_eq!(news, wanted(None), "names of the cluster are not looked up");
    put(&mut engine, external(NAME));
    let news = put(&mut engine, route_to("elsewhere"));
    assert_eq!(news, wanted(None));
}

#[test]
fn its_addresses_are_the_endpoints_with_the_target_port() {
    let mut told = told(Settings::new("c", vec![]));
    assert_eq!(told.used().len(), 0, "it is being looked up");
    let verdict = told.verdict.clone().expect("it is told");
    assert!(verdict.starts_with("Pending"), "{verdict}");
    assert!(told.engine.awaits_names(), "a look-up is awaited");
    // What slices list is not used.
    told.list(&["192.0.2.77"], 8080);
    assert_eq!(told.used().len(), 0, "slices do not count");
    told.apply(resolved(NAME, &["192.0.2.1", "2001:db8::1"], None));
    assert_eq!(told.used(), ["192.0.2.1:8080", "[2001:db8::1]:8080"]);
    assert_eq!(told.verdict, None);
    assert!(!told.engine.awaits_names(), "it is looked up");
    // An answer about an earlier name.
    told.apply(resolved("other.example.org", &["192.0.2.9"], None));
    assert_eq!(told.used(), ["192.0.2.1:8080", "[2001:db8::1]:8080"]);
    told.apply(resolved(NAME, &["192.0.2.1"], Some("no resolver answers")));
    assert_eq!(told.used(), ["192.0.2.1:8080"], "the last ones are used");
    assert_eq!(told.verdict, None);
    told.apply(resolved(NAME, &[], Some("no resolver answers")));
    assert_eq!(told.used().len(), 0);
    let verdict = told.verdict.clone().expect("it is told");
    assert!(verdict.starts_with("NameNotResolved"), "{verdict}");
    assert!(verdict.contains("no resolver answers"), "{verdict}");
    told.put(external("new.example.org"));
    assert!(told.engine.awaits_names(), "the new name is looked up");
    told.put(service("mallory", "web", json!({"ports": [{"port": 80}]})));
    assert_eq!(
        told.used(),
        ["192.0.2.77:8080"],
        "it is another Service now"
    );
}

#[test]
fn a_change_of_addresses_costs_one_assignment() {
    let mut told = told(Settings::new("c", vec![]));
    told.apply(resolved(NAME, &["192.0.2.1"], None));
    let before = told.engine.counters();
    let change = resolved(NAME, &["192.0.2.2"], None);
    let delta = told
        .engine
        .apply(vec![change.clone()], SystemTime::UNIX_EPOCH);
    let keys: Vec<&ResourceKey> = delta.resources.keys().collect();
    assert!(matches!(keys[..], [ResourceKey::Endpoints(_)]), "{keys:?}");
    assert!(delta.statuses.is_empty(), "{:?}", delta.statuses);
    let work = told.engine.counters().since(&before);
    assert_eq!(work, crate::Counters::default());
    let again = told.engine.apply(vec![change], SystemTime::UNIX_EPOCH);
    assert_eq!(again, Delta::default(), "an equal answer changes nothing");
}

#[test]
fn a_name_that_comes_to_lead_inside_is_not_followed() {
    for settings in [Settings::new("c", vec![]), in_cluster()] {
        let mut told = told(settings);
        // A label permits the namespace any endpoints, and its names none.
        told.put(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "mallory", "labels": {"gatewright.io/endpoints": "any"}}}));
        for (inside, why) in [
            (
                "10.1.2.3",
                "10.0.0.0/8, which backends.externalNames.deniedNetworks has",
            ),
            ("::ffff:10.1.2.3", "backends.externalNames.deniedNetworks"),
            ("169.254.169.254", "link-local"),
            ("fd00:ec2::254", "metadata"),
        ] {
            told.apply(resolved(NAME, &["192.0.2.1"], None));
            assert_eq!(told.used(), ["192.0.2.1:8080"]);
            assert_eq!(told.verdict, None);
            told.apply(resolved(NAME, &[inside], None));
            assert_eq!(told.used().len(), 0, "{inside}");
            assert!(told.refused(why), "{inside}: {:?}", told.verdict);
            assert!(told.refused(NAME), "the name is told: {:?}", told.verdict);
            told.apply(resolved(NAME, &[inside, "10.9.9.9"], None));
            assert_eq!(told.used(), ["10.9.9.9:8080"], "{inside}");
        }
    }
}

fn in_cluster() -> Settings {
    Settings {
        fleet: Fleet::Shared,
        envoys: Some(ObjectName::new("ours", "envoy")),
        endpoints: EndpointPolicy {
            loopback: false,
            denied: Vec::new(),
        },
        ..Settings::new("c", vec![])
    }
}

#[test]
fn addresses_that_something_gets_later_are_given_up() {
    let mut told = told(in_cluster());
    told.apply(resolved(NAME, &["192.0.2.1"], None));
    assert_eq!(told.used(), ["192.0.2.1:8080"]);
    told.put(service(
        "ours",
        "envoy",
        json!({"type": "LoadBalancer", "ports": [{"port": 443}], "clusterIP": "192.0.2.1", "clusterIPs": ["192.0.2.1"]}),
    ));
    assert_eq!(told.used().len(), 0);
    assert!(
        told.refused("the address of a Service"),
        "{:?}",
        told.verdict
    );
}

#[test]
fn a_namespace_has_a_number_of_names() {
    let limits = Limits {
        namespace: NamespaceLimits {
            external_names: 0,
            ..NamespaceLimits::default()
        },
        ..Limits::default()
    };
    let told = told(Settings {
        limits,
        ..Settings::new("c", vec![])
    });
    let verdict = told.verdict.expect("it is told");
    assert!(verdict.starts_with("LimitReached"), "{verdict}");
    assert!(
        verdict.contains("limits.namespace.externalNames 0"),
        "{verdict}"
    );
    assert!(!told.engine.awaits_names(), "it is not looked up");
}
