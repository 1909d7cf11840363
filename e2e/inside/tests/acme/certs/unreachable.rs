//! `skipPropagationCheck`: zones whose authoritative servers cannot be reached from here.

use std::fs;

use anyhow::{Result, ensure};
use e2e::bind::{Bind, BindKey, BindZone};
use e2e::pebble::{Options, Pebble};

use super::site::Site;

const SECRET: &str = "Zm9yIHRlc3RzIG9ubHk6IGZvcnR5LWVpZ2h0IGJ5dGVzIG9mIGEga2V5IQ==";

/// A BIND whose zones nobody else serves: their name servers are silent, have no address, or are in
/// a private network.
async fn bind() -> Result<Bind> {
    let key = BindKey {
        name: "k".to_owned(),
        algorithm: "hmac-sha256".to_owned(),
        secret: SECRET.to_owned(),
    };
    let zones = [
        BindZone::new("silent.test")
            .records("@ NS ns9\nns9 A 127.0.0.9")
            .open_to("k"),
        BindZone::new("nowhere.test")
            .records("@ NS ns.elsewhere.example.")
            .open_to("k"),
        BindZone::new("private.test")
            .records("@ NS ns9\nns9 A 10.255.255.9")
            .open_to("k"),
        // The challenge is delegated by a CNAME: BIND drops a TXT record at the name of one (RFC
        // 2136, 3.4.2.2).
        BindZone::new("alias.test")
            .records("@ NS ns9\nns9 A 127.0.0.9\n_acme-challenge.a CNAME b\nb A 127.0.0.1")
            .open_to("k"),
    ];
    Bind::start(&[key], &zones).await
}

async fn start(bind: &Bind, skip: &str) -> Result<Site> {
    let pebble = Pebble::start(&Options {
        resolver: Some(bind.address()),
        ..Options::default()
    })
    .await?;
    let mut site = Site::with(pebble).await?;
    let tsig = site.state.path().join("tsig");
    let dns = site.state.path().join("dns.yaml");
    fs::write(&tsig, SECRET)?;
    let address = bind.address();
    let settings = format!(
        "rfc2136: {{nameserver: \"{address}\", keyName: k, keyFile: {}}}\n{skip}",
        tsig.display()
    );
    fs::write(&dns, settings)?;
    let resolver = bind.address().to_string();
    site.start(&[
        "--set",
        &format!("issuers.acme.dns={}", fs::read_to_string(&dns)?),
        "--set",
        &format!("issuers.acme.resolvers=['{resolver}']"),
        "--set",
        "issuers.acme.preflight=Skip",
    ])?;
    Ok(site)
}

#[tokio::test]
#[ignore = "needs Envoy, Pebble and BIND"]
async fn no_authoritative_server_is_asked_where_the_propagation_check_is_skipped() -> Result<()> {
    let bind = bind().await?;
    let site = start(&bind, "skipPropagationCheck: true\n").await?;
    let hosts = [
        "a.silent.test",
        "*.silent.test",
        "a.nowhere.test",
        "a.private.test",
        "a.alias.test",
    ];
    site.publish(&hosts.map(|host| (host, "acme")))?;
    for host in hosts {
        ensure!(
            site.served(&host.replace('*', "x")).await?.status == 200,
            "{host}"
        );
    }
    ensure!(
        site.pebble.orders() == hosts.len(),
        "{} orders",
        site.pebble.orders()
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy, Pebble and BIND"]
async fn servers_that_cannot_be_reached_are_told_and_cost_no_order() -> Result<()> {
    let bind = bind().await?;
    let site = start(&bind, "").await?;
    let told = [
        (
            "a.silent.test",
            "no authoritative server of silent.test answers",
        ),
        (
            "a.nowhere.test",
            "none of the name servers of nowhere.test has an address",
        ),
        ("a.private.test", "allowedNetworks"),
    ];
    site.publish(&told.map(|(host, _)| (host, "acme")))?;
    for (host, why) in told {
        let row = site.row(host, |row| row["lastError"].is_string()).await?;
        ensure!(
            row["lastError"]
                .as_str()
                .is_some_and(|text| text.contains(why)),
            "{row}"
        );
    }
    ensure!(site.pebble.orders() == 0, "{} orders", site.pebble.orders());
    Ok(())
}
