//! Wildcards below a wildcard listener with TLS are in one table of it, which Envoy reads anew for
//! each change in it: how much of it one namespace may have.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::usage;
use serde_json::{Value, json};

use crate::site::Site;
use crate::told::manifest;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
/// Policies of mallory's, of which about 150 fit.
const POLICIES: usize = 240;
const KEYS: usize = 16;
/// Wildcards that alice adds.
const CHANGES: usize = 8;
/// What Envoy's main thread may take for one of them: some ten times what it takes on a machine
/// without other work, and a third of what it took without a limit while tests ran beside it.
const MOST: Duration = Duration::from_millis(500);

fn wildcard(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": namespace, "name": name},
        "spec": {"hostnames": [format!("*.{name}.example.org")],
            "parentRefs": [{"name": "edge", "namespace": "infra", "sectionName": "https"}],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

/// A wildcard of mallory's whose requests need a token that one of many keys has signed.
fn guarded(name: &str) -> [Value; 2] {
    let modulus = |number: usize| format!("q{number:04}{}E", "q".repeat(677));
    let keys: Vec<Value> = (0..KEYS)
        .map(|number| json!({"kty": "RSA", "kid": number.to_string(), "n": modulus(number), "e": "AQAB"}))
        .collect();
    let jwt = json!({"issuer": "https://id.example.org",
        "jwks": {"inline": json!({"keys": keys}).to_string()}});
    let policy = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
        "metadata": {"namespace": "mallory", "name": name},
        "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name}],
            "jwt": jwt}});
    [wildcard("mallory", name), policy]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
#[allow(clippy::print_stdout, reason = "what was measured is worth reading")]
async fn a_neighbours_wildcard_waits_for_a_bounded_part_of_the_table() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    let all: Vec<Value> = (0..POLICIES)
        .flat_map(|number| guarded(&format!("m{number:03}")))
        .collect();
    site.save("mallory.yaml", &manifest(&all))?;
    let last = format!("m{:03}", POLICIES - 1);
    let told = site
        .told("mallory", &last, "Accepted=False LimitReached")
        .await?;
    ensure!(
        told.contains("a sixteenth of limits.namespace.envoyMib, 16 MiB in tables of other namespaces' listeners"),
        "{told}"
    );
    let hers = site.tls("www.m000.example.org");
    site.answered_with(&hers, 401).await?;
    let mut dearest = Duration::ZERO;
    for number in 0..CHANGES {
        let name = format!("a{number}");
        let before = usage::main_thread_time(site.envoy()?)?;
        site.save(
            &format!("{name}.yaml"),
            &manifest(&[wildcard("alice", &name)]),
        )?;
        let probe = site.tls(&format!("www.{name}.example.org"));
        site.answered_with(&probe, 200).await?;
        dearest = dearest.max(usage::main_thread_time(site.envoy()?)?.saturating_sub(before));
    }
    println!("the dearest change took {dearest:?} of Envoy's main thread");
    ensure!(dearest < MOST, "a change took {dearest:?}");
    Ok(())
}
