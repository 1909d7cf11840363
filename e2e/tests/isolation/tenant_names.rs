//! The hostnames of namespaces under a TenantGateway: a label has to grant them, some are reserved,
//! and none is a public suffix.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::route_names::{until_answered, until_told};
use super::site::{FORWARD, LIMIT, Site, named, route};

/// A namespace with the label of its TenantGateway and, if not empty, that of its hostnames.
fn namespace(name: &str, host: &str) -> String {
    let host = if host.is_empty() {
        String::new()
    } else {
        format!(", namespace.cozystack.io/host: {host}")
    };
    format!(
        "apiVersion: v1\nkind: Namespace\n\
         metadata: {{name: {name}, labels: {{namespace.cozystack.io/gateway: alice{host}}}}}\n---\n"
    )
}

fn tenant_gateway(namespace: &str, apex: &str) -> String {
    format!(
        "apiVersion: gateway.cozystack.io/v1alpha1\nkind: TenantGateway\nmetadata: {{name: cozystack, namespace: {namespace}, \
         annotations: {{gatewright.io/issuer: internal-ca}}}}\nspec: {{apex: {apex}, gatewayClassName: ours}}\n---\n"
    )
}

/// A route of a namespace for one host at alice's TenantGateway.
fn at(namespace: &str, name: &str, host: &str) -> String {
    route(namespace, name, host, FORWARD).replace(
        "name: edge, namespace: infra",
        "name: cozystack, namespace: alice",
    )
}

struct Tenants {
    site: Site,
    https: u16,
}

impl Tenants {
    /// Starts with `app.alice.example` served by alice's backend.
    async fn start(options: &[&str]) -> Result<Self> {
        let http = free_port()?.to_string();
        let https = free_port()?;
        let port = https.to_string();
        let ports = [
            "--set",
            &format!("tenancy.httpPort={http}"),
            "--set",
            &format!("tenancy.httpsPort={port}"),
        ];
        let site = Site::start(&[&ports, options].concat()).await?;
        let alices =
            namespace("alice", "alice.example") + &tenant_gateway("alice", "alice.example");
        site.save(
            "alice-tenant.yaml",
            &(alices + &at("alice", "app", "app.alice.example")),
        )?;
        let tenants = Self { site, https };
        until_answered(&tenants.site, &tenants.probe("app.alice.example"), "alice").await?;
        Ok(tenants)
    }

