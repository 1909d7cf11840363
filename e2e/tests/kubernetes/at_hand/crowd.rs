//! Many hosts: what a person waits for. The times are printed: those of 10,000 hosts
//! (`AT_HAND_HOSTS=10000`) are in benches/README.md.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::cluster::is_true;
use e2e::gatewright::Gatewright;
use futures::future::try_join_all;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use super::{GATEWAY, Site, step};

/// The number of hosts, unless `AT_HAND_HOSTS` says another: more than a page of a list has.
const HOSTS: usize = 600;
/// Objects that are written at a time.
const AT_ONCE: usize = 40;
/// Objects of a page, as kube has it.
const PAGE: u32 = 500;

fn host(number: usize) -> String {
    format!("h{number}.example.org")
}

fn route(number: usize) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute",
        "metadata": {"name": format!("h{number}"), "namespace": "shop"},
        "spec": {"parentRefs": [{"name": "edge", "namespace": "platform"}], "hostnames": [host(number)],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

/// The time of a command of a user who may read everything, and its answer.
fn timed(site: &Site, arguments: &[&str]) -> Result<(Duration, Value)> {
    let kubeconfig = site
        .cluster
        .server
        .kubeconfig("platform", &["system:masters"])?;
    let kubeconfig = kubeconfig.display().to_string();
    let begun = Instant::now();
    let output = Gatewright::run(&[arguments, &["--kubeconfig", &kubeconfig]].concat())?;
    let took = begun.elapsed();
    let answer = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    Ok((took, answer))
}

/// The time of the list of routes alone, in pages.
async fn listed(site: &Site, hosts: usize) -> Result<Duration> {
    let api: Api<DynamicObject> = site
        .cluster
        .server
        .api(GATEWAY, "HTTPRoute", "shop")
        .await?;
    let begun = Instant::now();
    let mut params = ListParams::default().limit(PAGE);
    let mut seen = 0;
    loop {
        let page = api.list(&params).await?;
        seen += page.items.len();
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => break,
        }
    }
    assert!(seen >= hosts, "{seen} routes");
    Ok(begun.elapsed())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
#[allow(clippy::print_stderr, reason = "what was measured is worth reading")]
async fn many_hosts_are_asked_about() -> Result<()> {
    let hosts = match std::env::var("AT_HAND_HOSTS") {
        Ok(text) => text.parse().context("AT_HAND_HOSTS")?,
        Err(_) => HOSTS,
    };
    let site = Site::start().await?;
    let server = &site.cluster.server;
    for object in e2e::cluster::service("shop", "web", 80) {
        server.put(object).await?;
    }
    let mut controller = site.cluster.controller("one")?;
    controller.line("xDS at").await?;
    let numbers: Vec<usize> = (0..hosts).collect();
    for some in numbers.chunks(AT_ONCE) {
        try_join_all(some.iter().map(|number| server.put(route(*number)))).await?;
    }
    // Owners of all are recorded.
    let last = format!("h{}", hosts - 1);
    site.cluster
        .until(GATEWAY, "HTTPRoute", "shop", &last, |route| {
            is_true(&route["status"]["parents"][0], "Accepted")
        })
        .await?;
    let lists = listed(&site, hosts).await?;
    let url = format!("http://{}:{}/", host(hosts - 1), site.port);
    let (explained, answer) = timed(&site, &["explain", &url, "-o", "json"])?;
    let links = answer["links"].as_array().context("steps")?;
    let of_last = step(links, "route")?["text"].as_str().unwrap_or_default();
    assert!(
        of_last.contains(&format!("shop/h{}", hosts - 1)),
        "{of_last}"
    );
    let (status, answer) = timed(&site, &["status", "-o", "json"])?;
    let items = answer["items"].as_array().context("items")?;
    assert!(items.len() > hosts, "{} objects", items.len());
    eprintln!(
        "{hosts} hosts: the list of routes takes {lists:.2?}; explain {explained:.2?}, status {status:.2?}, with all lists"
    );
    Ok(())
}
