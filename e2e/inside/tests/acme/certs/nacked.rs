//! Certificates that pass every check of ours and that Envoy does not load all the same: it refuses
//! (NACK) the Secret.
//!
//! The name of the chain's last issuer is no UTF-8, which BoringSSL looks at and we do not: it
//! stands for whatever else an Envoy of another day refuses.

use std::time::Duration;

use anyhow::{Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use e2e::testca::TestCa;
use gatewright_control::ask;
use hyper::Response;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::site::{LIMIT, Site, serial};

const HOST: &str = "a.example.com";
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Returns a chain whose last certificate was issued by a name that is no UTF-8.
fn spoilt(chain: &str) -> Option<String> {
    let (before, last) = chain.rsplit_once(BEGIN)?;
    let base64: String = last.split(END).next()?.split_whitespace().collect();
    let mut der = BASE64_STANDARD.decode(base64).ok()?;
    let name = b"rcgen self signed cert";
    let at = der.windows(name.len()).position(|window| window == name)?;
    der[at] = 0xff;
    Some(format!(
        "{before}{BEGIN}\n{}\n{END}\n",
        BASE64_STANDARD.encode(der)
    ))
}

/// Makes the CA issue certificates that Envoy refuses, or good ones.
fn issue(ca: &TestCa, is_good: bool) {
    ca.mangle(Box::new(move |_: &str, answer: Response<Bytes>| {
        answer.map(|body| {
            let chain = std::str::from_utf8(&body)
                .ok()
                .filter(|text| !is_good && text.starts_with(BEGIN));
            chain.and_then(spoilt).map_or(body.clone(), Bytes::from)
        })
    }));
}

/// Waits until the host is served, and returns the serial number of its certificate.
async fn served(site: &Site) -> Result<String> {
    let until = Instant::now() + LIMIT;
    loop {
        match site.get(HOST).await {
            Ok(answer) if answer.status == 200 => return serial(&answer),
            answer => ensure!(Instant::now() < until, "{answer:?}: {}", site.output()),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Returns how many certificates for the host the CA has issued.
fn issued(ca: &TestCa) -> usize {
    ca.counts()
        .certificates
        .get(HOST)
        .copied()
        .unwrap_or_default()
}

/// Waits until the metric says that so many certificates are refused.
async fn refused(site: &Site, count: u32) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let metrics = ask(&site.state.path().join("admin.sock"), "/metrics")
            .await
            .unwrap_or_default();
        if metrics
            .lines()
            .any(|line| line == format!("gatewright_certificates{{state=\"refused\"}} {count}"))
        {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{metrics}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn says(row: &Value, field: &str, text: &str) -> bool {
    row[field].as_str().is_some_and(|said| said.contains(text))
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_renewal_that_envoy_refuses_is_told_and_the_certificate_before_it_is_served_again()
-> Result<()> {
    let mut site = Site::new().await?;
    let ca = TestCa::start().await?;
    let directory = ca.directory();
    let options = [
        "--set",
        &format!("issuers.acme.directory={directory}"),
        "--set",
        "issuers.acme.preflight=Skip",
    ];
    site.publish(&[(HOST, "acme")])?;
    site.start_with(&options)?;
    let first = served(&site).await?;
    let expires = site.row(HOST, |row| row["next"] == "renewal").await?["expires"].clone();
    refused(&site, 0).await?;

    issue(&ca, false);
    ensure!(site.ask(&["certs", "renew", HOST])?.0 == 0);
    fn is_told(row: &Value) -> bool {
        says(row, "lastError", "Envoy refuses the certificate that acme@")
    }
    let row = site.row(HOST, is_told).await?;
    ensure!(
        says(&row, "lastError", "Failed to load certificate chain"),
        "Envoy's reason: {row}"
    );
    ensure!(
        says(&row, "lastError", "the certificate before it is served"),
        "{row}"
    );
    ensure!(says(&row, "next", "trying again"), "{row}");
    ensure!(
        row["expires"] == expires,
        "that of the certificate before: {row}"
    );
    refused(&site, 1).await?;
    ensure!(
        served(&site).await? == first,
        "the certificate before is served"
    );
    ensure!(
        issued(&ca) == 2,
        "{} certificates: {}",
        issued(&ca),
        site.output()
    );

    // The next start neither takes the refused one nor orders at once.
    site.program = None;
    site.start_with(&options)?;
    ensure!(served(&site).await? == first, "also after a restart");
    let row = site.row(HOST, is_told).await?;
    ensure!(row["expires"] == expires, "{row}");
    refused(&site, 1).await?;
    ensure!(
        issued(&ca) == 2,
        "{} certificates: {}",
        issued(&ca),
        site.output()
    );

    issue(&ca, true);
    ensure!(site.ask(&["certs", "renew", HOST])?.0 == 0);
    site.row(HOST, |row| {
        row["lastError"].is_null() && row["next"] == "renewal"
    })
    .await?;
    refused(&site, 0).await?;
    ensure!(served(&site).await? != first, "the good one is served");
    ensure!(issued(&ca) == 3, "{} certificates", issued(&ca));
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_first_certificate_that_envoy_refuses_is_told_and_not_ordered_again_at_once() -> Result<()>
{
    let mut site = Site::new().await?;
    let ca = TestCa::start().await?;
    let directory = ca.directory();
    let options = [
        "--set",
        &format!("issuers.acme.directory={directory}"),
        "--set",
        "issuers.acme.preflight=Skip",
    ];
    issue(&ca, false);
    site.publish(&[(HOST, "acme")])?;
    site.start_with(&options)?;
    let mut row = site.row(HOST, |row| row["expires"].is_string()).await?;
    let until = Instant::now() + LIMIT;
    while !says(&row, "lastError", "Failed to load certificate chain") {
        // Envoy fetches it for the first client, once it listens.
        let answer = site.get(HOST).await;
        ensure!(
            answer.is_err() && Instant::now() < until,
            "{answer:?} {row}: {}",
            site.output()
        );
        row = site.row(HOST, |_| true).await?;
    }
    ensure!(
        says(&row, "lastError", "there is no other one that is valid"),
        "{row}"
    );
    ensure!(
        row["expires"].is_null() && says(&row, "next", "trying again"),
        "none is served: {row}"
    );
    let (code, table) = site.ask(&["certs"])?;
    ensure!(code == 1, "{code} {table}");
    refused(&site, 1).await?;
    ensure!(
        issued(&ca) == 1,
        "{} certificates: {}",
        issued(&ca),
        site.output()
    );

    issue(&ca, true);
    ensure!(site.ask(&["certs", "renew", HOST])?.0 == 0);
    let row = site
        .row(HOST, |row| {
            row["lastError"].is_null() && row["next"] == "renewal"
        })
        .await?;
    ensure!(row["expires"].is_string(), "{row}");
    served(&site).await?;
    refused(&site, 0).await?;
    ensure!(issued(&ca) == 2, "{} certificates", issued(&ca));
    Ok(())
}
