//! The condition and the Event of a certificate whose renewals fail, on a real API server with a
//! CA that refuses them.

use anyhow::{Context, Result, ensure};
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::tenants::{GATEWAY, until};
use e2e::testca::{Refusal, TestCa};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use serde_json::{Value, json};

const SPACE: &str = "default";
const HOST: &str = "shop.example.org";
const WARNING: &str = "gatewright.io/CertificateWarning";
const REASON: &str = "CertificateNotRenewed";

/// A Gateway with a listener whose certificate the installation's CA issues, and its route.
fn objects(port: u16) -> [Value; 2] {
    let options = json!({"gatewright.io/issuer": "acme"});
    [
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": SPACE},
            "spec": {"gatewayClassName": "gatewright", "listeners": [{"name": "shop", "protocol": "HTTPS",
                "port": port, "hostname": HOST, "tls": {"options": options}}]}}),
        json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": SPACE},
            "spec": {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}),
    ]
}

/// The refusal of an order, which somebody has to act on.
fn refusal(detail: &str) -> Refusal {
    Refusal {
        status: 403,
        kind: "rejectedIdentifier",
        detail: detail.to_owned(),
        ..Refusal::default()
    }
}

/// The chain in the Secret of the listener's certificate.
async fn held(cluster: &Cluster) -> Result<Vec<u8>> {
    let api: Api<Secret> = Api::namespaced(cluster.server.client(), SPACE);
    let all = api.list(&Default::default()).await?.items;
    let data = all
        .into_iter()
        .filter(|secret| secret.type_.as_deref() == Some("kubernetes.io/tls"))
        .find_map(|secret| secret.data)
        .context("a Secret with a certificate")?;
    Ok(data.get("tls.crt").context("a chain")?.0.clone())
}

/// The Events of the Gateway with this reason.
async fn events(cluster: &Cluster, reason: &str) -> Result<Vec<Value>> {
    let api = cluster
        .server
        .api("events.k8s.io/v1", "Event", SPACE)
        .await?;
    let all = api.list(&Default::default()).await?.items;
    let of_edge = all.into_iter().map(|event| event.data).filter(|event| {
        event["reason"] == reason
            && event["regarding"]["kind"] == "Gateway"
            && event["regarding"]["name"] == "edge"
    });
    Ok(of_edge.collect())
}

/// Waits until the listener is served and the text of its warning is as expected.
async fn until_told(
    cluster: &Cluster,
    what: &str,
    is_told: impl Fn(Option<&str>) -> bool,
) -> Result<Value> {
    let gateway = cluster.until(GATEWAY, "Gateway", SPACE, "edge", |object| {
        let listener = &object["status"]["listeners"][0];
        let warning = condition(listener, WARNING).filter(|it| it["reason"] == REASON);
        is_true(listener, "Programmed") && is_told(warning.and_then(|it| it["message"].as_str()))
    });
    gateway.await.with_context(|| what.to_owned())
}

/// Asks for the certificate to be renewed now.
fn renew(socket: &str) -> Result<()> {
    let told = Gatewright::run(&["certs", "renew", HOST, "--admin", socket])?;
    ensure!(
        told.status.success(),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn renewals_that_fail_are_an_event_once_and_a_success_ends_the_warning() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    let ca = TestCa::start().await?;
    let echo = Echo::start_on("web", BACKEND).await?;
    let admin = tempfile::tempdir()?;
    let socket = admin.path().join("admin.sock").display().to_string();
    let directory = format!("issuers.acme.directory={}", ca.directory());
    let arguments = [
        "--set",
        &directory,
        "--set",
        "issuers.acme.preflight=Skip",
        "--set",
        "issuers.acme.allow=[{namespaces: ['*'], hostnames: ['*']}]",
        "--admin",
        &socket,
    ];
    let mut controller = cluster.controller_with("one", &arguments)?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    for object in service(SPACE, "web", echo.address().port()) {
        server.put(object).await?;
    }
    for object in objects(free_port()?) {
        server.put(object).await?;
    }
    until_told(&cluster, "it is issued and served", |text| text.is_none()).await?;
    let first = held(&cluster).await?;

    // The CA refuses the renewal, and gives another reason for the next one: the listener goes on
    // to be served, and the warning has the newer reason.
    for detail in ["the account is not permitted", "the name is on a list"] {
        ca.behave(|it| {
            it.refusing.insert(HOST.to_owned(), refusal(detail));
        });
        let asked = ca.counts().asked;
        renew(&socket)?;
        until_told(&cluster, detail, |text| {
            text.is_some_and(|text| {
                text.contains(detail) && text.contains("and its renewal fails: ")
            })
        })
        .await?;
        ensure!(ca.counts().asked > asked, "the CA was asked: {detail}");
    }
    ensure!(
        held(&cluster).await? == first,
        "the certificate is the same"
    );

    until("there is an Event", async || {
        Ok(!events(&cluster, REASON).await?.is_empty())
    })
    .await?;
    cluster.quiet().await?;
    let told = events(&cluster, REASON).await?;
    ensure!(told.len() == 1, "it is written once: {told:#?}");
    let event = &told[0];
    let note = event["note"].as_str().context("a note")?;
    ensure!(event["type"] == "Warning", "it is a warning: {event:#}");
    ensure!(
        event["regarding"]["namespace"] == SPACE && event["regarding"]["uid"].is_string(),
        "it is about the Gateway itself: {event:#}"
    );
    ensure!(event["series"].is_null(), "it is no series: {event:#}");
    ensure!(
        note.starts_with("listener shop: the certificate in Secret default/"),
        "the note names listener and Secret: {note}"
    );
    ensure!(
        note.contains("the account is not permitted"),
        "the note has the CA's words: {note}"
    );
    ensure!(
        note.contains("docs/reference/conditions.md"),
        "the note names the page: {note}"
    );

    // A renewal that succeeds ends it, and says so once.
    ca.behave(|it| it.refusing.clear());
    renew(&socket)?;
    until_told(&cluster, "the warning is gone", |text| text.is_none()).await?;
    ensure!(held(&cluster).await? != first, "it is a new certificate");
    until("an Event says that it is over", async || {
        Ok(!events(&cluster, "Healed").await?.is_empty())
    })
    .await?;
    cluster.quiet().await?;
    let healed = events(&cluster, "Healed").await?;
    ensure!(healed.len() == 1, "it is written once: {healed:#?}");
    ensure!(
        healed[0]["note"]
            .as_str()
            .is_some_and(|note| note.starts_with("listener shop: no longer ")),
        "it names the listener: {healed:#?}"
    );
    let told = events(&cluster, REASON).await?;
    ensure!(told.len() == 1, "no other warning is written: {told:#?}");
    ensure!(
        cluster.denied()?.is_empty(),
        "every right that is needed is given: {:?}",
        cluster.denied()?
    );
    Ok(())
}
