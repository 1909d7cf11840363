//! The cost model against the real Envoy: a namespace is filled in one dimension after another, and
//! the growth of Envoy and of the program is compared with what the model says.
//!
//! The short form fills some dimensions to a quarter of their quotas. With `COST_SWEEP=1` all are
//! filled until objects are refused, which makes the table of docs/capacity.md.

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::usage;
use e2e::world::free_port;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::site::{LIMIT, Site};
use crate::told::manifest;

const MIB: u64 = 1 << 20;
/// What a process of this size grows and shrinks by itself.
const NOISE: u64 = 8 * MIB;
/// The memory that the program has left from its start, and takes before it grows.
const FREE: u64 = 24 * MIB;
/// The port of listeners for HTTPS.
static HTTPS: LazyLock<u16> = LazyLock::new(|| free_port().expect("a free port"));
const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// A dimension: the objects of the batch with this number, at a Gateway of mallory's with this port
/// for plain HTTP and this one for TLS that is passed through.
struct Filled {
    name: &'static str,
    /// True if it is left out of the short form.
    is_similar: bool,
    batch: fn(usize) -> Vec<Value>,
}

const fn filled(name: &'static str, batch: fn(usize) -> Vec<Value>) -> Filled {
    Filled {
        name,
        is_similar: false,
        batch,
    }
}

const fn similar(name: &'static str, batch: fn(usize) -> Vec<Value>) -> Filled {
    Filled {
        name,
        is_similar: true,
        batch,
    }
}

const DIMENSIONS: [Filled; 12] = [
    filled("matches", |index| {
        vec![matches(index, 32, json!({"backendRefs": [web()]}))]
    }),
    filled("hostnames", |index| {
        (0..16).map(|part| hosts(16 * index + part)).collect()
    }),
    filled("header edits", |index| vec![matches(index, 32, edits())]),
    similar("shares", |index| {
        vec![matches(index, 32, json!({"backendRefs": vec![web(); 16]}))]
    }),
    filled("shares with header edits", |index| {
        vec![matches(index, 4, edited_shares())]
    }),
    similar("shares with rewrites", |index| {
        vec![matches(index, 8, rewritten_shares())]
    }),
    similar("headers and query parameters", |index| {
        vec![conditions(index)]
    }),
    filled("CORS origins", |index| vec![matches(index, 4, cors(64))]),
    similar("retries", |index| vec![matches(index, 32, retries())]),
    filled("clusters", clusters),
    filled("hostnames passed through", |index| {
        (0..8).map(|part| passed(8 * index + part)).collect()
    }),
    filled("listeners", |index| vec![listeners(index)]),
];

/// A route of mallory's, at a listener of her own Gateway.
fn route(kind: &str, index: usize, section: &str, hosts: &[String], rules: &Value) -> Value {
    json!({"apiVersion": GATEWAY, "kind": kind, "metadata": {"namespace": "mallory", "name": format!("r{index}")},
        "spec": {"parentRefs": [{"name": "own", "sectionName": section}], "hostnames": hosts, "rules": rules}})
}

fn names(index: usize) -> Vec<String> {
    (0..16)
        .map(|host| format!("h{host}.r{index}.example.com"))
        .collect()
}

fn web() -> Value {
    json!({"name": "web", "port": 80})
}

/// So many matches of one rule, for 16 hostnames.
fn matches(index: usize, number: usize, mut rule: Value) -> Value {
    rule["matches"] = (0..number)
        .map(|number| json!({"path": {"value": format!("/{number}")}}))
        .collect();
    route("HTTPRoute", index, "http", &names(index), &json!([rule]))
}

/// 16 matches with 32 conditions each, for 16 hostnames.
fn conditions(index: usize) -> Value {
    let all: Vec<Value> = (0..16)
        .map(|index| json!({"name": format!("x-{index}"), "value": "v"}))
        .collect();
    let matches: Vec<Value> = (0..16).map(|number| json!({"path": {"value": format!("/{number}")}, "headers": all, "queryParams": all})).collect();
    route(
        "HTTPRoute",
        index,
        "http",
        &names(index),
        &json!([{"matches": matches, "backendRefs": [web()]}]),
    )
}

fn hosts(index: usize) -> Value {
    route(
        "HTTPRoute",
        index,
        "http",
        &names(index),
        &json!([{"backendRefs": [web()]}]),
    )
}

/// A filter that sets 16 headers.
fn modifier() -> Value {
    let set: Vec<Value> = (0..16)
        .map(|index| json!({"name": format!("x-{index}"), "value": "v"}))
        .collect();
    json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": set}})
}

fn edits() -> Value {
    json!({"backendRefs": [web()], "filters": [modifier()]})
}

fn edited_shares() -> Value {
    let mut share = web();
    share["filters"] = json!([modifier()]);
    json!({"backendRefs": vec![share; 16]})
}

