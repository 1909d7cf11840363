//! The condition that warns of certificates of users, on a real API server with a real Envoy.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::is_write;
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::tenants::until;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use time::OffsetDateTime;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const WARNING: &str = "gatewright.io/CertificateWarning";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A Secret with a certificate for these names that ends after this time.
fn secret(name: &str, hostnames: &[&str], ends_after: Duration) -> Result<Value> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(
        hostnames
            .iter()
            .map(|host| (*host).to_owned())
            .collect::<Vec<_>>(),
    )?;
    params.not_before = OffsetDateTime::now_utc() - DAY;
    params.not_after = OffsetDateTime::now_utc() + ends_after;
    Ok(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": "default"},
        "stringData": {"tls.crt": params.self_signed(&key)?.pem(), "tls.key": key.serialize_pem()}}),
    )
}

fn listener(name: &str, port: u16, hostname: &str, secret: &str) -> Value {
    json!({"name": name, "protocol": "HTTPS", "port": port, "hostname": hostname,
        "tls": {"certificateRefs": [{"name": secret}]}})
}

fn gateway(name: &str, listeners: &[Value]) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "default"},
        "spec": {"gatewayClassName": "gatewright", "listeners": listeners,
            "allowedListeners": {"namespaces": {"from": "Same"}}}})
}

/// Returns the warning of an object's first listener.
fn warning(object: &Value) -> Option<&Value> {
    condition(&object["status"]["listeners"][0], WARNING)
}

fn says(object: &Value, reason: &str, text: &str) -> bool {
    warning(object).is_some_and(|it| {
        it["reason"] == reason
            && it["message"]
                .as_str()
                .is_some_and(|said| said.contains(text))
    })
}

/// Waits until an Event of an object has a reason and a text, and checks that there is only one.
async fn event(cluster: &Cluster, name: &str, reason: &str, text: &str) -> Result<()> {
    let events = cluster
        .server
        .api("events.k8s.io/v1", "Event", "default")
        .await?;
    until(&format!("an Event {reason} of {name}"), async || {
        let all = events.list(&Default::default()).await?;
        let notes: Vec<&str> = all
            .iter()
            .map(|event| &event.data)
            .filter(|event| event["reason"] == reason && event["regarding"]["name"] == name)
            .filter_map(|event| event["note"].as_str())
            .filter(|note| note.contains(text))
            .collect();
        ensure!(notes.len() <= 1, "it is written once: {notes:?}");
        Ok(notes.iter().any(|note| note.contains("(docs/")))
    })
    .await
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_certificate_of_a_user_is_warned_of_and_nothing_is_written_while_nothing_changes()
-> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    let echo = Echo::start_on("web", BACKEND).await?;
    let port = free_port()?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    for object in service("default", "web", echo.address().port()) {
        server.put(object).await?;
    }
    server
        .put(secret("soon", &["soon.example.org"], 2 * DAY)?)
        .await?;
    server
        .put(secret("set", &["set.example.org"], 10 * DAY)?)
        .await?;
    server
        .put(secret("wild", &["*.example.net"], 90 * DAY)?)
        .await?;
    server
        .put(gateway(
            "edge",
            &[listener("soon", port, "soon.example.org", "soon")],
        ))
        .await?;
    server
        .put(gateway(
            "wild",
            &[listener("wild", port, "*.example.net", "wild")],
        ))
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": "set", "namespace": "default"},
            "spec": {"parentRef": {"name": "edge"}, "listeners": [listener("set", port, "set.example.org", "set")]}}))
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "deep", "namespace": "default"},
            "spec": {"parentRefs": [{"name": "wild"}], "hostnames": ["a.b.example.net", "a.example.net"],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;

    let is_served = |object: &Value| is_true(&object["status"], "Programmed");
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |object| {
            says(object, "CertificateExpiring", "within 3 days") && is_served(object)
        })
        .await?;
    cluster
        .until(GATEWAY, "ListenerSet", "default", "set", |object| {
            says(object, "CertificateExpiring", "within 14 days") && is_served(object)
        })
        .await?;
    let wild = cluster
        .until(GATEWAY, "Gateway", "default", "wild", is_served)
        .await?;
    ensure!(
        warning(&wild).is_none(),
        "a certificate that lives long gives no finding: {wild:#}"
    );
    cluster
        .until(GATEWAY, "HTTPRoute", "default", "deep", |object| {
            let told = condition(&object["status"]["parents"][0], WARNING)
                .and_then(|it| it["message"].as_str());
            told.is_some_and(|text| text.contains(" for a.b.example.net: it names *.example.net,"))
        })
        .await?;

    event(&cluster, "edge", "Programmed", "acknowledged by").await?;
    event(&cluster, "edge", "CertificateExpiring", "listener soon: ").await?;
    event(&cluster, "set", "CertificateExpiring", "listener set: ").await?;

    // The steady state writes nothing: another Gateway comes, which is served after anything that
    // waits.
    let writes = || -> Result<usize> {
        let of = [
            "default/edge",
            "default/set",
            "default/wild",
            "default/deep",
        ];
        let all = server.requests()?;
        Ok(all
            .iter()
            .filter(|r| is_write(r) && r.resource.ends_with("/status") && of.contains(&&*r.object))
            .count())
    };
    let before = writes()?;
    for name in ["later", "latest"] {
        server
            .put(gateway(
                name,
                &[listener("l", free_port()?, "later.example.org", "wild")],
            ))
            .await?;
        cluster
            .until(GATEWAY, "Gateway", "default", name, is_served)
            .await?;
    }
    ensure!(writes()? == before, "{before} writes, then {}", writes()?);

    // A renewed certificate takes the warning away.
    server
        .put(secret("soon", &["soon.example.org"], 90 * DAY)?)
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |object| {
            warning(object).is_none() && is_served(object)
        })
        .await?;
    event(&cluster, "edge", "Healed", "listener soon: no longer").await?;
    // One that has expired stays in service and says so.
    server
        .put(secret("wild", &["*.example.net"], Duration::ZERO)?)
        .await?;
    let wild = cluster
        .until(GATEWAY, "Gateway", "default", "wild", |object| {
            let resolved = condition(&object["status"]["listeners"][0], "ResolvedRefs");
            resolved.is_some_and(|it| {
                it["reason"] == "InvalidCertificateRef" && it["status"] == "False"
            })
        })
        .await?;
    ensure!(
        is_true(&wild["status"]["listeners"][0], "Programmed"),
        "{wild:#}"
    );
    controller
        .line("expired at")
        .await
        .context("the log says it")?;
    Ok(())
}
