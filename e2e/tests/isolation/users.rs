//! Users of alice: mallory's policies have none of them without a grant, and hers ask nobody at
//! alice's hosts for a password.

use anyhow::{Result, ensure};
use e2e::probe::Probe;

use crate::access::{POLICY, answered, everything, grant, listeners, target};
use crate::site::{FORWARD, Site, route};

const HOST: &str = "mallory.example.org";
const HASH: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
/// The user `alice` with the password `secret`.
const ALICE: &str = "Basic YWxpY2U6c2VjcmV0";

fn users(namespace: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: users, namespace: {namespace}}}\n\
         type: gatewright.io/htpasswd\nstringData: {{.htpasswd: \"{user}:{HASH}\"}}\n---\n"
    )
}

fn policy(namespace: &str, targets: &str, users_of: &str) -> String {
    format!(
        "{POLICY}metadata: {{name: users, namespace: {namespace}}}\n\
         spec: {{targetRefs: [{targets}], basicAuth: {{users: {{name: users, namespace: {users_of}}}}}}}\n---\n"
    )
}

/// The status with which a user of alice is answered.
async fn as_alice(probe: Probe) -> Result<u16> {
    let answer = probe.header("authorization", ALICE).send().await?;
    Ok(answer.status)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn users_of_a_stranger_are_had_by_a_grant_alone_and_open_nothing() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    let guarded = "guarded.example.org";
    let own = policy("alice", &target("HTTPRoute", "guarded"), "alice");
    let route = route("alice", "guarded", guarded, FORWARD);
    site.save("guarded.yaml", &(route + &users("alice", "alice") + &own))?;
    answered(&site, guarded, 401).await?;
    ensure!(as_alice(site.tls(guarded)).await? == 200, "alice passes");
    let before = listeners(&site).await?;
    // Mallory's policy names alice's routes and the Gateway, with users of her own.
    let all = everything();
    let hers = users("mallory", "mallory") + &policy("mallory", &all, "mallory");
    site.save("mallory.yaml", &hers)?;
    answered(&site, HOST, 401).await?;
    site.served_by("alice.example.org", "alice").await?;
    ensure!(as_alice(site.tls(HOST)).await? == 401, "no user of hers");
    ensure!(as_alice(site.tls(guarded)).await? == 200, "alice passes");
    // Alice's users are not hers to name, whether they are there or not.
    site.save("mallory.yaml", &policy("mallory", &all, "alice"))?;
    answered(&site, HOST, 500).await?;
    site.save("grant.yaml", &grant("Secret", "users"))?;
    answered(&site, HOST, 401).await?;
    ensure!(as_alice(site.tls(HOST)).await? == 200, "alice lends them");
    site.remove("grant.yaml")?;
    answered(&site, HOST, 500).await?;
    ensure!(as_alice(site.tls(guarded)).await? == 200, "alice passes");
    ensure!(
        listeners(&site).await? == before,
        "no listener changes for users"
    );
    // No output has a hash.
    let shown = site.envoy_config()?;
    ensure!(shown.contains("\"users\": \"[redacted]\""), "it says so");
    ensure!(!shown.contains(&HASH[5..]), "{shown}");
    ensure!(!site.program.output().contains(&HASH[5..]), "nor the log");
    site.alice_is_unharmed(1).await
}
