//! Tests of the engine: order of events, restart, ownership, packing, locality.

mod broken_edits;
mod packing;
mod winners;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use gatewright_objects::inputs::Object;
use gatewright_objects::model::{Hostname, ObjectName, Reason};

pub(super) fn engine() -> Tenancy {
    let mut engine = Tenancy::new(Settings::default());
    engine.apply(vec![Change::Class("gatewright".into(), true)]);
    engine
}

pub(super) fn tenant(namespace: &str, spec: Value) -> Change {
    let value = json!({"metadata": {"namespace": namespace, "name": "cozystack", "uid": namespace}, "spec": spec});
    let tenant = TenantGateway::parse(&value).expect("a TenantGateway");
    Change::TenantGateway(tenant.name.clone(), Some(tenant))
}

pub(super) fn namespace(name: &str, gateway: &str, host: &str) -> Change {
    let labels = [(GATEWAY_LABEL, gateway), (HOST_LABEL, host)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty());
    let labels = labels
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    Change::Namespace(
        Arc::from(name),
        Some(Namespace {
            labels,
            ..Namespace::default()
        }),
    )
}

pub(super) fn route(
    kind: &str,
    namespace: &str,
    name: &str,
    gateway: &str,
    hostnames: &[&str],
) -> Change {
    let value = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"hostnames": hostnames, "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
            "parentRefs": [{"namespace": gateway, "name": "cozystack"}]}});
    let Object::Route(route) = Object::parse(value).expect("a route") else {
        unreachable!("a route kind")
    };
    let claimant = Claimant::from(&route);
    Change::Claimant(claimant.key.clone(), Some(claimant))
}

pub(super) fn http(namespace: &str, name: &str, hostnames: &[&str]) -> Change {
    route("HTTPRoute", namespace, name, "tenant-a", hostnames)
}

pub(super) fn gone(change: Change) -> Change {
    match change {
        Change::TenantGateway(name, _) => Change::TenantGateway(name, None),
        Change::Namespace(name, _) => Change::Namespace(name, None),
        Change::Claimant(key, _) => Change::Claimant(key, None),
        Change::Existing(key, _) => Change::Existing(key, None),
        Change::Secret(name, _) => Change::Secret(name, None),
        Change::Fact(Fact::Keyed(name, _)) => Change::Fact(Fact::Keyed(name, false)),
        Change::Class(..)
        | Change::Fact(Fact::Recorded(..))
        | Change::Fact(Fact::ListenerSets(_))
        | Change::Fact(Fact::Time(_)) => {
            unreachable!("these do not go")
        }
    }
}

pub(super) fn key(namespace: &str, name: &str) -> ClaimKey {
    ClaimKey {
        kind: ClaimKind::HttpRoute,
        name: ObjectName::new(namespace, name),
    }
}

pub(super) fn name() -> ObjectName {
    ObjectName::new("tenant-a", "cozystack")
}

pub(super) fn tenant_with_namespaces(spec: Value) -> Vec<Change> {
    vec![
        namespace("tenant-a", "tenant-a", "a.org"),
        namespace("tenant-a-b", "tenant-a", "b.a.org"),
        namespace("tenant-a-c", "tenant-a", "a.org"),
        namespace("cozy-x", "tenant-a", "a.org"),
        tenant("tenant-a", spec),
    ]
}

fn listeners(engine: &Tenancy) -> Vec<Value> {
    let gateway = engine.objects()[&Derived {
        kind: DerivedKind::Gateway,
        name: name(),
    }]
        .document();
    gateway["spec"]["listeners"]
        .as_array()
        .expect("listeners")
        .clone()
}

fn names_of(engine: &Tenancy) -> Vec<String> {
    listeners(engine)
        .iter()
        .map(|l| l["name"].as_str().expect("named").to_owned())
        .collect()
}

pub(super) fn reason(engine: &Tenancy, namespace: &str, route: &str) -> &'static str {
    engine
        .verdict(&key(namespace, route), &name())
        .map_or("none", |verdict| verdict.reason.as_str())
}

