//! Texts that Envoy refuses, or interprets: those of one tenant must not hold back routes of
//! others.

use anyhow::Result;
use serde_json::{Value, json};

use crate::site::Site;
use crate::told::{http_route, manifest};

const BACKENDS: &str = "web";

fn matching(matches: &Value) -> Value {
    json!([{"matches": [matches], "backendRefs": [{"name": BACKENDS, "port": 80}]}])
}

fn path(kind: &str, value: &str) -> Value {
    matching(&json!({"path": {"type": kind, "value": value}}))
}

fn filter(filter: &Value) -> Value {
    json!([{"filters": [filter], "backendRefs": [{"name": BACKENDS, "port": 80}]}])
}

fn rewrite(field: &str, kind: &str, value: &str) -> Value {
    filter(&json!({"type": "URLRewrite", "urlRewrite": {"path": {"type": kind, field: value}}}))
}

fn redirect(field: &str, kind: &str, value: &str) -> Value {
    json!([{"filters": [{"type": "RequestRedirect",
        "requestRedirect": {"path": {"type": kind, field: value}}}]}])
}

fn set(kind: &str, field: &str, name: &str, value: &str) -> Value {
    filter(&json!({"type": kind, field: {"set": [{"name": name, "value": value}]}}))
}

/// Returns rules of one route each that an API server admits.
fn poison() -> Vec<Value> {
    let mut all = Vec::new();
    let expressions = [
        "/a**",
        "/(a{100}){100}",
        "/(?P<a.b>x)",
        "/[[:foo:]]",
        "/\\p{Cn}",
        "/\\p{LC}",
        "",
        "/(?P<contact.admin>x)",
        "/a+*",
        "/a{2}{3}",
        "/\\x{100}",
        "/(?P<\u{e9}>x)",
        "/(?i)\\pl",
        "/a{1001}",
        "/.{1000}{1000}",
        "/\u{0}",
    ];
    for text in expressions {
        all.push(path("RegularExpression", text));
        if !text.is_empty() {
            let condition = json!([{"type": "RegularExpression", "name": "x-a", "value": text}]);
            all.push(matching(&json!({"headers": condition})));
            all.push(matching(&json!({"queryParams": condition})));
        }
    }
    for control in [
        "\n",
        "\r",
        "\0",
        "\r\nx: y",
        "\u{7f}",
        " HTTP/1.1",
        "\u{e9}",
    ] {
        let text = format!("/a{control}b");
        for (field, kind) in [
            ("replaceFullPath", "ReplaceFullPath"),
            ("replacePrefixMatch", "ReplacePrefixMatch"),
        ] {
            all.push(rewrite(field, kind, &text));
            all.push(redirect(field, kind, &text));
        }
    }
    for control in ["\n", "\r", "\0", "\r\nx: y", "\u{7f}"] {
        let text = format!("a{control}b");
        all.push(set(
            "RequestHeaderModifier",
            "requestHeaderModifier",
            "x-a",
            &text,
        ));
        all.push(set(
            "ResponseHeaderModifier",
            "responseHeaderModifier",
            "x-a",
            &text,
        ));
        all.push(matching(
            &json!({"headers": [{"name": "x-a", "value": text}]}),
        ));
        all.push(matching(
            &json!({"queryParams": [{"name": "a", "value": text}]}),
        ));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn texts_that_envoy_refuses_are_told_to_their_author_and_to_nobody_else() -> Result<()> {
    let site = Site::start(&["--max-regexes-per-namespace", "1000"]).await?;
    let rules = poison();
    let documents: Vec<Value> = rules
        .iter()
        .enumerate()
        .map(|(index, rules)| {
            http_route(
                "mallory",
                &format!("poison-{index}"),
                &[format!("poison-{index}.example.org")],
                rules,
            )
        })
        .collect();
    site.save("mallory-poison.yaml", &manifest(&documents))?;
    for (index, rules) in rules.iter().enumerate() {
        let told = site
            .told(
                "mallory",
                &format!("poison-{index}"),
                "Accepted=False UnsupportedValue",
            )
            .await;
        told.map_err(|error| error.context(rules.to_string()))?;
    }
    site.alice_is_unharmed(1).await?;
    site.says_nothing_of("alice", "mallory").await?;
    site.says_nothing_of("alice", "contact").await?;
    let site = site.restart()?;
    site.served_by("alice.example.org", "alice").await?;
    site.alice_is_unharmed(2).await?;
    site.says_nothing_of("alice", "contact").await
}
