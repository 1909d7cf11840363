//! Clients that send no SNI.

use anyhow::{Context, Result, ensure};
use e2e::probe::{Answer, Failure, Probe};
use e2e_inside::world::free_port;
use tokio::time::{Duration, Instant, sleep};

use super::site::{LIMIT, Site, serial};

async fn without_name(site: &Site) -> Result<Answer, Failure> {
    Probe::https(site.address(), "whatever.example.net")
        .no_sni()
        .send()
        .await
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn they_are_refused_unless_a_listener_without_a_hostname_has_a_certificate_for_them()
-> Result<()> {
    let mut site = Site::new().await?;
    // Nobody listens there: the host stays without a certificate.
    let nowhere = format!("https://127.0.0.1:{}/dir", free_port()?);
    site.start_at(&nowhere, &[])?;
    let hosts = [
        ("a.example.com", "internal-ca"),
        ("new.example.com", "acme"),
    ];
    site.publish(&hosts)?;
    let until = Instant::now() + LIMIT;
    while let Err(error) = site.get("a.example.com").await {
        ensure!(Instant::now() < until, "not served: {error}");
        sleep(Duration::from_millis(50)).await;
    }
    ensure!(
        without_name(&site).await.is_err(),
        "nobody has a certificate for a client without a name"
    );
    ensure!(site.get("other.example.net").await.is_err());

    site.publish(&[&hosts[..], &[("", "self-signed")]].concat())?;
    let answer = loop {
        match without_name(&site).await {
            Ok(answer) => break answer,
            Err(error) => ensure!(Instant::now() < until, "not served: {error}"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    ensure!(answer.status == 200, "the route of all hosts: {answer:?}");
    let names = &answer.peer.as_ref().context("over TLS")?.dns_names;
    ensure!(*names == ["no-name.invalid"], "{names:?}");
    // A name without a listener of its own belongs to the listener without a hostname; one with a
    // listener does not.
    ensure!(serial(&site.get("other.example.net").await?)? == serial(&answer)?);
    let own = site.get("a.example.com").await?;
    ensure!(
        own.peer.as_ref().context("over TLS")?.dns_names == ["a.example.com"],
        "{own:?}"
    );
    let refused = site.get("new.example.com").await;
    ensure!(
        refused.is_err(),
        "it waits for its own certificate: {refused:?}"
    );
    let row = site
        .row("no-name.invalid", |row| row["expires"].is_string())
        .await?;
    ensure!(
        row["issuer"] == "self-signed" && row["lastError"].is_null(),
        "{row}"
    );
    Ok(())
}
