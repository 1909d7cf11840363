//! TLS to backends on a real Envoy: the checks of a BackendTLSPolicy, and the client certificate of
//! a Gateway.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e::tls_backend::{Pair, TestRoot, TlsBackend, serial};
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, api, class, edge_route, free_port, object, service};
use gatewright_core::inputs::ObjectChange;
use gatewright_core::translate::Change;
use serde_json::{Value, json};

const HOST: &str = "app.example.org";
const URI: &str = "spiffe://example.org/web";

fn gateway(port: u16, tls: &Value) -> Change {
    let listener = json!({"name": "http", "port": port, "protocol": "HTTP"});
    let mut spec = json!({"gatewayClassName": "ours", "listeners": [listener]});
    if !tls.is_null() {
        spec["tls"] = tls.clone();
    }
    api("Gateway", "edge", spec)
}

fn route() -> Change {
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    edge_route("web", HOST, rules)
}

fn roots(root: &TestRoot) -> Change {
    object(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "ca"},
        "data": {"ca.crt": root.pem()}}),
    )
}

fn client(pair: &Pair) -> Change {
    object(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": "default", "name": "client"},
        "stringData": {"tls.crt": pair.certificate.pem(), "tls.key": pair.key.serialize_pem()}}),
    )
}

/// A policy of the Service, with a hostname and subject alternative names.
fn policy(hostname: &str, names: &Value) -> Change {
    let mut validation = json!({"hostname": hostname,
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]});
    if !names.is_null() {
        validation["subjectAltNames"] = names.clone();
    }
    let targets = json!([{"group": "", "kind": "Service", "name": "web"}]);
    api(
        "BackendTLSPolicy",
        "web",
        json!({"targetRefs": targets, "validation": validation}),
    )
}

fn gone(change: Change) -> Change {
    match change {
        Change::Object(ObjectChange::Put(object)) => Change::delete(object.key()),
        other => other,
    }
}

/// Returns the handshake as the backend saw it, or the status if Envoy answered instead.
async fn asked(world: &World, port: u16) -> Result<Result<Value, u16>> {
    let answer = Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST)
        .send()
        .await?;
    match answer.status {
        200 => Ok(Ok(serde_json::from_slice(&answer.body)?)),
        status if (500..600).contains(&status) => Ok(Err(status)),
        status => anyhow::bail!("answered {status}\n{}", world.envoy.log()),
    }
}

