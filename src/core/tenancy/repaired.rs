//! Tests that repaired TenantGateways, and deleted objects under derived names, leave no trace.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::confluence::{
    engine, event, gone, host, namespace, places, tenant, tenant_with_namespaces, view,
};
use super::*;
use gatewright_objects::model::ObjectName;

#[test]
fn a_foreign_listener_set_under_the_name_of_an_overflow_costs_nobody_a_place() {
    // The foreign object existed before ours, or was created before ours was written.
    let mut before = engine();
    let mut between = engine();
    before.apply(
        [
            vec![foreign(1)],
            tenant_with_namespaces(json!({"apex": "a.org"})),
            hosts(),
        ]
        .concat(),
    );
    between.apply([tenant_with_namespaces(json!({"apex": "a.org"})), hosts()].concat());
    assert_eq!(sets(&between), [1]);
    between.apply(vec![foreign(1)]);
    for engine in [before, between] {
        assert_eq!(sets(&engine), [2]);
        assert_eq!(places(&engine).len(), 100);
    }
}

fn foreign(number: usize) -> Change {
    let name = ObjectName::new("tenant-a", names::overflow("cozystack", number));
    let there = Existing {
        owner: "somebody".into(),
        ..Existing::default()
    };
    Change::Existing(
        Derived {
            kind: DerivedKind::ListenerSet,
            name,
        },
        Some(there),
    )
}

fn sets(engine: &Tenancy) -> Vec<usize> {
    let numbers = engine
        .objects()
        .keys()
        .filter(|derived| derived.kind == DerivedKind::ListenerSet);
    numbers
        .filter_map(|derived| Some(names::overflow_of(&derived.name.name)?.1))
        .collect::<Vec<_>>()
}

fn hosts() -> Vec<Change> {
    (0..100).map(host).collect::<Vec<_>>()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Broken edits, an apex that the namespace's label does not permit, and a label that changes
    /// before the apex: once all are repaired, no trace is left.
    #[test]
    fn repaired_tenant_gateways_end_in_the_state_of_a_fresh_start(
        events in proptest::collection::vec((event(), proptest::bool::weighted(0.2), 0_u8..8), 1..40),
    ) {
        let mut engine = engine();
        let whole = [namespace("tenant-a", "tenant-a", "a.org"), tenant("tenant-a", json!({"apex": "a.org"}))];
        engine.apply(whole.to_vec());
        let mut last = BTreeMap::new();
        let mut mended = whole[1].clone();
        for (change, remove, broken) in events {
            let id = match &change {
                Change::TenantGateway(..) => {
                    mended = change.clone();
                    engine.apply(vec![change]);
                    continue;
                }
                Change::Namespace(name, _) if **name == *"tenant-a" => continue,
                Change::Namespace(name, _) => format!("n{name}"),
                Change::Fact(Fact::Keyed(name, _)) => format!("k{name}"),
                Change::Claimant(key, _) => format!("c{key:?}"),
                _ => unreachable!("none is made"),
            };
            match broken {
                0 => drop(engine.apply(vec![tenant("tenant-a", json!({"apex": ""}))])),
                1 => drop(engine.apply(vec![tenant("tenant-a", json!({"apex": "elsewhere.org"}))])),
                2 => drop(engine.apply(vec![namespace("tenant-a", "tenant-a", "elsewhere.org")])),
                3 => drop(engine.apply(whole.to_vec())),
                _ => {}
            }
            let change = if remove && matches!(change, Change::Claimant(..)) { gone(change) } else { change };
            last.insert(id, change.clone());
            engine.apply(vec![change]);
        }
        let end = [whole[0].clone(), mended];
        engine.apply(end.to_vec());
        let mut fresh = super::confluence::engine();
        fresh.apply(end.into_iter().chain(last.into_values()).collect());
        prop_assert_eq!(view(&engine), view(&fresh));
    }
}
