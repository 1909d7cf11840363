//! From a published host to its certificate and its renewal, and across a kill of the program.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::gatewright::Gatewright;
use e2e::probe::Probe;
use e2e::testca::TestCa;
use e2e_inside::world::free_port;
use tokio::time::{Instant, sleep};

use super::site::{LIMIT, Site, serial};

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn a_host_that_is_published_is_served_renewed_and_survives_a_new_account_key() -> Result<()> {
    let mut site = Site::new().await?;
    site.start(&[])?;
    site.publish(&[("a.example.com", "acme"), ("*.example.com", "internal-ca")])?;
    let first = site.served("a.example.com").await?;
    ensure!(first.status == 200, "{first:?}");
    let row = site
        .row("a.example.com", |row| row["next"] == "renewal")
        .await?;
    ensure!(
        row["expires"].is_string() && row["lastError"].is_null(),
        "{row}"
    );
    let (code, text) = site.ask(&["certs"])?;
    ensure!(
        code == 0 && text.contains("a.example.com") && text.contains(" renewal  in "),
        "{code} {text}"
    );
    let (code, text) = site.ask(&["certs", "check", "a.example.com"])?;
    ensure!(
        code == 0 && text.contains("no problem found"),
        "{code} {text}"
    );

    // Port 80 answers challenges for the host that is managed, and for no other, although there is
    // no listener.
    let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, site.pebble.http_port));
    let path = "/.well-known/acme-challenge/0123456789abcdefghij";
    ensure!(
        Probe::http(plain, "a.example.com")
            .path(path)
            .send()
            .await?
            .status
            == 200
    );
    ensure!(
        Probe::http(plain, "b.example.com")
            .path(path)
            .send()
            .await?
            .status
            == 404
    );
    ensure!(Probe::http(plain, "a.example.com").send().await?.status == 404);

    // A new certificate without a lost request: an open connection continues, new ones get the new
    // one.
    let held = Probe::https(site.address(), "a.example.com");
    let mut open = held.connect().await?;
    let (code, text) = site.ask(&["certs", "renew", "a.example.com"])?;
    ensure!(code == 0, "{text}");
    let until = Instant::now() + LIMIT;
    while serial(&site.get("a.example.com").await?)? == serial(&first)? {
        ensure!(
            Instant::now() < until,
            "not renewed: {}",
            site.program.as_ref().context("it runs")?.output()
        );
        sleep(Duration::from_millis(20)).await;
    }
    ensure!(open.ask(&held).await?.status == 200);
    ensure!(site.pebble.issued() == 2 && site.pebble.orders() == 2);

    // The account's key is rolled over: the next challenge is answered with the new key at the
    // first attempt.
    let thumbprint = || async {
        let answer = Probe::http(plain, "a.example.com")
            .path(path)
            .send()
            .await?;
        Ok::<_, anyhow::Error>(String::from_utf8_lossy(&answer.body).into_owned())
    };
    let before = thumbprint().await?;
    let (code, text) = site.ask(&["certs", "change-key"])?;
    ensure!(code == 0, "{text}");
    site.publish(&[
        ("a.example.com", "acme"),
        ("c.example.com", "acme"),
        ("*.example.com", "internal-ca"),
    ])?;
    ensure!(site.served("c.example.com").await?.status == 200);
    ensure!(thumbprint().await? != before, "it is the new key");
    let log = site.output();
    ensure!(
        site.pebble.orders() == 3,
        "{} orders\n{log}",
        site.pebble.orders()
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn the_list_of_certificates_shows_a_certificate_when_it_is_issued() -> Result<()> {
    let mut site = Site::new().await?;
    site.start(&["--set", "issuers.acme.preflight=Strict"])?;
    // The admin socket answers before anything is published.
    let until = Instant::now() + LIMIT;
    while site.ask(&["certs"])?.0 != 0 {
        ensure!(Instant::now() < until, "it does not answer");
        sleep(Duration::from_millis(50)).await;
    }
    let private = site.state.path().display().to_string();
    let mut watching = Gatewright::start(&["certs", "--watch", "--state-dir", &private])?;
    watching.line("HOST").await?;
    site.publish(&[("a.example.com", "acme")])?;
    let line = watching.line("a.example.com").await?;
    ensure!(line.contains(" acme"), "{line}");
    ensure!(site.served("a.example.com").await?.status == 200);
    watching.line(" renewal  in ").await?;
    // The table was printed once for each change, and not once a second.
    let tables = watching.output().matches("HOST").count();
    ensure!(
        (2..=10).contains(&tables),
        "{tables} tables:\n{}",
        watching.output()
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn a_new_host_is_refused_until_its_own_certificate_is_there() -> Result<()> {
    let mut site = Site::new().await?;
    // Nobody listens there.
    let nowhere = format!("https://127.0.0.1:{}/dir", free_port()?);
    site.start_at(&nowhere, &[])?;
    site.publish(&[
        ("*.example.com", "internal-ca"),
        ("new.example.com", "acme"),
        ("odd.example.com", "nobody"),
    ])?;
    site.row("*.example.com", |row| row["next"] == "renewal")
        .await?;
    let until = Instant::now() + LIMIT;
    while let Err(error) = site.get("other.example.com").await {
        ensure!(Instant::now() < until, "the wildcard is served: {error}");
        sleep(Duration::from_millis(50)).await;
    }
    let row = site
        .row("new.example.com", |row| row["lastError"].is_string())
        .await?;
    ensure!(
        row["lastError"]
            .as_str()
            .is_some_and(|text| text.contains("cannot be reached")),
        "{row}"
    );
    let row = site
        .row("odd.example.com", |row| row["lastError"].is_string())
        .await?;
    ensure!(
        row["lastError"]
            .as_str()
            .is_some_and(|text| text.contains("there are acme, internal-ca")),
        "{row}"
    );
    for host in ["new.example.com", "odd.example.com"] {
        let refused = site.get(host).await;
        ensure!(
            refused.is_err(),
            "{host} is served with another's certificate: {refused:?}"
        );
    }
    let (_, text) = site.ask(&["status"])?;
    ensure!(
        text.contains("the certificate for new.example.com is not issued by acme yet: "),
        "{text}"
    );
    let (code, text) = site.ask(&["certs", "check", "new.example.com"])?;
    ensure!(
        code == 1 && text.contains("cannot be reached"),
        "{code} {text}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn killed_in_the_middle_it_takes_the_same_order_up() -> Result<()> {
    let mut site = Site::new().await?;
    let ca = TestCa::start().await?;
    let host = "a.example.com";
    // The CA is still validating when the program is killed.
    ca.behave(|b| b.stuck = HashSet::from([host.to_owned()]));
    site.publish(&[(host, "acme")])?;
    site.start_with(&[
        "--set",
        &format!("issuers.acme.directory={}", ca.directory()),
    ])?;
    let until = Instant::now() + LIMIT;
    while ca.counts().challenges == 0 {
        ensure!(
            Instant::now() < until,
            "no order: {}",
            site.program.as_ref().context("it runs")?.output()
        );
        sleep(Duration::from_millis(2)).await;
    }
    let pid = site.program.as_ref().context("it runs")?.pid().to_string();
    ensure!(
        Command::new("kill")
            .args(["-KILL", &pid])
            .status()?
            .success()
    );
    site.program = None;
    ca.behave(|b| b.stuck.clear());
    site.start_with(&[
        "--set",
        &format!("issuers.acme.directory={}", ca.directory()),
    ])?;
    site.row(host, |row| row["expires"].is_string()).await?;
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
        sleep(Duration::from_millis(20)).await;
    }
    let counts = ca.counts();
    ensure!(
        (counts.orders[host], counts.certificates[host]) == (1, 1),
        "{counts:?}"
    );
    Ok(())
}
