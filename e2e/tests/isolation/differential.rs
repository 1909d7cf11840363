//! Differential test: hundreds of random routes, biased to edge cases, on the real Envoy. Envoy
//! refuses nothing that is published, and if it refuses more than we know of, only the author is
//! affected.
//!
//! `GATEWRIGHT_ROUTES` sets the number of routes, with another seed each time; `GATEWRIGHT_SEED`
//! repeats the seed of an earlier run.

use anyhow::{Context, Result, bail, ensure};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use super::site::Site;
use super::strict::{strict, too_large};

/// The experimental channel includes the standard one.
const EXPERIMENTAL: [&str; 2] = ["--gateway-api-channel", "experimental"];

/// Routes of one batch: one file, taken in at once.
const BATCH: usize = 30;

/// Texts that have caused faults, here or elsewhere, and some that are harmless.
const ODD: [&str; 40] = [
    "/",
    "",
    "a",
    "/a",
    "/a/",
    "//",
    "/a//b",
    "/./a",
    "/a/..",
    "/%2f",
    "/%",
    "/%zz",
    "/a?b",
    "/a#b",
    "/a b",
    "/\u{e9}",
    "/\n",
    "/\r\nx: y",
    "/\0",
    "/\t",
    "/\u{7f}",
    "/%REQ(x)%",
    "%%",
    "/{a}",
    "/\\1",
    "/\"",
    "/a;b",
    "*",
    ".*",
    "/(?P<a.b>x)",
    "/a**",
    "/(a{100}){100}",
    "/[[:foo:]]",
    "/\\p{Cn}",
    "/[a-z]{1,64}",
    "/(?i)a",
    "/\\bx",
    "(",
    "/x{1001}",
    "/\u{10ffff}",
];
const NAMES: [&str; 16] = [
    "x-a",
    "X-A",
    "x_a",
    "",
    ":path",
    ":authority",
    "host",
    "Host",
    "x-envoy-upstream-rq-timeout-ms",
    "x-gw-sni",
    "transfer-encoding",
    "content-length",
    "connection",
    "x a",
    "x\n",
    "x:y",
];

fn text() -> BoxedStrategy<String> {
    prop_oneof![
        4 => select(&ODD[..]).prop_map(str::to_owned),
        2 => "/[a-z]{0,8}",
        1 => "/\\PC{0,8}",
        1 => (select(&ODD[..]), select(&ODD[..])).prop_map(|(a, b)| format!("{a}{b}")),
        1 => (1..1100usize).prop_map(|n| format!("/{}", "x".repeat(n))),
    ]
    .boxed()
}

fn name() -> BoxedStrategy<String> {
    prop_oneof![3 => select(&NAMES[..]).prop_map(str::to_owned), 1 => "[!-~]{1,8}", 1 => text()]
        .boxed()
}

fn path() -> BoxedStrategy<Value> {
    let kind = select(&["Exact", "PathPrefix", "RegularExpression"][..]);
    (kind, text())
        .prop_map(|(kind, value)| json!({"type": kind, "value": value}))
        .boxed()
}

fn conditions() -> BoxedStrategy<Value> {
    let one = (select(&["Exact", "RegularExpression"][..]), name(), text())
        .prop_map(|(kind, name, value)| json!({"type": kind, "name": name, "value": value}));
    prop::collection::vec(one, 0..3)
        .prop_map(Value::from)
        .boxed()
}

fn matches() -> BoxedStrategy<Value> {
    let method = prop::option::of(select(&["GET", "POST", "CONNECT", "get", ""][..]));
    (path(), conditions(), conditions(), method)
        .prop_map(|(path, headers, query, method)| {
            let mut made = json!({"path": path, "headers": headers, "queryParams": query});
            if let Some(method) = method {
                made["method"] = method.into();
            }
            made
        })
        .boxed()
}

