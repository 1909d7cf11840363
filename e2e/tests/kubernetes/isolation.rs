//! Two tenants on a real API server, with the deployed manifests: `mallory` does what a tenant may
//! do, and `alice` must not be affected. Cases that need no API server are in the tests
//! `isolation`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use e2e::apiserver::ApiServer;
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const US: &str = "gatewright.io/gateway-controller";
/// Time limit of a wait on a busy machine; no assertion depends on durations.
const LIMIT: Duration = Duration::from_secs(180);

/// Makes the namespaces `infra`, with a Gateway that admits routes of all, `alice` and `mallory`,
/// each with a Service `web`.
async fn tenants(server: &ApiServer, port: u16, backend: SocketAddr) -> Result<()> {
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    for name in ["infra", "alice", "mallory"] {
        server
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await?;
    }
    for name in ["alice", "mallory"] {
        for object in service(name, "web", backend.port()) {
            server.put(object).await?;
        }
    }
    let listener = json!({"name": "http", "protocol": "HTTP", "port": port, "allowedRoutes": {"namespaces": {"from": "All"}}});
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "infra"},
            "spec": {"gatewayClassName": "gatewright", "listeners": [listener]}}))
        .await
        .map(drop)
}

fn route(namespace: &str, name: &str, host: &str, rules: &Value) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [{"name": "edge", "namespace": "infra"}], "hostnames": [host], "rules": rules}})
}

fn forward() -> Value {
    json!([{"backendRefs": [{"name": "web", "port": 80}]}])
}

/// A rule with matches by regular expressions.
fn matching(expressions: &[String]) -> Value {
    let one = |text: &String| json!({"path": {"type": "RegularExpression", "value": text}});
    json!({"matches": expressions.iter().map(one).collect::<Vec<_>>(), "backendRefs": [{"name": "web", "port": 80}]})
}

/// Returns our entry in the status of a route.
fn told(route: &Value) -> Value {
    let parents = route["status"]["parents"].as_array().into_iter().flatten();
    parents
        .into_iter()
        .find(|parent| parent["controllerName"] == US)
        .cloned()
        .unwrap_or_default()
}

/// Waits until our entry of a route's status has these words.
async fn until_told(
    cluster: &Cluster,
    (namespace, name): (&str, &str),
    words: &[&str],
) -> Result<Value> {
    cluster
        .until(GATEWAY, "HTTPRoute", namespace, name, |object| {
            let text = told(object)["conditions"].to_string();
            words.iter().all(|word| text.contains(word))
        })
        .await
}

/// Alice adds a host: checks that it is served by her, and that her route has no other condition.
async fn alice_is_unharmed(cluster: &Cluster, port: u16, step: usize) -> Result<()> {
    let name = format!("step-{step}");
    let host = format!("step-{step}.alice.example.org");
    cluster
        .server
        .put(route("alice", &name, &host, &forward()))
        .await?;
    let probe = Probe::http(SocketAddr::from(([127, 0, 0, 1], port)), &host);
    let began = Instant::now();
    while !probe.send().await.is_ok_and(|answer| answer.status == 200) {
        ensure!(began.elapsed() < LIMIT, "{host} is not served");
        sleep(Duration::from_millis(20)).await;
    }
    // Only a route with parts that Envoy refuses has the condition Programmed.
    cluster
        .until(GATEWAY, "HTTPRoute", "alice", &name, |object| {
            is_true(&told(object), "Accepted") && condition(&told(object), "Programmed").is_none()
        })
        .await
        .map(drop)
}