    fn probe(&self, host: &str) -> Probe {
        Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.https)), host)
    }

    /// Checks that no backend of mallory's answers for a host.
    async fn is_not_mallorys(&self, host: &str) -> Result<()> {
        if let Ok(backend) = named(&self.probe(host)).await {
            ensure!(backend != "mallory", "{host} is answered by mallory");
        }
        until_answered(&self.site, &self.probe("app.alice.example"), "alice").await
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_namespace_without_a_label_publishes_nothing() -> Result<()> {
    let tenants = Tenants::start(&[]).await?;
    let site = &tenants.site;
    let host = "m.alice.example";
    site.save(
        "mallory-tenant.yaml",
        &(namespace("mallory", "") + &at("mallory", "m", host)),
    )?;
    until_told(site, "mallory", "m", "HostnameNotAllowed").await?;
    tenants.is_not_mallorys(host).await?;
    // The platform grants it the names below one of alice's; then it has those, and no others.
    let labelled = namespace("mallory", "m.alice.example")
        + &at("mallory", "m", host)
        + &at("mallory", "x", "x.alice.example");
    site.save("mallory-tenant.yaml", &labelled)?;
    until_answered(site, &tenants.probe(host), "mallory").await?;
    until_told(site, "mallory", "x", "HostnameNotAllowed").await?;
    tenants.is_not_mallorys("x.alice.example").await?;
    // A setting lets namespaces publish without the label.
    let tenants = Tenants::start(&["--set", "tenancy.unlabelledNamespaces=Allow"]).await?;
    tenants.site.save(
        "mallory-tenant.yaml",
        &(namespace("mallory", "") + &at("mallory", "m", host)),
    )?;
    until_answered(&tenants.site, &tenants.probe(host), "mallory").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn reserved_hostnames_are_for_one_namespace_or_for_nobody() -> Result<()> {
    let reserved = "tenancy.reservedHostnames=[{hostname: vault.alice.example, namespace: alice}, \
                    {hostname: '*.platform.alice.example'}]";
    let tenants = Tenants::start(&["--set", reserved]).await?;
    let site = &tenants.site;
    // Mallory comes first, and has the whole apex by its label.
    let hosts = [
        ("one", "vault.alice.example"),
        ("two", "a.platform.alice.example"),
    ];
    let routes: String = hosts
        .iter()
        .map(|(name, host)| at("mallory", name, host))
        .collect();
    site.save(
        "mallory-tenant.yaml",
        &(namespace("mallory", "alice.example") + &routes),
    )?;
    for (name, host) in hosts {
        until_told(site, "mallory", name, "HostnameNotAllowed")
            .await
            .context(host)?;
        tenants.is_not_mallorys(host).await?;
    }
    let own = at("alice", "vault", "vault.alice.example")
        + &at("alice", "platform", "b.platform.alice.example");
    site.save("alice-vault.yaml", &own)?;
    until_answered(site, &tenants.probe("vault.alice.example"), "alice").await?;
    until_told(site, "alice", "platform", "HostnameNotAllowed")
        .await
        .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn no_apex_is_a_public_suffix() -> Result<()> {
    let tenants = Tenants::start(&[]).await?;
    let site = &tenants.site;
    let own = namespace("mallory", "co.uk").replace("gateway: alice", "gateway: mallory")
        + &tenant_gateway("mallory", "co.uk");
    let stolen = route("mallory", "stolen", "bank.co.uk", FORWARD).replace(
        "name: edge, namespace: infra",
        "name: cozystack, namespace: mallory",
    );
    site.save("mallory-tenant.yaml", &(own + &stolen))?;
    let until = Instant::now() + LIMIT;
    loop {
        let (_, text) = site.ask(&["status", "-o", "json"])?;
        let list: Value = serde_json::from_str(text.trim()).unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let theirs = items.iter().find(|item| {
            item["kind"] == "TenantGateway" && item["metadata"]["namespace"] == "mallory"
        });
        let reason = theirs
            .map(|theirs| theirs["status"]["conditions"][0]["reason"].clone())
            .unwrap_or_default();
        if reason == "ApexNotAllowed" {
            break;
        }
        if Instant::now() > until {
            bail!("told {theirs:#?}\n{}", site.program.output());
        }
        sleep(Duration::from_millis(50)).await;
    }
    ensure!(
        tenants.probe("bank.co.uk").send().await.is_err(),
        "a name below the suffix is served"
    );
    until_answered(site, &tenants.probe("app.alice.example"), "alice").await
}

/// Returns true if the record marks a host as reserved.
fn is_given_up(site: &Site, host: &str) -> Result<bool> {
    let (_, told) = site.ask(&["claims", "-o", "json"])?;
    let rows: Value = serde_json::from_str(&told).with_context(|| told.clone())?;
    let what = format!("hostname {host} among tenants");
    Ok(rows
        .as_array()
        .context("rows")?
        .iter()
        .any(|row| row["what"] == what && row["released"].is_string()))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_hostname_that_a_tenant_released_is_reserved_for_a_while() -> Result<()> {
    let tenants = Tenants::start(&["--set", "tenancy.hostnameClaims=FirstCome"]).await?;
    let host = "shop.m.alice.example";
    let site = &tenants.site;
    site.save("alice-shop.yaml", &at("alice", "shop", host))?;
    until_answered(site, &tenants.probe(host), "alice").await?;
    site.save(
        "mallory-tenant.yaml",
        &(namespace("mallory", "m.alice.example") + &at("mallory", "shop", host)),
    )?;
    until_told(site, "mallory", "shop", "HostnameConflict").await?;
    site.remove("alice-shop.yaml")?;
    let until = Instant::now() + LIMIT;
    while !is_given_up(site, host)? {
        ensure!(
            Instant::now() < until,
            "{}\n{}",
            site.ask(&["claims"])?.1,
            site.program.output()
        );
        sleep(Duration::from_millis(20)).await;
    }
    until_told(site, "mallory", "shop", "HostnameConflict").await?;
    tenants.is_not_mallorys(host).await?;

    // Also after a restart; an operator may decide otherwise.
    let Tenants { site, https } = tenants;
    let tenants = Tenants {
        site: site.restart()?,
        https,
    };
    until_answered(&tenants.site, &tenants.probe("app.alice.example"), "alice").await?;
    ensure!(
        is_given_up(&tenants.site, host)?,
        "{}",
        tenants.site.ask(&["claims"])?.1
    );
    tenants.is_not_mallorys(host).await?;
    let (code, told) = tenants.site.ask(&["claims", "release", host])?;
    ensure!(code == 0, "{told}");
    until_answered(&tenants.site, &tenants.probe(host), "mallory").await
}
