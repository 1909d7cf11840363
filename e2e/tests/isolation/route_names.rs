//! Routes of several namespaces at one listener: a hostname has one owner among them, the first
//! that claimed it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::site::{FORWARD, LIMIT, Site, named, route};

/// The hostname of alice's that is served from the start, on both ports.
const HERS: &str = "alice.example.org";
/// A hostname that alice has over TLS only.
const SECURE: &str = "secure.example.org";
/// A hostname that only her wildcard covers.
const BELOW: &str = "new.wide.example.org";
/// The path of a challenge: a tenant that answers it gets a certificate.
const CHALLENGE: &str = "/.well-known/acme-challenge/token";

/// Rules that forward a path to the namespace's Service `web`.
fn under(path: &str) -> String {
    format!("[{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: web, port: 80}}]}}]")
}

/// A route of a namespace at one listener of the shared Gateway.
fn at(namespace: &str, name: &str, section: &str, host: &str, rules: &str) -> String {
    let parent = format!("{{name: edge, namespace: infra, sectionName: {section}}}");
    route(namespace, name, host, rules).replace("{name: edge, namespace: infra}", &parent)
}

/// A route without hostnames.
fn nameless(namespace: &str, name: &str, rules: &str) -> String {
    route(namespace, name, "", rules).replace("  hostnames: [\"\"]\n", "")
}

