//! Gateways of several tenants on one port of the shared fleet: a hostname is served for its owner,
//! and for nobody else at any time, also while its owner changes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{BACKEND, Cluster, is_true, service};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::{Value, json};

use super::GATEWAY;

/// Returns the owner that answers for a host: the name in the certificate, and the backend.
async fn who(address: SocketAddr, host: &str) -> Result<(String, String)> {
    let answer = Probe::https(address, host).send().await?;
    let told: Value = serde_json::from_slice(&answer.body).with_context(|| {
        format!(
            "{} {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        )
    })?;
    let backend = told["name"]
        .as_str()
        .context("an echo names itself")?
        .to_owned();
    let peer = answer.peer.context("TLS has a peer")?;
    let owner = peer
        .dns_names
        .iter()
        .find_map(|name| name.strip_suffix(".owner.test"));
    Ok((
        owner.context("the certificate names its owner")?.to_owned(),
        backend,
    ))
}

/// A tenant whose certificate and backend have its name: TLS is terminated at Envoy, or at the
/// backend.
async fn tenant(
    cluster: &Cluster,
    name: &str,
    port: u16,
    host: Option<&str>,
    passthrough: bool,
) -> Result<Echo> {
    let server = &cluster.server;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .await?;
    let names: Vec<String> = host
        .map(str::to_owned)
        .into_iter()
        .chain([format!("{name}.owner.test")])
        .collect();
    let made = rcgen::generate_simple_self_signed(names)?;
    let mut listener = json!({"name": "l", "protocol": "HTTPS", "port": port, "tls": {"certificateRefs": [{"name": "cert"}]}});
    let mut route = json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": name},
        "spec": {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}});
    if let Some(host) = host {
        listener["hostname"] = json!(host);
    }
    let echo = if passthrough {
        listener["protocol"] = json!("TLS");
        listener["tls"] = json!({"mode": "Passthrough"});
        route["kind"] = json!("TLSRoute");
        route["spec"]["hostnames"] = json!([host.context("a TLSRoute has a hostname")?]);
        let key = made
            .signing_key
            .serialize_der()
            .try_into()
            .map_err(anyhow::Error::msg)?;
        Echo::start_tls_on(name, BACKEND, vec![made.cert.der().clone()], key).await?
    } else {
        server
            .put(json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                "metadata": {"name": "cert", "namespace": name},
                "stringData": {"tls.crt": made.cert.pem(), "tls.key": made.signing_key.serialize_pem()}}))
            .await?;
        Echo::start_on(name, BACKEND).await?
    };
    for object in service(name, "web", echo.address().port()) {
        server.put(object).await?;
    }
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": name},
            "spec": {"gatewayClassName": "gatewright", "listeners": [listener]}}))
        .await?;
    server.put(route).await?;
    // The next Gateway is younger by its creation time, which has a resolution of a second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    Ok(echo)
}

/// Returns true for the result of a connection during the change: the certificate of one and the
/// route of the other, or passthrough from now on.
fn is_between(who: &str, from: &str, to: &str) -> bool {
    let mixed = |backend: &str, certificate: &str| {
        who == format!("{backend} under the certificate of {certificate}")
    };
    let passed_on =
        || who.starts_with("421") || who == "TLS: received fatal alert: HandshakeFailure";
    mixed(from, to) || mixed(to, from) || (to == "raw" && passed_on())
}

/// Returns true if a connection was closed, or no backend answered: a name between two owners.
fn is_nobody(who: &str) -> bool {
    ["connection ", "TLS: ", "404", "421"]
        .iter()
        .any(|start| who.starts_with(start))
}

