//! `gatewright envoys`: lists the connected Envoys, and revokes one.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::apiserver::Definitions;
use e2e::cluster::{Cluster, NAMESPACE};
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::xds_ca::XdsCa;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::trust::{FLEET, LIMIT, ask, change_reaches, gateway, keys};

/// Returns the output of `gatewright envoys`, or its error.
pub(super) fn envoys(admin: &str, arguments: &[&str]) -> Result<Result<String, String>> {
    let made = Gatewright::run(&[&["envoys", "--admin", admin], arguments].concat())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if made.status.success() {
        Ok(text(&made.stdout))
    } else {
        Err(text(&made.stderr))
    })
}

fn rows(admin: &str) -> Result<Vec<Value>> {
    let told = envoys(admin, &["list", "-o", "json"])?.map_err(anyhow::Error::msg)?;
    Ok(serde_json::from_str(&told)?)
}

/// Waits until these Envoys are connected and up to date, and returns their rows.
pub(super) async fn until_connected(admin: &str, names: &[&str]) -> Result<Vec<Value>> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let rows = rows(admin)?;
        let connected: Vec<_> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
        if connected == names && rows.iter().all(|row| row["current"] == true) {
            return Ok(rows);
        }
        assert!(
            Instant::now() < deadline,
            "not {names:?} are connected: {rows:?}"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn an_envoy_is_let_in_no_more_and_the_others_do_not_notice() -> Result<()> {
    let cluster = Cluster::with(&[Definitions::Ours]).await?;
    let sockets = tempfile::tempdir()?;
    let [admin, second] =
        ["one.sock", "two.sock"].map(|name| sockets.path().join(name).display().to_string());
    let (mut one, at) = cluster.replica_with_xds_and("one", &["--admin", &admin])?;
    one.line("xDS at").await?;
    let (a, _tls_a) = cluster.envoy_of("a", at).await?;
    let (c, _tls_c) = cluster.envoy_of("c", at).await?;
    let fleet = keys(&cluster, "gatewright-envoy")
        .await?
        .context("keys of Envoys")?;
    let ours = XdsCa::load(
        &keys(&cluster, "gatewright-xds-ca")
            .await?
            .context("an authority")?
            .pair,
    )?;
    let issue = || ours.client(FLEET, Duration::from_secs(3600));
    let own = issue()?;
    let (b, _tls_b) = cluster.envoy_with("b", at, &own, &fleet.bundle).await?;
    gateway(&cluster, free_port()?).await?;
    change_reaches(&cluster, &[&a, &b, &c], 0).await?;

    // The connected Envoys.
    let before = until_connected(&admin, &["a", "b", "c"]).await?;
    let shared = fleet.pair.fingerprint()?;
    let owned = own.fingerprint()?;
    for (row, credential) in before.iter().zip([&shared, &owned, &shared]) {
        assert_eq!(row["fleet"].as_str(), Some("shared"), "{row}");
        assert_eq!(row["address"].as_str(), Some("127.0.0.1"), "{row}");
        assert_eq!(
            row["credential"].as_str(),
            Some(credential.as_str()),
            "{row}"
        );
        assert!(
            row["version"].is_string()
                && row["connected"].is_string()
                && row["lastAck"].is_string(),
            "{row}"
        );
    }
    let table = envoys(&admin, &[])?.expect("it is told");
    assert!(
        table.starts_with("NAME") && table.lines().count() == 4,
        "{table}"
    );

    // No other Envoy is cut off by mistake.
    let why = envoys(&admin, &["revoke", "a"])?.expect_err("c has the same certificate");
    assert!(why.contains("also that of c"), "{why}");
    let why = envoys(&admin, &["revoke", "nobody"])?.expect_err("it is not there");
    assert!(why.contains("is connected here"), "{why}");
    let connected = |told: &Result<usize, String>| matches!(told, Ok(1));
    assert!(
        connected(&ask(at, &fleet.bundle, Some(&own), "asks").await),
        "its certificate is good still"
    );

    // The stream of our own request has ended.
    until_connected(&admin, &["a", "b", "c"]).await?;

    // One with a certificate of its own is not admitted any more, and the certificates of the
    // others stay valid.
    let platform = cluster.server.kubeconfig("platform", &["system:masters"])?;
    let platform = platform.display().to_string();
    let from_afar = |name| {
        let place = ["--kubeconfig", &platform, "--installation", NAMESPACE];
        Gatewright::run(&[&["envoys", "revoke", name][..], &place].concat())
    };
    let refused = from_afar("nobody")?;
    assert!(!refused.status.success(), "{refused:?}");
    let said = from_afar("b")?;
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains(&owned), "{said}");
    // The replica reads it.
    let deadline = Instant::now() + LIMIT;
    let refused = Err("no connection".to_owned());
    while ask(at, &fleet.bundle, Some(&own), "b").await != refused {
        assert!(Instant::now() < deadline, "it is admitted");
        sleep(Duration::from_millis(100)).await;
    }
    assert!(
        connected(&ask(at, &fleet.bundle, Some(&issue()?), "b").await),
        "another one of the same identity is good"
    );
    let after = until_connected(&admin, &["a", "c"]).await?;
    let since = |row: &Value| row["connected"].clone();
    assert_eq!(
        [since(&after[0]), since(&after[1])],
        [since(&before[0]), since(&before[2])],
        "their streams are the same"
    );
    change_reaches(&cluster, &[&a, &c], 1).await?;
    assert!(
        !b.admin("/config_dump").await?.contains("h1.example.org"),
        "it is told nothing more"
    );

    // Every replica refuses it, also after a restart; a replica that is not the lease holder writes
    // nothing.
    let (mut two, at_two) = cluster.replica_with_xds_and("two", &["--admin", &second])?;
    two.line("xDS at").await?;
    assert_eq!(
        ask(at_two, &fleet.bundle, Some(&own), "b").await,
        Err("no connection".to_owned())
    );
    assert!(connected(
        &ask(at_two, &fleet.bundle, Some(&fleet.pair), "a").await
    ));
    let why = envoys(&second, &["revoke", &shared])?.expect_err("another one holds the lease");
    assert!(why.contains("does not hold the lease"), "{why}");
    assert!(connected(
        &ask(at_two, &fleet.bundle, Some(&fleet.pair), "a").await
    ));
    one.signal("TERM")?;
    one.end().await?;

    // A certificate that many share: it is revoked, and the fleet gets another one.
    let deadline = Instant::now() + LIMIT;
    while let Err(why) = envoys(&second, &["revoke", &shared])? {
        assert!(
            why.contains("does not hold the lease") && Instant::now() < deadline,
            "{why}"
        );
        sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(
        ask(at_two, &fleet.bundle, Some(&fleet.pair), "a").await,
        Err("no connection".to_owned())
    );
    let fresh = loop {
        let now = keys(&cluster, "gatewright-envoy")
            .await?
            .context("keys of Envoys")?;
        if now.pair.certificate != fleet.pair.certificate {
            break now;
        }
        assert!(
            Instant::now() < deadline,
            "the fleet has no other certificate"
        );
        sleep(Duration::from_millis(50)).await;
    };
    assert!(connected(
        &ask(at_two, &fresh.bundle, Some(&fresh.pair), "a").await
    ));
    assert_eq!(
        ask(at_two, &fleet.bundle, Some(&own), "b").await,
        Err("no connection".to_owned()),
        "still"
    );
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
