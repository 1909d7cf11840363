//! `gatewright history`: what changed, and how long Envoys took.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Standalone, route};

#[tokio::test]
#[ignore = "needs Envoy"]
async fn history_tells_what_touched_a_host_and_how_long_envoys_took() -> Result<()> {
    let mut site = Standalone::start().await?;
    let routes = [
        route("web", "web.example.org", "web"),
        route("other", "other.example.org", "web"),
    ];
    for (name, route) in ["web", "other"].iter().zip(&routes) {
        site.save(&format!("{name}.yaml"), route)?;
        let acked = format!("httproute default/{name}: 1 host changed, acked 1/1");
        site.program.line(&acked).await?;
    }
    let (code, text) = site.ask(&["history", "web.example.org", "-o", "json"])?;
    assert_eq!(code, 0, "{text}");
    let answer: Value = serde_json::from_str(&text)?;
    let changes = answer["changes"].as_array().context("a list")?;
    assert!(
        changes.iter().any(|change| change["kind"] == "certificate"),
        "the certificate of its wildcard: {text}"
    );
    let mut of_routes = changes.iter().filter(|change| change["kind"] == "route");
    let change = of_routes.next().context("the route's change")?;
    assert_eq!(of_routes.next(), None, "no other route's: {text}");
    assert_eq!(change["objects"][0]["object"], "httproute default/web");
    assert_eq!(change["hosts"][0], "web.example.org", "{text}");
    assert_eq!(change["outcome"], "Acknowledged", "{text}");
    let took = change["milliseconds"].as_u64().context("it was measured")?;
    let of_envoy = change["envoys"][0]["milliseconds"].as_u64();
    assert_eq!(of_envoy, Some(took), "the only Envoy is the last: {text}");
    assert_eq!(answer["forgotten"], Value::Null, "everything is there");

    site.save("other.yaml", &route("other", "other.example.org", "nobody"))?;
    site.program.line("BackendNotFound").await?;
    let (_, text) = site.ask(&["history", "httproute/other"])?;
    assert_eq!(
        text.matches("httproute default/other").count(),
        2,
        "both versions have a row: {text}"
    );
    assert!(!text.contains("default/web"), "no other object: {text}");
    let (_, text) = site.ask(&["history", "--until", "2020-01-01T00:00:00Z"])?;
    assert_eq!(text, "No change is remembered.\n", "nothing was before");

    let socket = site.state.path().join("admin.sock");
    let metrics = gatewright_control::ask(&socket, "/metrics").await?;
    let counted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("gatewright_propagation_seconds_count{kind=\"route\"} "))
        .context("the histogram is there")?;
    assert!(counted.parse::<u64>()? >= 2, "{counted} changes of routes");
    Ok(())
}