fn rewritten_shares() -> Value {
    let mut share = web();
    let path = json!({"type": "ReplaceFullPath", "replaceFullPath": "/x"});
    share["filters"] =
        json!([{"type": "URLRewrite", "urlRewrite": {"hostname": "a.example.org", "path": path}}]);
    json!({"backendRefs": vec![share; 16]})
}

fn cors(origins: usize) -> Value {
    let origins: Vec<String> = (0..origins)
        .map(|index| format!("https://o{index}.example.org"))
        .collect();
    json!({"backendRefs": [web()], "filters": [{"type": "CORS", "cors": {"allowOrigins": origins}}]})
}

fn retries() -> Value {
    json!({"backendRefs": [web()], "retry": {"codes": (500..530).collect::<Vec<u16>>(), "attempts": 3}})
}

/// 64 Services, each the only backend of a rule.
fn clusters(index: usize) -> Vec<Value> {
    let name = |number: usize| format!("s{index}-{number}");
    let service = |number: usize| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "mallory", "name": name(number)},
            "spec": {"ports": [{"port": 80}]}})
    };
    let rules: Vec<Value> = (0..4)
        .map(|part| {
            let shares: Vec<Value> = (0..16)
                .map(|number| json!({"name": name(16 * part + number), "port": 80}))
                .collect();
            json!({"matches": [{"path": {"value": format!("/{part}")}}], "backendRefs": shares})
        })
        .collect();
    let host = [format!("r{index}.example.com")];
    (0..64)
        .map(service)
        .chain([route("HTTPRoute", index, "http", &host, &json!(rules))])
        .collect()
}

fn passed(index: usize) -> Value {
    route(
        "TLSRoute",
        index,
        "tls",
        &names(index),
        &json!([{"backendRefs": [web()]}]),
    )
}

/// 64 listeners without certificates.
fn listeners(index: usize) -> Value {
    let listeners: Vec<Value> = (0..64).map(|number| {
        json!({"name": format!("l{number}"), "protocol": "HTTPS", "port": *HTTPS, "hostname": format!("a{number}.g{index}.example.com"),
            "tls": {"certificateRefs": [{"name": "none"}]}})
    }).collect();
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"namespace": "mallory", "name": format!("g{index}")},
        "spec": {"gatewayClassName": "ours", "listeners": listeners}})
}

/// What processes have, or the model says, in bytes.
#[derive(Clone, Copy, Debug)]
struct Amount {
    envoy: u64,
    program: u64,
}

/// Mallory's use of her quotas: what the model says, and the part of the quota that is used, in
/// thousandths.
struct Use {
    model: Amount,
    fullness: u64,
}

impl Site {
    fn sizes(&self) -> Result<Amount> {
        Ok(Amount {
            envoy: self.envoy_resident()?,
            program: usage::memory(self.program.pid(), "VmRSS")?,
        })
    }