/// Issuers issue only for namespaces that their rules name, whichever listener requests it.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn an_issuer_makes_no_certificate_of_anothers_name() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    let rule = "internalCa.allow=[{namespaces: ['alice'], hostnames: ['*.alice.example.org']}]";
    let mut controller =
        cluster.controller_with("one", &["--set", "tenancy.certificates=Own", "--set", rule])?;
    controller.line("holding the lease").await?;
    tenants(server, free_port()?, SocketAddr::from(([127, 0, 0, 1], 1))).await?;
    let listener = |host: &str, port: u16| {
        json!({"name": "https", "protocol": "HTTPS", "port": port, "hostname": host,
            "tls": {"options": {"gatewright.io/issuer": "internal-ca"}}})
    };
    let gateway = |namespace: &str, name: &str, listener: Value| {
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": namespace},
            "spec": {"gatewayClassName": "gatewright", "listeners": [listener]}})
    };
    let asked = [
        ("alices", "shop.alice.example.org", 443),
        ("elsewhere", "shop.alice.example.org", 8443),
        ("wide", "*.alice.example.org", 443),
        ("cluster", "kubernetes.default.svc", 443),
        ("corp", "*.corp.example", 443),
    ];
    // Names belong to their first owner: the subject here is what the issuer refuses. A wildcard
    // needs a rule of its own.
    server
        .put(gateway(
            "alice",
            "wide",
            listener("*.alice.example.org", 443),
        ))
        .await?;
    server
        .put(gateway(
            "alice",
            "own",
            listener("own.alice.example.org", 443),
        ))
        .await?;
    for (name, host, port) in asked {
        server
            .put(gateway("mallory", name, listener(host, port)))
            .await?;
    }
    let reason = |object: &Value| {
        let resolved = condition(&object["status"]["listeners"][0], "ResolvedRefs")
            .cloned()
            .unwrap_or_default();
        (resolved["status"].clone(), resolved["reason"].clone())
    };
    let refused = |object: &Value| reason(object) == (json!("False"), json!("HostnameNotAllowed"));
    for (name, ..) in asked {
        let object = cluster
            .until(GATEWAY, "Gateway", "mallory", name, refused)
            .await?;
        let message = object["status"]["listeners"][0].to_string();
        ensure!(message.contains("internalCa.allow"), "{message}");
    }
    cluster
        .until(GATEWAY, "Gateway", "alice", "wide", refused)
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "alice", "own", |o| {
            reason(o).0 == "True"
        })
        .await?;
    let secrets = async |namespace: &str| -> Result<usize> {
        let api: Api<Secret> = Api::namespaced(server.client(), namespace);
        let all = api.list(&Default::default()).await?.items;
        Ok(all
            .iter()
            .filter(|secret| secret.type_.as_deref() == Some("kubernetes.io/tls"))
            .count())
    };
    let began = Instant::now();
    while secrets("alice").await? != 1 {
        assert!(
            began.elapsed() < LIMIT,
            "alice has {} certificates",
            secrets("alice").await?
        );
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(secrets("mallory").await?, 0);
    Ok(())
}

/// Messages name the exceeded limits, statuses are never longer than the API server accepts, and a
/// neighbour is served meanwhile.
#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn limits_are_conditions_and_no_status_is_too_long() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    let echo = Echo::start_on("web", BACKEND).await?;
    let port = free_port()?;
    let mut controller = cluster.controller_with("one", &["--set", "limits.namespace.routes=5"])?;
    controller.line("xDS at").await?;
    let (mut envoy, _keys) = cluster.envoy("envoy-a").await?;
    tenants(server, port, echo.address()).await?;
    alice_is_unharmed(&cluster, port, 0).await?;
    envoy.ready().await?;

    let large = ".{1,1000}".to_owned();
    server
        .put(route(
            "mallory",
            "large",
            "large.mallory.example.org",
            &json!([matching(&[large])]),
        ))
        .await?;
    until_told(
        &cluster,
        ("mallory", "large"),
        &[
            "UnsupportedValue",
            "limits.object.regexInstructions is 2000",
        ],
    )
    .await?;

    // The most and longest texts that the API server accepts: each is invalid in its own way.
    let wrong = |rule: usize| {
        let bad: Vec<String> = (0..8)
            .map(|number| format!("/{rule}-{number}({}", "x".repeat(900)))
            .collect();
        matching(&bad)
    };
    server
        .put(route(
            "mallory",
            "wrong",
            "wrong.mallory.example.org",
            &json!((0..16).map(wrong).collect::<Vec<_>>()),
        ))
        .await?;
    let object = until_told(&cluster, ("mallory", "wrong"), &["UnsupportedValue"]).await?;
    let told = told(&object);
    let messages = told["conditions"].as_array().context("conditions")?.iter();
    let longest = messages
        .filter_map(|condition| condition["message"].as_str().map(str::len))
        .max();
    ensure!(
        longest.is_some_and(|longest| longest <= 4096),
        "{longest:?}"
    );

    // Beyond the limit of routes the newest wait, and are accepted as soon as one is deleted.
    for number in 0..4 {
        let host = format!("r{number}.mallory.example.org");
        server
            .put(route("mallory", &format!("r{number}"), &host, &forward()))
            .await?;
        // Creation times have a resolution of a second, and decide.
        sleep(Duration::from_millis(1100)).await;
    }
    until_told(
        &cluster,
        ("mallory", "r3"),
        &["LimitReached", "limits.namespace.routes 5"],
    )
    .await?;
    alice_is_unharmed(&cluster, port, 1).await?;
    let routes = server.api(GATEWAY, "HTTPRoute", "mallory").await?;
    routes.delete("wrong", &Default::default()).await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "r3", |object| {
            is_true(&self::told(object), "Accepted")
        })
        .await?;
    alice_is_unharmed(&cluster, port, 2).await?;
    assert_eq!(cluster.denied()?, []);
    Ok(())
}

