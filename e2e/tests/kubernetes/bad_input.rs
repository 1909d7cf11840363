//! Bad input on a real API server: each leads to a condition or one clear log line, nothing loops,
//! and nothing else is affected.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{ACCOUNT, Cluster, NAMESPACE, condition, is_true, service, tls_secret};
use e2e::gatewright::Gatewright;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

fn class(name: &str, parameters: &str) -> Value {
    let reference = json!({"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "default", "name": parameters});
    json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": name},
        "spec": {"controllerName": "gatewright.io/gateway-controller", "parametersRef": reference}})
}

fn parameters(name: &str, fleet: &str) -> Value {
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"fleet": fleet}})
}

fn gateway(namespace: &str, name: &str, class: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": namespace},
        "spec": {"gatewayClassName": class, "listeners": [
            {"name": "http", "protocol": "HTTP", "port": 80},
            {"name": "https", "protocol": "HTTPS", "port": 443, "hostname": "a.example.org",
                "tls": {"certificateRefs": [{"name": "cert"}]}}]}})
}

fn reason(object: &Value, kind: &str) -> Value {
    condition(&object["status"], kind)
        .map(|c| c["reason"].clone())
        .unwrap_or_default()
}

/// Returns true if all conditions are of the current generation.
fn is_told(object: &Value) -> bool {
    let generation = &object["metadata"]["generation"];
    let own = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let listeners = object["status"]["listeners"]
        .as_array()
        .into_iter()
        .flatten();
    let mut all = own
        .chain(listeners.flat_map(|l| l["conditions"].as_array().into_iter().flatten()))
        .peekable();
    all.peek().is_some() && all.all(|c| c["observedGeneration"] == *generation)
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn bad_input_ends_in_a_condition_or_a_line_and_hurts_nothing_else() -> Result<()> {
    let mut server = ApiServer::with(&[Definitions::GatewayApi, Definitions::Ours]).await?;
    server.start_controllers()?;
    let cluster = Cluster::over(server).await?;
    for object in service(NAMESPACE, "gatewright-envoy", 80) {
        cluster.server.put(object).await?;
    }
    let mut controller = cluster.controller("one")?;
    controller.line("the view is complete").await?;
    cluster.server.put(parameters("own", "Dedicated")).await?;
    cluster.server.put(class("own", "own")).await?;

    // A neighbour that must not be affected.
    cluster
        .server
        .put(tls_secret("default", "cert", &["a.example.org"])?)
        .await?;
    cluster
        .server
        .put(gateway("default", "good", "own"))
        .await?;
    cluster
        .until("v1", "Service", "default", "good-own", |o| {
            o["spec"]["ports"][1]["targetPort"].is_u64()
        })
        .await?;

    long_name(&cluster).await?;
    older_schema(&cluster).await?;
    secret_deleted_in_use(&cluster).await?;
    terminating_namespace(&cluster, &mut controller).await?;
    missing_right(&cluster, &mut controller).await?;
    let _controller = unknown_values(&cluster, controller).await?;

    let good = cluster
        .until(GATEWAY, "Gateway", "default", "good", is_told)
        .await?;
    assert!(is_true(&good["status"], "Accepted"));
    // Nothing loops: the controller becomes quiet soon.
    cluster.quiet().await?;
    Ok(())
}

/// Names and labels of derived objects are shortened.
async fn long_name(cluster: &Cluster) -> Result<()> {
    let name = format!(
        "{}.{}.{}.{}",
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(61)
    );
    assert_eq!(name.len(), 253);
    cluster.server.put(gateway("default", &name, "own")).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", &name, |o| {
            is_told(o) && is_true(&o["status"], "Accepted")
        })
        .await?;
    let services = cluster.server.api("v1", "Service", "default").await?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    loop {
        let all = services.list(&Default::default()).await?;
        let of = |s: &kube::api::DynamicObject| {
            s.metadata
                .annotations
                .iter()
                .flatten()
                .any(|(_, v)| *v == name)
        };
        if all.iter().any(of) {
            return Ok(());
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "no Service for a long name"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An object that was stored when the CRD admitted more.
async fn older_schema(cluster: &Cluster) -> Result<()> {
    let text = include_str!("../../../deploy/crds/gatewright.io_gatewayparameters.yaml");
    let laxer = text.replace("enum: [Shared, Dedicated, Isolated]", "maxLength: 20");
    assert_ne!(laxer, text, "the definition has that line");
    cluster.server.apply(&laxer).await?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    // A new schema takes effect a moment later.
    while cluster
        .server
        .put(parameters("old", "Orbital"))
        .await
        .is_err()
    {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the laxer schema does not hold"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.server.apply(text).await?;
    cluster.server.put(class("old", "old")).await?;
    let old = cluster
        .until(GATEWAY, "GatewayClass", "", "old", |o| {
            reason(o, "Accepted") == "InvalidParameters"
        })
        .await?;
    let told = condition(&old["status"], "Accepted").context("it has one")?["message"].to_string();
    assert!(
        told.contains("GatewayParameters default/old") && told.contains("Orbital"),
        "{told}"
    );
    Ok(())
}

/// A value that a newer CRD admits fails its object, and derived objects stay; after a restart as
/// well.
async fn unknown_values(cluster: &Cluster, controller: Gatewright) -> Result<Gatewright> {
    let server = &cluster.server;
    server.put(gateway("default", "new", "own")).await?;
    cluster
        .until("v1", "Service", "default", "new-own", |o| {
            o["spec"]["ports"][1]["targetPort"].is_u64()
        })
        .await?;
    let deleted = || {
        let requests = cluster.writes()?.into_iter();
        anyhow::Ok(
            requests
                .filter(|request| request.verb == "delete" && request.resource == "services")
                .count(),
        )
    };
    let before = deleted()?;
    let mut partly = gateway("default", "new", "own");
    partly["spec"]["listeners"][1]["allowedRoutes"] = json!({"namespaces": {"from": "Orbit"}});
    server
        .admit_anything("gateways.gateway.networking.k8s.io", partly)
        .await?;
    let told =
        |o: &Value, index: usize| condition(&o["status"]["listeners"][index], "Accepted").cloned();
    let new = cluster
        .until(GATEWAY, "Gateway", "default", "new", |o| {
            is_told(o)
                && told(o, 1).is_some_and(|accepted| accepted["reason"] == "UnsupportedValue")
        })
        .await?;
    assert!(
        told(&new, 0).is_some_and(|accepted| accepted["status"] == "True"),
        "the one beside it is as it was"
    );
    assert!(
        told(&new, 1).is_some_and(|accepted| accepted["message"].to_string().contains("Orbit"))
    );

    let mut wholly = gateway("default", "new", "own");
    wholly["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Orbit"}});
    server.put(wholly).await?;
    let is_invalid = |o: &Value| is_told(o) && reason(o, "Accepted") == "Invalid";
    cluster
        .until(GATEWAY, "Gateway", "default", "new", is_invalid)
        .await?;
    drop(controller);
    let mut controller = cluster.controller("three")?;
    controller.line("the view is complete").await?;
    controller.line("holding the lease").await?;
    cluster.quiet().await?;
    let new = cluster
        .until(GATEWAY, "Gateway", "default", "new", is_invalid)
        .await?;
    assert!(!is_true(&new["status"], "Programmed"));
    assert_eq!(deleted()?, before, "its address is kept until it is mended");
    assert!(
        server
            .api("v1", "Service", "default")
            .await?
            .get_opt("new-own")
            .await?
            .is_some()
    );
    Ok(controller)
}

/// The listener reports it, the other listener stays served, and all recovers when the Secret is
/// back.
async fn secret_deleted_in_use(cluster: &Cluster) -> Result<()> {
    let secrets = cluster.server.api("v1", "Secret", "default").await?;
    let resolved = |o: &Value| {
        let listeners = &o["status"]["listeners"];
        let of = |index: usize| {
            condition(&listeners[index], "ResolvedRefs").map(|c| c["status"].clone())
        };
        (of(0).unwrap_or_default(), of(1).unwrap_or_default())
    };
    cluster
        .until(GATEWAY, "Gateway", "default", "good", |o| {
            resolved(o) == (json!("True"), json!("True"))
        })
        .await?;
    secrets.delete("cert", &Default::default()).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "good", |o| {
            resolved(o) == (json!("True"), json!("False"))
        })
        .await?;
    cluster
        .server
        .put(tls_secret("default", "cert", &["a.example.org"])?)
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "good", |o| {
            resolved(o) == (json!("True"), json!("True"))
        })
        .await?;
    Ok(())
}

