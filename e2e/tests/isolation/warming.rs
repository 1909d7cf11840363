//! One change never delays others. Envoy warms a new cluster until its endpoints arrive, and a
//! listener until its secrets and routes do; while it waits for one, it acknowledges nothing of
//! that kind.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use e2e::port::free_port;
use e2e::probe::Probe;
use tokio::time::{Instant, sleep};

use crate::site::{FORWARD, LIMIT, SOON, Site, named, route, service};

/// A Gateway of mallory's own with one listener.
fn gateway(listener: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: own, namespace: mallory}}\n\
         spec:\n  gatewayClassName: ours\n  listeners: [{listener}]\n---\n"
    )
}

/// A TLSRoute of mallory's at her Gateway, to one port of one of her Services.
fn tls_route(name: &str, host: &str, backend: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: TLSRoute\nmetadata: {{name: {name}, namespace: mallory}}\n\
         spec:\n  parentRefs: [{{name: own}}]\n  hostnames: [\"{host}\"]\n  \
         rules: [{{backendRefs: [{{name: {backend}, port: 80}}]}}]\n---\n"
    )
}

/// The Service `web` of mallory's, with another protocol.
fn speaking(address: SocketAddr, protocol: &str) -> String {
    service("mallory", address).replace(
        "{port: 80}",
        &format!("{{port: 80, appProtocol: {protocol}}}"),
    )
}