    async fn mallory_uses(&self) -> Result<(Use, bool)> {
        let text = self.admin("/metrics").await?;
        let read = |name: &str, quota: &str| {
            let line = format!("gatewright_{name}{{namespace=\"mallory\",quota=\"{quota}\"}} ");
            text.lines()
                .find_map(|text| text.strip_prefix(&line)?.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let fullness = ["envoy_bytes", "program_bytes", "clusters", "filter_chains"]
            .into_iter()
            .map(|quota| {
                read("namespace_quota_used", quota) * 1000 / read("namespace_quota", quota).max(1)
            })
            .max();
        let used = |quota| read("namespace_quota_used", quota);
        let is_quiet = text
            .lines()
            .any(|line| line == "gatewright_xds_proxies_behind 0");
        let model = Amount {
            envoy: used("envoy_bytes"),
            program: used("program_bytes"),
        };
        Ok((
            Use {
                model,
                fullness: fullness.unwrap_or(0),
            },
            is_quiet,
        ))
    }

    /// Waits until mallory uses something else than before, and Envoy has all of it and grows no
    /// more.
    async fn settled(&self, before: u64) -> Result<Use> {
        let until = Instant::now() + LIMIT;
        let mut last = 0;
        let mut same = 0;
        loop {
            let (uses, is_quiet) = self.mallory_uses().await?;
            let now = self.envoy_resident()?;
            same = if is_quiet && uses.model.envoy != before && now.abs_diff(last) < MIB / 4 {
                same + 1
            } else {
                0
            };
            last = now;
            if same == 4 {
                return Ok(uses);
            }
            ensure!(
                Instant::now() < until,
                "Envoy does not settle\n{}",
                self.program.output()
            );
            sleep(Duration::from_millis(250)).await;
        }
    }

    /// Mallory fills her namespace with batches; returns what the model says and what the processes
    /// grew.
    async fn filled(&self, of: &Filled, is_long: bool) -> Result<(Amount, Amount)> {
        let http = free_port()?;
        let tls = free_port()?;
        let own = json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"namespace": "mallory", "name": "own"},
            "spec": {"gatewayClassName": "ours", "listeners": [{"name": "http", "protocol": "HTTP", "port": http},
                {"name": "tls", "protocol": "TLS", "port": tls, "tls": {"mode": "Passthrough"}}]}});
        self.save("mallory-own.yaml", &manifest(&[own]))?;
        let empty = self.settled(0).await?;
        let before = self.sizes()?;
        self.save("mallory-0.yaml", &manifest(&(of.batch)(0)))?;
        let one = self.settled(empty.model.envoy).await?;
        let each = one.fullness.saturating_sub(empty.fullness).max(1);
        let part = if is_long { 1200 } else { 250 };
        let number = usize::try_from((part / each).max(1))?;
        let rest: Vec<Value> = (1..=number).flat_map(of.batch).collect();
        self.save("mallory-1.yaml", &manifest(&rest))?;
        let all = self.settled(one.model.envoy).await?;
        let refused = self.ask(&["status"])?.1.contains("LimitReached");
        ensure!(
            refused == is_long,
            "{}: refused is {refused} with {} of 1000",
            of.name,
            all.fullness
        );
        let after = self.sizes()?;
        let grown = |of: fn(Amount) -> u64| of(after).saturating_sub(of(before));
        let model = Amount {
            envoy: all.model.envoy - empty.model.envoy,
            program: all.model.program - empty.model.program,
        };
        Ok((
            model,
            Amount {
                envoy: grown(|of| of.envoy),
                program: grown(|of| of.program),
            },
        ))
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
#[allow(clippy::print_stdout, reason = "what was measured is worth reading")]
async fn the_cost_model_says_what_processes_grow() -> Result<()> {
    let is_long = std::env::var_os("COST_SWEEP").is_some();
    println!(
        "| Filled with | Model, Envoy | Envoy | Model, program | Program |\n| --- | --- | --- | --- | --- |"
    );
    let mut wrong = Vec::new();
    for of in DIMENSIONS.iter().filter(|of| is_long || !of.is_similar) {
        let site = Site::start_alone(&[]).await?;
        let (model, grown) = site.filled(of, is_long).await.with_context(|| of.name)?;
        println!(
            "| {} | {} | {} | {} | {} |",
            of.name,
            model.envoy / MIB,
            grown.envoy / MIB,
            model.program / MIB,
            grown.program / MIB
        );
        let envoy = ("Envoy", model.envoy, grown.envoy, NOISE);
        for (what, model, grown, free) in
            [envoy, ("the program", model.program, grown.program, FREE)]
        {
            if 2 * model + NOISE < grown || model > 3 * grown + free {
                wrong.push(format!(
                    "{}: {what} grew by {} MiB, the model says {}",
                    of.name,
                    grown / MIB,
                    model / MIB
                ));
            }
        }
        if grown.envoy > 256 * MIB {
            wrong.push(format!(
                "{}: Envoy grew by {} MiB",
                of.name,
                grown.envoy / MIB
            ));
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// Within limits of texts and numbers alone, thirteen such routes made an Envoy grow by 2.6 GB.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn routes_that_multiply_shares_and_edits_harm_nobody() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    let before = site.envoy_resident()?;
    for index in 0..13 {
        let mut bomb = matches(index, 32, edited_shares());
        let rule = bomb["spec"]["rules"][0].clone();
        bomb["spec"]["rules"] = json!([rule, rule]);
        bomb["spec"]["parentRefs"] = json!([{"name": "edge", "namespace": "infra"}]);
        site.save(&format!("mallory-{index}.yaml"), &manifest(&[bomb]))?;
    }
    let text = site
        .told("mallory", "r12", "Accepted=False LimitReached")
        .await?;
    ensure!(text.contains("of an Envoy's memory"), "{text}");
    site.alice_is_unharmed(1).await?;
    // One listener without a hostname is as good as many: each has the matches of a route again.
    let wide: Vec<Value> = (0..64).map(|index| json!({"name": format!("l{index}"), "protocol": "HTTP", "port": site.http, "hostname": format!("l{index}.example.com")})).collect();
    let own = json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"namespace": "mallory", "name": "own"},
        "spec": {"gatewayClassName": "ours", "listeners": wide}});
    let mut rule = edits();
    rule["matches"] = (0..64)
        .map(|number| json!({"path": {"value": format!("/{number}")}}))
        .collect();
    let mut everywhere = route("HTTPRoute", 99, "http", &[], &json!([rule, rule]));
    everywhere["spec"]["parentRefs"] = json!([{"name": "own"}]);
    site.save("mallory-everywhere.yaml", &manifest(&[own, everywhere]))?;
    site.told("mallory", "r99", "Accepted=False LimitReached")
        .await?;
    site.alice_is_unharmed(2).await?;
    let grown = site.envoy_resident()?.saturating_sub(before);
    ensure!(grown < 256 * MIB, "Envoy has {} MiB more", grown / MIB);
    Ok(())
}
