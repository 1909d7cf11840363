//! Detection of errors before an order, and handling of failures: pre-flight check, trial issuer,
//! next issuer, other responder.

use std::collections::HashSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::bind::{Bind, BindZone};
use e2e::gatewright::CONFIGURATION;
use e2e::pebble::{Options, Pebble};
use e2e::probe::Probe;
use e2e::testca::TestCa;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::site::{LIMIT, Site};

fn said(row: &Value, word: &str) -> bool {
    row["lastError"]
        .as_str()
        .is_some_and(|text| text.contains(word))
}

const ZONE: &str = "good A 127.0.0.1\nelsewhere A 192.0.2.9\nsix A 127.0.0.1\nsix AAAA 2001:db8::9\n\
                    caa A 127.0.0.1\ncaa CAA 0 issue \"ca.example.net\"\n\
                    account A 127.0.0.1\naccount CAA 0 issue \"pebble.letsencrypt.org; accounturi=https://x.test/1\"\n\
                    method A 127.0.0.1\nmethod CAA 0 issue \"pebble.letsencrypt.org; validationmethods=dns-01\"";

#[tokio::test]
#[ignore = "needs Envoy, Pebble and BIND"]
async fn a_preflight_finding_is_named_before_an_order_and_stops_it_if_strict() -> Result<()> {
    // CAs look up CAA records up to the top-level domain.
    let top = BindZone::new("test").records("@ NS ns1\nns1 A 127.0.0.1\nexample NS ns1");
    let bind = Bind::start(&[], &[BindZone::new("example.test").records(ZONE), top]).await?;
    let pebble = Pebble::start(&Options {
        resolver: Some(bind.address()),
        ..Options::default()
    })
    .await?;
    let mut site = Site::with(pebble).await?;
    let resolver = bind.address().to_string();
    let dns = [
        "--set",
        &format!("issuers.acme.resolvers=['{resolver}']"),
        "--set",
        "issuers.acme.addresses=[127.0.0.1]",
        "--set",
    ];
    let bad = [
        ("elsewhere.example.test", "192.0.2.9"),
        ("six.example.test", "2001:db8::9"),
        ("caa.example.test", "ca.example.net"),
        ("account.example.test", "accounturi"),
        ("method.example.test", "validationmethods"),
        ("gone.example.test", "gone.example.test"),
    ];
    let hosts: Vec<(&str, &str)> = bad.iter().map(|(host, _)| (*host, "acme")).collect();
    site.publish(&[&hosts[..], &[("good.example.test", "acme")]].concat())?;
    site.start(&[&dns[..], &["issuers.acme.preflight=Strict"]].concat())?;
    ensure!(site.served("good.example.test").await?.status == 200);
    for (host, word) in bad {
        let row = site.row(host, |row| row["lastError"].is_string()).await?;
        ensure!(said(&row, word), "{host}: {row}");
        let (code, text) = site.ask(&["certs", "check", host])?;
        ensure!(code == 1 && text.contains(word), "{host}: {code} {text}");
        ensure!(site.get(host).await.is_err(), "{host} is served");
    }
    let (code, text) = site.ask(&["certs", "check", "good.example.test"])?;
    ensure!(
        code == 0 && text.contains("no problem found"),
        "{code} {text}"
    );
    ensure!(site.pebble.orders() == 1, "{} orders", site.pebble.orders());

    // With strictness `warn` the order is placed all the same, and the finding is reported.
    site.program = None;
    site.publish(&[("caa.example.test", "acme")])?;
    site.start(&[&dns[..], &["issuers.acme.preflight=Warn"]].concat())?;
    // A finding is cached for a while, unless an operator asks.
    site.row("caa.example.test", |row| row["lastError"].is_string())
        .await?;
    let (code, text) = site.ask(&["certs", "renew", "caa.example.test"])?;
    ensure!(code == 0, "{text}");
    let line = site
        .program
        .as_mut()
        .context("it runs")?
        .line("the order is placed all the same")
        .await?;
    ensure!(line.contains("ca.example.net"), "{line}");
    // Pebble does not check CAA records.
    ensure!(site.served("caa.example.test").await?.status == 200);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn a_port_80_that_does_not_speak_http_is_named_and_costs_no_order() -> Result<()> {
    let mut site = Site::new().await?;
    // A TLS listener on the port at which the CA validates by plain HTTP.
    let plain = site.pebble.http_port;
    let tls = format!(
        "  - {{name: tls, hostname: b.example.com, protocol: HTTPS, port: {plain}, \
         tls: {{options: {{gatewright.io/issuer: internal-ca}}}}}}\n"
    );
    site.publish_beside(&[("a.example.com", "acme")], &tls)?;
    site.start(&["--set", "issuers.acme.preflight=Strict"])?;
    let row = site
        .row("a.example.com", |row| row["lastError"].is_string())
        .await?;
    ensure!(
        said(&row, "for a.example.com") && said(&row, "another protocol than HTTP"),
        "{row}"
    );
    let (code, text) = site.ask(&["certs", "check", "a.example.com"])?;
    ensure!(
        code == 1 && text.contains("another protocol than HTTP"),
        "{code} {text}"
    );
    ensure!(site.get("a.example.com").await.is_err());
    ensure!(site.pebble.orders() == 0, "{} orders", site.pebble.orders());
    // The fix that the message names, and nothing else.
    site.publish(&[("a.example.com", "acme")])?;
    let (code, text) = site.ask(&["certs", "renew", "a.example.com"])?;
    ensure!(code == 0, "{text}");
    ensure!(site.served("a.example.com").await?.status == 200);
    ensure!(site.pebble.orders() == 1, "{} orders", site.pebble.orders());
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn after_a_failure_a_trial_elsewhere_comes_first() -> Result<()> {
    let mut site = Site::new().await?;
    let main = TestCa::start().await?;
    let trial = TestCa::start().await?;
    let host = "a.example.com";
    for ca in [&main, &trial] {
        ca.behave(|b| b.failing = HashSet::from([host.to_owned()]));
    }
    fn orders(ca: &TestCa) -> usize {
        ca.counts().orders.values().sum::<usize>()
    }
    site.publish(&[(host, "acme")])?;
    site.start_with(&[
        "--set",
        &format!("issuers.acme.directory={}", main.directory()),
        "--set",
        &format!("issuers.acme.trial={}", trial.directory()),
    ])?;
    site.row(host, |row| {
        row["lastError"].is_string() && !said(row, "trial")
    })
    .await?;
    ensure!((orders(&main), orders(&trial)) == (1, 0));
    // The host is still at fault: that costs an order at the trial issuer only.
    let (code, text) = site.ask(&["certs", "renew", host])?;
    ensure!(code == 0, "{text}");
    site.row(host, |row| said(row, "trial: ")).await?;
    ensure!(
        (orders(&main), orders(&trial)) == (1, 1),
        "{} {}",
        orders(&main),
        orders(&trial)
    );
    for ca in [&main, &trial] {
        ca.behave(|b| b.failing.clear());
    }
    let (code, text) = site.ask(&["certs", "renew", host])?;
    ensure!(code == 0, "{text}");
    site.row(host, |row| {
        row["expires"].is_string() && row["lastError"].is_null()
    })
    .await?;
    ensure!(
        (orders(&main), orders(&trial)) == (2, 2),
        "{} {}",
        orders(&main),
        orders(&trial)
    );
    let until = Instant::now() + LIMIT;
    while !site
        .get(host)
        .await
        .is_ok_and(|answer| answer.status == 200)
    {
        ensure!(
            Instant::now() < until,
            "not served: {}",
            site.program.as_ref().context("it runs")?.output()
        );
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn where_the_first_ca_cannot_help_the_next_is_asked_and_our_own_at_last() -> Result<()> {
    let mut site = Site::new().await?;
    let first = TestCa::start().await?;
    let closed = TestCa::start().await?;
    for ca in [&first, &closed] {
        ca.behave(|b| b.limit = Some(("too many new orders recently".to_owned(), 3600)));
    }
    let file = site.state.path().join("issuers.yaml");
    let port = site.pebble.http_port;
    fs::write(
        &file,
        format!(
            "{CONFIGURATION}issuers:\n  first: {{directory: \"{}\", agreeToTerms: true, httpPort: {port}, fallback: [pebble]}}\n  \
             pebble: {{directory: \"{}\", caBundle: {}, agreeToTerms: true, httpPort: {port}}}\n  \
             closed: {{directory: \"{}\", agreeToTerms: true, httpPort: {port}, fallback: [internal-ca]}}\n",
            first.directory(),
            site.pebble.directory(),
            site.state.path().join("pebble.pem").display(),
            closed.directory()
        ),
    )?;
    site.publish(&[("a.example.com", "first"), ("b.example.com", "closed")])?;
    site.start_with(&["--config", &file.display().to_string()])?;
    // Port 80 answers with the account of the issuer that validates.
    ensure!(site.served("a.example.com").await?.status == 200);
    ensure!(site.pebble.issued() == 1);
    site.row("b.example.com", |row| row["expires"].is_string())
        .await?;
    let until = Instant::now() + LIMIT;
    while !site
        .get("b.example.com")
        .await
        .is_ok_and(|answer| answer.status == 200)
    {
        ensure!(
            Instant::now() < until,
            "not served: {}",
            site.program.as_ref().context("it runs")?.output()
        );
        sleep(Duration::from_millis(50)).await;
    }
    ensure!(closed.counts().certificates.is_empty());
    // The messages of both CAs are shown with the certificates.
    let (_, text) = site.ask(&["certs"])?;
    for issuer in ["first@", "closed@"] {
        let line = text
            .lines()
            .find(|line| line.starts_with(issuer) && line.contains("new orders of the account"));
        ensure!(
            line.is_some_and(|line| line.contains("0 of ? left, more in ")),
            "{text}"
        );
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Pebble"]
async fn where_envoy_is_not_ours_the_program_answers_for_the_hosts_it_knows() -> Result<()> {
    let mut site = Site::new().await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, site.pebble.http_port));
    site.publish(&[("a.example.com", "acme")])?;
    let ca = site.state.path().join("pebble.pem").display().to_string();
    let directory = site.pebble.directory();
    let responder = address.to_string();
    site.start_before(&[
        "--no-envoy",
        "--set",
        &format!("issuers.acme.directory={directory}"),
        "--set",
        &format!("issuers.acme.caBundle={ca}"),
        "--set",
        "issuers.acme.agreeToTerms=true",
        "--set",
        "issuers.acme.preflight=Strict",
        "--challenges",
        &responder,
    ])?;
    let row = site
        .row("a.example.com", |row| row["expires"].is_string())
        .await?;
    ensure!(row["lastError"].is_null(), "{row}");
    ensure!((site.pebble.orders(), site.pebble.issued()) == (1, 1));
    let path = "/.well-known/acme-challenge/0123456789abcdefghij";
    for (host, asked, status) in [
        ("a.example.com", path, 200),
        ("b.example.com", path, 404),
        ("a.example.com", "/.well-known/acme-challenge/short", 404),
        ("a.example.com", "/", 404),
    ] {
        let answer = Probe::http(address, host).path(asked).send().await?;
        ensure!(answer.status == status, "{host}{asked}: {answer:?}");
    }
    let log = site.output();
    ensure!(log.contains("challenges are answered at"), "{log}");
    Ok(())
}
