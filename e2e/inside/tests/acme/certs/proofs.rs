//! Each kind of challenge through the program: TLS-ALPN-01, DNS-01 by option and by TenantGateway,
//! dns-persist-01.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use acme::challenge::dns::DnsView;
use acme::dns::{Authorities, Resolver};
use anyhow::{Context, Result, ensure};
use e2e::bind::{Bind, BindKey, BindZone};
use e2e::gatewright::CONFIGURATION;
use e2e::pebble::{Options, Pebble};
use e2e::probe::Probe;
use tokio::time::{Instant, sleep};

use super::site::{LIMIT, Site, serial};

const SECRET: &str = "Zm9yIHRlc3RzIG9ubHk6IGZvcnR5LWVpZ2h0IGJ5dGVzIG9mIGEga2V5IQ==";

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn tls_alpn_01_needs_port_443_alone_and_disturbs_nobody() -> Result<()> {
    let mut site = Site::new().await?;
    site.port = site.pebble.tls_port;
    let option = format!("--set=issuers.acme.tlsAlpnPort={}", site.port);
    site.start(&[&option, "--set", "issuers.acme.preflight=Strict"])?;
    site.publish(&[
        ("inside.example.com", "internal-ca"),
        ("a.example.com", "acme"),
    ])?;
    let first = site.served("a.example.com").await?;
    ensure!(first.status == 200, "{first:?}");
    let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, site.pebble.http_port));
    let refused = Probe::http(plain, "a.example.com").send().await;
    ensure!(
        refused.is_err(),
        "nobody listens on the port of HTTP-01: {refused:?}"
    );

    // HTTP clients continue undisturbed before, during and after the challenge, also on an open
    // connection.
    let held = Probe::https(site.address(), "a.example.com");
    let mut open = held.connect().await?;
    let (code, text) = site.ask(&["certs", "renew", "a.example.com"])?;
    ensure!(code == 0, "{text}");
    let until = Instant::now() + LIMIT;
    loop {
        let now = site.get("a.example.com").await?;
        ensure!(now.status == 200 && site.get("inside.example.com").await?.status == 200);
        if serial(&now)? != serial(&first)? {
            break;
        }
        ensure!(
            Instant::now() < until,
            "not renewed: {}",
            site.program.as_ref().context("it runs")?.output()
        );
        sleep(Duration::from_millis(20)).await;
    }
    ensure!(open.ask(&held).await?.status == 200);
    ensure!(
        (site.pebble.orders(), site.pebble.issued()) == (2, 2),
        "{} orders",
        site.pebble.orders()
    );
    Ok(())
}

fn key() -> BindKey {
    BindKey {
        name: "k".to_owned(),
        algorithm: "hmac-sha256".to_owned(),
        secret: SECRET.to_owned(),
    }
}

/// The settings of a provider that writes into a BIND, and of look-ups there.
fn rfc2136(site: &Site, bind: &Bind, more: &str) -> Result<String> {
    let file = site.state.path().join("tsig");
    fs::write(&file, SECRET)?;
    let path = site.state.path().join("dns.yaml");
    let address = bind.address();
    let port = bind.address().port();
    fs::write(
        &path,
        format!(
            "rfc2136: {{nameserver: \"{address}\", keyName: k, algorithm: hmac-sha256, keyFile: {}}}\n\
             authorityPort: {port}\n{more}",
            file.display()
        ),
    )?;
    Ok(path.display().to_string())
}

async fn site_beside(bind: &Bind) -> Result<Site> {
    Site::with(
        Pebble::start(&Options {
            resolver: Some(bind.address()),
            ..Options::default()
        })
        .await?,
    )
    .await
}

