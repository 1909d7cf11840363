//! Answers that mallory writes: they are given for her own hosts alone, bodies of other namespaces
//! are out of her reach, and her namespace pays for what they take in Envoys.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep};

use crate::site::{LIMIT, Site, route};

/// A rule that mallory's DirectResponse `sorry` answers.
const ANSWER: &str = "[{filters: [{type: ExtensionRef, extensionRef: {group: gatewright.io, \
                      kind: DirectResponse, name: sorry}}]}]";

const HOST: &str = "mallory.example.org";

fn response(namespace: &str, spec: &str) -> String {
    format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: DirectResponse\n\
         metadata: {{name: sorry, namespace: {namespace}}}\nspec: {spec}\n---\n"
    )
}

fn pages(namespace: &str, text: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: pages, namespace: {namespace}}}\n\
         data: {{page: \"{text}\"}}\n---\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_answer_is_of_its_namespace_alone() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save("secret.yaml", &pages("alice", "of alice"))?;
    site.save("alice-sorry.yaml", &response("alice", "{statusCode: 418}"))?;
    site.save(
        "mallory.yaml",
        &route("mallory", "web", "mallory.example.org", ANSWER),
    )?;
    // Alice has a DirectResponse of that name, and mallory none.
    site.answered_with(&site.plain(HOST), 500).await?;
    // Alice has a ConfigMap of that name, and mallory none: a name has no slash.
    for name in ["pages", "alice/pages"] {
        let spec =
            format!("{{statusCode: 418, body: {{configMapRef: {{name: {name}, key: page}}}}}}");
        site.save("sorry.yaml", &response("mallory", &spec))?;
        let told = site.ask(&["status", "httproute/web", "-n", "mallory"])?.1;
        ensure!(!told.contains("of alice"), "{told}");
        site.answered_with(&site.plain(HOST), 500).await?;
    }
    site.save("pages.yaml", &pages("mallory", "of mallory"))?;
    let spec = "{statusCode: 418, body: {configMapRef: {name: pages, key: page}}}";
    site.save("sorry.yaml", &response("mallory", spec))?;
    let answer = site.answered_with(&site.plain(HOST), 418).await?;
    ensure!(answer.body == "of mallory", "{:?}", answer.body);
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn large_answers_count_for_the_namespace_that_has_them() -> Result<()> {
    let site = Site::start(&["--set", "limits.namespace.envoyMib=1"]).await?;
    site.save("pages.yaml", &pages("mallory", &"x".repeat(16 * 1024)))?;
    let spec = "{statusCode: 418, body: {configMapRef: {name: pages, key: page}}}";
    site.save("sorry.yaml", &response("mallory", spec))?;
    let matches: Vec<String> = (0..16)
        .map(|number| format!("{{path: {{value: /{number}}}}}"))
        .collect();
    let rules = ANSWER.replace(
        "[{filters",
        &format!("[{{matches: [{}], filters", matches.join(", ")),
    );
    site.save(
        "mallory.yaml",
        &route("mallory", "web", "mallory.example.org", &rules),
    )?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let told = site.ask(&["status", "httproute/web", "-n", "mallory"])?.1;
        if told.contains("limits.namespace.envoyMib") {
            break;
        }
        ensure!(Instant::now() < deadline, "{told}");
        sleep(Duration::from_millis(50)).await;
    }
    // A smaller body makes room at once.
    site.save("pages.yaml", &pages("mallory", "small"))?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = site.plain("mallory.example.org").path("/1").send().await?;
        if answer.status == 418 {
            break;
        }
        ensure!(Instant::now() < deadline, "{answer:?}");
        sleep(Duration::from_millis(50)).await;
    }
    site.alice_is_unharmed(1).await
}
