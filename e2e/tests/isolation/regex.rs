//! Regular expressions that the program accepts are accepted by Envoy as well: compared on many
//! random ones.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::gatewright::Gatewright;
use serde_json::{Value, json};

use crate::told::{http_route, manifest};

/// The number of expressions.
const EXPRESSIONS: usize = 2000;
/// The seed; every run makes the same expressions.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// A generator of texts that resemble RE2, most of them valid.
struct Maker(u64);

impl Maker {
    fn below(&mut self, most: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap_or(0) % most
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn atom(&mut self, depth: usize) -> String {
        match self.below(if depth == 0 { 6 } else { 10 }) {
            0 | 1 => self
                .one(&[
                    "a", "k", "Z", "0", "/", "-", "_", " ", "}", "]", ",", "=", "é", "中", "\t",
                    "#", "&",
                ])
                .to_owned(),
            2 => self
                .one(&[
                    ".",
                    "^",
                    "$",
                    "\\b",
                    "\\B",
                    "\\A",
                    "\\z",
                    "\\Z",
                    "\\<",
                    "\\b{start}",
                    "\\C",
                    "\\G",
                ])
                .to_owned(),
            3 => self
                .one(&[
                    "\\d",
                    "\\D",
                    "\\w",
                    "\\W",
                    "\\s",
                    "\\S",
                    "\\.",
                    "\\-",
                    "\\_",
                    "\\%",
                    "\\@",
                    "\\/",
                    "\\n",
                    "\\t",
                    "\\v",
                    "\\a",
                    "\\x41",
                    "\\x7f",
                    "\\xff",
                    "\\x{e9}",
                    "\\x{100}",
                    "\\x{10ffff}",
                    "\\u0041",
                    "\\U00000041",
                    "\\0",
                    "\\01",
                    "\\1",
                    "\\e",
                    "\\Qa\\E",
                    "\\ ",
                    "\\é",
                    "\\h",
                    "\\R",
                    "\\X",
                    "\\<",
                ])
                .to_owned(),
            4 => {
                let name = self.one(&[
                    "L",
                    "Lu",
                    "LC",
                    "Cn",
                    "Cs",
                    "Zs",
                    "Any",
                    "any",
                    "Greek",
                    "greek",
                    "Latin",
                    "Han",
                    "Nd",
                    "sc=Greek",
                    "^L",
                    "Script_Extensions=Greek",
                    "Alphabetic",
                    "Emoji",
                    "M",
                    "Co",
                    "Xx",
                    "C",
                    "Cherokee",
                ]);
                match self.below(4) {
                    0 => format!("\\p{{{name}}}"),
                    1 => format!("\\P{{{name}}}"),
                    2 => format!("\\p{}", self.one(&["L", "N", "l", "Z", "C", "X"])),
                    _ => format!("[\\p{{{name}}}x]"),
                }
            }
            5 => self.class(),
            6 | 7 => format!("({})", self.many(depth - 1)),
            8 => format!(
                "(?{}{})",
                self.one(&[
                    ":", "P<a>", "P<b_1>", "P<a.b>", "P<é>", "P<1>", "P<a[0]>", "<c>", "i:",
                    "is-m:", "U:", "x:", "u:", "R:", "=", "!", "<=", "#", ">", "i-:", "ii:", "P=a",
                    "s-U:",
                ]),
                self.many(depth - 1)
            ),
            _ => self
                .one(&[
                    "(?i)", "(?s)", "(?m)", "(?U)", "(?-s)", "(?im-sU)", "(?x)", "(?)", "()",
                    "(?:)", "(|a)",
                ])
                .to_owned(),
        }
    }

    fn class(&mut self) -> String {
        let mut text = self.one(&["[", "[^", "[]", "[^]", "[-", "[^-"]).to_owned();
        for _ in 0..=self.below(4) {
            text += self.one(&[
                "a",
                "a-z",
                "0-9",
                "z-a",
                "é",
                "é-ü",
                "\\d",
                "\\W",
                "\\pL",
                "\\p{Cn}",
                "[:alpha:]",
                "[:^digit:]",
                "[:foo:]",
                "[:word:]",
                "&&",
                "--",
                "~~",
                "[b]",
                "\\n",
                "\\]",
                "\\x41-\\x5a",
                "\\x80-\\xff",
                "\\x{100}-\\x{200}",
                "a-\\d",
                "-",
                "^",
                "\\b",
                ".",
                "$",
                "\\-",
                "a-b-c",
                "\\x{ff}",
                "|",
                "(",
                "&",
                "~",
                ":",
            ]);
        }
        text + self.one(&["]", "]", "]", "]", "-]"])
    }

    fn repeated(&mut self, depth: usize) -> String {
        let mut text = self.atom(depth);
        while self.below(3) == 0 {
            text += self.one(&[
                "*",
                "+",
                "?",
                "*?",
                "+?",
                "??",
                "{2}",
                "{2,}",
                "{2,5}",
                "{0}",
                "{0,1}",
                "{10}",
                "{32}",
                "{100}",
                "{1000}",
                "{1001}",
                "{,5}",
                "{01}",
                "{ 2}",
                "{2, 3}",
                "{5,2}",
                "{}",
                "{a}",
                "{1,1000}",
                "{3}?",
                "{999,1000}",
                "{0,}",
            ]);
        }
        text
    }

    fn many(&mut self, depth: usize) -> String {
        let mut text = String::new();
        for _ in 0..=self.below(3) {
            text += &self.repeated(depth);
            if self.below(6) == 0 {
                text += "|";
            }
        }
        text
    }
}

fn expressions() -> Vec<String> {
    let mut maker = Maker(SEED);
    let mut all = BTreeSet::new();
    while all.len() < EXPRESSIONS {
        let text = maker.many(3);
        if (1..=1024).contains(&text.len()) {
            all.insert(text);
        }
    }
    all.into_iter().collect()
}

/// Returns the expressions that the program sends to Envoy.
fn taken(all: &[String]) -> Result<BTreeSet<String>> {
    let dir = tempfile::tempdir()?;
    let mut documents = vec![
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "ours"},
            "spec": {"controllerName": "gatewright.io/gateway-controller"}}),
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "infra"}, "spec": {"gatewayClassName": "ours",
            "listeners": [{"name": "http", "protocol": "HTTP", "port": 80,
                "allowedRoutes": {"namespaces": {"from": "All"}}}]}}),
    ];
    // Each in a namespace of its own, so that they do not share limits.
    for (index, text) in all.iter().enumerate() {
        let rules = json!([{"matches": [{"path": {"type": "RegularExpression", "value": text}}]}]);
        documents.push(http_route(
            &format!("n{index}"),
            "r",
            &[format!("h{index}.example.org")],
            &rules,
        ));
    }
    let file = dir.path().join("all.yaml");
    fs::write(&file, manifest(&documents))?;
    let output = Gatewright::run(&["translate", &file.display().to_string(), "-o", "json"])?;
    let told: Value = serde_json::from_slice(&output.stdout).context("the translation")?;
    let mut found = BTreeSet::new();
    collect(&told["resources"], &mut found);
    Ok(all
        .iter()
        .filter(|text| found.contains(*text))
        .cloned()
        .collect())
}

