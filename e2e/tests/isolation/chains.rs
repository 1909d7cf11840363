//! Filter chains that Envoy refuses in a listener: hostnames of other tenants on that port are not
//! frozen.

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep};

use crate::site::{LIMIT, SOON, Site, named, route};
use crate::strict::strict;

/// A ListenerSet of a namespace at the shared Gateway, with HTTPS listeners for these hostnames.
fn listeners(site: &Site, namespace: &str, name: &str, hostnames: &[String]) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  parentRef: {{name: edge, namespace: infra}}\n  listeners:\n{}---\n",
        hostnames
            .iter()
            .enumerate()
            .map(|(index, hostname)| {
                format!(
                    "  - {{name: l{index}, hostname: \"{hostname}\", protocol: HTTPS, port: {}, \
             tls: {{options: {{gatewright.io/issuer: internal-ca}}}}}}\n",
                    site.https
                )
            })
            .collect::<String>()
    )
}

/// A site whose Gateway admits ListenerSets of every namespace.
async fn site(options: &[&str]) -> Result<Site> {
    let site = Site::start(options).await?;
    let base = std::fs::read_to_string(site.manifests.path().join("base.yaml"))?;
    let open = "  gatewayClassName: ours\n  allowedListeners: {namespaces: {from: All}}\n";
    site.save(
        "base.yaml",
        &base.replace("  gatewayClassName: ours\n", open),
    )?;
    Ok(site)
}

/// Wildcards of mallory's, of the greatest length of a hostname.
fn wildcards(count: usize) -> Vec<String> {
    let label = "a".repeat(63);
    (0..count)
        .map(|number| format!("*.{label}.{label}.{label}.m{number:03}.example.net"))
        .collect()
}

/// Alice adds a listener for a hostname of her own, which needs a new filter chain: it must be live
/// in time.
async fn alice_adds_a_listener(site: &Site, step: usize) -> Result<()> {
    let name = format!("own-{step}");
    let host = format!("own-{step}.example.com");
    let route = route("alice", &name, &host, crate::site::FORWARD).replace(
        "parentRefs: [{name: edge, namespace: infra}]",
        &format!(
            "parentRefs: [{{group: gateway.networking.k8s.io, kind: ListenerSet, name: {name}}}]"
        ),
    );
    site.save(
        &format!("{name}.yaml"),
        &(listeners(site, "alice", &name, std::slice::from_ref(&host)) + &route),
    )?;
    let began = Instant::now();
    let probe = site.tls(&host);
    while !named(&probe).await.is_ok_and(|found| found == "alice") {
        ensure!(
            began.elapsed() < SOON,
            "{host}: {:?}\n{}",
            named(&probe).await,
            site.program.output()
        );
        sleep(std::time::Duration::from_millis(20)).await;
    }
    site.alice_is_unharmed(step).await
}

/// Waits until Envoy has answered mallory's listeners, with either verdict.
async fn mallorys_listeners_are_told(site: &Site, words: &[&str]) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let (_, told) = site.ask(&["status", "ListenerSet", "-n", "mallory"])?;
        if told
            .lines()
            .any(|line| line.contains("mallory/") && words.iter().all(|word| line.contains(word)))
        {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{told}\n{}", site.program.output());
        sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Chains list the wildcards of other listeners in one regular expression; that of many long ones
/// was larger than Envoy accepts.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn many_long_wildcards_do_not_make_a_listener_that_envoy_refuses() -> Result<()> {
    let site = site(&[]).await?;
    alice_adds_a_listener(&site, 0).await?;
    site.save(
        "mallory.yaml",
        &listeners(&site, "mallory", "wide", &wildcards(60)),
    )?;
    mallorys_listeners_are_told(&site, &["listener l59 ", "Programmed", "True"]).await?;
    alice_adds_a_listener(&site, 1).await?;
    ensure!(
        !site.program.output().contains("refused"),
        "{}",
        site.program.output()
    );
    let site = site.restart()?;
    site.served_by("alice.example.org", "alice").await?;
    alice_adds_a_listener(&site, 2).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_refused_filter_chain_is_held_back_alone() -> Result<()> {
    let (_dir, envoy) = strict()?;
    let site = site(&["--envoy", &envoy]).await?;
    alice_adds_a_listener(&site, 0).await?;
    // Few enough to be listed, and too large for this Envoy.
    site.save(
        "mallory.yaml",
        &listeners(&site, "mallory", "wide", &wildcards(9)),
    )?;
    let until = Instant::now() + LIMIT;
    while !site.program.output().contains("refused") {
        ensure!(
            Instant::now() < until,
            "nothing is refused\n{}",
            site.program.output()
        );
        sleep(std::time::Duration::from_millis(20)).await;
    }
    for step in 1..4 {
        alice_adds_a_listener(&site, step).await?;
    }
    site.remove("mallory.yaml")?;
    let until = Instant::now() + LIMIT;
    while site.ask(&["status"])?.1.contains("refused by Envoy") {
        ensure!(Instant::now() < until, "{}", site.ask(&["status"])?.1);
        sleep(std::time::Duration::from_millis(20)).await;
    }
    alice_adds_a_listener(&site, 4).await
}
