//! `gatewright status` of many objects: what is wrong first, counts, and single objects.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::sleep;

use super::{Standalone, route};

/// Waits until a command prints a text. Returns its exit status and all of its output.
async fn told(site: &Standalone, args: &[&str], wanted: &str) -> Result<(i32, String)> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let (code, text) = site.ask(args)?;
        if text.contains(wanted) {
            return Ok((code, text));
        }
        ensure!(Instant::now() < until, "{args:?} prints {text}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// The number of hosts: their conditions are more than are listed.
const HOSTS: usize = 120;

#[tokio::test]
#[ignore = "needs Envoy"]
async fn status_of_many_hosts_is_what_is_wrong_and_counts() -> Result<()> {
    let mut site = Standalone::start().await?;
    let routes: Vec<String> = (0..HOSTS)
        .map(|at| route(&format!("r{at}"), &format!("h{at}.example.org"), "web"))
        .collect();
    site.save("routes.yaml", &routes.join("---\n"))?;
    // One class, one Gateway and the routes.
    let (code, text) = told(&site, &["status"], "122 objects are OK.\n").await?;
    assert_eq!(code, 0, "nothing is wrong: {text}");
    assert!(text.lines().count() < 12, "no line for each host: {text}");

    site.save("bad.yaml", &route("bad", "bad.example.org", "nobody"))?;
    site.program.line("BackendNotFound").await?;
    let (code, text) = site.ask(&["status"])?;
    assert_eq!(code, 1, "something is wrong: {text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "1 of 123 objects are not OK.", "{text}");
    assert!(
        lines[3].starts_with("httproute default/bad at edge  ResolvedRefs  False"),
        "what is wrong is first: {text}"
    );
    let counted = lines
        .iter()
        .find(|line| line.starts_with("httproute  "))
        .context("the kind has a line")?;
    let counted: Vec<&str> = counted.split_whitespace().collect();
    assert_eq!(counted, ["httproute", "121", "1"]);
    let wide = site.ask(&["status", "-o", "wide"])?.1;
    assert!(
        wide.contains("httproute default/r119 at edge "),
        "everything: {wide}"
    );

    let others: Vec<String> = (0..7)
        .map(|at| {
            route(
                &format!("lost{at}"),
                &format!("l{at}.example.org"),
                &format!("gone{at}"),
            )
        })
        .collect();
    site.save("others.yaml", &others.join("---\n"))?;
    let (_, text) = told(&site, &["status"], "8 of 130 objects are not OK.\n").await?;
    assert!(
        text.contains("httproute default/bad at edge, httproute default/lost0 at edge, httproute default/lost1 at edge and 5 more"),
        "one cause is one row: {text}"
    );
    fs::remove_file(site.file("others.yaml"))?;
    told(&site, &["status"], "1 of 123 objects are not OK.\n").await?;

    let (code, text) = site.ask(&["status", "httproute/r7"])?;
    assert_eq!(code, 0, "this one is as desired: {text}");
    assert!(
        text.contains("httproute default/r7 at edge  Accepted"),
        "every condition of it is told: {text}"
    );
    let (code, text) = site.ask(&["status", "https://bad.example.org:8443/cart"])?;
    assert_eq!(code, 1, "what serves the host is wrong: {text}");
    assert!(
        text.contains("gateway default/edge") && text.contains("httproute default/bad at edge"),
        "the listener that has the host by a wildcard, and the route: {text}"
    );
    assert!(!text.contains("default/r7"), "no other host: {text}");
    let (code, text) = site.ask(&["status", "--not-ok", "-o", "json"])?;
    assert_eq!(code, 1, "the format changes nothing: {text}");
    let list: Value = serde_json::from_str(&text)?;
    let items = list["items"].as_array().context("a list")?;
    assert_eq!(items.len(), 1, "the wrong one, as a whole: {text}");
    let (_, text) = site.ask(&["status", "-o", "json"])?;
    let list: Value = serde_json::from_str(&text)?;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(123));
    let (code, text) = site.ask(&["status", "httproute/none"])?;
    assert_eq!(code, 1, "it is not there: {text}");
    let (code, text) = site.ask(&["status", "-n", "elsewhere"])?;
    assert_eq!(code, 0, "a namespace may have none: {text}");
    let (code, text) = site.ask(&["status", "pod/x"])?;
    assert_eq!(code, 2, "it is no kind of ours: {text}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn status_is_told_again_when_it_changes() -> Result<()> {
    let mut site = Standalone::start().await?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program.line("httproute default/web: ").await?;
    let state = site.state.path().display().to_string();
    let mut watching = tokio::process::Command::new(e2e::gatewright::binary()?)
        .args(["status", "httproute/web", "--watch", "--state-dir", &state])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = watching.stdout.take().context("it is piped")?;
    let mut lines = BufReader::new(output).lines();
    let first = lines.next_line().await?;
    assert_eq!(first.as_deref(), Some("1 object is OK."), "it is printed");
    site.save("web.yaml", &route("web", "web.example.org", "nobody"))?;
    let limit = Duration::from_secs(20);
    let told = tokio::time::timeout(limit, async {
        while let Some(line) = lines.next_line().await? {
            if line.contains("BackendNotFound") {
                return Ok(true);
            }
        }
        anyhow::Ok(false)
    });
    assert!(told.await??, "the change is told");
    Ok(())
}
