//! The fleets of our own class on a real API server with a real Envoy: Gateways that share its addresses, and
//! parameters that are missing, wrong and put right.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e::world::free_port;
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

fn class(name: &str, parameters: Option<(&str, &str)>) -> Value {
    let mut spec = json!({"controllerName": "gatewright.io/gateway-controller"});
    if let Some((kind, name)) = parameters {
        spec["parametersRef"] = json!({"group": "gatewright.io", "kind": kind, "namespace": "default", "name": name});
    }
    json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": name}, "spec": spec})
}

fn parameters(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// A tenant: a namespace with a Gateway, a certificate and a route for its hosts.
async fn tenant(cluster: &Cluster, name: &str, class: &str, port: u16, hosts: &[&str]) -> Result<()> {
    let server = &cluster.server;
    server.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await?;
    server.put(tls_secret(name, "cert", hosts)?).await?;
    server.put(gateway(name, class, port, hosts)).await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": name},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": hosts,
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    Ok(())
}

fn gateway(namespace: &str, class: &str, port: u16, hosts: &[&str]) -> Value {
    let listener = |(index, host): (usize, &&str)| {
        json!({"name": format!("l{index}"), "protocol": "HTTPS", "port": port, "hostname": host,
            "tls": {"certificateRefs": [{"name": "cert"}]}})
    };
    let listeners: Vec<Value> = hosts.iter().enumerate().map(listener).collect();
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": namespace},
        "spec": {"gatewayClassName": class, "listeners": listeners}})
}

