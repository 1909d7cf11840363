//! Tests of unmanaged TenantGateways: they could never be carried out since the program started.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::confluence::{engine, existing_objects, gone, http, key, name, namespace, tenant, view};
use super::*;
use gatewright_objects::model::ObjectName;

/// A namespace whose annotation says that the TenantGateway of another one attached it.
fn attached(name: &str, by: &str) -> Change {
    let labels = BTreeMap::from([(GATEWAY_LABEL.to_owned(), by.to_owned())]);
    let annotations = BTreeMap::from([(ATTACHED_BY.to_owned(), by.to_owned())]);
    Change::Namespace(
        name.into(),
        Some(Namespace {
            labels,
            annotations,
            ..Namespace::default()
        }),
    )
}

fn there() -> Vec<Change> {
    vec![
        namespace("tenant-a", "tenant-a", "a.org"),
        namespace("tenant-a-b", "tenant-a", "b.a.org"),
        attached("cozy-x", "tenant-a"),
        http("tenant-a", "r", &["x.a.org"]),
        http("cozy-x", "r", &["api.a.org"]),
    ]
}

fn granted(engine: &Tenancy, namespace: &str, route: &str) -> Vec<String> {
    let verdict = engine.verdict(&key(namespace, route), &name());
    verdict
        .map(|verdict| verdict.granted.iter().map(ToString::to_string).collect())
        .unwrap_or_default()
}

fn specs() -> [(Value, &'static [&'static str]); 2] {
    [
        (
            json!({"apex": "a.org", "attachedNamespaces": ["cozy-x"]}),
            &[],
        ),
        (
            json!({"apex": "a.org", "attachedNamespaces": ["cozy-x"], "certMode": "existingSecret",
                "wildcardSecretRef": {"name": "w"}}),
            // A wildcard serves every namespace that may attach and was not refused.
            &["new.a.org"],
        ),
    ]
}

#[test]
fn hostnames_that_were_live_before_the_start_stay_and_others_are_not_granted() {
    for (spec, new) in specs() {
        let mut before = engine();
        before.apply([there(), vec![tenant("tenant-a", spec.clone())]].concat());
        let objects = existing_objects(&before);
        let mut engine = engine();
        let broken = tenant("tenant-a", json!({"apex": "", "attachedNamespaces": []}));
        let delta = engine.apply([there(), objects.clone(), vec![broken]].concat());
        assert!(
            delta.objects.is_empty() && delta.namespaces.is_empty() && delta.wants.is_empty(),
            "{delta:?}"
        );
        assert!(
            engine.governs(&name()),
            "nobody attaches to its Gateway by labels alone"
        );
        assert_eq!(granted(&engine, "tenant-a", "r"), ["x.a.org"]);
        assert_eq!(granted(&engine, "cozy-x", "r"), ["api.a.org"]);
        engine.apply(vec![
            http("tenant-a", "late", &["new.a.org"]),
            http("tenant-a-b", "thief", &["x.a.org", "new.a.org"]),
            http("stranger", "r", &["x.a.org"]),
        ]);
        assert_eq!(granted(&engine, "tenant-a", "late"), new);
        assert!(
            granted(&engine, "tenant-a-b", "thief").is_empty()
                && granted(&engine, "stranger", "r").is_empty()
        );
        assert_eq!(granted(&engine, "tenant-a", "r"), ["x.a.org"]);
        // Once it is repaired, the result is as if it had never been broken.
        let gone = ["tenant-a/late", "tenant-a-b/thief", "stranger/r"].map(|name| {
            let (namespace, route) = name.split_once('/').expect("two parts");
            gone(http(namespace, route, &[]))
        });
        engine.apply([gone.into(), vec![tenant("tenant-a", spec)]].concat());
        assert_eq!(view(&engine), view(&before));
    }
}