#[test]
fn http01_has_a_listener_and_a_certificate_per_host_between_http_and_passthrough() {
    let mut engine = engine();
    engine.apply(tenant_with_namespaces(
        json!({"apex": "a.org", "tlsPassthroughServices": ["api", "api"]}),
    ));
    engine.apply(vec![http("tenant-a", "r", &["y.a.org", "x.a.org"])]);
    assert_eq!(
        names_of(&engine),
        [
            "http",
            &names::host_listener("x.a.org"),
            &names::host_listener("y.a.org"),
            "tls-api"
        ]
    );
    let certificate = ObjectName::new("tenant-a", names::host_certificate("cozystack", "x.a.org"));
    let certificate = engine.objects()[&Derived {
        kind: DerivedKind::Certificate,
        name: certificate,
    }]
        .document();
    assert_eq!(certificate["spec"]["dnsNames"], json!(["x.a.org"]));
}

fn selector(engine: &Tenancy) -> Value {
    let https = listeners(engine)
        .into_iter()
        .find(|listener| listener["protocol"] == "HTTPS");
    https.expect("it has one")["allowedRoutes"]["namespaces"]["selector"]["matchLabels"]["kubernetes.io/metadata.name"]
            .clone()
}

#[test]
fn a_refused_claim_does_not_affect_other_namespaces() {
    let mut engine = engine();
    engine.apply(tenant_with_namespaces(
        json!({"apex": "a.org", "tlsPassthroughServices": ["api"]}),
    ));
    for (hostnames, expected) in [
        (&["x.other.org"][..], "HostnameNotAllowed"),
        (&["xa.org"], "HostnameNotAllowed"),
        (&["*.a.org"], "WildcardNotIssuable"),
        (&["api.a.org"], "HostnameConflict"),
        (&["A.a.org"], "InvalidHostname"),
        (&[], "HostnameRequired"),
        (&["fine.a.org"], "Accepted"),
    ] {
        engine.apply(vec![
            http("tenant-a", "r", hostnames),
            http("tenant-a-c", "s", &["ok.a.org"]),
        ]);
        assert_eq!(reason(&engine, "tenant-a", "r"), expected, "{hostnames:?}");
        assert_eq!(reason(&engine, "tenant-a-c", "s"), "Accepted");
    }
    engine.apply(vec![
        http("tenant-a-b", "child", &["x.a.org"]),
        http("stranger", "r", &["y.a.org"]),
    ]);
    assert_eq!(reason(&engine, "tenant-a-b", "child"), "HostnameNotAllowed");
    assert_eq!(reason(&engine, "stranger", "r"), "none");
    engine.apply(vec![route(
        "TLSRoute",
        "cozy-x",
        "t",
        "tenant-a",
        &["api.a.org"],
    )]);
    let tls = ClaimKey {
        kind: ClaimKind::TlsRoute,
        name: ObjectName::new("cozy-x", "t"),
    };
    assert_eq!(
        engine.verdict(&tls, &name()).map(|v| v.reason),
        Some(Reason::Accepted)
    );
    assert!(
        !names_of(&engine).contains(&names::host_listener("api.a.org")),
        "no terminating listener beside passthrough"
    );
}

/// Objects of ours in a cluster are read back, but not parts that others added.
#[test]
fn a_listener_that_somebody_added_goes_and_a_certificate_that_somebody_removed_comes_back() {
    let mut engine = engine();
    engine.apply(tenant_with_namespaces(json!({"apex": "a.org"})));
    engine.apply(vec![http("tenant-a", "r", &["x.a.org"])]);
    let before = listeners(&engine);
    let hosts = [("extra", "y.a.org"), ("https-x-2b6b8ae4", "x.a.org")];
    let hosts = hosts
        .map(|(name, host)| (name.to_owned(), Hostname::parse(host).expect("a name")))
        .into();
    let gateway = Derived {
        kind: DerivedKind::Gateway,
        name: name(),
    };
    engine.apply(vec![Change::Existing(
        gateway,
        Some(Existing {
            owner: "tenant-a".into(),
            hosts,
            class: None,
            is_orphan: false,
        }),
    )]);
    assert_eq!(listeners(&engine), before);

    let secret = super::rule::names::host_certificate("cozystack", "x.a.org");
    let certificate = Derived {
        kind: DerivedKind::Certificate,
        name: ObjectName::new("tenant-a", secret),
    };
    assert!(engine.objects().contains_key(&certificate));
    engine.apply(vec![Change::Existing(
        certificate.clone(),
        Some(Existing::default()),
    )]);
    assert!(!engine.objects().contains_key(&certificate));
    engine.apply(vec![Change::Existing(certificate.clone(), None)]);
    assert!(engine.objects().contains_key(&certificate));
}