/// Which backend answers for a host.
async fn answer(address: SocketAddr, host: &str) -> Result<String> {
    let answer = Probe::https(address, host).send().await?;
    let told: Value = serde_json::from_slice(&answer.body)?;
    Ok(told["name"].as_str().context("an echo names itself")?.to_owned())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn gateways_of_the_shared_fleet_are_told_apart_by_hostnames() -> Result<()> {
    let cluster = Cluster::start().await?;
    let (alice, bob) = (Echo::start_on("alice", BACKEND).await?, Echo::start_on("bob", BACKEND).await?);
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    cluster.server.apply(include_str!("../../deploy/gatewayclass.yaml")).await?;
    let port = free_port()?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    for (name, echo, own) in [("alice", &alice, "a.example.org"), ("bob", &bob, "b.example.org")] {
        tenant(&cluster, name, "gatewright", port, &[own, "both.example.org"]).await?;
        for object in service(name, "web", echo.address().port()) {
            cluster.server.put(object).await?;
        }
        // The next Gateway is younger by the clock of the API server, which counts seconds.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    }
    let bobs = cluster
        .until(GATEWAY, "Gateway", "bob", "edge", |o| {
            is_true(&o["status"], "Programmed") && is_true(&o["status"]["listeners"][1], "Conflicted")
        })
        .await?;
    let lost = condition(&bobs["status"]["listeners"][1], "Accepted").context("it has one")?;
    assert_eq!((&lost["status"], &lost["reason"]), (&json!("False"), &json!("HostnameConflict")));
    assert!(!lost["message"].to_string().contains("alice"), "nothing of another tenant is told: {lost}");
    let alices = cluster.until(GATEWAY, "Gateway", "alice", "edge", |o| is_true(&o["status"], "Programmed")).await?;
    assert_eq!(alices["status"]["addresses"], bobs["status"]["addresses"], "they share the addresses");
    cluster.until(GATEWAY, "Gateway", "alice", "edge", |o| is_true(&o["status"]["listeners"][1], "Programmed")).await?;
    for (host, owner) in [("a.example.org", "alice"), ("b.example.org", "bob"), ("both.example.org", "alice")] {
        assert_eq!(answer(address, host).await?, owner, "{host}");
    }

    // The name is free again: the other one has it, and nothing else moved.
    cluster.server.put(gateway("alice", "gatewright", port, &["a.example.org"])).await?;
    cluster.until(GATEWAY, "Gateway", "bob", "edge", |o| is_true(&o["status"]["listeners"][1], "Programmed")).await?;
    for (host, owner) in [("a.example.org", "alice"), ("b.example.org", "bob"), ("both.example.org", "bob")] {
        assert_eq!(answer(address, host).await?, owner, "{host}");
    }
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn parameters_are_checked_told_and_put_right() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.apply(gatewright::inputs::PARAMETERS_CRD).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;

    // What could never work is refused by the server.
    for (spec, text) in [
        (json!({"fleet": "Orbital"}), "Unsupported value"),
        (json!({"fleet": "Shared", "service": {}}), "spec.service belongs to fleet Dedicated"),
        (json!({"service": {"type": "ClusterIP", "loadBalancerClass": "a.org/b"}}), "belongs to type LoadBalancer"),
        (json!({"service": {"loadBalancerClass": "x".repeat(400)}}), "Too long"),
    ] {
        let refused = format!("{:#}", server.put(parameters("bad", spec)).await.expect_err("refused"));
        assert!(refused.contains(text), "{refused}");
    }

    server.put(class("lost", Some(("GatewayParameters", "mine")))).await?;
    server.put(class("odd", Some(("Deployment", "mine")))).await?;
    server.put(class("plain", None)).await?;
    server.put(gateway("default", "lost", 8443, &["a.example.org"])).await?;
    let reason = |o: &Value, kind: &str| condition(&o["status"], kind).map(|c| c["reason"].clone()).unwrap_or_default();
    let refused = |o: &Value| reason(o, "Accepted") == "InvalidParameters";
    let lost = cluster.until(GATEWAY, "GatewayClass", "", "lost", refused).await?;
    let text = condition(&lost["status"], "Accepted").context("it has one")?["message"].to_string();
    assert!(text.contains("GatewayParameters default/mine is not there: create it"), "{text}");
    let odd = cluster.until(GATEWAY, "GatewayClass", "", "odd", refused).await?;
    let text = condition(&odd["status"], "Accepted").context("it has one")?["message"].to_string();
    assert!(text.contains("refer to GatewayParameters"), "{text}");
    assert_eq!(odd["status"]["supportedFeatures"].as_array().map_or(0, Vec::len), 0);
    cluster.until(GATEWAY, "Gateway", "default", "edge", refused).await?;

    // They come: everything that refers to them heals.
    server.put(parameters("mine", json!({"fleet": "Shared"}))).await?;
    cluster.until(GATEWAY, "GatewayClass", "", "lost", |o| is_true(&o["status"], "Accepted")).await?;
    cluster.until(GATEWAY, "Gateway", "default", "edge", |o| is_true(&o["status"], "Accepted")).await?;
    // They go.
    server
        .api("gatewright.io/v1alpha1", "GatewayParameters", "default")
        .await?
        .delete("mine", &Default::default())
        .await?;
    cluster.until(GATEWAY, "Gateway", "default", "edge", refused).await?;

    // What a class says of itself are names of the release.
    let plain = cluster.until(GATEWAY, "GatewayClass", "", "plain", |o| is_true(&o["status"], "Accepted")).await?;
    let features = plain["status"]["supportedFeatures"].as_array().context("features")?;
    let names: Vec<&str> = features.iter().filter_map(|feature| feature["name"].as_str()).collect();
    assert!(names.is_sorted() && !names.is_empty(), "{names:?}");
    let known = released()?;
    for name in names {
        assert!(known.contains(name), "{name} is no feature of the Gateway API");
    }
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// The names of all features of the Gateway API's release.
fn released() -> Result<BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/gateway-api/pkg/features");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("{}: e2e/tools install", folder.display()))? {
        for line in std::fs::read_to_string(entry?.path())?.lines() {
            if let Some((_, name)) = line.split_once("= \"") {
                names.extend(name.split_once('"').map(|(name, _)| name.to_owned()));
            }
        }
    }
    ensure!(names.len() > 50, "only {} features were found", names.len());
    Ok(names)
}