/// Derived objects that are deleted with their namespace are not made again.
async fn terminating_namespace(cluster: &Cluster, controller: &mut Gatewright) -> Result<()> {
    cluster
        .server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}}))
        .await?;
    let mut kept = gateway("going", "edge", "own");
    // It outlives its derived objects.
    kept["metadata"]["finalizers"] = json!(["example.org/kept"]);
    cluster.server.put(kept).await?;
    cluster
        .until("v1", "Service", "going", "edge-own", |o| {
            o["spec"]["ports"].is_array()
        })
        .await?;
    let namespaces = cluster.server.api("v1", "Namespace", "").await?;
    namespaces.delete("going", &Default::default()).await?;
    cluster
        .until("v1", "Service", "going", "edge-own", Value::is_null)
        .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let ours = cluster
        .server
        .requests()?
        .into_iter()
        .filter(|r| r.user == ACCOUNT);
    let tried = ours
        .filter(|r| r.object.starts_with("going/edge-own") && r.code >= 400)
        .count();
    assert!(
        tried <= 6,
        "{tried} attempts in a namespace that is being deleted"
    );
    assert!(
        !controller
            .output()
            .contains("the Service of gateway going/edge"),
        "{}",
        controller.output()
    );
    let gateways = cluster.server.api(GATEWAY, "Gateway", "going").await?;
    let free = json!({"metadata": {"finalizers": null}});
    gateways
        .patch("edge", &PatchParams::default(), &Patch::Merge(&free))
        .await?;
    cluster
        .until("v1", "Namespace", "", "going", Value::is_null)
        .await?;
    Ok(())
}

