//! Repairs by an operator take effect at once: the roots of a CA that is not trusted, the key of a
//! DNS provider.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::bind::{Bind, BindKey, BindZone};
use e2e::pebble::{Options, Pebble};
use serde_json::Value;
use tokio::time::Instant;

use super::site::Site;

const HOST: &str = "a.example.test";
const SECRET: &str = "Zm9yIHRlc3RzIG9ubHk6IGZvcnR5LWVpZ2h0IGJ5dGVzIG9mIGEga2V5IQ==";
/// The next attempt by itself is a minute away; files are polled every five seconds.
const AT_ONCE: Duration = Duration::from_secs(30);

fn says(word: &'static str) -> impl Fn(&Value) -> bool {
    move |row| {
        row["lastError"]
            .as_str()
            .is_some_and(|text| text.contains(word))
    }
}

/// Replaces a file atomically, as an operator's editor does.
fn save(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    Ok(fs::rename(new, path)?)
}

/// Repairs a file, and waits until the host has its certificate.
async fn mended(site: &Site, path: &Path, text: &str) -> Result<()> {
    save(path, text)?;
    let start = Instant::now();
    site.row(HOST, |row| {
        row["expires"].is_string() && row["lastError"].is_null()
    })
    .await?;
    ensure!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    ensure!(site.served(HOST).await?.status == 200);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn the_roots_of_a_ca_that_is_not_trusted_are_mended_and_no_restart_is_needed() -> Result<()> {
    let mut site = Site::new().await?;
    // The bundle of an unrelated CA.
    let right = site.pebble.ca_pem().to_owned();
    let other = rcgen::generate_simple_self_signed(vec!["other.test".to_owned()])?
        .cert
        .pem();
    let bundle = site.state.path().join("bundle.pem");
    save(&bundle, &other)?;
    site.publish(&[(HOST, "acme")])?;
    let directory = site.pebble.directory();
    let bundle_path = bundle.display().to_string();
    site.start_with(&[
        "--set",
        &format!("issuers.acme.directory={directory}"),
        "--set",
        &format!("issuers.acme.caBundle={bundle_path}"),
        "--set",
        "issuers.acme.agreeToTerms=true",
    ])?;
    site.row(HOST, says("certificate")).await?;
    mended(&site, &bundle, &right).await?;
    // An invalid file afterwards has no effect: the issuer keeps its settings.
    save(&bundle, "no certificate")?;
    let until = Instant::now() + AT_ONCE;
    while !site
        .ask(&["certs"])?
        .1
        .contains("it keeps its previous settings")
    {
        ensure!(Instant::now() < until, "{}", site.ask(&["certs"])?.1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    site.publish(&[(HOST, "acme"), ("b.example.test", "acme")])?;
    ensure!(site.served("b.example.test").await?.status == 200);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy, Pebble and BIND"]
async fn the_key_of_a_dns_provider_is_mended_and_no_restart_is_needed() -> Result<()> {
    let key = BindKey {
        name: "k".to_owned(),
        algorithm: "hmac-sha256".to_owned(),
        secret: SECRET.to_owned(),
    };
    let bind = Bind::start(&[key], &[BindZone::new("example.test").open_to("k")]).await?;
    let pebble = Pebble::start(&Options {
        resolver: Some(bind.address()),
        ..Options::default()
    })
    .await?;
    let mut site = Site::with(pebble).await?;
    let tsig = site.state.path().join("tsig");
    let dns = site.state.path().join("dns.yaml");
    save(&tsig, "d3Jvbmcgd3Jvbmcgd3Jvbmcgd3Jvbmcgd3Jvbmcgd3Jvbmc=")?;
    save(
        &dns,
        &format!(
            "rfc2136: {{nameserver: \"{0}\", keyName: k, keyFile: {1}}}\nauthorityPort: {2}\n",
            bind.address(),
            tsig.display(),
            bind.address().port()
        ),
    )?;
    site.publish(&[(HOST, "acme")])?;
    site.start(&[
        "--set",
        &format!("issuers.acme.dns={}", fs::read_to_string(&dns)?),
        "--set",
        &format!("issuers.acme.resolvers=['{}']", bind.address()),
    ])?;
    site.row(HOST, |row| row["lastError"].is_string()).await?;
    ensure!(site.pebble.orders() == 0, "it is found before an order");
    mended(&site, &tsig, SECRET).await?;
    ensure!(site.pebble.orders() == 1);
    Ok(())
}
