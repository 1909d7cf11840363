//! The first statuses of objects, refusals without room in a status, the end of a class, and
//! definitions that are replaced under a running program.

use anyhow::{Context, Result};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{Cluster, NAMESPACE, condition, is_true};
use e2e::port::free_port;
use e2e::tenants::{GATEWAY, cluster, namespace, tenant, until, until_owned};
use futures::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

/// Returns the statuses of `Accepted` and `Programmed` that each version of an object had, until
/// the watch has no more.
async fn history(server: &ApiServer, kind: &str, version: &str) -> Result<Vec<(String, Value)>> {
    let api = server.api(GATEWAY, kind, "default").await?;
    let events = api
        .watch(&WatchParams::default().timeout(5), version)
        .await?
        .boxed();
    let events: Vec<_> = events.try_collect().await?;
    let objects = events.into_iter().filter_map(|event| match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(object),
        _ => None,
    });
    Ok(objects
        .flat_map(|object| {
            let name = object.metadata.name.clone().unwrap_or_default();
            ["Accepted", "Programmed"].map(|kind| {
                (
                    name.clone(),
                    condition(&object.data["status"], kind).cloned(),
                )
            })
        })
        .filter_map(|(name, condition)| Some((name, condition?)))
        .collect())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_new_gateway_is_pending_while_its_names_are_recorded() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    cluster
        .until(GATEWAY, "GatewayClass", "", "gatewright", |o| {
            is_true(&o["status"], "Accepted")
        })
        .await?;
    let list = server
        .api(GATEWAY, "Gateway", "default")
        .await?
        .list(&Default::default())
        .await?;
    let version = list.metadata.resource_version.context("a version")?;
    let named = free_port()?;
    let bare = free_port()?;
    let set = free_port()?;
    let gateway = |name: &str, listeners: Value| {
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "allowedListeners": {"namespaces": {"from": "All"}},
                "listeners": listeners}})
    };
    let hosts = |names: &[&str]| -> Value {
        names.iter().map(|name| json!({"name": name, "protocol": "HTTP", "port": named, "hostname": format!("{name}.example.org")})).collect()
    };
    let is_programmed = |o: &Value| {
        o["status"]["conditions"][0]["observedGeneration"] == o["metadata"]["generation"]
            && is_true(&o["status"], "Accepted")
            && is_true(&o["status"], "Programmed")
    };
    for round in 0..5 {
        let name = format!("named-{round}");
        let [one, two, three] = ["a", "b", "c"].map(|host| format!("{host}{round}"));
        server.put(gateway(&name, hosts(&[&one, &two]))).await?;
        cluster
            .until(GATEWAY, "Gateway", "default", &name, is_programmed)
            .await?;
        // All of its hostnames change.
        server.put(gateway(&name, hosts(&[&three]))).await?;
        cluster
            .until(GATEWAY, "Gateway", "default", &name, is_programmed)
            .await?;
    }
    server
        .put(gateway(
            "bare",
            json!([{"name": "http", "protocol": "HTTP", "port": bare}]),
        ))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "bare", is_programmed)
        .await?;
    let listeners =
        json!([{"name": "more", "protocol": "HTTP", "port": set, "hostname": "set.example.org"}]);
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": "set", "namespace": "default"},
        "spec": {"parentRef": {"name": "bare"}, "listeners": listeners}}))
        .await?;
    cluster
        .until(GATEWAY, "ListenerSet", "default", "set", is_programmed)
        .await?;

    let mut told = history(server, "Gateway", &version).await?;
    told.extend(history(server, "ListenerSet", &version).await?);
    let refused =
        |condition: &Value| condition["type"] == "Accepted" && condition["status"] == "False";
    // The CRD's default is Unknown/Pending of a controller that has not looked yet.
    let ours = told
        .iter()
        .filter(|(_, condition)| condition["message"] != "Waiting for controller");
    let bad: Vec<_> = ours
        .filter(|(_, c)| refused(c) || c["reason"] == "Invalid")
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let output = controller.output();
    let warned: Vec<&str> = output
        .lines()
        .filter(|line| line.contains("WARN") && line.contains("example"))
        .collect();
    assert!(
        !output.contains("ListenersNotValid") && warned.is_empty(),
        "{output}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_class_stays_until_its_last_gateway_is_gone() -> Result<()> {
    const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let theirs = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "theirs"},
        "spec": {"controllerName": "example.org/another"}});
    server.put(theirs).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let port = free_port()?;
    let gateway = |name: &str, class: &str| {
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "default"},
            "spec": {"gatewayClassName": class, "listeners": [{"name": "http", "protocol": "HTTP", "port": port}]}})
    };
    for (name, class) in [
        ("one", "gatewright"),
        ("two", "gatewright"),
        ("other", "theirs"),
    ] {
        server.put(gateway(name, class)).await?;
    }
    let classes = server.api(GATEWAY, "GatewayClass", "").await?;
    // Finalizers of others stay.
    let kept = json!({"metadata": {"finalizers": ["example.org/kept"]}});
    classes
        .patch("gatewright", &PatchParams::default(), &Patch::Merge(kept))
        .await?;
    let both = json!(["example.org/kept", FINALIZER]);
    cluster
        .until(GATEWAY, "GatewayClass", "", "gatewright", |o| {
            o["metadata"]["finalizers"] == both
        })
        .await?;
    classes
        .delete("gatewright", &DeleteParams::default())
        .await?;
    let gateways = server.api(GATEWAY, "Gateway", "default").await?;
    gateways.delete("one", &DeleteParams::default()).await?;
    // One that came while the class was being deleted counts too.
    server.put(gateway("three", "gatewright")).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "three", |o| {
            condition(&o["status"], "Accepted").is_some_and(|c| c["observedGeneration"] == 1)
        })
        .await?;
    cluster.quiet().await?;
    let class = serde_json::to_value(classes.get("gatewright").await?)?;
    assert_eq!(class["metadata"]["finalizers"], both, "it is used");
    assert!(
        class["metadata"]["deletionTimestamp"].is_string(),
        "its deletion waits"
    );
    assert_eq!(
        classes.get("theirs").await?.metadata.finalizers,
        None,
        "a class of others is theirs"
    );
    for name in ["two", "three"] {
        gateways.delete(name, &DeleteParams::default()).await?;
    }
    let free = json!(["example.org/kept"]);
    cluster
        .until(GATEWAY, "GatewayClass", "", "gatewright", |o| {
            o["metadata"]["finalizers"] == free
        })
        .await?;
    classes
        .patch(
            "gatewright",
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"finalizers": null}})),
        )
        .await?;
    cluster
        .until(GATEWAY, "GatewayClass", "", "gatewright", Value::is_null)
        .await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_field_that_older_definitions_refused_is_written_once_they_are_newer() -> Result<()> {
    let server = ApiServer::with(&[Definitions::OlderGatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let gateway = json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "one", "namespace": "default"},
        "spec": {"gatewayClassName": "gatewright", "listeners": [{"name": "http", "protocol": "HTTP", "port": free_port()?}]}});
    server.put(gateway).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let older = cluster
        .until(GATEWAY, "Gateway", "default", "one", |o| {
            condition(&o["status"], "Accepted").is_some_and(|c| c["observedGeneration"] == 1)
        })
        .await?;
    assert!(
        older["status"]["attachedListenerSets"].is_null(),
        "the older definition has no such field"
    );
    server.install(Definitions::GatewayApi).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "one", |o| {
            o["status"]["attachedListenerSets"] == 0
        })
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_lease_whose_counter_is_at_its_end_is_taken() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let worn = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "gatewright-controller", "namespace": NAMESPACE},
        "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 1, "leaseTransitions": i32::MAX,
            "renewTime": "2020-01-01T00:00:00.000000Z"}});
    server.put(worn).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let lease = server
        .api("coordination.k8s.io/v1", "Lease", NAMESPACE)
        .await?
        .get("gatewright-controller")
        .await?;
    assert_eq!(
        lease.data["spec"]["leaseTransitions"],
        i32::MAX,
        "the counter stays at its end"
    );
    Ok(())
}

