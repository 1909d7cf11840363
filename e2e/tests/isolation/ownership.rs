//! Hostnames, ports and sockets that namespaces share have one owner: the first that claimed them,
//! whatever others write later.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::site::{LIMIT, Site, named};

/// A class whose Gateways share addresses, with hostnames by owner.
pub(super) const COMMON: &str = "apiVersion: gatewright.io/v1alpha1\nkind: GatewayParameters\nmetadata: {name: shared, namespace: infra}\n\
    spec: {fleet: Shared}\n---\n\
    apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: common}\n\
    spec: {controllerName: gatewright.io/gateway-controller, \
    parametersRef: {group: gatewright.io, kind: GatewayParameters, namespace: infra, name: shared}}\n---\n";

/// One listener as a YAML flow mapping; without a hostname if that is empty.
pub(super) fn listener(name: &str, protocol: &str, port: u16, host: &str) -> String {
    let host = if host.is_empty() {
        String::new()
    } else {
        format!("hostname: \"{host}\", ")
    };
    let tls = match protocol {
        "HTTPS" => ", tls: {options: {gatewright.io/issuer: internal-ca}}",
        _ => "",
    };
    format!("{{name: {name}, {host}protocol: {protocol}, port: {port}{tls}}}")
}

/// A Gateway with this creation time.
pub(super) fn gateway(
    namespace: &str,
    name: &str,
    class: &str,
    year: u16,
    listeners: &[String],
) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
         metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: \"{year}-01-01T00:00:00Z\"}}\n\
         spec:\n  gatewayClassName: {class}\n  listeners: [{}]\n---\n",
        listeners.join(", ")
    )
}

/// A route that forwards all hosts of a Gateway to the namespace's backend.
pub(super) fn everything(namespace: &str, gateway: &str, hosts: &[&str]) -> String {
    let hosts: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {gateway}, namespace: {namespace}}}\n\
         spec:\n  parentRefs: [{{name: {gateway}}}]\n  hostnames: [{}]\n  \
         rules: [{{backendRefs: [{{name: web, port: 80}}]}}]\n---\n",
        hosts.join(", ")
    )
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Waits until this backend answers.
pub(super) async fn until_answered(site: &Site, probe: &Probe, backend: &str) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let answer = named(probe).await;
        if answer.as_ref().is_ok_and(|found| found == backend) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!(
                "{backend} does not answer: {answer:?}\n{}",
                site.program.output()
            );
        }
        sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Waits until the conditions of an object's listeners, as `listener type status reason`, include
