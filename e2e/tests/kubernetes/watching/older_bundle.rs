//! Definitions of an older release of the Gateway API: what is read of them, and that statuses hold there.

use anyhow::Result;
use e2e::apiserver::ApiServer;
use e2e::cluster::{Cluster, is_true, service, tls_secret};
use e2e::helm::Helm;
use e2e::tenants::{GATEWAY, quiet};
use e2e::world::free_port;
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Helm: e2e/tools install kubernetes gateway-api envoy helm"]
async fn kinds_of_version_1_4_are_read_in_the_versions_that_it_has() -> Result<()> {
    let server = ApiServer::start().await?;
    server.install_older_gateway_api().await?;
    let cluster = Cluster::over(server).await?;
    Helm::new(None)?.grant_experimental_channel(&cluster.server).await?;
    let server = &cluster.server;
    server.apply(include_str!("../../../../deploy/gatewayclass.yaml")).await?;
    for object in service("default", "web", 80) {
        server.put(object).await?;
    }
    server.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "keys"}})).await?;
    server.put(tls_secret("keys", "cert", &["a.example.org"])?).await?;
    let group = |version: &str| format!("gateway.networking.k8s.io/{version}");
    let put = async |version: &str, kind: &str, namespace: &str, spec: Value| {
        let metadata = json!({"name": "one", "namespace": namespace});
        server.put(json!({"apiVersion": group(version), "kind": kind, "metadata": metadata, "spec": spec})).await
    };
    let from = json!([{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default"}]);
    put("v1beta1", "ReferenceGrant", "keys", json!({"from": from, "to": [{"group": "", "kind": "Secret"}]})).await?;
    let ports = [free_port()?, free_port()?, free_port()?, free_port()?];
    let tls = json!({"certificateRefs": [{"name": "cert", "namespace": "keys"}]});
    let listeners = json!([
        {"name": "https", "protocol": "HTTPS", "port": ports[0], "hostname": "a.example.org", "tls": tls},
        {"name": "tls", "protocol": "TLS", "port": ports[1], "hostname": "*.b.example.org", "tls": {"mode": "Passthrough"}},
        {"name": "tcp", "protocol": "TCP", "port": ports[2]},
        {"name": "udp", "protocol": "UDP", "port": ports[3]}]);
    put("v1", "Gateway", "default", json!({"gatewayClassName": "gatewright", "listeners": listeners})).await?;
    let parents = json!([{"name": "one"}]);
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    let datagrams = json!([{"name": "one", "sectionName": "udp"}]);
    let routes = [
        ("v1", "HTTPRoute", json!({"parentRefs": parents, "hostnames": ["a.example.org"], "rules": rules})),
        ("v1", "GRPCRoute", json!({"parentRefs": parents, "hostnames": ["a.example.org"], "rules": rules})),
        ("v1alpha3", "TLSRoute", json!({"parentRefs": parents, "hostnames": ["x.b.example.org"], "rules": rules})),
        ("v1alpha2", "TCPRoute", json!({"parentRefs": [{"name": "one", "sectionName": "tcp"}], "rules": rules})),
        ("v1alpha2", "UDPRoute", json!({"parentRefs": datagrams, "rules": rules})),
    ];
    for (version, kind, spec) in routes.clone() {
        put(version, kind, "default", spec).await?;
    }
    let validation = json!({"hostname": "web.internal", "wellKnownCACertificates": "System"});
    let targets = json!([{"group": "", "kind": "Service", "name": "web"}]);
    put("v1", "BackendTLSPolicy", "default", json!({"targetRefs": targets, "validation": validation})).await?;

    let mut controller = cluster.controller_with("one", &["--gateway-api-channel", "experimental"])?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let served = |gateway: &Value| {
        let listeners = gateway["status"]["listeners"].as_array().cloned().unwrap_or_default();
        let attached = |index: usize, count: u32| listeners[index]["attachedRoutes"] == count;
        listeners.len() == 4
            && listeners.iter().all(|listener| is_true(listener, "ResolvedRefs"))
            // The class opens no ports of TCP and UDP.
            && listeners[..2].iter().all(|listener| is_true(listener, "Programmed"))
            && attached(0, 2)
            && attached(1, 1)
            && attached(2, 1)
    };
    cluster.until(GATEWAY, "Gateway", "default", "one", served).await?;
    for (version, kind, _) in routes.iter().filter(|(_, kind, _)| *kind != "UDPRoute") {
        let accepted = |o: &Value| is_true(&o["status"]["parents"][0], "Accepted");
        cluster.until(&group(version), kind, "default", "one", accepted).await?;
    }
    cluster.until(GATEWAY, "BackendTLSPolicy", "default", "one", |o| o["status"]["ancestors"].is_array()).await?;
    // Fields that the older schema does not have are left out by the server, and not written again and again.
    let settled = quiet(&cluster, 0).await?.len();
    assert_eq!(quiet(&cluster, settled).await?, [], "a steady state writes nothing");
    for kind in ["TLSRoute", "TCPRoute", "UDPRoute", "ReferenceGrant", "BackendTLSPolicy"] {
        assert!(!controller.output().contains(&format!("{kind}: not served by")), "{}", controller.output());
    }
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
