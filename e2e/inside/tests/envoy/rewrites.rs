//! Rewrites by TrafficPolicies on a real Envoy: the path that a backend gets, and by which path a
//! request is judged.

use anyhow::{Result, ensure};
use e2e_inside::world::gatewright;
use serde_json::{Value, json};

use super::body_site::{BodySite, HOST, OTHER, forward, policy};

fn rewrite(pattern: &str, substitution: &str) -> Value {
    json!({"path": {"pattern": pattern, "substitution": substitution}})
}

fn rule(name: &str, path: &str) -> Value {
    json!({"name": name, "matches": [{"path": {"value": path}}],
        "backendRefs": [{"name": "web", "port": 80}]})
}

/// Expects the path that the backend gets, by each version of HTTP.
async fn expect(site: &BodySite, host: &str, path: &str, expected: &str) -> Result<()> {
    for probe in site.each(host, path) {
        let answer = site.send(&probe).await?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
        let found = answer.echoed("path")?;
        ensure!(found == expected, "{path} became {found}, not {expected}");
        let host_of_backend = answer.echoed("host")?;
        let told = host_of_backend.as_str().unwrap_or_default();
        ensure!(told.starts_with(host), "the host became {told}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_path_that_matches_as_a_whole_is_rewritten_and_its_query_kept() -> Result<()> {
    let rewritten = policy("app", "rewrite", rewrite("/shop(/|$)(.*)", r"/\2"));
    let site = BodySite::start(json!([forward()]), vec![rewritten]).await?;
    for (path, expected) in [
        ("/shop", "/"),
        ("/shop/", "/"),
        ("/shop/a/b", "/a/b"),
        ("/shop/shop/a", "/shop/a"),
        ("/shop/a?x=/shop/y", "/a?x=/shop/y"),
        ("/shop?x=1", "/?x=1"),
        // Only as a whole.
        ("/shopping/a", "/shopping/a"),
        ("/a/shop/b", "/a/shop/b"),
        // The text of a client is no pattern and no group.
        (r"/shop/%5C2$1%25", r"/%5C2$1%25"),
    ] {
        expect(&site, HOST, path, expected).await?;
    }
    expect(&site, OTHER, "/shop/a", "/shop/a").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn groups_are_those_of_the_pattern_and_one_without_a_text_is_empty() -> Result<()> {
    let turned = rewrite("(?i)/v([0-9]+)(?:/(?P<rest>.*))?", r"/x\2/of/\1");
    let site = BodySite::start(json!([forward()]), vec![policy("app", "rewrite", turned)]).await?;
    expect(&site, HOST, "/V12/a/b", "/xa/b/of/12").await?;
    expect(&site, HOST, "/v3", "/x/of/3").await?;
    let all = rewrite("/.*", r"/before\0");
    site.world
        .settle(vec![policy("app", "rewrite", all)])
        .await?;
    expect(&site, HOST, "/a?b", "/before/a?b").await?;
    let literal = rewrite("/[a-z]+", "/100%25/a+b;c=$1");
    site.world
        .settle(vec![policy("app", "rewrite", literal)])
        .await?;
    expect(&site, HOST, "/a", "/100%25/a+b;c=$1").await
}

/// Nobody gets into a closed rule, or around a policy, by a path that another one becomes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_rewritten_path_is_judged_by_what_the_client_sent() -> Result<()> {
    let closed = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app",
        "sectionName": "closed"});
    let closed = gatewright(
        "AccessPolicy",
        "closed",
        json!({"targetRefs": [closed], "clientAddress": {"allow": ["192.0.2.0/24"]}}),
    );
    let rewritten = policy("app", "rewrite", rewrite("/open/(.*)", r"/\1"));
    let rules = json!([rule("closed", "/closed"), rule("open", "/open")]);
    let site = BodySite::start(rules, vec![closed, rewritten]).await?;
    // The rule, and so the policies, are those of the client's path; the backend sees the new one.
    expect(&site, HOST, "/open/closed", "/closed").await?;
    for (path, status) in [
        ("/closed", 403),
        ("/closed/open/a", 403),
        ("/open/../closed", 403),
        ("/open/%2e%2e/closed", 403),
        ("/neither", 404),
    ] {
        for probe in site.each(HOST, path) {
            let answer = site.send(&probe).await?;
            ensure!(answer.status == status, "{path}: {answer:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_filter_of_a_rule_comes_first() -> Result<()> {
    let filter = json!([{"type": "URLRewrite", "urlRewrite": {
        "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/by-rule"}}}]);
    let mut filtered = rule("filtered", "/filtered");
    filtered["filters"] = filter;
    let all = policy("app", "rewrite", rewrite("/(.*)", r"/by-policy/\1"));
    let site = BodySite::start(json!([filtered, forward()]), vec![all]).await?;
    expect(&site, HOST, "/filtered/a", "/by-rule/a").await?;
    expect(&site, HOST, "/a", "/by-policy/a").await
}
