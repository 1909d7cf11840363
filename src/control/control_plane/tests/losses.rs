//! Tests of what an object loses to another one.

use super::*;
use crate::history::{ChangeKind, HistoryQuery};
use crate::visibility::Visibility;

/// The change is another namespace's: without an entry of its own the one that loses would find
/// nothing.
#[test]
fn what_an_object_loses_to_another_is_in_the_history_of_its_namespace() {
    const VERSION: &str = "gateway.networking.k8s.io/v1";
    let mut live = live();
    let everybody = json!({"namespaces": {"from": "All"}});
    let mut edge = gateway(80);
    edge["spec"]["listeners"][0]["allowedRoutes"] = everybody.clone();
    edge["spec"]["listeners"][0]["hostname"] = json!("*.example.org");
    edge["spec"]["allowedListeners"] = everybody;
    put(&mut live, edge);
    for namespace in ["b", "c"] {
        put(
            &mut live,
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": namespace},
                "spec": {"ports": [{"port": 80}]}}),
        );
    }
    put(
        &mut live,
        json!({"apiVersion": VERSION, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": "c"},
            "spec": {"parentRefs": [{"name": "edge", "namespace": "a"}], "hostnames": ["w.team.example.org"],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}),
    );
    put(
        &mut live,
        json!({"apiVersion": VERSION, "kind": "ListenerSet", "metadata": {"name": "set", "namespace": "b"},
            "spec": {"parentRef": {"name": "edge", "namespace": "a"}, "listeners": [
                {"name": "wide", "protocol": "HTTP", "port": 80, "hostname": "*.team.example.org"}]}}),
    );
    let query = HistoryQuery {
        what: Some("httproute/c/web".to_owned()),
        ..HistoryQuery::default()
    };
    let changes = live
        .history(&query, &Visibility::Namespace("c".into()))
        .changes;
    let losses: Vec<&str> = changes
        .iter()
        .filter(|change| change.kind == ChangeKind::Decision)
        .flat_map(|change| &change.objects)
        .map(|object| object.object.as_str())
        .collect();
    let loss = "httproute c/web ServedElsewhere: w.team.example.org on port 80: a listener of another namespace has it";
    assert_eq!(losses, [loss]);
}
