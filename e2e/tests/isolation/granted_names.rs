//! Names at and below a domain that the platform granted to one namespace: no wildcard, catch-all
//! listener or route of another one answers for them, whether the domain's owner lists them or not.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use tokio::time::{Instant, sleep};

use super::ownership::{COMMON, everything, gateway, listener, until_answered, until_told};
use super::site::{LIMIT, Site, named};

/// Names at and below alice's domain; nobody lists them.
const GRANTED: [&str; 3] = ["team.example", "x.team.example", "a.b.team.example"];
/// A name that nobody granted.
const FREE: &str = "free.example";

/// The namespace of alice, with a domain.
fn label(domain: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\n\
         metadata: {{name: alice, labels: {{namespace.cozystack.io/host: {domain}}}}}\n---\n"
    )
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Waits until a probe is answered so, e.g. 404, or has no connection.
async fn until(
    site: &Site,
    probe: &Probe,
    what: &str,
    is_so: impl Fn(Option<u16>) -> bool,
) -> Result<()> {
    let began = Instant::now();
    loop {
        let status = probe.send().await.ok().map(|answer| answer.status);
        if is_so(status) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < LIMIT,
            "{what}: {probe:?} is answered {status:?}\n{}",
            site.program.output()
        );
        sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// The ports of mallory's listeners.
struct Ports {
    any_http: u16,
    any_https: u16,
    wide_http: u16,
    wide_https: u16,
    passed: u16,
}

/// The listener with a certificate of mallory's own, for any name.
fn with_certificate(listener: &str) -> String {
    listener.replace(
        "options: {gatewright.io/issuer: internal-ca}",
        "certificateRefs: [{name: cert}]",
    )
}

/// The Secret of that certificate.
fn secret(made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> String {
    let block = |pem: String| {
        pem.lines()
            .map(|line| format!("    {line}\n"))
            .collect::<String>()
    };
    format!(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{name: cert, namespace: mallory}}\n\
         stringData:\n  tls.crt: |\n{}  tls.key: |\n{}---\n",
        block(made.cert.pem()),
        block(made.signing_key.serialize_pem())
    )
}

/// Mallory's wide listeners on the addresses that all share, with routes for all their names.
fn wide(ports: &Ports, backend: SocketAddr) -> String {
    let Ports {
        any_http,
        any_https,
        wide_http,
        wide_https,
        passed,
    } = *ports;
    let listeners = [
        listener("any-http", "HTTP", any_http, ""),
        with_certificate(&listener("any-https", "HTTPS", any_https, "")),
        listener("wide-http", "HTTP", wide_http, "*.example"),
        with_certificate(&listener("wide-https", "HTTPS", wide_https, "*.example")),
        format!("{{name: passed, protocol: TLS, port: {passed}, tls: {{mode: Passthrough}}}}"),
    ];
    let routes = everything("mallory", "wide", &[]).replace("  hostnames: []\n", "");
    let service = super::site::service("mallory", backend).replace("name: web", "name: tls");
    let passing = "apiVersion: gateway.networking.k8s.io/v1\nkind: TLSRoute\nmetadata: {name: passed, namespace: mallory}\n\
         spec:\n  parentRefs: [{name: wide, sectionName: passed}]\n  hostnames: [\"*.example\"]\n  \
         rules: [{backendRefs: [{name: tls, port: 80}]}]\n---\n";
    gateway("mallory", "wide", "common", 2001, &listeners) + &routes + &service + passing
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn wide_listeners_answer_for_no_name_of_a_granted_domain() -> Result<()> {
    let site = Site::start(&[]).await?;
    let ports = Ports {
        any_http: free_port()?,
        any_https: free_port()?,
        wide_http: free_port()?,
        wide_https: free_port()?,
        passed: free_port()?,
    };
    let made = rcgen::generate_simple_self_signed(vec!["*.example".to_owned()])?;
    let key = made
        .signing_key
        .serialize_der()
        .try_into()
        .map_err(anyhow::Error::msg)?;
    let tls =
        Echo::start_tls_on("mallory", "127.0.0.1", vec![made.cert.der().clone()], key).await?;
    site.save("class.yaml", COMMON)?;
    site.save("mallory-secret.yaml", &secret(&made))?;
    site.save("mallory-wide.yaml", &wide(&ports, tls.address()))?;
    let plain = [ports.any_http, ports.wide_http];
    let secure = [ports.any_https, ports.wide_https, ports.passed];
    for host in [FREE, "x.team.example"] {
        for probe in plain.map(|port| Probe::http(at(port), host)) {
            until_answered(&site, &probe, "mallory").await?;
        }
        for probe in secure.map(|port| Probe::https(at(port), host)) {
            until_answered(&site, &probe, "mallory").await?;
        }
    }
    // The platform grants the domain: it has no listener.
    site.save("alice-label.yaml", &label("team.example"))?;
    for host in GRANTED {
        for probe in plain.map(|port| Probe::http(at(port), host)) {
            until(&site, &probe, "plain HTTP", |status| status == Some(404)).await?;
        }
        for probe in secure.map(|port| Probe::https(at(port), host)) {
            until(&site, &probe, "TLS", |status| status.is_none()).await?;
        }
        for port in [ports.any_https, ports.wide_https] {
            let elsewhere = Probe::https(at(port), FREE).authority(host);
            until(
                &site,
                &elsewhere,
                "a connection to another name",
                |status| matches!(status, Some(404 | 421)),
            )
            .await?;
        }
    }
    for probe in plain.map(|port| Probe::http(at(port), FREE)) {
        until_answered(&site, &probe, "mallory").await?;
    }
    for probe in secure.map(|port| Probe::https(at(port), FREE)) {
        until_answered(&site, &probe, "mallory").await?;
    }
    let told = until_told(
        &site,
        "mallory",
        "wide",
        &["any-http Accepted True Accepted"],
    )
    .await?;
    ensure!(
        told.contains("serves no names that the platform granted to other namespaces"),
        "{told}"
    );
    let url = format!("http://x.team.example:{}/", ports.any_http);
    let (_, explained) = site.ask(&["explain", &url])?;
    ensure!(
        explained.contains("the platform granted *.team.example to namespace alice"),
        "{explained}"
    );
    // Nor does mallory have such a name by listing it.
    let listed = [
        listener("exact", "HTTP", ports.any_http, "y.team.example"),
        listener("below", "HTTPS", ports.any_https, "*.team.example"),
    ];
    site.save(
        "mallory-listed.yaml",
        &gateway("mallory", "listed", "common", 2001, &listed),
    )?;
    let lost = [
        "exact Accepted False HostnameConflict",
        "below Accepted False HostnameConflict",
    ];
    until_told(&site, "mallory", "listed", &lost).await?;
    site.remove("mallory-listed.yaml")?;
    // Alice does.
    let hers = [listener("http", "HTTP", ports.any_http, "x.team.example")];
    let own = everything("alice", "own", &["x.team.example"]);
    site.save(
        "alice-own.yaml",
        &(gateway("alice", "own", "common", 2026, &hers) + &own),
    )?;
    until_answered(
        &site,
        &Probe::http(at(ports.any_http), "x.team.example"),
        "alice",
    )
    .await?;
    // The platform takes the domain back.
    site.remove("alice-label.yaml")?;
    until_answered(
        &site,
        &Probe::http(at(ports.any_http), "y.team.example"),
        "mallory",
    )
    .await?;
    until_answered(
        &site,
        &Probe::https(at(ports.wide_https), "y.team.example"),
        "mallory",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn routes_for_all_names_of_a_gateway_answer_for_no_name_of_a_granted_domain() -> Result<()> {
    let site = Site::start(&[]).await?;
    let all = super::site::route("mallory", "all", "", super::site::FORWARD)
        .replace("  hostnames: [\"\"]\n", "");
    site.save("mallory-all.yaml", &all)?;
    let names = ["x.team.example.org", "team.example.org"];
    for host in names {
        site.served_by(host, "mallory").await?;
    }
    site.save("alice-label.yaml", &label("team.example.org"))?;
    for host in names {
        until(&site, &site.plain(host), "plain HTTP", |status| {
            status == Some(404)
        })
        .await?;
        until(&site, &site.tls(host), "TLS", |status| status == Some(404)).await?;
    }
    site.served_by("free.example.org", "mallory").await?;
    let own = super::site::route("alice", "own", "x.team.example.org", super::site::FORWARD);
    site.save("alice-own.yaml", &own)?;
    site.served_by("x.team.example.org", "alice").await?;
    let other = named(&site.plain("y.team.example.org")).await;
    ensure!(
        other.is_err(),
        "a name below that she does not list: {other:?}"
    );
    site.served_by("alice.example.org", "alice")
        .await
        .context("a name outside of her domain")
}
