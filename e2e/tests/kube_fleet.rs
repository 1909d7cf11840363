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

/// The Service that has the Envoys behind it, as the DaemonSet's pods would have it.
async fn envoys(cluster: &Cluster) -> Result<()> {
    for mut object in service("gatewright-system", "gatewright-envoy", 80) {
        object["metadata"]["labels"]["app.kubernetes.io/component"] = json!("envoy");
        cluster.server.put(object).await?;
    }
    Ok(())
}

/// The port of the Envoys that a Gateway's Service leads to.
fn target(service: &Value) -> Option<u16> {
    u16::try_from(service["spec"]["ports"][0]["targetPort"].as_u64()?).ok()
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn gateways_of_the_dedicated_fleet_have_a_service_and_ports_of_their_own() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.install_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds")).await?;
    server.put(parameters("own", json!({"fleet": "Dedicated"}))).await?;
    server.put(class("own", Some(("GatewayParameters", "own")))).await?;
    envoys(&cluster).await?;
    let (alice, bob) = (Echo::start_on("alice", BACKEND).await?, Echo::start_on("bob", BACKEND).await?);
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    // The same hostname on the same port twice: each Gateway has its own.
    let mut ports = BTreeSet::new();
    for (name, echo) in [("alice", &alice), ("bob", &bob)] {
        tenant(&cluster, name, "own", 443, &["web.example.org"]).await?;
        for object in service(name, "web", echo.address().port()) {
            server.put(object).await?;
        }
        let made = cluster.until("v1", "Service", name, "edge-own", |o| target(o).is_some()).await?;
        assert_eq!(made["metadata"]["labels"]["gateway.networking.k8s.io/gateway-name"], "edge");
        assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "Gateway");
        let reason = |o: &Value| condition(&o["status"], "Programmed").map(|c| c["reason"].clone()).unwrap_or_default();
        cluster.until(GATEWAY, "Gateway", name, "edge", |o| reason(o) == "AddressNotAssigned").await?;
        // Whatever gives addresses to load balancers.
        let services = server.api("v1", "Service", name).await?;
        let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": BACKEND}]}}});
        services.patch_status("edge-own", &Default::default(), &kube::api::Patch::Merge(&given)).await?;
        let gateway = cluster.until(GATEWAY, "Gateway", name, "edge", |o| is_true(&o["status"], "Programmed")).await?;
        assert_eq!(gateway["status"]["addresses"], json!([{"type": "IPAddress", "value": BACKEND}]));
        let port = target(&made).context("a port")?;
        ports.insert(port);
        assert_eq!(answer(SocketAddr::from(([127, 0, 0, 1], port)), "web.example.org").await?, name);
        let slice = cluster
            .until("discovery.k8s.io/v1", "EndpointSlice", name, "edge-own-v4", |o| o["ports"][0]["port"] == port)
            .await?;
        assert_eq!(slice["endpoints"][0]["addresses"], json!([BACKEND]));
    }
    assert_eq!(ports.len(), 2, "each has a port of the Envoys of its own");

    // Labels and annotations that a Gateway asks for come and go.
    let api = server.api(GATEWAY, "Gateway", "alice").await?;
    let ask = |infrastructure: Value| json!({"spec": {"infrastructure": infrastructure}});
    let asked = ask(json!({"labels": {"team": "blue"}, "annotations": {"example.org/pool": "a"}}));
    api.patch("edge", &Default::default(), &kube::api::Patch::Merge(&asked)).await?;
    for (version, kind, name) in
        [("v1", "Service", "edge-own"), ("discovery.k8s.io/v1", "EndpointSlice", "edge-own-v4")]
    {
        let has = |o: &Value| o["metadata"]["labels"]["team"] == "blue";
        let there = cluster.until(version, kind, "alice", name, has).await?;
        assert_eq!(there["metadata"]["annotations"]["example.org/pool"], "a");
    }
    api.patch("edge", &Default::default(), &kube::api::Patch::Merge(&ask(Value::Null))).await?;
    cluster.until("v1", "Service", "alice", "edge-own", |o| o["metadata"]["labels"]["team"].is_null()).await?;

    // What somebody else writes over ours is put right; then nothing is written any more.
    let services = server.api("v1", "Service", "alice").await?;
    let there = serde_json::to_value(services.get("edge-own").await?)?;
    let other = json!({"spec": {"ports": [{"port": 443, "name": "p443", "targetPort": 1, "protocol": "TCP"}]}});
    services.patch("edge-own", &Default::default(), &kube::api::Patch::Merge(&other)).await?;
    cluster.until("v1", "Service", "alice", "edge-own", |o| target(o) == target(&there)).await?;
    let quiet = cluster.quiet().await?;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(cluster.writes()?.len(), quiet);

    // A restart keeps the ports, writes nothing, and everything is served on.
    drop(controller);
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(cluster.writes()?[quiet..], []);
    for port in &ports {
        answer(SocketAddr::from(([127, 0, 0, 1], *port)), "web.example.org").await?;
    }

    // A class whose parameters are missing for a moment costs nobody an address; another kind of fleet does.
    let all = server.api("gatewright.io/v1alpha1", "GatewayParameters", "default").await?;
    all.delete("own", &Default::default()).await?;
    let reason = |o: &Value| condition(&o["status"], "Accepted").map(|c| c["reason"].clone()).unwrap_or_default();
    cluster.until(GATEWAY, "Gateway", "bob", "edge", |o| reason(o) == "InvalidParameters").await?;
    assert!(server.api("v1", "Service", "bob").await?.get_opt("edge-own").await?.is_some());
    server.put(parameters("own", json!({"fleet": "Shared"}))).await?;
    cluster.until("v1", "Service", "bob", "edge-own", Value::is_null).await?;
    cluster.until("discovery.k8s.io/v1", "EndpointSlice", "bob", "edge-own-v4", Value::is_null).await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn parameters_are_checked_told_and_put_right() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.install_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds")).await?;
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