/// Mallory makes changes one after the other; checks that alice's next change after each is live as
/// soon as usual.
async fn alice_does_not_wait_for(site: &Site, changes: &[(&str, &str, String)]) -> Result<()> {
    for (step, (what, file, text)) in changes.iter().enumerate() {
        site.save(file, text)?;
        site.alice_is_unharmed(step)
            .await
            .with_context(|| format!("after {what}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_further_cluster_for_a_service_port_holds_nobody_up() -> Result<()> {
    let site = Site::start(&[]).await?;
    let port = free_port()?;
    let passthrough =
        format!("{{name: tls, protocol: TLS, port: {port}, tls: {{mode: Passthrough}}}}");
    let other = service("mallory", site.alice.address()).replace("name: web", "name: other");
    let weighted = tls_route("weighted", "w.mallory.example.net", "web").replace(
        "[{name: web, port: 80}]",
        "[{name: web, port: 80, weight: 1}, {name: other, port: 80, weight: 1}]",
    );
    let address = site.mallory.address();
    alice_does_not_wait_for(
        &site,
        &[
            (
                "a Gateway of her own",
                "gateway.yaml",
                gateway(&passthrough),
            ),
            ("another Service", "other.yaml", other),
            (
                "an HTTPRoute",
                "http.yaml",
                route("mallory", "web", "mallory.example.org", FORWARD),
            ),
            (
                "a TLSRoute to the same port",
                "tls-1.yaml",
                tls_route("one", "one.mallory.example.net", "web"),
            ),
            (
                "a second host for it",
                "tls-2.yaml",
                tls_route("two", "two.mallory.example.net", "web"),
            ),
            (
                "a third host for it",
                "tls-3.yaml",
                tls_route("three", "three.mallory.example.net", "web"),
            ),
            (
                "a wildcard for it",
                "tls-4.yaml",
                tls_route("wild", "*.wild.mallory.example.net", "web"),
            ),
            ("two backends", "tls-5.yaml", weighted),
            (
                "a host that goes to another Service",
                "tls-1.yaml",
                tls_route("one", "one.mallory.example.net", "other"),
            ),
            (
                "and back",
                "tls-1.yaml",
                tls_route("one", "one.mallory.example.net", "web"),
            ),
            (
                "and to none",
                "tls-1.yaml",
                tls_route("one", "one.mallory.example.net", "nobody"),
            ),
            (
                "and back again",
                "tls-1.yaml",
                tls_route("one", "one.mallory.example.net", "web"),
            ),
            (
                "another protocol",
                "mallory-service.yaml",
                speaking(address, "kubernetes.io/h2c"),
            ),
            (
                "the protocol as before",
                "mallory-service.yaml",
                service("mallory", address),
            ),
        ],
    )
    .await?;
    site.served_by("mallory.example.org", "mallory").await?;
    let site = site.restart()?;
    site.served_by("alice.example.org", "alice").await?;
    site.alice_is_unharmed(100).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_service_without_endpoints_or_ports_holds_nobody_up() -> Result<()> {
    let site = Site::start(&[]).await?;
    let empty = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: mallory}\nspec: {ports: [{port: 80}]}\n";
    let bare = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: mallory}\nspec: {ports: []}\n";
    alice_does_not_wait_for(
        &site,
        &[
            ("no endpoints", "mallory-service.yaml", empty.to_owned()),
            (
                "a route to a Service without any",
                "http.yaml",
                route("mallory", "web", "mallory.example.org", FORWARD),
            ),
            (
                "a second host for it",
                "more.yaml",
                route("mallory", "more", "more.example.org", FORWARD),
            ),
            ("no ports", "mallory-service.yaml", bare.to_owned()),
            (
                "both again",
                "mallory-service.yaml",
                service("mallory", site.mallory.address()),
            ),
        ],
    )
    .await?;
    site.remove("mallory-service.yaml")?;
    site.alice_is_unharmed(100).await?;
    site.save(
        "mallory-service.yaml",
        &service("mallory", site.mallory.address()),
    )?;
    site.alice_is_unharmed(101).await?;
    site.served_by("mallory.example.org", "mallory").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_listener_that_lacks_certificates_or_routes_holds_nobody_up() -> Result<()> {
    let site = Site::start(&[]).await?;
    let port = free_port()?;
    let https = |name: &str, hostname: &str, tls: &str| {
        format!(
            "{{name: {name}, protocol: HTTPS, port: {port}, hostname: \"{hostname}\", tls: {{{tls}}}}}"
        )
    };
    let missing = "certificateRefs: [{name: missing}]";
    let issued = "options: {gatewright.io/issuer: internal-ca}";
    let routed = |host: &str| {
        route("mallory", "own", host, FORWARD).replace("name: edge, namespace: infra", "name: own")
    };
    alice_does_not_wait_for(
        &site,
        &[
            (
                "no certificate",
                "gateway.yaml",
                gateway(&https("a", "a.example.net", missing)),
            ),
            (
                "no certificate for a wildcard",
                "gateway.yaml",
                gateway(&https("a", "*.example.net", missing)),
            ),
            ("a route there", "http.yaml", routed("a.example.net")),
            (
                "a certificate",
                "gateway.yaml",
                gateway(&https("a", "*.example.net", issued)),
            ),
            (
                "no certificate any more",
                "gateway.yaml",
                gateway(&https("a", "*.example.net", missing)),
            ),
            (
                "two listeners, one without",
                "gateway.yaml",
                gateway(
                    &[
                        https("a", "*.example.net", issued),
                        https("b", "*.b.example.net", missing),
                    ]
                    .join(", "),
                ),
            ),
            (
                "a route for all names",
                "http.yaml",
                routed("*.example.net"),
            ),
            (
                "a listener for all names",
                "gateway.yaml",
                gateway(&https("a", "", issued).replace(", hostname: \"\"", "")),
            ),
        ],
    )
    .await?;
    site.remove("http.yaml")?;
    site.alice_is_unharmed(100).await?;
    site.remove("gateway.yaml")?;
    site.alice_is_unharmed(101).await
}

/// Many hosts for one Service: each is as fast as the first, for their owner as well.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_hundred_hosts_for_one_service_port_are_live_at_once() -> Result<()> {
    let site = Site::start(&[]).await?;
    let hosts: Vec<String> = (0..100).map(|n| format!("m{n}.example.org")).collect();
    let all = |protocol: &str| -> String {
        let own = hosts
            .iter()
            .enumerate()
            .map(|(n, host)| route("mallory", &format!("m{n}"), host, FORWARD));
        own.collect::<String>() + &speaking(site.mallory.address(), protocol)
    };
    site.remove("mallory-service.yaml")?;
    site.save("mallory.yaml", &all("http"))?;
    site.alice_is_unharmed(0).await?;
    site.save("mallory.yaml", &all("kubernetes.io/h2c"))?;
    site.alice_is_unharmed(1).await?;
    site.save("mallory.yaml", &all("http"))?;
    let began = Instant::now();
    let last: Probe = site.plain(hosts.last().context("a host")?);
    while !named(&last).await.is_ok_and(|name| name == "mallory") {
        ensure!(
            began.elapsed() < LIMIT,
            "not served: {:?}",
            named(&last).await
        );
        sleep(std::time::Duration::from_millis(20)).await;
    }
    ensure!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
    site.alice_is_unharmed(2).await
}