/// One line names verb and resource, and the retries back off.
async fn missing_right(cluster: &Cluster, controller: &mut Gatewright) -> Result<()> {
    let roles = cluster
        .server
        .api("rbac.authorization.k8s.io/v1", "ClusterRole", "")
        .await?;
    let full = serde_json::to_value(roles.get("gatewright-controller").await?)?["rules"].clone();
    let narrow: Vec<Value> = full
        .as_array()
        .into_iter()
        .flatten()
        .filter(|rule| rule["resources"] != json!(["services"]))
        .cloned()
        .collect();
    let give = async |rules: Value| {
        let patch = json!({"rules": rules});
        roles
            .patch(
                "gatewright-controller",
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await
    };
    give(json!(narrow)).await?;
    cluster
        .server
        .until_may(ACCOUNT, ("create", "", "services", "default"), false)
        .await?;
    cluster
        .server
        .put(gateway("default", "poor", "own"))
        .await?;
    let line = controller.line("WARN gateway default/poor: ").await?;
    assert!(
        line.contains("not allowed") && line.contains("services"),
        "{line}"
    );
    // Its status reports it as well.
    cluster
        .until(GATEWAY, "Gateway", "default", "poor", |o| {
            condition(&o["status"], "Programmed")
                .is_some_and(|c| c["message"].to_string().contains("not allowed"))
        })
        .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        controller
            .output()
            .matches("WARN gateway default/poor: ")
            .count(),
        1
    );
    give(full).await?;
    cluster
        .until("v1", "Service", "default", "poor-own", |o| {
            o["spec"]["ports"].is_array()
        })
        .await?;
    Ok(())
}