/// Collects every `safe_regex` of a document.
fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for key in ["safe_regex", "safeRegex"] {
                found.extend(
                    fields
                        .get(key)
                        .and_then(|field| field["regex"].as_str())
                        .map(str::to_owned),
                );
            }
            fields.values().for_each(|field| collect(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// Returns Envoy's error for a route table with all of these, if it refuses the table.
fn refused(texts: &[&String]) -> Result<Option<String>> {
    let routes: Vec<Value> = texts.iter().map(|text| json!({"match": {"safe_regex": {"regex": text}}, "direct_response": {"status": 200}})).collect();
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "x",
        "route_config": {"name": "x", "virtual_hosts": [{"name": "x", "domains": ["*"], "routes": routes}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    });
    let dir = tempfile::tempdir()?;
    // The limits of expressions are those of our bootstrap.
    let ours = Gatewright::bootstrap(dir.path())?;
    let config = json!({
        "node": ours["node"], "layered_runtime": ours["layered_runtime"],
        "static_resources": {"listeners": [{"name": "l", "address": {"pipe": {"path": dir.path().join("l")}},
            "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}]}]},
    });
    let file = dir.path().join("envoy.json");
    fs::write(&file, config.to_string())?;
    let output = Command::new(e2e::envoy::binary()?)
        .args([
            "--mode",
            "validate",
            "--log-level",
            "error",
            "--use-dynamic-base-id",
            "--config-path",
        ])
        .arg(&file)
        .output()
        .context("running Envoy")?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((!output.status.success()).then_some(log))
}

/// Returns the first of these that Envoy refuses, with its error.
fn culprit<'a>(texts: &[&'a String]) -> Result<Option<(&'a String, String)>> {
    let Some(log) = refused(texts)? else {
        return Ok(None);
    };
    if let [only] = texts {
        return Ok(Some((only, log)));
    }
    let (left, right) = texts.split_at(texts.len() / 2);
    match culprit(left)? {
        Some(found) => Ok(Some(found)),
        None => culprit(right),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
#[allow(
    clippy::print_stdout,
    reason = "how many were compared is worth reading"
)]
async fn accepted_expressions_are_accepted_by_envoy() -> Result<()> {
    let all = expressions();
    let taken = taken(&all)?;
    println!("{} of {} are taken", taken.len(), all.len());
    ensure!(
        taken.len() > all.len() / 10,
        "only {} of {} are taken",
        taken.len(),
        all.len()
    );
    ensure!(
        taken.len() < all.len() * 9 / 10,
        "nothing much is refused: {} of {}",
        taken.len(),
        all.len()
    );
    ensure!(
        refused(&[&"a**".to_owned()])?.is_some(),
        "Envoy refuses what is wrong"
    );
    if let Some((text, log)) = culprit(&taken.iter().collect::<Vec<_>>())? {
        anyhow::bail!("{text:?} is taken, and Envoy says: {log}");
    }
    Ok(())
}