/// `wanted`, and returns them.
pub(super) async fn until_told(
    site: &Site,
    namespace: &str,
    name: &str,
    wanted: &[&str],
) -> Result<String> {
    let until = Instant::now() + LIMIT;
    loop {
        let (_, text) = site.ask(&["status", "-o", "json"])?;
        // A program that has just started does not answer yet.
        let list: Value = serde_json::from_str(text.trim()).unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let ours = items.iter().find(|item| {
            item["metadata"]["namespace"] == namespace
                && item["metadata"]["name"] == name
                && item["status"]["listeners"].is_array()
        });
        let mut told = Vec::new();
        for listener in ours
            .and_then(|item| item["status"]["listeners"].as_array())
            .into_iter()
            .flatten()
        {
            for condition in listener["conditions"].as_array().into_iter().flatten() {
                let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
                let name = listener["name"].as_str().unwrap_or_default();
                told.push(format!(
                    "{name} {} {} {}",
                    text("type"),
                    text("status"),
                    text("reason")
                ));
            }
        }
        if wanted
            .iter()
            .all(|wanted| told.iter().any(|told| told == wanted))
        {
            return Ok(text);
        }
        if Instant::now() > until {
            bail!(
                "{namespace}/{name}: wanted {wanted:?}, told {told:#?} {text}\n{}",
                site.program.output()
            );
        }
        sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Alice's names: an exact one, one that only her wildcard covers, and one that she has over TLS
/// only.
struct Shared {
    site: Site,
    http: u16,
    https: u16,
}

const EXACT: &str = "app.alice.example";
const BELOW: &str = "new.wide.alice.example";
const SECURE: &str = "secure.alice.example";

impl Shared {
    async fn start() -> Result<Self> {
        let site = Site::start(&[]).await?;
        let http = free_port()?;
        let https = free_port()?;
        let listeners = [
            listener("http", "HTTP", http, EXACT),
            listener("https", "HTTPS", https, EXACT),
            listener("wide-http", "HTTP", http, "*.wide.alice.example"),
            listener("wide-https", "HTTPS", https, "*.wide.alice.example"),
            listener("secure", "HTTPS", https, SECURE),
        ];
        site.save("class.yaml", COMMON)?;
        let own =
            gateway("alice", "own", "common", 2026, &listeners) + &everything("alice", "own", &[]);
        site.save("alice-own.yaml", &own.replace("  hostnames: []\n", ""))?;
        let shared = Self { site, http, https };
        shared.alice_answers().await?;
        Ok(shared)
    }

    async fn alice_answers(&self) -> Result<()> {
        for host in [EXACT, BELOW] {
            until_answered(&self.site, &Probe::http(local(self.http), host), "alice").await?;
            until_answered(&self.site, &Probe::https(local(self.https), host), "alice").await?;
        }
        until_answered(
            &self.site,
            &Probe::https(local(self.https), SECURE),
            "alice",
        )
        .await
    }

    /// Checks that nobody but alice answers under her names, on any port and path, and that her
    /// statuses are unchanged.
    async fn alice_has_her_names(&self, others: &[u16]) -> Result<()> {
        self.alice_answers().await?;
        for host in [EXACT, BELOW, SECURE] {
            for port in [&[self.http, self.https], others].concat() {
                for path in ["/", "/.well-known/acme-challenge/token"] {
                    for probe in [
                        Probe::http(local(port), host),
                        Probe::https(local(port), host),
                    ] {
                        if let Ok(backend) = named(&probe.path(path)).await {
                            ensure!(
                                backend == "alice",
                                "{backend} answers for {host} at {port} {path}"
                            );
                        }
                    }
                }
            }
        }
        let (_, text) = self.site.ask(&["status", "-o", "json"])?;
        let list: Value = serde_json::from_str(text.trim())?;
        let items = list["items"].as_array().context("a list")?;
        let own = items
            .iter()
            .find(|item| item["metadata"]["namespace"] == "alice" && item["kind"] == "Gateway");
        let own = own.context("alice has a Gateway")?;
        ensure!(!own["status"].to_string().contains("mallory"), "{own:#}");
        for listener in own["status"]["listeners"].as_array().into_iter().flatten() {
            let conditions = listener["conditions"].as_array().into_iter().flatten();
            for condition in conditions.filter(|c| c["type"] != "OverlappingTLSConfig") {
                ensure!(condition["status"] == "True", "{listener:#}");
                ensure!(condition["type"] != "Conflicted", "{listener:#}");
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn no_gateway_takes_a_name_that_another_namespace_had_first() -> Result<()> {
    let mut shared = Shared::start().await?;
    let http = shared.http;
    let https = shared.https;
    let other = free_port()?;
    // It claims to be older than alice's Gateway, and exists before it claims her names.
    let mallory = |listeners: &[String]| gateway("mallory", "aaa", "common", 2001, listeners);
    let mine = listener("mine", "HTTPS", https, "mallory.example");
    shared
        .site
        .save("mallory-aaa.yaml", &mallory(std::slice::from_ref(&mine)))?;
    until_told(
        &shared.site,
        "mallory",
        "aaa",
        &["mine Programmed True Programmed"],
    )
    .await?;

    let lost = |name: &str| format!("{name} Accepted False HostnameConflict");
    let one = lost("one");
    let two = lost("two");
    let three = lost("three");
    for (step, listeners, wanted) in [
        // The same names, also where alice has none on the port.
        (
            "exact",
            vec![
                listener("one", "HTTPS", https, EXACT),
                listener("two", "HTTP", http, SECURE),
                listener("three", "HTTP", other, EXACT),
            ],
            vec![&*one, &two, &three],
        ),
        // Below her wildcard, exact and as a narrower wildcard.
        (
            "below",
            vec![
                listener("one", "HTTPS", https, BELOW),
                listener("two", "HTTP", http, "*.new.wide.alice.example"),
                listener("three", "HTTP", other, BELOW),
            ],
            vec![&*one, &two, &three],
        ),
        // All other names, and those around hers.
        (
            "any",
            vec![
                listener("one", "HTTP", http, ""),
                listener("two", "HTTPS", https, ""),
                listener("three", "HTTP", other, ""),
                listener("four", "HTTP", http, "*.example"),
                listener("five", "HTTPS", https, "*.alice.example"),
                listener("six", "HTTP", other, "*.alice.example"),
            ],
            vec![
                "one Programmed True Programmed",
                "five Programmed True Programmed",
                "six Programmed True Programmed",
            ],
        ),
        // The protocols of the ports.
        (
            "protocol",
            vec![
                listener("one", "HTTP", https, "flip.example"),
                listener("two", "HTTPS", http, "flip.example"),
            ],
            vec![
                "one Accepted False ProtocolConflict",
                "two Accepted False ProtocolConflict",
            ],
        ),
    ] {
        let all: Vec<String> = listeners.into_iter().chain([mine.clone()]).collect();
        let hosts = [EXACT, BELOW, SECURE, "*.wide.alice.example"];
        shared.site.save(
            "mallory-aaa.yaml",
            &(mallory(&all) + &everything("mallory", "aaa", &hosts)),
        )?;
        until_told(&shared.site, "mallory", "aaa", &wanted)
            .await
            .context(step)?;
        shared.alice_has_her_names(&[other]).await.context(step)?;
        shared = Shared {
            site: shared.site.restart()?,
            ..shared
        };
        until_told(&shared.site, "mallory", "aaa", &wanted)
            .await
            .context(step)?;
        shared.alice_has_her_names(&[other]).await.context(step)?;
    }
    ensure!(
        shared.site.mallory.requests() == 0,
        "mallory's backend was asked for a name of alice's"
    );

    // A hostname that alice gives up stays hers for a while: nobody takes over traffic that still
    // arrives.
    let one = listener("one", "HTTPS", https, EXACT);
    shared.site.remove("alice-own.yaml")?;
    shared.site.save(
        "mallory-aaa.yaml",
        &(mallory(&[one, mine]) + &everything("mallory", "aaa", &[EXACT])),
    )?;
    until_told(
        &shared.site,
        "mallory",
        "aaa",
        &["one Accepted False HostnameConflict"],
    )
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn no_gateway_takes_a_port_that_another_namespace_had_first() -> Result<()> {
    let site = Site::start(&[]).await?;
    let port = free_port()?;
    let any = |port: u16| [listener("any", "HTTP", port, "")];
    let own = gateway("alice", "own", "ours", 2026, &any(port))
        + &everything("alice", "own", &["own.example"]);
    site.save("alice-own.yaml", &own)?;
    until_answered(&site, &Probe::http(local(port), "own.example"), "alice").await?;
    let theirs = gateway("mallory", "aaa", "ours", 2001, &any(port))
        + &everything("mallory", "aaa", &["own.example"]);
    site.save("mallory-aaa.yaml", &theirs)?;
    until_told(
        &site,
        "mallory",
        "aaa",
        &["any Accepted False PortUnavailable"],
    )
    .await?;
    until_answered(&site, &Probe::http(local(port), "own.example"), "alice").await?;
    let site = site.restart()?;
    until_told(
        &site,
        "mallory",
        "aaa",
        &["any Accepted False PortUnavailable"],
    )
    .await?;
    until_answered(&site, &Probe::http(local(port), "own.example"), "alice").await?;
    ensure!(site.mallory.requests() == 0);
    // When alice's Gateway is deleted, the port is free.
    site.remove("alice-own.yaml")?;
    until_answered(&site, &Probe::http(local(port), "own.example"), "mallory").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn no_listener_set_takes_a_name_that_another_namespace_had_first_at_the_gateway() -> Result<()>
{
    let site = Site::start(&[]).await?;
    let http = free_port()?;
    let other = free_port()?;
    let gateway = gateway(
        "infra",
        "extended",
        "ours",
        2026,
        &[listener("http", "HTTP", http, "infra.example")],
    );
    let admits = "gatewayClassName: ours\n  allowedListeners: {namespaces: {from: All}}\n";
    site.save(
        "extended.yaml",
        &gateway.replace("gatewayClassName: ours\n", admits),
    )?;
    // A ListenerSet with this creation time, and a route that forwards all its hosts to the
    // namespace's backend.
    let set = |namespace: &str, year: u16, listeners: &[String]| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\n\
             metadata: {{name: set, namespace: {namespace}, creationTimestamp: \"{year}-01-01T00:00:00Z\"}}\n\
             spec:\n  parentRef: {{name: extended, namespace: infra}}\n  listeners: [{}]\n---\n",
            listeners.join(", ")
        ) + &everything(namespace, "set", &[])
            .replace("{name: set}]", "{kind: ListenerSet, name: set}]")
            .replace("  hostnames: []\n", "")
    };
    let hers = [
        listener("exact", "HTTP", http, EXACT),
        listener("wide", "HTTP", http, "*.wide.alice.example"),
    ];
    site.save("alice-set.yaml", &set("alice", 2026, &hers))?;
    let alice_answers = async |site: &Site| -> Result<()> {
        for host in [EXACT, BELOW] {
            until_answered(site, &Probe::http(local(http), host), "alice").await?;
            if let Ok(backend) = named(&Probe::http(local(other), host)).await {
                ensure!(
                    backend == "alice",
                    "{backend} answers for {host} on another port"
                );
            }
        }
        Ok(())
    };
    alice_answers(&site).await?;
    let mut site = site;
    for (attack, listener, wanted) in [
        (
            "exact",
            listener("one", "HTTP", http, EXACT),
            "one Accepted False HostnameConflict",
        ),
        (
            "below",
            listener("one", "HTTP", http, BELOW),
            "one Accepted False HostnameConflict",
        ),
        (
            "another port",
            listener("one", "HTTP", other, EXACT),
            "one Accepted False HostnameConflict",
        ),
        (
            "everything",
            listener("one", "HTTP", other, ""),
            "one Programmed True Programmed",
        ),
    ] {
        site.save("mallory-set.yaml", &set("mallory", 2001, &[listener]))?;
        until_told(&site, "mallory", "set", &[wanted])
            .await
            .context(attack)?;
        alice_answers(&site).await.context(attack)?;
        site = site.restart()?;
        until_told(&site, "mallory", "set", &[wanted])
            .await
            .context(attack)?;
        alice_answers(&site).await.context(attack)?;
    }
    until_answered(
        &site,
        &Probe::http(local(other), "nobody.example"),
        "mallory",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_class_allows_namespaces_their_hostnames() -> Result<()> {
    let site = Site::start(&[]).await?;
    let rules = "[{namespaces: {matchLabels: {kubernetes.io/metadata.name: alice}}, hostnames: [\"*.alice.example\"]}, \
         {namespaces: {matchLabels: {kubernetes.io/metadata.name: infra}}, hostnames: [\"*\"]}]";
    let class = COMMON.replace(
        "fleet: Shared",
        &format!("fleet: Shared, allowedHostnames: {rules}"),
    );
    site.save("class.yaml", &class)?;
    let http = free_port()?;
    let other = free_port()?;
    let own = |namespace: &str, host: &str| {
        gateway(
            namespace,
            "own",
            "common",
            2026,
            &[listener("one", "HTTP", http, host)],
        ) + &everything(namespace, "own", &[]).replace("  hostnames: []\n", "")
    };
    // Mallory comes first, with a name of its own, with one of hers, with all, and by a route at
    // the platform's Gateway.
    for host in ["app.mallory.example", EXACT, "*.alice.example", ""] {
        site.save("mallory-own.yaml", &own("mallory", host))?;
        let told = until_told(
            &site,
            "mallory",
            "own",
            &["one Accepted False HostnameNotAllowed"],
        )
        .await;
        told.with_context(|| format!("{host:?}"))?;
    }
    let admits = "port: {other}, allowedRoutes: {namespaces: {from: All}}"
        .replace("{other}", &other.to_string());
    let platform = gateway(
        "infra",
        "platform",
        "common",
        2026,
        &[listener("any", "HTTP", other, "")],
    );
    site.save(
        "platform.yaml",
        &platform.replace(&format!("port: {other}"), &admits),
    )?;
    let at = |namespace: &str, host: &str| {
        everything(namespace, "at", &[host])
            .replace("{name: at}]", "{name: platform, namespace: infra}]")
    };
    site.save("mallory-at.yaml", &at("mallory", EXACT))?;
    super::route_names::until_told(&site, "mallory", "at", "HostnameNotAllowed").await?;
    // Alice has what she is allowed, both ways.
    site.save("alice-own.yaml", &own("alice", EXACT))?;
    until_answered(&site, &Probe::http(local(http), EXACT), "alice").await?;
    site.save("alice-at.yaml", &at("alice", BELOW))?;
    until_answered(&site, &Probe::http(local(other), BELOW), "alice").await?;
    ensure!(site.mallory.requests() == 0);
    // When the platform allows it, it is served.
    site.save(
        "class.yaml",
        &class.replace(
            "hostnames: [\"*\"]}]",
            "hostnames: [\"*\"]}, {hostnames: [app.mallory.example]}]",
        ),
    )?;
    site.save("mallory-own.yaml", &own("mallory", "app.mallory.example"))?;
    until_answered(
        &site,
        &Probe::http(local(http), "app.mallory.example"),
        "mallory",
    )
    .await
}