pub(super) fn host(n: usize) -> Change {
    http("tenant-a", &format!("r{n}"), &[&format!("h{n}.a.org")])
}

/// The work to add and to remove one host, and how many objects each changed.
fn work(hosts: usize, tenants: usize) -> Vec<(Counters, usize)> {
    let mut engine = engine();
    let mut changes =
        tenant_with_namespaces(json!({"apex": "a.org", "gatewayClassName": "gatewright"}));
    for n in 0..tenants {
        changes.push(namespace(&format!("other-{n}"), "", ""));
        changes.push(tenant(
            &format!("other-{n}"),
            json!({"apex": format!("o{n}.org")}),
        ));
    }
    changes.extend((0..hosts).map(host));
    engine.apply(changes);
    [host(hosts), gone(host(70))]
        .map(|change| {
            let before = engine.counters();
            let delta = engine.apply(vec![change]);
            let work = engine.counters().since(&before);
            (work, delta.objects.len())
        })
        .to_vec()
}

#[test]
fn work_does_not_grow_with_hosts_or_tenants() {
    let few = work(100, 10);
    assert_eq!(
        few[0],
        (
            Counters {
                tenants: 0,
                claimants: 1,
                hosts: 1,
                places: 1,
                shards: 1,
                verdicts: 1
            },
            2
        )
    );
    assert_eq!(few, work(1_000, 10));
    assert_eq!(few, work(10_000, 1_000));
}

pub(super) fn event() -> impl Strategy<Value = Change> {
    let hosts: &[&str] = &[
        "x.a.org",
        "y.a.org",
        "x.b.a.org",
        "*.b.a.org",
        "api.a.org",
        "a.org",
        "z.org",
    ];
    let spaces: &[&str] = &["tenant-a", "tenant-a-b", "tenant-a-c", "cozy-x", "default"];
    let routes = (
        pick(spaces),
        pick(&["r", "q"]),
        proptest::collection::vec(pick(hosts), 0..3),
    )
        .prop_map(|(namespace, name, hosts)| http(namespace, name, &hosts));
    let routes = (routes, proptest::bool::weighted(0.2)).prop_map(|(route, plain)| match route {
        Change::Claimant(key, Some(mut claimant)) if plain => {
            Arc::make_mut(&mut claimant.parents)[0].section = Some("http".to_owned());
            Change::Claimant(key, Some(claimant))
        }
        route => route,
    });
    let spaces = (
        pick(spaces),
        pick(&["tenant-a", "tenant-z", "tenant-a"]),
        pick(&["a.org", "b.a.org", ""]),
    )
        .prop_map(|(name, gateway, host)| namespace(name, gateway, host));
    let specs = proptest::sample::select(vec![
        json!({"apex": "a.org"}),
        json!({"apex": "a.org", "tlsPassthroughServices": ["api"]}),
        json!({"apex": "a.org", "certMode": "existingSecret", "wildcardSecretRef": {"name": "w"}}),
    ]);
    let keys = (
        prop_oneof![Just("x.a.org"), Just("a.org"), Just("*")],
        any::<bool>(),
    )
        .prop_map(|(host, ours)| {
            let secret = if host == "*" {
                names::wildcard_certificate("cozystack")
            } else {
                names::host_certificate("cozystack", host)
            };
            Change::Fact(Fact::Keyed(ObjectName::new("tenant-a", secret), ours))
        });
    prop_oneof![5 => routes, 2 => spaces, 1 => keys, 1 => specs.prop_map(|spec| tenant("tenant-a", spec))]
}

fn pick(options: &'static [&'static str]) -> prop::sample::Select<&'static str> {
    proptest::sample::select(options)
}

pub(super) type View = (
    BTreeMap<Derived, Desired>,
    BTreeMap<(ClaimKey, ObjectName), Verdict>,
);