/// Each controller of a Gateway has to write an entry, so that a route with as many parents as a
/// status may have leaves no room for ours.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_refusal_without_room_in_the_status_is_an_event() -> Result<()> {
    const NS: &str = "tenant-full";
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    namespace(server, NS, "full.example.org").await?;
    let spec = json!({"apex": "full.example.org", "certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"}});
    server.put(tenant(NS, spec)).await?;
    until_owned(
        server,
        NS,
        &["Gateway cozystack", "HTTPRoute cozystack-http-redirect"],
    )
    .await?;
    let parents: Vec<Value> = (0..32)
        .map(|number| json!({"name": "cozystack", "sectionName": format!("l{number}")}))
        .collect();
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "wide", "namespace": NS},
        "spec": {"parentRefs": parents, "hostnames": ["www.somebody-else.example.com"],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    let events = server.api("events.k8s.io/v1", "Event", NS).await?;
    let count = async || {
        let all = events.list(&Default::default()).await?;
        anyhow::Ok(
            all.iter()
                .filter(|event| {
                    event.data["reason"] == "NoRoomInStatus"
                        && event.data["regarding"]["name"] == "wide"
                })
                .map(|event| event.data["note"].to_string())
                .collect::<Vec<_>>(),
        )
    };
    until("an Event tells it", async || Ok(!count().await?.is_empty())).await?;
    cluster.quiet().await?;
    let notes = count().await?;
    assert!(
        notes.len() == 1 && notes[0].contains("www.somebody-else.example.com"),
        "once: {notes:?}"
    );
    assert!(
        controller
            .output()
            .contains("tenant-full/wide: its status has no room"),
        "{}",
        controller.output()
    );
    Ok(())
}