/// Deletes the winner's Gateway while a client sends requests; returns the owners that answered, in
/// the order of their first answers.
async fn hand_over(
    cluster: &Cluster,
    address: SocketAddr,
    host: &str,
    from: &str,
    to: &str,
) -> Result<Vec<String>> {
    let over = Arc::new(AtomicBool::new(false));
    let asking = {
        let (over, host) = (over.clone(), host.to_owned());
        tokio::spawn(async move {
            let mut seen: Vec<String> = Vec::new();
            loop {
                let last = over.load(Ordering::SeqCst);
                let now = match who(address, &host).await {
                    Ok((certificate, backend)) if certificate == backend => certificate,
                    Ok((certificate, backend)) => {
                        format!("{backend} under the certificate of {certificate}")
                    }
                    Err(error) => format!("{error:#}"),
                };
                if seen.last() != Some(&now) {
                    seen.push(now);
                }
                if last {
                    return seen;
                }
            }
        })
    };
    let gateways = cluster.server.api(GATEWAY, "Gateway", from).await?;
    gateways.delete("edge", &Default::default()).await?;
    cluster
        .until(GATEWAY, "Gateway", to, "edge", |o| {
            is_true(&o["status"]["listeners"][0], "Programmed")
        })
        .await?;
    over.store(true, Ordering::SeqCst);
    let seen = asking.await?;
    ensure!(!seen.is_empty(), "nobody was asked");
    Ok(seen)
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_name_on_a_shared_port_has_one_owner_also_while_it_changes_hands() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster
        .server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    // A name that one gives up is the next one's at once.
    let mut controller =
        cluster.controller_with("one", &["--set", "tenancy.hostnameHoldHours=0"])?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let port = free_port()?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    // A later claim takes nothing: neither a name that another has, nor one below another's
    // wildcard. A wildcard takes no name that another had before, and the catch-all none that
    // anybody has.
    let tenants = [
        ("any", None, false),
        ("exact", Some("web.example.org"), false),
        ("wide", Some("*.example.org"), false),
        ("late", Some("web.example.org"), false),
        ("below", Some("new.example.org"), false),
        ("one", Some("web.example.net"), false),
        ("two", Some("web.example.net"), false),
        ("passed", Some("pass.example.net"), true),
        ("ended", Some("pass.example.net"), false),
        ("first", Some("swap.example.net"), false),
        ("raw", Some("swap.example.net"), true),
    ];
    let mut echoes = BTreeMap::new();
    for (name, host, passthrough) in tenants {
        echoes.insert(name, tenant(&cluster, name, port, host, passthrough).await?);
    }
    let losers = ["late", "below", "two", "ended", "raw"];
    for loser in losers {
        cluster
            .until(GATEWAY, "Gateway", loser, "edge", |o| {
                is_true(&o["status"]["listeners"][0], "Conflicted")
            })
            .await?;
    }
    for winner in ["any", "wide", "exact", "one", "passed", "first"] {
        cluster
            .until(GATEWAY, "Gateway", winner, "edge", |o| {
                is_true(&o["status"]["listeners"][0], "Programmed")
            })
            .await?;
    }
    let own = |name: &str| (name.to_owned(), name.to_owned());
    for (host, owner) in [
        ("web.example.org", "exact"),
        ("other.example.org", "wide"),
        ("new.example.org", "wide"),
        ("web.example.net", "one"),
        ("pass.example.net", "passed"),
        ("swap.example.net", "first"),
        ("elsewhere.net", "any"),
    ] {
        assert_eq!(who(address, host).await?, own(owner), "{host}");
    }
    for loser in losers {
        assert_eq!(echoes[loser].requests(), 0, "{loser} is not served");
    }

    // Exact to exact, passthrough to termination, and termination to passthrough. The owner of the
    // catch-all would take each of these names, and never gets one: between two owners nobody is
    // served.
    for (host, from, to) in [
        ("web.example.net", "one", "two"),
        ("pass.example.net", "passed", "ended"),
        ("swap.example.net", "first", "raw"),
    ] {
        let mut seen = hand_over(&cluster, address, host, from, to).await?;
        seen.retain(|who| !is_between(who, from, to) && !is_nobody(who));
        seen.dedup();
        assert_eq!(
            seen,
            [from, to],
            "{host} changes hands once, from one to the other"
        );
    }
    // A name below a wildcard without another owner belongs to the wildcard's owner.
    cluster
        .server
        .api(GATEWAY, "Gateway", "exact")
        .await?
        .delete("edge", &Default::default())
        .await?;
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while who(address, "web.example.org").await.ok() != Some(own("wide")) {
        ensure!(
            tokio::time::Instant::now() < until,
            "{:?}",
            who(address, "web.example.org").await
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(echoes["late"].requests() + echoes["below"].requests(), 0);
    assert_eq!(who(address, "other.example.org").await?, own("wide"));
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