fn new_path() -> BoxedStrategy<Value> {
    let full = text().prop_map(|text| json!({"type": "ReplaceFullPath", "replaceFullPath": text}));
    let prefix =
        text().prop_map(|text| json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": text}));
    prop_oneof![full, prefix].boxed()
}

fn filter() -> BoxedStrategy<Value> {
    let header = (name(), text()).prop_map(|(name, value)| json!({"name": name, "value": value}));
    let edits = (header.clone(), header, name())
        .prop_map(|(set, add, remove)| json!({"set": [set], "add": [add], "remove": [remove]}));
    let request = edits
        .clone()
        .prop_map(|m| json!({"type": "RequestHeaderModifier", "requestHeaderModifier": m}));
    let response =
        edits.prop_map(|m| json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": m}));
    let rewrite = (prop::option::of(name()), new_path()).prop_map(|(host, path)| {
        json!({"type": "URLRewrite", "urlRewrite": {"hostname": host.unwrap_or("h.example.org".into()), "path": path}})
    });
    let redirect = (new_path(), select(&[301, 302, 303, 307, 308, 200][..]), 0..65_537u32, name()).prop_map(
        |(path, code, port, host)| {
            json!({"type": "RequestRedirect",
                "requestRedirect": {"hostname": host, "path": path, "statusCode": code, "port": port}})
        },
    );
    let cors = (text(), name(), 0..100_000i64).prop_map(|(origin, header, age)| {
        json!({"type": "CORS", "cors": {"allowOrigins": [format!("https://{origin}"), "*"], "allowMethods": ["GET"],
            "allowHeaders": [header], "maxAge": age}})
    });
    let auth = (text(), name(), name(), 0..100_000i64, any::<bool>()).prop_map(|(path, sent, set, body, http)| {
        let (protocol, settings) = if http { ("HTTP", json!({"path": path, "allowedHeaders": [sent], "allowedResponseHeaders": [set]})) } else { ("GRPC", json!({"allowedHeaders": [sent]})) };
        json!({"type": "ExternalAuth", "externalAuth": {"protocol": protocol, protocol.to_lowercase(): settings,
            "backendRef": {"name": "web", "port": 80}, "forwardBody": {"maxSize": body}}})
    });
    prop_oneof![request, response, rewrite, redirect, cors, auth].boxed()
}

fn session() -> BoxedStrategy<Value> {
    let lifetime = select(&["Permanent", "Session"][..]);
    let timeout = prop::option::of(select(&["0s", "1ms", "90s", "99999h", "1d"][..]));
    let cookie = (prop::option::of(name()), text(), lifetime, timeout).prop_map(
        |(name, path, lifetime, timeout)| {
            let mut made = json!({"cookie": {"path": path, "lifetimeType": lifetime}});
            if let Some(name) = name {
                made["cookie"]["name"] = name.into();
            }
            if let Some(timeout) = timeout {
                made["absoluteTimeout"] = timeout.into();
            }
            made
        },
    );
    let header = name().prop_map(|name| json!({"type": "Header", "header": {"name": name}}));
    prop_oneof![cookie, header].boxed()
}

fn rule() -> BoxedStrategy<Value> {
    let durations = ["0s", "1ms", "10s", "1h", "-1s", "99999999h", "1.5s", ""];
    let backend = (0..1_000_001i64, prop::option::weighted(0.3, filter())).prop_map(|(weight, filter)| {
        json!({"name": "web", "port": 80, "weight": weight, "filters": filter.map_or(json!([]), |f| json!([f]))})
    });
    let rule = (
        prop::collection::vec(matches(), 0..3),
        prop::option::weighted(0.5, filter()),
        prop::collection::vec(backend, 0..3),
        prop::option::of((select(durations.to_vec()), select(durations.to_vec()))),
        prop::option::weighted(0.3, (select(vec![100, 400, 503, 599, 600]), 0..20i64)),
        prop::option::weighted(0.3, session()),
    );
    rule.prop_map(|(matches, filter, backends, timeouts, retry, session)| {
        let mut made = json!({"backendRefs": backends});
        if !matches.is_empty() {
            made["matches"] = matches.into();
        }
        if let Some(filter) = filter {
            if filter["type"] == "RequestRedirect" {
                made["backendRefs"] = json!([]);
            }
            made["filters"] = json!([filter]);
        }
        if let Some((request, backend)) = timeouts {
            made["timeouts"] = json!({"request": request, "backendRequest": backend});
        }
        if let Some((code, attempts)) = retry {
            made["retry"] = json!({"codes": [code], "attempts": attempts, "backoff": "10ms"});
        }
        if let Some(session) = session {
            made["sessionPersistence"] = session;
        }
        made
    })
    .boxed()
}

/// An HTTPRoute of mallory's; a fifth of them share one hostname.
fn route(at: usize, rules: Vec<Value>) -> Value {
    let host = if at.is_multiple_of(5) {
        "m-shared.example.org".to_owned()
    } else {
        format!("m-{at}.example.org")
    };
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": format!("m-{at}"), "namespace": "mallory"},
        "spec": {"parentRefs": [{"name": "edge", "namespace": "infra"}], "hostnames": [host], "rules": rules},
    })
}

