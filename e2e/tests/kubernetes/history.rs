//! `gatewright history` and `status` of a controller: who changed what, and how long Envoys took.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::Cluster;
use e2e::gatewright::Gatewright;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::edge::{edge, route, until_answers};
use super::trust::LIMIT;

/// Returns the exit status and the output of a command about the controller.
fn told(admin: &str, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let made = Gatewright::run(&[arguments, &["--admin", admin]].concat())?;
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    Ok((made.status.code(), text))
}

/// Waits until the last change of the route has an outcome and a generation, and returns it.
async fn last(admin: &str, generation: i64, outcome: &str) -> Result<Value> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let (_, text) = told(admin, &["history", "httproute/default/web", "-o", "json"])?;
        let answer: Value = serde_json::from_str(&text)?;
        let last = answer["changes"].as_array().and_then(|all| all.last());
        if let Some(last) = last
            && last["outcome"] == outcome
            && last["objects"][0]["generation"] == generation
        {
            return Ok(last.clone());
        }
        ensure!(Instant::now() < deadline, "no such change: {text}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_change_has_its_author_its_host_and_the_time_of_each_envoy() -> Result<()> {
    let cluster = Cluster::start().await?;
    let sockets = tempfile::tempdir()?;
    let admin = sockets.path().join("one.sock").display().to_string();
    let (mut one, at) = cluster.replica_with_xds_and("one", &["--admin", &admin])?;
    one.line("xDS at").await?;
    let (_a, _tls_a) = cluster.envoy_of("a", at).await?;
    let (_echo, address) = edge(&cluster).await?;
    cluster
        .server
        .put(route("first", "first.example.org"))
        .await?;
    until_answers(address, "first.example.org", 200).await?;
    cluster.server.put(route("web", "web.example.org")).await?;
    until_answers(address, "web.example.org", 200).await?;

    let change = last(&admin, 1, "Acknowledged").await?;
    assert_eq!(change["objects"][0]["manager"], "test", "{change:#}");
    assert_eq!(change["kind"], "route", "{change:#}");
    assert_eq!(change["hosts"], json!(["web.example.org"]), "{change:#}");
    assert_eq!(change["envoys"][0]["envoy"], "a", "{change:#}");
    let took = change["milliseconds"].as_u64().context("it is measured")?;
    assert!(took < 60_000, "{change:#}");
    let (_, text) = told(&admin, &["history", "first.example.org"])?;
    assert!(!text.contains("default/web"), "no other host: {text}");

    let mut broken = route("web", "web.example.org");
    broken["spec"]["rules"][0]["backendRefs"][0]["name"] = json!("nobody");
    cluster.server.put(broken).await?;
    last(&admin, 2, "Acknowledged").await?;
    let (code, text) = told(&admin, &["status", "httproute/web", "-n", "default"])?;
    assert_eq!(code, Some(1), "it is wrong: {text}");
    assert!(text.contains("BackendNotFound"), "and why: {text}");
    let (code, text) = told(&admin, &["status", "httproute/first"])?;
    assert_eq!(code, Some(0), "another is not: {text}");
    Ok(())
}
