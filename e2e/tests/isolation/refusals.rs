//! Parts of mallory's that Envoy refuses are held back alone: in the table of plain HTTP, in the
//! table of the wildcard, and in a virtual host that she shares.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::site::{FORWARD, LIMIT, Site, named, route};
use super::strict::{strict, too_large};

const MALLORY: &str = "mallory.example.org";
const SHARED: &str = "shared.example.org";

/// Returns the status of an object; null until the object was read.
fn status(site: &Site, kind: &str, namespace: &str, name: &str) -> Result<Value> {
    let (code, text) = site.ask(&["status", "-o", "json"])?;
    ensure!(text.starts_with('{'), "status ended with {code}: {text}");
    let list: Value = serde_json::from_str(&text)?;
    let found = list["items"]
        .as_array()
        .context("a list")?
        .iter()
        .find(|o| {
            o["kind"] == kind
                && o["metadata"]["namespace"] == namespace
                && o["metadata"]["name"] == name
        });
    Ok(found.map_or(Value::Null, |object| object["status"].clone()))
}

/// Waits until the status of mallory's route has, or has not, Envoy's message.
async fn mallory_is_told(site: &Site, name: &str, word: Option<&str>) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let found = status(site, "HTTPRoute", "mallory", name)?.to_string();
        let done = match word {
            Some(word) => found.contains("refused by Envoy") && found.contains(word),
            None => found != "null" && !found.contains("refused by Envoy"),
        };
        if done {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("mallory's status is {found}\n{}", site.program.output());
        }
        sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Checks, once all is acknowledged, that no other object has her message and that the Gateway is