/// The order of events makes no difference.
#[test]
fn existing_objects_that_are_observed_later_count_as_well() {
    let mut before = engine();
    let (spec, _) = specs()[0].clone();
    before.apply([there(), vec![tenant("tenant-a", spec)]].concat());
    let mut engine = engine();
    engine.apply([there(), vec![tenant("tenant-a", json!({"apex": ""}))]].concat());
    assert!(!engine.governs(&name()) && granted(&engine, "tenant-a", "r").is_empty());
    engine.apply(existing_objects(&before));
    assert!(engine.governs(&name()));
    assert_eq!(granted(&engine, "tenant-a", "r"), ["x.a.org"]);
}

#[test]
fn a_namespace_keeps_its_label_until_it_is_known_that_nobody_takes_it_in() {
    fn broken() -> Change {
        tenant("tenant-a", json!({"apex": ""}))
    }
    for (mended, expected) in [
        (
            tenant(
                "tenant-a",
                json!({"apex": "a.org", "attachedNamespaces": ["cozy-x"]}),
            ),
            None,
        ),
        (
            tenant("tenant-a", json!({"apex": "a.org"})),
            Some(Patch::Strip),
        ),
        (gone(broken()), Some(Patch::Strip)),
    ] {
        let mut engine = engine();
        engine.apply([there(), vec![broken()]].concat());
        assert_eq!(engine.patch(&"cozy-x".into()), None);
        engine.apply(vec![mended]);
        assert_eq!(engine.patch(&"cozy-x".into()), expected.as_ref());
    }
}

#[test]
fn one_that_was_never_carried_out_takes_nobody_in() {
    let mut engine = engine();
    let spec = json!({"apex": "not-below.org", "attachedNamespaces": ["free"]});
    let changes = vec![
        namespace("tenant-a", "", "a.org"),
        namespace("free", "", ""),
        tenant("tenant-a", spec),
    ];
    let delta = engine.apply(changes);
    assert_eq!(
        engine.readiness(&name()).map(|readiness| readiness.reason),
        Some("ApexNotAllowed")
    );
    assert!(delta.namespaces.is_empty(), "{delta:?}");
    let spec = json!({"apex": "a.org", "attachedNamespaces": ["free"]});
    engine.apply(vec![tenant("tenant-a", spec)]);
    assert_eq!(
        engine.patch(&"free".into()),
        Some(&Patch::Set("tenant-a".into()))
    );
}

fn aged(name: &str, created: i64) -> Change {
    let value = json!({"metadata": {"namespace": "tenant-a", "name": name, "uid": name}, "spec": {"apex": "a.org"}});
    let tenant = TenantGateway {
        created,
        ..TenantGateway::parse(&value).expect("a TenantGateway")
    };
    Change::TenantGateway(tenant.name.clone(), Some(tenant))
}

/// The cluster decides which of two is carried out, not the order of events.
#[test]
fn of_two_in_a_namespace_the_one_with_its_gateway_stays_else_the_older() {
    for (gateways, first) in [
        (vec![], "old"),
        (vec![gateway("a-new")], "a-new"),
        (vec![gateway("old")], "old"),
    ] {
        for both in [
            [aged("old", 1), aged("a-new", 2)],
            [aged("a-new", 2), aged("old", 1)],
        ] {
            let mut engine = engine();
            engine.apply(vec![namespace("tenant-a", "tenant-a", "a.org")]);
            engine.apply(gateways.clone());
            for one in both {
                engine.apply(vec![one]);
            }
            for name in ["old", "a-new"] {
                let readiness = engine
                    .readiness(&ObjectName::new("tenant-a", name))
                    .map(|readiness| readiness.reason);
                let expected = if name == first {
                    "Reconciled"
                } else {
                    "DuplicateTenantGateway"
                };
                assert_eq!(readiness, Some(expected), "{name}, {gateways:?}");
            }
        }
    }
}

fn gateway(name: &str) -> Change {
    let derived = Derived {
        kind: DerivedKind::Gateway,
        name: ObjectName::new("tenant-a", name),
    };
    Change::Existing(
        derived,
        Some(Existing {
            owner: name.into(),
            ..Existing::default()
        }),
    )
}