#[tokio::test]
#[ignore = "needs Envoy, Pebble and BIND"]
async fn dns_01_by_an_option_covers_host_and_wildcard() -> Result<()> {
    let bind = Bind::start(&[key()], &[BindZone::new("example.test").open_to("k")]).await?;
    let mut site = site_beside(&bind).await?;
    let dns = rfc2136(&site, &bind, "")?;
    site.start(&[
        "--set",
        &format!("issuers.acme.dns={}", fs::read_to_string(&dns)?),
        "--set",
        &format!("issuers.acme.resolvers=['{}']", bind.address()),
    ])?;
    site.publish(&[("*.example.test", "acme"), ("example.test", "acme")])?;
    ensure!(site.served("x.example.test").await?.status == 200);
    ensure!(site.served("example.test").await?.status == 200);
    ensure!(site.pebble.issued() == 2);
    let (code, text) = site.ask(&["certs", "check", "example.test"])?;
    // BIND has no CAA records, and its zone has no address: the pre-flight check finds that.
    ensure!(code == 0 || text.contains("example.test"), "{code} {text}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy, Pebble and BIND"]
async fn a_zone_we_may_not_write_costs_no_order() -> Result<()> {
    let zones = [
        BindZone::new("example.test").open_to("k"),
        BindZone::new("closed.test"),
    ];
    let bind = Bind::start(&[key()], &zones).await?;
    let mut site = site_beside(&bind).await?;
    let dns = rfc2136(&site, &bind, "")?;
    site.publish(&[
        ("a.closed.test", "acme"),
        ("a.nowhere.test", "acme"),
        ("a.example.test", "acme"),
    ])?;
    site.start(&[
        "--set",
        &format!("issuers.acme.dns={}", fs::read_to_string(&dns)?),
        "--set",
        &format!("issuers.acme.resolvers=['{}']", bind.address()),
        "--set",
        "issuers.acme.preflight=Skip",
    ])?;
    ensure!(site.served("a.example.test").await?.status == 200);
    for (host, word) in [
        ("a.closed.test", "_acme-challenge.a.closed.test"),
        ("a.nowhere.test", "a.nowhere.test"),
    ] {
        let row = site.row(host, |row| row["lastError"].is_string()).await?;
        ensure!(
            row["lastError"]
                .as_str()
                .is_some_and(|text| text.contains(word)),
            "{row}"
        );
    }
    ensure!(site.pebble.orders() == 1, "{} orders", site.pebble.orders());
    ensure!(
        txt(&bind, "_acme-challenge.a.example.test")
            .await?
            .is_empty(),
        "nothing stays"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy, Pebble and BIND"]
async fn dns_01_by_a_tenant_gateway_with_the_tenants_own_credential() -> Result<()> {
    let bind = Bind::start(&[key()], &[BindZone::new("example.test").open_to("k")]).await?;
    let mut site = site_beside(&bind).await?;
    let issuers = site.state.path().join("issuers.yaml");
    let installed = site.state.path().join("installed");
    fs::write(&installed, SECRET)?;
    // The installation's settings for the directory: its roots, and its resolver.
    fs::write(
        &issuers,
        format!(
            "{CONFIGURATION}issuers: {{pebble: {{directory: \"{}\", caBundle: {}, agreeToTerms: true, preflight: Skip, resolvers: [\"{}\"], \
             dns: {{rfc2136: {{nameserver: \"127.0.0.1:1\", keyName: x, keyFile: {}}}, \
             authorityPort: {}}}}}}}\n",
            site.pebble.directory(),
            site.state.path().join("pebble.pem").display(),
            bind.address(),
            installed.display(),
            bind.address().port(),
        ),
    )?;
    let directory = site.pebble.directory();
    let echo = site.echo.address().port();
    let nameserver = bind.address();
    let tenant = |secret: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: tsig, namespace: tenant-a}}\nstringData: {{key: \"{secret}\"}}\n\
             ---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: tenant-a, labels: \
             {{namespace.cozystack.io/gateway: tenant-a, namespace.cozystack.io/host: a.example.test}}}}\n---\n\
             apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: gatewright}}\n\
             spec: {{controllerName: gatewright.io/gateway-controller}}\n---\n\
             apiVersion: gateway.cozystack.io/v1alpha1\nkind: TenantGateway\n\
             metadata: {{name: cozystack, namespace: tenant-a, annotations: {{gatewright.io/acme-directory: \"{directory}\"}}}}\n\
             spec:\n  apex: a.example.test\n  gatewayClassName: gatewright\n  certMode: dns01\n  dns01:\n    \
             provider: rfc2136\n    rfc2136: {{nameserver: \"{nameserver}\", tsigKeyName: k, tsigAlgorithm: HMACSHA256, \
             tsigSecretSecretRef: {{name: tsig, key: key}}}}\n---\n\
             apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: tenant-a}}\nspec: {{ports: [{{port: 80}}]}}\n\
             ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web, namespace: tenant-a, \
             labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nendpoints: [{{addresses: [127.0.0.1]}}]\n\
             ports: [{{port: {echo}}}]\n---\n\
             apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: web, namespace: tenant-a}}\n\
             spec:\n  parentRefs: [{{name: cozystack}}]\n  hostnames: [shop.a.example.test]\n  rules:\n  \
             - backendRefs: [{{name: web, port: 80}}]\n"
        )
    };
    // First with a wrong key: the tenant gets the reason, and no order is placed in a loop.
    site.save("tenant.yaml", &tenant("d3Jvbmc="))?;
    let http = e2e_inside::world::free_port()?.to_string();
    let https = site.port.to_string();
    let more = [
        "--config",
        &issuers.display().to_string(),
        "--set",
        &format!("tenancy.httpPort={http}"),
        "--set",
        &format!("tenancy.httpsPort={https}"),
    ];
    site.start_with(&more)?;
    fn is_told(row: &serde_json::Value) -> bool {
        row["lastError"]
            .as_str()
            .is_some_and(|text| text.contains("TSIG"))
    }
    let row = site.row("*.a.example.test", is_told).await?;
    ensure!(!row.to_string().contains("d3Jvbmc"), "{row}");
    ensure!(site.pebble.orders() == 0, "{} orders", site.pebble.orders());
    site.save("tenant.yaml", &tenant(SECRET))?;
    ensure!(site.served("shop.a.example.test").await?.status == 200);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy, Pebble and BIND"]
async fn a_record_that_stays_binds_names_until_the_day_it_says() -> Result<()> {
    let bind = Bind::start(&[key()], &[BindZone::new("example.test").open_to("k")]).await?;
    let mut site = site_beside(&bind).await?;
    let dns = rfc2136(&site, &bind, "persist: true\npersistDays: 30\n")?;
    site.start(&[
        "--set",
        &format!("issuers.acme.dns={}", fs::read_to_string(&dns)?),
        "--set",
        &format!("issuers.acme.resolvers=['{}']", bind.address()),
    ])?;
    site.publish(&[("a.example.test", "acme")])?;
    let first = site.served("a.example.test").await?;
    let record = txt(&bind, "_validation-persist.a.example.test").await?;
    ensure!(
        record.len() == 1 && record[0].contains("accounturi=https://"),
        "{record:?}"
    );
    let until: i64 = record[0]
        .split(';')
        .find_map(|part| part.trim().strip_prefix("persistUntil="))
        .context("it says until when")?
        .parse()?;
    let days = (until - jiff::Timestamp::now().as_second()) / 86_400;
    ensure!((29..=30).contains(&days), "{days} days");
    // The renewal writes no record: the old one is still valid.
    let (code, text) = site.ask(&["certs", "renew", "a.example.test"])?;
    ensure!(code == 0, "{text}");
    let deadline = Instant::now() + LIMIT;
    while serial(&site.get("a.example.test").await?)? == serial(&first)? {
        ensure!(Instant::now() < deadline, "not renewed: {}", site.output());
        sleep(Duration::from_millis(50)).await;
    }
    ensure!(txt(&bind, "_validation-persist.a.example.test").await? == record);
    Ok(())
}

/// Returns the TXT records at a name.
async fn txt(bind: &Bind, name: &str) -> Result<Vec<String>> {
    let view =
        Authorities::new(Resolver::new(vec![bind.address()])?).with_port(bind.address().port());
    Ok(view.values(name).await?)
}

#[tokio::test]
#[ignore = "needs Envoy, Pebble and BIND"]
async fn a_zone_that_is_answered_with_servfail_costs_its_own_hosts_alone() -> Result<()> {
    // BIND does not load a zone with an error, and answers SERVFAIL for it.
    let bad = BindZone::new("bad.test").records("@ NOSUCHTYPE nonsense");
    let bind = Bind::start(&[key()], &[BindZone::new("example.test").open_to("k"), bad]).await?;
    let mut site = site_beside(&bind).await?;
    let dns = rfc2136(&site, &bind, "")?;
    let names: Vec<String> = (0..5).map(|i| format!("h{i}.bad.test")).collect();
    let mut hosts: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "acme")).collect();
    site.publish(&hosts)?;
    site.start(&[
        "--set",
        &format!("issuers.acme.dns={}", fs::read_to_string(&dns)?),
        "--set",
        &format!("issuers.acme.resolvers=['{}']", bind.address()),
    ])?;
    // Each has failed: five failures of five hosts would trip the breaker of the dependency that
    // they were attributed to.
    for name in &names {
        let row = site.row(name, |row| row["lastError"].is_string()).await?;
        ensure!(
            row["lastError"]
                .as_str()
                .is_some_and(|text| text.contains("SERVFAIL")),
            "{row}"
        );
    }
    hosts.push(("a.example.test", "acme"));
    site.publish(&hosts)?;
    let start = Instant::now();
    ensure!(site.served("a.example.test").await?.status == 200);
    ensure!(
        start.elapsed() < Duration::from_secs(30),
        "another zone's host waited {:?}",
        start.elapsed()
    );
    ensure!(site.pebble.orders() == 1, "{} orders", site.pebble.orders());
    Ok(())
}
