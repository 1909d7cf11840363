//! One client in every notation of its address, on a real Envoy: lists, reports, rate limits and
//! logs take it for the same one, and entries of `X-Forwarded-For` that are no address are refused.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use e2e_inside::world::gatewright;
use serde_json::{Value, json};

use super::access::{HOST, OTHER, Site, admin_with, policy, policy_with};

/// The notations of an IPv4 address: its own, and IPv4-mapped ones (RFC 4291, 2.2 and 2.5.5.2).
fn notations(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let hex = format!("{a:02x}{b:02x}:{c:02x}{d:02x}");
    let mut all = vec![address.to_string()];
    for tail in [address.to_string(), hex.clone(), hex.to_uppercase()] {
        for head in [
            "::ffff:",
            "::FFFF:",
            "0:0:0:0:0:ffff:",
            "0000:0000:0000:0000:0000:FFFF:",
            "0::ffff:",
            "::0:ffff:",
        ] {
            all.push(format!("{head}{tail}"));
        }
    }
    all
}

/// The client of the lines with a path.
async fn clients(site: &Site, path: &str) -> Result<Vec<Value>> {
    site.reason(path).await?;
    let lines = site.world.access_log().into_iter();
    let lines = lines.filter(|line| line["path"] == path);
    Ok(lines.map(|line| line["client"].clone()).collect())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn lists_take_all_notations_for_one_client() -> Result<()> {
    let denied = json!({"deny": ["198.51.100.7/32", "::ffff:203.0.113.0/120", "2001:db8::/32"]});
    let site = Site::start(vec![
        admin_with("admin", json!({"clientAddress": denied})),
        policy(
            "other",
            json!({"kind": "HTTPRoute", "name": "other"}),
            json!({"allow": ["198.51.100.0/24"]}),
        ),
    ])
    .await?;
    let [seven, eight] = [7, 8].map(|last| Ipv4Addr::new(198, 51, 100, last));
    for client in notations(seven) {
        site.each(&client, (HOST, "/admin"), &[], 403).await?;
        site.each(&client, (HOST, "/"), &[], 200).await?;
        site.each(&client, (OTHER, "/"), &[], 200).await?;
    }
    for client in notations(eight) {
        site.each(&client, (HOST, "/admin"), &[], 200).await?;
    }
    for client in notations(Ipv4Addr::new(203, 0, 113, 1)) {
        site.each(&client, (HOST, "/admin"), &[], 403).await?;
        site.each(&client, (OTHER, "/"), &[], 403).await?;
    }
    // Other forms of IPv6 with the same bits are other clients.
    for client in [
        "64:ff9b::198.51.100.7",
        "::ffff:0:198.51.100.7",
        "::198.51.100.7",
    ] {
        site.each(client, (HOST, "/admin"), &[], 200).await?;
        site.each(client, (OTHER, "/"), &[], 403).await?;
    }
    for client in notations(seven) {
        site.each(&client, (OTHER, "/logged"), &[], 200).await?;
    }
    let logged = clients(&site, "/logged").await?;
    ensure!(
        logged.iter().all(|client| client == "198.51.100.7:0"),
        "{logged:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn all_of_ipv6_is_no_client_of_ipv4_and_reports_agree() -> Result<()> {
    let site = Site::start(vec![
        admin_with("admin", json!({"clientAddress": {"deny": ["::/0"]}})),
        policy_with(
            "report",
            json!({"kind": "HTTPRoute", "name": "other"}),
            json!({"enforcement": "Report", "clientAddress": {"deny": ["198.51.100.7/32"]}}),
        ),
    ])
    .await?;
    for client in notations(Ipv4Addr::new(198, 51, 100, 7)) {
        site.each(&client, (HOST, "/admin"), &[], 200).await?;
        site.each(&client, (OTHER, "/reported"), &[], 200).await?;
    }
    site.each("2001:db8::1", (HOST, "/admin"), &[], 403).await?;
    site.reason("/reported").await?;
    let lines = site.world.access_log();
    let mut reported = lines.iter().filter(|line| line["path"] == "/reported");
    ensure!(
        reported.all(|line| line["would_refuse"] == "default/report"),
        "{lines:#?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn limits_have_one_bucket_for_all_notations_and_one_for_each_client() -> Result<()> {
    let limit = json!({"limit": {"requests": 3, "per": "Hour"}, "by": {"type": "ClientAddress"}});
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop"});
    let limits = gatewright(
        "TrafficPolicy",
        "calm",
        json!({"targetRefs": [target], "rateLimit": [limit]}),
    );
    let site = Site::start(vec![limits]).await?;
    for last in [1, 2, 3, 4, 5] {
        let [first, .., probe] = site.by(&format!("::ffff:198.51.100.{last}"), HOST, "/");
        first.answered(200).await?;
        probe.answered(200).await?;
    }
    let all = notations(Ipv4Addr::new(203, 0, 113, 9));
    for (count, client) in all.iter().enumerate() {
        let [probe, ..] = site.by(client, HOST, "/");
        let status = if count < 3 { 200 } else { 429 };
        let answer = probe.answered(status).await;
        answer.with_context(|| format!("{client}, number {count}"))?;
    }
    // A translator's addresses (RFC 6052) are one client each.
    for last in [1, 2, 3, 4, 5] {
        let [probe, ..] = site.by(&format!("64:ff9b::192.0.2.{last}"), HOST, "/");
        probe.answered(200).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_entry_that_is_no_address_never_makes_the_proxy_the_client() -> Result<()> {
    let denied = json!({"clientAddress": {"deny": ["198.51.100.7/32"]}});
    let site = Site::start(vec![admin_with("admin", denied)]).await?;
    for entry in [
        "198.51.100.7:4711",
        "[2001:db8::1]:443",
        "[2001:db8::1]",
        "\"198.51.100.7\"",
        "2001:db8::1%eth0",
        "198.51.100.007",
        "198.51.100",
        "3325256711",
        "unknown",
        "_hidden",
        "203.0.113.1, 198.51.100.7:80",
        "203.0.113.1,",
        ",",
    ] {
        let answers = site.each(entry, (HOST, "/admin/unread"), &[], 403).await;
        answers.with_context(|| entry.to_owned())?;
    }
    ensure!(
        site.reason("/admin/unread").await? == Some("ClientUnreadable"),
        "the log has the reason"
    );
    // What an earlier proxy wrote does not matter.
    for entry in ["203.0.113.1", "unknown, 203.0.113.1", " 203.0.113.1 "] {
        site.each(entry, (HOST, "/admin"), &[], 200).await?;
    }
    Ok(())
}
