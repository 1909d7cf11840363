//! Definitions of an older release of the Gateway API: what is read of them, and that statuses hold
//! there.

use anyhow::Result;
use e2e::apiserver::{ApiServer, Definitions, Request};
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::helm::Helm;
use e2e::port::free_port;
use e2e::probe::Probe;
use e2e::tenants::{GATEWAY, quiet, until};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Helm: e2e/tools install kubernetes gateway-api envoy helm"]
async fn kinds_of_version_1_4_are_read_in_the_versions_that_it_has() -> Result<()> {
    let server = ApiServer::with(&[Definitions::OlderGatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    Helm::new(None)?
        .grant_experimental_channel(&cluster.server)
        .await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    for object in service("default", "web", 80) {
        server.put(object).await?;
    }
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "keys"}}))
        .await?;
    server
        .put(tls_secret("keys", "cert", &["a.example.org"])?)
        .await?;
    let group = |version: &str| format!("gateway.networking.k8s.io/{version}");
    let put = async |version: &str, kind: &str, namespace: &str, spec: Value| {
        let metadata = json!({"name": "one", "namespace": namespace});
        server.put(json!({"apiVersion": group(version), "kind": kind, "metadata": metadata, "spec": spec})).await
    };
    let from =
        json!([{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default"}]);
    put(
        "v1beta1",
        "ReferenceGrant",
        "keys",
        json!({"from": from, "to": [{"group": "", "kind": "Secret"}]}),
    )
    .await?;
    let ports = [free_port()?, free_port()?, free_port()?, free_port()?];
    let tls = json!({"certificateRefs": [{"name": "cert", "namespace": "keys"}]});
    let listeners = json!([
        {"name": "https", "protocol": "HTTPS", "port": ports[0], "hostname": "a.example.org", "tls": tls},
        {"name": "tls", "protocol": "TLS", "port": ports[1], "hostname": "*.b.example.org", "tls": {"mode": "Passthrough"}},
        {"name": "tcp", "protocol": "TCP", "port": ports[2]},
        {"name": "udp", "protocol": "UDP", "port": ports[3]}]);
    put(
        "v1",
        "Gateway",
        "default",
        json!({"gatewayClassName": "gatewright", "listeners": listeners}),
    )
    .await?;
    let parents = json!([{"name": "one"}]);
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    let datagrams = json!([{"name": "one", "sectionName": "udp"}]);
    let routes = [
        (
            "v1",
            "HTTPRoute",
            json!({"parentRefs": parents, "hostnames": ["a.example.org"], "rules": rules}),
        ),
        (
            "v1",
            "GRPCRoute",
            json!({"parentRefs": parents, "hostnames": ["a.example.org"], "rules": rules}),
        ),
        (
            "v1alpha3",
            "TLSRoute",
            json!({"parentRefs": parents, "hostnames": ["x.b.example.org"], "rules": rules}),
        ),
        (
            "v1alpha2",
            "TCPRoute",
            json!({"parentRefs": [{"name": "one", "sectionName": "tcp"}], "rules": rules}),
        ),
        (
            "v1alpha2",
            "UDPRoute",
            json!({"parentRefs": datagrams, "rules": rules}),
        ),
    ];
    for (version, kind, spec) in routes.clone() {
        put(version, kind, "default", spec).await?;
    }
    let validation = json!({"hostname": "web.internal", "wellKnownCACertificates": "System"});
    let targets = json!([{"group": "", "kind": "Service", "name": "web"}]);
    put(
        "v1",
        "BackendTLSPolicy",
        "default",
        json!({"targetRefs": targets, "validation": validation}),
    )
    .await?;

    let mut controller =
        cluster.controller_with("one", &["--set", "gatewayApi.channel=Experimental"])?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let served = |gateway: &Value| {
        let listeners = gateway["status"]["listeners"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let attached = |index: usize, count: u32| listeners[index]["attachedRoutes"] == count;
        listeners.len() == 4
            && listeners.iter().all(|listener| is_true(listener, "ResolvedRefs"))
            // The class opens no ports of TCP and UDP.
            && listeners[..2].iter().all(|listener| is_true(listener, "Programmed"))
            && attached(0, 2)
            && attached(1, 1)
            && attached(2, 1)
    };
    cluster
        .until(GATEWAY, "Gateway", "default", "one", served)
        .await?;
    for (version, kind, _) in routes.iter().filter(|(_, kind, _)| *kind != "UDPRoute") {
        cluster
            .until(&group(version), kind, "default", "one", |o| {
                is_true(&o["status"]["parents"][0], "Accepted")
            })
            .await?;
    }
    cluster
        .until(GATEWAY, "BackendTLSPolicy", "default", "one", |o| {
            o["status"]["ancestors"].is_array()
        })
        .await?;
    // Fields that the older schema does not have are left out by the server, and not written again
    // and again.
    let settled = quiet(&cluster, 0).await?.len();
    assert_eq!(
        accepted(quiet(&cluster, settled).await?),
        [],
        "a steady state writes nothing"
    );
    for kind in [
        "TLSRoute",
        "TCPRoute",
        "UDPRoute",
        "ReferenceGrant",
        "BackendTLSPolicy",
    ] {
        assert!(
            !controller
                .output()
                .contains(&format!("{kind}: not served by")),
            "{}",
            controller.output()
        );
    }
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// The listeners of an XListenerSet are served as those of a ListenerSet, and its status is written
/// in the shape that its definition has.
#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Helm: e2e/tools install kubernetes gateway-api envoy helm"]
async fn an_xlistenerset_of_version_1_4_is_served_as_a_listener_set() -> Result<()> {
    const SETS: &str = "gateway.networking.x-k8s.io/v1alpha1";
    let server = ApiServer::with(&[Definitions::OlderGatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    Helm::new(None)?
        .grant_experimental_channel(&cluster.server)
        .await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let echo = Echo::start_on("web", BACKEND).await?;
    for space in ["team", "keys"] {
        server
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}))
            .await?;
    }
    for object in service("team", "web", echo.address().port()) {
        server.put(object).await?;
    }
    server
        .put(tls_secret("keys", "cert", &["a.example.org"])?)
        .await?;
    let put = async |version: &str, kind: &str, namespace: &str, name: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": namespace});
        server
            .put(json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}))
            .await
    };
    let edge = free_port()?;
    let http = free_port()?;
    let https = free_port()?;
    let allowed = json!({"namespaces": {"from": "Same"}});
    let gateway = |allowed: &Value| {
        json!({"gatewayClassName": "gatewright", "allowedListeners": allowed,
            "listeners": [{"name": "edge", "protocol": "HTTP", "port": edge}]})
    };
    put(GATEWAY, "Gateway", "default", "edge", gateway(&allowed)).await?;
    let tls = json!({"certificateRefs": [{"name": "cert", "namespace": "keys"}]});
    let listeners = json!([
        {"name": "plain", "protocol": "HTTP", "port": http, "hostname": "a.example.org"},
        {"name": "secure", "protocol": "HTTPS", "port": https, "hostname": "a.example.org", "tls": tls},
        // The API server fills in port 0.
        {"name": "any", "protocol": "HTTP", "hostname": "b.example.org"}]);
    let parent = json!({"namespace": "default", "name": "edge"});
    put(
        SETS,
        "XListenerSet",
        "team",
        "set",
        json!({"parentRef": parent, "listeners": listeners}),
    )
    .await?;
    let parents =
        json!([{"group": "gateway.networking.x-k8s.io", "kind": "XListenerSet", "name": "set"}]);
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    put(
        GATEWAY,
        "HTTPRoute",
        "team",
        "app",
        json!({"parentRefs": parents, "rules": rules}),
    )
    .await?;

    let mut controller =
        cluster.controller_with("one", &["--set", "gatewayApi.channel=Experimental"])?;
    controller.line("xDS at").await?;
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    let set_is = async |good: &dyn Fn(&Value) -> bool| {
        cluster
            .until(SETS, "XListenerSet", "team", "set", good)
            .await
    };
    let reason =
        |status: &Value, kind: &str| condition(status, kind).map(|told| told["reason"].clone());
    set_is(&|set| reason(&set["status"], "Accepted") == Some(json!("NotAllowed"))).await?;

    // The Gateway admits it; the certificate is of another namespace.
    put(
        GATEWAY,
        "Gateway",
        "default",
        "edge",
        gateway(&json!({"namespaces": {"from": "All"}})),
    )
    .await?;
    let entry = |set: &Value, name: &str| {
        let all = set["status"]["listeners"].as_array().into_iter().flatten();
        all.into_iter()
            .find(|listener| listener["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    set_is(&|set| {
        let plain = entry(set, "plain");
        let secure = entry(set, "secure");
        is_true(&plain, "Programmed")
            && reason(&secure, "ResolvedRefs") == Some(json!("RefNotPermitted"))
    })
    .await?;
    // A grant for ListenerSets is not one for XListenerSets.
    let grant = async |group: &str, kind: &str| {
        let from = json!([{"group": group, "kind": kind, "namespace": "team"}]);
        let spec = json!({"from": from, "to": [{"group": "", "kind": "Secret"}]});
        put(
            "gateway.networking.k8s.io/v1beta1",
            "ReferenceGrant",
            "keys",
            kind.to_lowercase().as_str(),
            spec,
        )
        .await
    };
    grant("gateway.networking.k8s.io", "ListenerSet").await?;
    grant("gateway.networking.x-k8s.io", "XListenerSet").await?;
    let set = set_is(&|set| {
        ["plain", "secure"]
            .iter()
            .all(|name| is_true(&entry(set, name), "Programmed"))
    })
    .await?;
    assert_eq!(
        entry(&set, "secure")["port"],
        https,
        "the definition requires the port"
    );
    assert!(entry(&set, "any").is_null(), "it allows no port 0: {set:#}");
    let text = condition(&set["status"], "Accepted")
        .map(|told| told["message"].to_string())
        .unwrap_or_default();
    assert!(
        text.contains("any has no port, and ports are not assigned"),
        "{text}"
    );
    cluster
        .until(GATEWAY, "HTTPRoute", "team", "app", |o| {
            is_true(&o["status"]["parents"][0], "Accepted")
        })
        .await?;

    envoy.ready().await?;
    until("the listeners of the set are served", async || {
        let plain = Probe::http(([127, 0, 0, 1], http).into(), "a.example.org")
            .send()
            .await;
        let secure = Probe::https(([127, 0, 0, 1], https).into(), "a.example.org")
            .send()
            .await;
        Ok([plain, secure]
            .into_iter()
            .all(|answer| answer.is_ok_and(|answer| answer.status == 200)))
    })
    .await?;
    let other = Probe::http(([127, 0, 0, 1], edge).into(), "a.example.org")
        .send()
        .await?;
    assert_eq!(
        other.status, 404,
        "the route does not attach to the Gateway's own listener"
    );
    let settled = quiet(&cluster, 0).await?.len();
    assert_eq!(
        accepted(quiet(&cluster, settled).await?),
        [],
        "a steady state writes nothing"
    );
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");

    // Without it, its listeners are gone.
    server
        .api(SETS, "XListenerSet", "team")
        .await?
        .delete("set", &Default::default())
        .await?;
    until("the port is closed", async || {
        Ok(Probe::http(([127, 0, 0, 1], http).into(), "a.example.org")
            .send()
            .await
            .is_err())
    })
    .await
}

/// Keeps the writes that the server accepted. Fields that it does not have are tried again when its
/// definitions change, and a busy server may go on publishing them for a while after they were
/// installed.
fn accepted(mut writes: Vec<Request>) -> Vec<Request> {
    writes.retain(|write| write.code < 300);
    writes
}
