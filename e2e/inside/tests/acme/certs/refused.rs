//! No certificate is ordered for a listener that is refused, and a held one is not renewed.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::gatewright::CONFIGURATION;
use tokio::time::{Instant, sleep};

use super::site::{LIMIT, Site};

/// A tenant with one host, `shop.a.example.test`, whose certificate Pebble issues.
fn tenant(site: &Site) -> String {
    let directory = site.pebble.directory();
    let echo = site.echo.address().port();
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: tenant-a, labels: \
         {{namespace.cozystack.io/gateway: tenant-a, namespace.cozystack.io/host: a.example.test}}}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: gatewright}}\n\
         spec: {{controllerName: gatewright.io/gateway-controller}}\n---\n\
         apiVersion: gateway.cozystack.io/v1alpha1\nkind: TenantGateway\n\
         metadata: {{name: cozystack, namespace: tenant-a, annotations: {{gatewright.io/acme-directory: \"{directory}\"}}}}\n\
         spec: {{apex: a.example.test, gatewayClassName: gatewright, certMode: http01}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: tenant-a}}\nspec: {{ports: [{{port: 80}}]}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web, namespace: tenant-a, \
         labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nendpoints: [{{addresses: [127.0.0.1]}}]\n\
         ports: [{{port: {echo}}}]\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: web, namespace: tenant-a}}\n\
         spec:\n  parentRefs: [{{name: cozystack}}]\n  hostnames: [shop.a.example.test]\n  rules:\n  \
         - backendRefs: [{{name: web, port: 80}}]\n"
    )
}

/// Waits until a condition has these words.
async fn told(site: &Site, words: &[&str]) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let (_, text) = site.ask(&["status"])?;
        if text
            .lines()
            .any(|line| words.iter().all(|word| line.contains(word)))
        {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "nothing says {words:?}:\n{text}\n{}",
            site.output()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn a_tenant_whose_port_another_gateway_holds_orders_nothing_until_it_is_free() -> Result<()> {
    let mut site = Site::new().await?;
    let issuers = site.state.path().join("issuers.yaml");
    fs::write(
        &issuers,
        format!(
            "{CONFIGURATION}issuers: {{pebble: {{directory: \"{}\", caBundle: {}, agreeToTerms: true, httpPort: {}}}}}\n",
            site.pebble.directory(),
            site.state.path().join("pebble.pem").display(),
            site.pebble.http_port,
        ),
    )?;
    // The tenants' port is owned by a Gateway that was there before.
    site.publish(&[("a.inside.test", "internal-ca")])?;
    let http = site.pebble.http_port.to_string();
    let https = site.port.to_string();
    let issuers = issuers.display().to_string();
    site.start_with(&[
        "--config",
        &issuers,
        "--set",
        &format!("tenancy.httpPort={http}"),
        "--set",
        &format!("tenancy.httpsPort={https}"),
    ])?;
    site.row("a.inside.test", |row| row["expires"].is_string())
        .await?;
    let tenant = tenant(&site);
    site.save("tenant.yaml", &tenant)?;
    told(
        &site,
        &["gateway tenant-a/cozystack listener", "PortUnavailable"],
    )
    .await?;
    let (_, text) = site.ask(&["status"])?;
    ensure!(
        !text
            .lines()
            .any(|line| line.contains("tenant-a/") && line.contains("is being issued")),
        "{text}"
    );
    fn rows(site: &Site) -> std::result::Result<bool, anyhow::Error> {
        Ok(site.ask(&["certs"])?.1.contains("shop.a.example.test"))
    }
    ensure!(!rows(&site)?, "{}", site.ask(&["certs"])?.1);
    ensure!(site.pebble.orders() == 0, "{} orders", site.pebble.orders());

    // The port is free: the tenant gets its certificate.
    fs::remove_file(site.manifests.path().join("gateway.yaml"))?;
    ensure!(site.served("shop.a.example.test").await?.status == 200);
    ensure!(site.pebble.orders() == 1, "{} orders", site.pebble.orders());
    ensure!(rows(&site)?);

    // When the port is lost again, neither an outlook nor a requested renewal is left.
    site.publish(&[("a.inside.test", "internal-ca")])?;
    fs::remove_file(site.manifests.path().join("tenant.yaml"))?;
    site.row("a.inside.test", |row| row["expires"].is_string())
        .await?;
    site.save("tenant.yaml", &tenant)?;
    told(
        &site,
        &["gateway tenant-a/cozystack listener", "PortUnavailable"],
    )
    .await?;
    ensure!(!rows(&site)?, "{}", site.ask(&["certs"])?.1);
    let (code, text) = site.ask(&["certs", "renew", "shop.a.example.test"])?;
    ensure!(
        code == 1 && text.contains("no listener wants a certificate"),
        "{code} {text}"
    );
    ensure!(site.pebble.orders() == 1, "{} orders", site.pebble.orders());
    site.program.as_ref().context("it runs")?;
    Ok(())
}