/// The same routes in each run, unless the strategies above change.
struct Routes {
    runner: TestRunner,
    made: usize,
}

/// Returns a number from the environment.
fn asked(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text}: expected a number"))
    })
}

/// Returns the seed of a long run: the given one, else a random one.
fn seed() -> Option<u64> {
    let now = || {
        std::time::UNIX_EPOCH
            .elapsed()
            .map_or(0, |now| now.as_secs())
    };
    asked("GATEWRIGHT_SEED").or_else(|| asked("GATEWRIGHT_ROUTES").map(|_| now()))
}

/// Returns the number of batches: `usual`, or as many as the requested number of routes needs.
fn batches(usual: usize) -> usize {
    let routes =
        asked("GATEWRIGHT_ROUTES").map(|routes| usize::try_from(routes).unwrap_or(usize::MAX));
    routes.map_or(usual, |routes| routes.div_ceil(BATCH))
}

impl Routes {
    #[allow(clippy::print_stdout, reason = "whoever repeats a run needs it")]
    fn new() -> Self {
        let rng = match seed() {
            None => TestRng::deterministic_rng(RngAlgorithm::ChaCha),
            Some(seed) => {
                println!("GATEWRIGHT_SEED={seed}");
                let mut bytes = [0; 32];
                bytes[..8].copy_from_slice(&seed.to_le_bytes());
                TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
            }
        };
        Self {
            runner: TestRunner::new_with_rng(Config::default(), rng),
            made: 0,
        }
    }

    /// Returns a file of routes. `edit` may change each.
    fn batch(&mut self, mut edit: impl FnMut(usize, &mut Value)) -> Result<String> {
        let mut text = String::new();
        for _ in 0..BATCH {
            let rules = prop::collection::vec(rule(), 1..4).new_tree(&mut self.runner);
            let rules = rules
                .map_err(|reason| anyhow::anyhow!("no routes: {reason}"))?
                .current();
            let mut made = route(self.made, rules);
            edit(self.made, &mut made);
            text.push_str(&format!("{made}\n---\n"));
            self.made += 1;
        }
        Ok(text)
    }
}

/// Returns the refused routes with their messages, by the statuses.
fn refused(site: &Site) -> Result<Vec<String>> {
    let (_, text) = site.ask(&["status", "-o", "json"])?;
    let list: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let items = list["items"].as_array().context("a list")?;
    let words = |item: &Value| {
        let status = item["status"].to_string();
        let at = status.find("refused by Envoy")?;
        Some(format!(
            "{} {}: {}",
            item["kind"],
            item["metadata"],
            status[at..].chars().take(300).collect::<String>()
        ))
    };
    Ok(items.iter().filter_map(words).collect())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn nothing_that_is_published_is_refused() -> Result<()> {
    let site = Site::start(&EXPERIMENTAL).await?;
    let mut routes = Routes::new();
    for step in 0..batches(12) {
        let batch = routes.batch(|_, _| ())?;
        site.save("mallory-routes.yaml", &batch)?;
        site.alice_is_unharmed(step % 500).await?;
        let refused = refused(&site)?;
        if !refused.is_empty() {
            bail!("{refused:#?}\n{batch}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_route_that_envoy_alone_refuses_harms_no_other() -> Result<()> {
    let (_dir, envoy) = strict()?;
    let mut site = Site::start(&[EXPERIMENTAL[0], EXPERIMENTAL[1], "--envoy", &envoy]).await?;
    let mut routes = Routes::new();
    for step in 0..batches(8) {
        let batch = routes.batch(|at, route| {
            if at % 3 == 0 {
                let path = json!({"type": "RegularExpression", "value": too_large(&format!("m{at}"))});
                route["spec"]["rules"] =
                    json!([{"matches": [{"path": path}], "backendRefs": [{"name": "web", "port": 80}]}]);
            }
        })?;
        site.save("mallory-routes.yaml", &batch)?;
        site.alice_is_unharmed(step % 500).await?;
        if step == 4 {
            site = site.restart()?;
            site.served_by("alice.example.org", "alice").await?;
        }
        let strangers: Vec<String> = refused(&site)?
            .into_iter()
            .filter(|words| !words.contains("\"namespace\":\"mallory\""))
            .collect();
        ensure!(strangers.is_empty(), "{strangers:#?}");
    }
    ensure!(!refused(&site)?.is_empty(), "mallory is told");
    Ok(())
}