/// Waits until `Accepted` of a route has this reason; returns its message.
pub(crate) async fn until_told(
    site: &Site,
    namespace: &str,
    name: &str,
    reason: &str,
) -> Result<String> {
    let until = Instant::now() + LIMIT;
    loop {
        let (_, text) = site.ask(&["status", "-o", "json"])?;
        // A program that has just started does not answer yet.
        let list: Value = serde_json::from_str(text.trim()).unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let route = items.iter().find(|item| {
            item["kind"] == "HTTPRoute"
                && item["metadata"]["namespace"] == namespace
                && item["metadata"]["name"] == name
        });
        let conditions = route
            .map(|route| route["status"]["parents"][0]["conditions"].clone())
            .unwrap_or_default();
        let accepted = conditions
            .as_array()
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "Accepted");
        if let Some(accepted) = accepted.filter(|accepted| accepted["reason"] == reason) {
            return Ok(accepted["message"].as_str().unwrap_or_default().to_owned());
        }
        if Instant::now() > until {
            bail!(
                "{namespace}/{name}: wanted {reason}, told {conditions:#}\n{}",
                site.program.output()
            );
        }
        sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn until_answered(site: &Site, probe: &Probe, backend: &str) -> Result<()> {
    let until = Instant::now() + LIMIT;
    while !named(probe).await.is_ok_and(|found| found == backend) {
        if Instant::now() > until {
            bail!(
                "{backend} does not answer: {:?}\n{}",
                named(probe).await,
                site.program.output()
            );
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Starts with three kinds of names of alice's.
async fn start() -> Result<Site> {
    let site = Site::start(&[]).await?;
    site.save(
        "alice-secure.yaml",
        &at("alice", "secure", "https", SECURE, FORWARD),
    )?;
    site.save(
        "alice-wide.yaml",
        &route("alice", "wide", "*.wide.example.org", FORWARD),
    )?;
    alice_answers(&site).await?;
    Ok(site)
}

async fn alice_answers(site: &Site) -> Result<()> {
    for host in [HERS, BELOW] {
        site.served_by(host, "alice").await?;
    }
    until_answered(site, &site.tls(SECURE), "alice").await
}

/// Checks that nobody but alice answers under her names, on any port and path, and that her
/// statuses are unchanged.
async fn alice_has_her_names(site: &Site) -> Result<()> {
    alice_answers(site).await?;
    for host in [HERS, BELOW, SECURE] {
        for path in ["/", "/login", CHALLENGE] {
            for probe in [site.plain(host), site.tls(host)] {
                if let Ok(backend) = named(&probe.path(path)).await {
                    ensure!(backend == "alice", "{backend} answers for {host}{path}");
                }
            }
        }
    }
    let (_, text) = site.ask(&["status", "-o", "json"])?;
    let list: Value = serde_json::from_str(text.trim())?;
    for item in list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|item| item["metadata"]["namespace"] == "alice")
    {
        ensure!(!item["status"].to_string().contains("mallory"), "{item:#}");
        for condition in item["status"]["parents"][0]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
        {
            ensure!(condition["status"] == "True", "{item:#}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn no_route_takes_a_path_of_a_hostname_that_another_namespace_had_first() -> Result<()> {
    let mut site = start().await?;
    let attacks = [
        (
            "a path",
            route("mallory", "take", HERS, &under("/login")),
            true,
        ),
        (
            "a challenge",
            route("mallory", "take", HERS, &under("/.well-known")),
            true,
        ),
        (
            "a port that alice does not use",
            at("mallory", "take", "http", SECURE, FORWARD),
            true,
        ),
        (
            "below a wildcard",
            route("mallory", "take", BELOW, FORWARD),
            true,
        ),
        (
            "a wildcard below it",
            route("mallory", "take", "*.new.wide.example.org", FORWARD),
            true,
        ),
        (
            "a wider wildcard",
            route("mallory", "take", "*.example.org", FORWARD),
            false,
        ),
        ("no hostname", nameless("mallory", "take", FORWARD), false),
    ];
    for (step, (attack, text, is_refused)) in attacks.iter().enumerate() {
        // It claims to be older, and its name sorts first.
        let text = text.replace(
            "{name: take",
            "{name: aaa, creationTimestamp: \"2001-01-01T00:00:00Z\"",
        );
        site.save("mallory-take.yaml", &text)?;
        let reason = if *is_refused {
            "HostnameConflict"
        } else {
            "Accepted"
        };
        let told = until_told(&site, "mallory", "aaa", reason)
            .await
            .context(*attack)?;
        ensure!(
            !told.contains("alice/") && !told.contains("namespace alice"),
            "{attack}: {told}"
        );
        if !is_refused {
            // It gets the names that nobody has.
            until_answered(&site, &site.plain("nobody.example.org"), "mallory")
                .await
                .context(*attack)?;
        }
        let mut asked = site.mallory.requests();
        alice_has_her_names(&site).await.context(*attack)?;
        ensure!(
            site.mallory.requests() == asked,
            "{attack}: mallory's backend was asked for a name of alice's"
        );
        // A new name belongs to the owner of the wider one until it is hers.
        site.alice_is_unharmed(step).await.context(*attack)?;
        asked = site.mallory.requests();
        site = site.restart()?;
        until_told(&site, "mallory", "aaa", reason)
            .await
            .context(*attack)?;
        alice_has_her_names(&site).await.context(*attack)?;
        ensure!(
            site.mallory.requests() == asked,
            "{attack}: mallory's backend was asked for a name of alice's"
        );
    }
    // A name that alice gives up stays hers for a while.
    site.save(
        "mallory-take.yaml",
        &route("mallory", "take", HERS, FORWARD),
    )?;
    until_told(&site, "mallory", "take", "HostnameConflict").await?;
    site.remove("alice.yaml")?;
    let until = Instant::now() + LIMIT;
    while site
        .plain(HERS)
        .send()
        .await
        .is_ok_and(|answer| answer.status != 404)
    {
        ensure!(Instant::now() < until, "{HERS} is still served");
        sleep(Duration::from_millis(20)).await;
    }
    until_told(&site, "mallory", "take", "HostnameConflict").await?;
    // An operator may release it.
    let (code, text) = site.ask(&["claims"])?;
    ensure!(code == 0 && text.contains(HERS), "{text}");
    let (code, text) = site.ask(&["claims", "release", HERS])?;
    ensure!(code == 0, "{text}");
    until_told(&site, "mallory", "take", "Accepted").await?;
    site.served_by(HERS, "mallory").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_listeners_owner_shares_hostnames_out() -> Result<()> {
    let site = Site::start(&[]).await?;
    let probe = |port: u16, host: &str, path: &str| {
        Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), host).path(path)
    };
    let one = free_port()?;
    let all = free_port()?;
    let gateway = |name: &str, port: u16, host: &str, more: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}, namespace: infra}}\nspec:\n  \
             gatewayClassName: ours\n  {more}listeners: [{{name: http, protocol: HTTP, port: {port}, {host}\
             allowedRoutes: {{namespaces: {{from: All}}}}}}]\n---\n"
        )
    };
    let parameters = "apiVersion: gatewright.io/v1alpha1\nkind: GatewayParameters\n\
        metadata: {name: shared-names, namespace: infra}\nspec: {routeHostnames: Shared}\n---\n";
    let refers = "infrastructure: {parametersRef: {group: gatewright.io, kind: GatewayParameters, name: shared-names}}\n  ";
    // A listener for one hostname, and a Gateway whose parameters set this.
    let gateways = gateway("one", one, "hostname: www.example.org, ", "")
        + &gateway("all", all, "", refers)
        + parameters;
    site.save("gateways.yaml", &gateways)?;
    for namespace in ["alice", "mallory"] {
        for gateway in ["one", "all"] {
            let rules = under(&format!("/{namespace}"));
            let text = route(namespace, gateway, "www.example.org", &rules)
                .replace("name: edge", &format!("name: {gateway}"));
            site.save(&format!("{namespace}-{gateway}.yaml"), &text)?;
        }
    }
    for port in [one, all] {
        for namespace in ["alice", "mallory"] {
            let probe = probe(port, "www.example.org", &format!("/{namespace}"));
            until_answered(&site, &probe, namespace).await?;
        }
    }
    // The listener's own namespace may add routes to a tenant's hostname.
    let own = "[{matches: [{path: {value: /moved}}], filters: [{type: RequestRedirect, requestRedirect: {hostname: www.example.org}}]}]";
    site.save("infra-own.yaml", &route("infra", "own", HERS, own))?;
    until_told(&site, "infra", "own", "Accepted").await?;
    let until = Instant::now() + LIMIT;
    while site.plain(HERS).path("/moved").send().await?.status != 302 {
        ensure!(Instant::now() < until, "{}", site.program.output());
        sleep(Duration::from_millis(20)).await;
    }
    site.served_by(HERS, "alice").await
}
