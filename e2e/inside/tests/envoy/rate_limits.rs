//! Rate limits of TrafficPolicies on a real Envoy: who shares a token bucket, what clients get
//! beyond it, which policy of several applies, and what comes before it.

use anyhow::{Result, ensure};
use e2e::probe::Probe;
use e2e_inside::world::object;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;
use serde_json::{Value, json};

use super::access::{HOST, OTHER, Site, policy as access_policy};

/// A policy of the site's namespace on these targets.
fn policy(name: &str, created: u32, targets: &[Value], limits: Value) -> Change {
    let targets: Vec<Value> = targets
        .iter()
        .map(|target| {
            let mut target = target.clone();
            target["group"] = json!("gateway.networking.k8s.io");
            target
        })
        .collect();
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
        "metadata": {"namespace": "default", "name": name,
            "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
        "spec": {"targetRefs": targets, "rateLimit": limits}}),
    )
}

fn admin() -> Value {
    json!({"kind": "HTTPRoute", "name": "shop", "sectionName": "admin"})
}

fn per_hour(requests: u32, by: Value) -> Value {
    json!({"limit": {"requests": requests, "per": "Hour"}, "by": by})
}

impl Site {
    /// One request by a client on plain HTTP.
    fn once(&self, client: &str, host: &str, path: &str) -> Probe {
        let [probe, ..] = self.by(client, host, path);
        probe
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn clients_have_a_bucket_each_by_their_address() -> Result<()> {
    let limits = json!([per_hour(2, json!({"type": "ClientAddress"}))]);
    let site = Site::start(vec![policy("calm", 0, &[admin()], limits)]).await?;
    for client in ["10.0.0.1", "10.0.0.2", "2001:db8::1"] {
        let probe = site.once(client, HOST, "/admin/limited");
        let first = probe.answered(200).await?;
        ensure!(
            first.header("x-ratelimit-limit") == Some("2"),
            "{:?}",
            first.headers
        );
        ensure!(
            first.header("x-ratelimit-remaining") == Some("1"),
            "{:?}",
            first.headers
        );
        probe.answered(200).await?;
        let refused = probe.answered(429).await?;
        let wait: u32 = refused.header("retry-after").unwrap_or_default().parse()?;
        ensure!((1700..=1800).contains(&wait), "half an hour: {wait}");
    }
    // Another match of the rule.
    site.once("10.0.0.1", HOST, "/root").answered(429).await?;
    // The same network of 64 bits, and another one.
    site.once("2001:db8::ffff", HOST, "/admin")
        .answered(429)
        .await?;
    site.once("2001:db8:0:1::1", HOST, "/admin")
        .answered(200)
        .await?;
    // Another rule, and another host; HTTPS counts for itself.
    site.once("10.0.0.1", HOST, "/").answered(200).await?;
    site.once("10.0.0.1", OTHER, "/admin").answered(200).await?;
    let [.., http2] = site.by("10.0.0.1", HOST, "/admin");
    for status in [200, 200, 429] {
        http2.answered(status).await?;
    }
    let [.., http1, _] = site.by("10.0.0.1", HOST, "/root");
    http1.answered(429).await?;
    let grpc = http2
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let refused = grpc.answered(200).await?;
    ensure!(
        refused.header("grpc-status") == Some("8"),
        "RESOURCE_EXHAUSTED: {:?}",
        refused.headers
    );
    ensure!(
        site.reason("/admin/limited").await?.is_none(),
        "the first request passed"
    );
    site.once("10.0.0.1", HOST, "/admin/refused")
        .answered(429)
        .await?;
    ensure!(
        site.reason("/admin/refused").await? == Some("RateLimited"),
        "the log has the reason"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn values_of_a_header_have_a_bucket_each() -> Result<()> {
    let by = json!({"type": "Header", "header": {"name": "X-Api-Key"}, "maxClients": 2});
    let limits = json!([per_hour(1, by), per_hour(100, json!({"type": "Everyone"}))]);
    let site = Site::start(vec![policy("keys", 0, &[admin()], limits)]).await?;
    let plain = site.once("10.0.0.1", HOST, "/admin");
    let long = "k".repeat(128);
    for value in ["one", &long] {
        let keyed = site
            .once("10.0.0.1", HOST, "/admin")
            .header("x-api-key", value);
        keyed.answered(200).await?;
        keyed.answered(429).await?;
    }
    // What follows the first 128 bytes tells no clients apart.
    let longer = site
        .once("10.0.0.1", HOST, "/admin")
        .header("x-api-key", &format!("{long}more"));
    longer.answered(429).await?;
    // Two values are counted at a time: the one that was used last stays.
    plain.answered(200).await?;
    plain.answered(429).await?;
    longer.answered(429).await?;
    let forgotten = site
        .once("10.0.0.1", HOST, "/admin")
        .header("x-api-key", "one");
    forgotten.answered(200).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_nearest_policy_wins_and_addresses_come_first() -> Result<()> {
    let everyone = json!({"type": "Everyone"});
    let site = Site::start(vec![
        policy(
            "edge",
            0,
            &[json!({"kind": "Gateway", "name": "edge"})],
            json!([per_hour(1, everyone.clone())]),
        ),
        policy(
            "admin",
            1,
            &[admin()],
            json!([per_hour(2, everyone.clone())]),
        ),
        policy("younger", 2, &[admin()], json!([per_hour(50, everyone)])),
        access_policy("admin", admin(), json!({"deny": ["10.9.0.0/16"]})),
    ])
    .await?;
    for _ in 0..3 {
        site.once("10.9.0.1", HOST, "/admin").answered(403).await?;
    }
    for status in [200, 200, 429] {
        site.once("10.0.0.1", HOST, "/admin")
            .answered(status)
            .await?;
    }
    for host in [HOST, OTHER] {
        site.once("10.0.0.1", host, "/").answered(200).await?;
        site.once("10.0.0.2", host, "/").answered(429).await?;
    }
    // Without its own the rule goes by the younger one, and then by the Gateway's.
    fn deleted(name: &str) -> Vec<Change> {
        let name = ObjectName::new("default", name);
        vec![Change::delete(ObjectKey::new(Kind::TrafficPolicy, name))]
    }
    site.world.settle(deleted("admin")).await?;
    for _ in 0..3 {
        site.once("10.0.0.1", HOST, "/admin").answered(200).await?;
    }
    site.world.settle(deleted("younger")).await?;
    for status in [200, 429] {
        site.once("10.0.0.1", HOST, "/admin")
            .answered(status)
            .await?;
    }
    site.world.settle(deleted("edge")).await?;
    for host in [HOST, OTHER] {
        site.once("10.0.0.1", host, "/admin").answered(200).await?;
    }
    Ok(())
}