/// The shard of each host's listener.
pub(super) fn places(engine: &Tenancy) -> BTreeMap<Hostname, usize> {
    engine
        .hosts()
        .iter()
        .filter_map(|held| Some((held.host().hostname.clone(), held.shard()?)))
        .collect()
}

/// The places of hosts that a later run reads back.
pub(super) fn existing_objects(engine: &Tenancy) -> Vec<Change> {
    let kinds = [DerivedKind::Gateway, DerivedKind::ListenerSet];
    let objects = engine
        .objects()
        .iter()
        .filter(|(derived, _)| kinds.contains(&derived.kind));
    let existing = objects.map(|(derived, object)| {
        let listeners = object
            .listeners()
            .iter()
            .filter(|listener| listener.port == 443);
        let hosts = listeners
            .map(|l| (l.name.to_string(), l.hostname.clone().expect("a name")))
            .collect();
        Change::Existing(
            derived.clone(),
            Some(Existing {
                owner: "tenant-a".into(),
                hosts,
                class: None,
                is_orphan: false,
            }),
        )
    });
    existing.collect()
}

pub(super) fn view(engine: &Tenancy) -> View {
    let told = engine
        .verdicts()
        .map(|(claim, tenant, verdict)| ((claim.clone(), tenant.clone()), verdict.clone()));
    (engine.objects().clone(), told.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn any_order_ends_as_one_start_from_nothing(events in proptest::collection::vec((event(), proptest::bool::weighted(0.2)), 1..40)) {
        let mut engine = engine();
        // The TenantGateway never becomes invalid: then it would keep live objects, which a fresh
        // start cannot know.
        engine.apply(vec![tenant("tenant-a", json!({"apex": "a.org"}))]);
        let mut last = BTreeMap::new();
        let fixed = [namespace("tenant-a", "tenant-a", "a.org")];
        for (change, remove) in fixed.into_iter().map(|c| (c, false)).chain(events) {
            if matches!(&change, Change::Namespace(name, Some(ns)) if **name == *"tenant-a" && (ns.labels.get(GATEWAY_LABEL).is_none_or(|g| g != "tenant-a") || ns.labels.get(HOST_LABEL).is_none_or(|h| h != "a.org"))) {
                continue;
            }
            let remove = remove && matches!(change, Change::Claimant(..));
            let change = if remove { gone(change) } else { change };
            let id = match &change {
                Change::TenantGateway(name, _) => format!("t{name}"),
                Change::Namespace(name, _) => format!("n{name}"),
                Change::Secret(name, _) => format!("s{name}"),
                Change::Fact(Fact::Keyed(name, _)) => format!("k{name}"),
                Change::Claimant(key, _) => format!("c{key:?}"),
                Change::Existing(key, _) => format!("e{key:?}"),
                Change::Class(..) | Change::Fact(Fact::Recorded(..)) | Change::Fact(Fact::ListenerSets(_)) | Change::Fact(Fact::Time(_)) => unreachable!("none is made"),
            };
            last.insert(id, change.clone());
            engine.apply(vec![change]);
        }
        last.entry("ttenant-a/cozystack".to_owned()).or_insert(tenant("tenant-a", json!({"apex": "a.org"})));
        let mut fresh = self::engine();
        fresh.apply(last.into_values().collect());
        prop_assert_eq!(view(&engine), view(&fresh));
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn packing_is_stable_and_survives_a_restart(steps in proptest::collection::vec((0usize..180, any::<bool>()), 1..60)) {
        let mut engine = engine();
        let base = tenant_with_namespaces(json!({"apex": "a.org"}));
        let mut changes = base.clone();
        changes.extend((0..150).map(host));
        engine.apply(changes);
        let mut there: std::collections::BTreeSet<usize> = (0..150).collect();
        for (n, add) in steps {
            let before = places(&engine);
            engine.apply(vec![if add { host(n) } else { gone(host(n)) }]);
            if add { there.insert(n); } else { there.remove(&n); }
            for (host, place) in places(&engine) {
                prop_assert!(before.get(&host).is_none_or(|old| *old == place), "moved {host}");
            }
            prop_assert!(listeners(&engine).len() <= 64);
        }
        let mut all = base;
        all.extend(there.into_iter().map(host));
        all.extend(existing_objects(&engine));
        let mut fresh = self::engine();
        fresh.apply(all);
        prop_assert_eq!(view(&engine), view(&fresh));
    }
}

#[test]
fn desired_objects_equal_their_parsed_documents() {
    let specs = [
        json!({"apex": "a.org", "tlsPassthroughServices": ["api"]}),
        json!({"apex": "a.org", "gatewayClassName": "gatewright"}),
        json!({"apex": "a.org", "certMode": "existingSecret", "wildcardSecretRef": {"name": "w"}}),
    ];
    for spec in specs {
        let mut engine = engine();
        engine.apply(tenant_with_namespaces(spec));
        engine.apply((0..100).map(host).collect());
        engine.apply(vec![
            http("tenant-a-c", "s", &["h1.a.org"]),
            http("tenant-a-b", "t", &["x.b.a.org"]),
        ]);
        let mut kinds = std::collections::BTreeSet::new();
        for (derived, desired) in engine.objects() {
            let Some(given) = desired.object() else {
                continue;
            };
            assert_eq!(
                given,
                Object::parse(desired.document()).expect("an object"),
                "{derived:?}"
            );
            kinds.insert(derived.kind);
        }
        assert!(
            kinds.contains(&DerivedKind::Gateway) && kinds.contains(&DerivedKind::HttpRoute),
            "{kinds:?}"
        );
    }
}

#[test]
fn a_label_of_others_is_left_alone_and_the_first_owner_keeps_its_own() {
    let mut engine = engine();
    fn spec(apex: &str) -> Value {
        json!({"apex": apex, "attachedNamespaces": ["shared", "taken"]})
    }
    let delta = engine.apply(vec![
        bare("x"),
        bare("shared"),
        namespace("taken", "other", ""),
        tenant("x", spec("x.org")),
    ]);
    assert_eq!(
        delta.namespaces.get("shared"),
        Some(&Patch::Set("x".into()))
    );
    assert_eq!(delta.namespaces.get("taken"), None);
    let labels = BTreeMap::from([(GATEWAY_LABEL.to_owned(), "x".to_owned())]);
    let annotations = BTreeMap::from([(ATTACHED_BY.to_owned(), "x".to_owned())]);
    engine.apply(vec![Change::Namespace(
        "shared".into(),
        Some(Namespace {
            labels,
            annotations,
            ..Namespace::default()
        }),
    )]);
    engine.apply(vec![bare("b"), tenant("b", spec("b.org"))]);
    assert_eq!(engine.gateway_of("shared").as_deref(), Some("x"));
    let second = engine
        .readiness(&ObjectName::new("b", "cozystack"))
        .map(|readiness| readiness.reason);
    assert_eq!(second, Some("NamespaceAttachedElsewhere"));
    let delta = engine.apply(vec![gone(tenant("x", spec("x.org")))]);
    assert_eq!(
        delta.namespaces.get("shared"),
        Some(&Patch::Set("b".into())),
        "the next owner takes over what is freed"
    );
}

#[test]
fn the_namespace_of_a_live_tenant_that_loses_its_labels_or_inherits_elsewhere_leaves_it_live() {
    for (changed, reason) in [
        (
            namespace("tenant-a", "tenant-a", ""),
            "NamespaceNotLabelled",
        ),
        (namespace("tenant-a", "", ""), "NamespaceNotLabelled"),
        (
            namespace("tenant-a", "tenant-a-b", "a.org"),
            "NamespaceInheritsElsewhere",
        ),
        (gone(namespace("tenant-a", "", "")), "NamespaceNotFound"),
    ] {
        let mut engine = engine();
        engine.apply(tenant_with_namespaces(json!({"apex": "a.org"})));
        engine.apply(vec![http("tenant-a-c", "r", &["x.a.org"])]);
        let before = engine.objects().clone();
        let delta = engine.apply(vec![changed]);
        assert_eq!(engine.objects(), &before, "{reason}: {delta:?}");
        assert_eq!(
            engine.readiness(&name()).map(|readiness| readiness.reason),
            Some(reason)
        );
        assert_eq!(self::reason(&engine, "tenant-a-c", "r"), "Accepted");
    }
}

fn bare(name: &str) -> Change {
    namespace(name, "", "")
}