/// programmed.
async fn nobody_else_is_told(site: &Site, word: &str) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let gateway = status(site, "Gateway", "infra", "edge")?;
        let alice = status(site, "HTTPRoute", "alice", "web")?;
        for text in [gateway.to_string(), alice.to_string()] {
            ensure!(!text.contains(word) && !text.contains("refused"), "{text}");
        }
        let listeners = gateway["listeners"].as_array().context("listeners")?;
        let all = std::iter::once(&gateway["conditions"])
            .chain(listeners.iter().map(|l| &l["conditions"]));
        let programmed = |conditions: &Value| {
            let found = conditions
                .as_array()
                .and_then(|all| all.iter().find(|c| c["type"] == "Programmed"));
            found.is_some_and(|c| c["status"] == "True")
        };
        if all.clone().all(programmed) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!(
                "the Gateway is not programmed: {gateway}\n{}",
                site.program.output()
            );
        }
        sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn refused_rules(word: &str) -> String {
    let path = too_large(word);
    format!(
        "[{{matches: [{{path: {{type: RegularExpression, value: \"{path}\"}}}}], backendRefs: [{{name: web, port: 80}}]}}]"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_refused_route_is_held_back_alone_on_shared_tables_also_over_a_restart() -> Result<()> {
    let (_dir, envoy) = strict()?;
    let site = Site::start(&["--envoy", &envoy]).await?;
    site.save("mallory.yaml", &route("mallory", "evil", MALLORY, FORWARD))?;
    site.served_by(MALLORY, "mallory").await?;

    site.save(
        "mallory.yaml",
        &route("mallory", "evil", MALLORY, &refused_rules("contact-me")),
    )?;
    for step in 0..3 {
        site.alice_is_unharmed(step).await?;
    }
    mallory_is_told(&site, "evil", Some("contact-me")).await?;
    nobody_else_is_told(&site, "contact-me").await?;
    // The previous version of mallory's part stays live.
    site.served_by(MALLORY, "mallory").await?;
    site.save(
        "mallory.yaml",
        &route("mallory", "evil", MALLORY, &refused_rules("or-else")),
    )?;
    site.alice_is_unharmed(3).await?;
    mallory_is_told(&site, "evil", Some("or-else")).await?;

    let site = site.restart()?;
    site.served_by("alice.example.org", "alice").await?;
    mallory_is_told(&site, "evil", Some("or-else")).await?;
    for step in 4..6 {
        site.alice_is_unharmed(step).await?;
    }
    nobody_else_is_told(&site, "or-else").await?;

    site.save("mallory.yaml", &route("mallory", "evil", MALLORY, FORWARD))?;
    site.served_by(MALLORY, "mallory").await?;
    mallory_is_told(&site, "evil", None).await?;
    site.alice_is_unharmed(6).await?;
    nobody_else_is_told(&site, "or-else").await
}

/// Returns the first answer of a host over HTTP, once there is a listener.
async fn first_answer(site: &Site, host: &str) -> Result<(u16, String)> {
    let probe = site.plain(host);
    let until = Instant::now() + LIMIT;
    loop {
        if let Ok(answer) = probe.send().await {
            return Ok((
                answer.status,
                String::from_utf8_lossy(&answer.body).into_owned(),
            ));
        }
        ensure!(
            Instant::now() < until,
            "nothing answers\n{}",
            site.program.output()
        );
        sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn neighbours_of_refused_routes_are_served_from_the_first_answer_after_a_restart_of_both()
-> Result<()> {
    let (_dir, envoy) = strict()?;
    let mut site = Site::start(&["--envoy", &envoy]).await?;
    let evil = |number: usize| {
        let name = format!("evil-{number}");
        let host = format!("m{number}.example.org");
        route(
            "mallory",
            &name,
            &host,
            &refused_rules(&format!("word-{number}")),
        )
    };
    site.save("mallory.yaml", &(0..20).map(evil).collect::<String>())?;
    for number in [0, 19] {
        mallory_is_told(&site, &format!("evil-{number}"), Some("word-")).await?;
    }
    site.alice_is_unharmed(0).await?;
    for _ in 0..3 {
        site = site.restart()?;
        let (status, body) = first_answer(&site, "alice.example.org").await?;
        ensure!(
            status == 200 && body.contains("alice"),
            "{status} {body}\n{}",
            site.program.output()
        );
        // Refused parts are tried again, once the rest is accepted: Envoy's verdict may have
        // changed.
        for number in [0, 19] {
            mallory_is_told(&site, &format!("evil-{number}"), Some("word-")).await?;
        }
    }
    // An unreadable file affects nothing but its own purpose.
    std::fs::write(site.state.path().join("refused-parts"), "nonsense")?;
    site = site.restart()?;
    site.served_by("alice.example.org", "alice").await?;
    mallory_is_told(&site, "evil-0", Some("word-")).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn other_routes_of_the_hostname_of_a_refused_route_get_their_changes() -> Result<()> {
    let (_dir, envoy) = strict()?;
    let site = Site::start(&["--envoy", &envoy]).await?;
    site.share_names()?;
    let alices = |path: &str| {
        format!(
            "[{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: web, port: 80}}]}}]"
        )
    };
    site.save(
        "shared.yaml",
        &route("alice", "shared", SHARED, &alices("/")),
    )?;
    site.served_by(SHARED, "alice").await?;
    site.save(
        "mallory.yaml",
        &route("mallory", "evil", SHARED, &refused_rules("hers")),
    )?;
    mallory_is_told(&site, "evil", Some("hers")).await?;
    site.served_by(SHARED, "alice").await?;
    // Alice's next change in the same virtual host is live.
    site.save(
        "shared.yaml",
        &route("alice", "shared", SHARED, &alices("/new")),
    )?;
    for probe in [site.plain(SHARED), site.tls(SHARED)] {
        let until = Instant::now() + super::site::SOON;
        while !(probe.send().await?.status == 404
            && named(&probe.clone().path("/new")).await.is_ok())
        {
            ensure!(
                Instant::now() < until,
                "alice's change is not live\n{}",
                site.program.output()
            );
            sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    nobody_else_is_told(&site, "hers").await
}

/// A file with hosts of alice's, before and after a route of mallory's in the order of names.
fn beside(round: usize) -> String {
    let evil = refused_rules(&format!("round-{round}"));
    [
        route("alice", "aaa", &format!("aaa-{round}.example.org"), FORWARD),
        route("mallory", "evil", MALLORY, &evil),
        route("alice", "zzz", &format!("zzz-{round}.example.org"), FORWARD),
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn hosts_that_come_together_with_a_refused_route_are_served() -> Result<()> {
    let (_dir, envoy) = strict()?;
    let site = Site::start(&["--envoy", &envoy]).await?;
    for round in 0..5 {
        site.save("together.yaml", &beside(round))?;
        for host in ["aaa", "zzz"] {
            site.served_by(&format!("{host}-{round}.example.org"), "alice")
                .await?;
        }
        mallory_is_told(&site, "evil", Some(&format!("round-{round}"))).await?;
    }
    nobody_else_is_told(&site, "round-4").await
}