/// Envoy's message is in the status of the author only, clipped, and the neighbour's changes go
/// live.
#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn envoys_words_stand_in_the_authors_status_alone() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    let echo = Echo::start_on("web", BACKEND).await?;
    let port = free_port()?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (mut envoy, _keys) = cluster.strict_envoy("envoy-a").await?;
    tenants(server, port, echo.address()).await?;
    alice_is_unharmed(&cluster, port, 0).await?;
    envoy.ready().await?;
    // Larger than this Envoy accepts, and with a long message: Envoy repeats the expression.
    let text = format!("/contact-mallory[a-z]{{520}}[{}]", "herwords".repeat(80));
    server
        .put(route(
            "mallory",
            "evil",
            "evil.mallory.example.org",
            &json!([matching(&[text])]),
        ))
        .await?;
    let object = until_told(
        &cluster,
        ("mallory", "evil"),
        &["refused by Envoy", "contact-mallory"],
    )
    .await?;
    let programmed = condition(&told(&object), "Programmed")
        .cloned()
        .context("it is told")?;
    let message = programmed["message"].as_str().context("a message")?;
    ensure!(
        programmed["status"] == "False" && message.len() < 700,
        "{} bytes: {message}",
        message.len()
    );
    for step in 1..4 {
        alice_is_unharmed(&cluster, port, step).await?;
    }
    let gateway = cluster
        .until(GATEWAY, "Gateway", "infra", "edge", |object| {
            is_true(&object["status"], "Programmed")
        })
        .await?;
    let routes = server
        .api(GATEWAY, "HTTPRoute", "alice")
        .await?
        .list(&Default::default())
        .await?;
    let others = serde_json::to_string(&routes)? + &gateway.to_string();
    ensure!(!others.contains("mallory"), "{others}");

    // The same after a restart of the controller and Envoy.
    drop((controller, envoy));
    let mut controller = cluster.controller("two")?;
    controller.line("xDS at").await?;
    let (mut envoy, _keys) = cluster.strict_envoy("envoy-b").await?;
    alice_is_unharmed(&cluster, port, 4).await?;
    envoy.ready().await?;
    until_told(
        &cluster,
        ("mallory", "evil"),
        &["refused by Envoy", "contact-mallory"],
    )
    .await
    .map(drop)
}

/// One tenant writes as fast as the API server accepts: a neighbour's hosts go live meanwhile.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_flood_of_writes_holds_up_no_neighbour() -> Result<()> {
    const ROUTES: usize = 200;
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    let echo = Echo::start_on("web", BACKEND).await?;
    let port = free_port()?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (mut envoy, _keys) = cluster.envoy("envoy-a").await?;
    tenants(server, port, echo.address()).await?;
    for number in 0..ROUTES {
        let host = format!("r{number}.mallory.example.org");
        server
            .put(route("mallory", &format!("r{number}"), &host, &forward()))
            .await?;
    }
    alice_is_unharmed(&cluster, port, 0).await?;
    envoy.ready().await?;
    let writes = AtomicUsize::new(0);
    let routes = server.api(GATEWAY, "HTTPRoute", "mallory").await?;
    let flood = async |of: usize| -> Result<()> {
        loop {
            for number in (of..ROUTES).step_by(8) {
                let version = writes.fetch_add(1, Ordering::Relaxed);
                let path = json!([{"path": {"value": format!("/v{version}")}}]);
                let spec = json!({"spec": {"rules": [{"matches": path, "backendRefs": [{"name": "web", "port": 80}]}]}});
                routes
                    .patch(
                        &format!("r{number}"),
                        &Default::default(),
                        &Patch::Merge(&spec),
                    )
                    .await?;
            }
        }
    };
    let all = futures::future::try_join_all((0..8).map(&flood));
    let hers = async {
        for step in 1..11 {
            alice_is_unharmed(&cluster, port, step).await?;
        }
        Ok::<_, anyhow::Error>(writes.load(Ordering::Relaxed))
    };
    let written = tokio::select! {
        written = hers => written?,
        failed = all => { failed?; 0 }
    };
    ensure!(
        written > ROUTES,
        "mallory wrote {written} times only: nothing is shown"
    );
    // All of hers end in their last version.
    let last = writes.fetch_add(1, Ordering::Relaxed);
    let spec = json!({"spec": {"hostnames": [format!("last-{last}.mallory.example.org")], "rules": forward()}});
    routes
        .patch("r0", &Default::default(), &Patch::Merge(&spec))
        .await?;
    let probe = Probe::http(
        SocketAddr::from(([127, 0, 0, 1], port)),
        &format!("last-{last}.mallory.example.org"),
    );
    let began = Instant::now();
    while !probe.send().await.is_ok_and(|answer| answer.status == 200) {
        ensure!(
            began.elapsed() < LIMIT,
            "mallory's last change is not served"
        );
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