async fn world(port: u16, address: SocketAddr, more: Vec<Change>) -> Result<World> {
    let mut changes = vec![class(), gateway(port, &Value::Null), route()];
    changes.extend(service("web", address));
    changes.extend(more);
    World::start(changes).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_backend_is_asked_for_by_its_hostname_and_verified_by_names() -> Result<()> {
    let port = free_port()?;
    let root = TestRoot::new("one")?;
    let backend = TlsBackend::start(&root.issue("web.internal", Some(URI))?, None).await?;
    let world = world(
        port,
        backend.address(),
        vec![roots(&root), policy("web.internal", &Value::Null)],
    )
    .await?;
    let seen = asked(&world, port)
        .await?
        .expect("the certificate is for the hostname");
    assert_eq!(
        seen,
        json!({"sni": "web.internal", "alpn": "http/1.1", "client": null})
    );
    // The hostname is the SNI; if names are given, only they are compared.
    let dns = json!({"type": "Hostname", "hostname": "web.internal"});
    let uri = json!({"type": "URI", "uri": URI});
    let others = json!([{"type": "Hostname", "hostname": "x.internal"}, {"type": "URI", "uri": "spiffe://example.org/x"}]);
    for (hostname, names, good) in [
        ("other.internal", Value::Null, false),
        ("other.internal", json!([dns]), true),
        ("other.internal", json!([uri]), true),
        ("web.internal", others.clone(), false),
        ("web.internal", json!([others[0], uri]), true),
    ] {
        world.settle(vec![policy(hostname, &names)]).await?;
        let seen = asked(&world, port).await?;
        assert_eq!(seen.is_ok(), good, "{hostname} {names}: {seen:?}");
        if let Ok(seen) = seen {
            assert_eq!(seen["sni"], hostname);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn roots_rotate_and_what_cannot_be_verified_is_sent_nothing() -> Result<()> {
    let port = free_port()?;
    let root = TestRoot::new("one")?;
    let other = TestRoot::new("two")?;
    let backend = TlsBackend::start(&root.issue("web.internal", None)?, None).await?;
    let world = world(
        port,
        backend.address(),
        vec![roots(&other), policy("web.internal", &Value::Null)],
    )
    .await?;
    assert_eq!(
        asked(&world, port).await?,
        Err(503),
        "its CA is not trusted"
    );
    world.settle(vec![roots(&root)]).await?;
    assert!(asked(&world, port).await?.is_ok());
    world.settle(vec![roots(&other)]).await?;
    assert_eq!(asked(&world, port).await?, Err(503));
    world.settle(vec![gone(roots(&root))]).await?;
    assert_eq!(asked(&world, port).await?, Err(503));
    world.settle(vec![roots(&root)]).await?;
    assert!(asked(&world, port).await?.is_ok());
    // A plaintext backend is no fallback; without the policy it is reached in plaintext.
    let echo = Echo::start("plain").await?;
    world.settle(service("web", echo.address())).await?;
    assert_eq!(asked(&world, port).await?, Err(503));
    assert_eq!(echo.requests(), 0);
    world
        .settle(vec![gone(policy("web.internal", &Value::Null))])
        .await?;
    assert_eq!(
        asked(&world, port).await?.expect("plain text")["name"],
        "plain"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_gateway_shows_its_certificate_and_another_one_at_once() -> Result<()> {
    let port = free_port()?;
    let root = TestRoot::new("one")?;
    let clients = TestRoot::new("clients")?;
    let backend = TlsBackend::start(&root.issue("web.internal", None)?, Some(&clients)).await?;
    let world = world(
        port,
        backend.address(),
        vec![roots(&root), policy("web.internal", &Value::Null)],
    )
    .await?;
    assert_eq!(
        asked(&world, port).await?,
        Err(503),
        "it needs a certificate of its clients"
    );
    let shows = json!({"backend": {"clientCertificateRef": {"name": "client"}}});
    world.settle(vec![gateway(port, &shows)]).await?;
    assert_eq!(
        asked(&world, port).await?,
        Err(503),
        "the Secret is not there yet"
    );
    for _ in 0..2 {
        let pair = clients.issue("edge.internal", None)?;
        world.settle(vec![client(&pair)]).await?;
        let expected = json!(serial(pair.certificate.der()));
        // An acknowledged secret reaches the workers a moment later.
        let shown = async {
            while asked(&world, port)
                .await?
                .ok()
                .is_none_or(|seen| seen["client"] != expected)
            {}
            Ok::<_, anyhow::Error>(())
        };
        tokio::time::timeout(PATIENCE, shown).await??;
    }
    world.settle(vec![gateway(port, &Value::Null)]).await?;
    assert_eq!(asked(&world, port).await?, Err(503));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_ended_edition_of_a_ca_hinders_no_backend_in_either_order() -> Result<()> {
    let port = free_port()?;
    let root = TestRoot::new("one")?;
    let old = root.ended_edition("one")?;
    let backend = TlsBackend::start(&root.issue("web.internal", None)?, None).await?;
    let bundle = |text: String| {
        object(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "ca"},
            "data": {"ca.crt": text}}),
        )
    };
    let policy = policy("web.internal", &Value::Null);
    let world = world(
        port,
        backend.address(),
        vec![bundle(format!("{old}{}", root.pem())), policy],
    )
    .await?;
    assert!(asked(&world, port).await?.is_ok(), "the old one first");
    world
        .settle(vec![bundle(format!("{}{old}", root.pem()))])
        .await?;
    assert!(asked(&world, port).await?.is_ok(), "the new one first");
    world.settle(vec![bundle(old)]).await?;
    assert!(asked(&world, port).await?.is_err(), "the old one alone");
    Ok(())
}
