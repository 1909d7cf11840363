//! Keys of alice's issuer: mallory's policies have none of them without a grant, and ask nobody at
//! alice's hosts for a token.

use anyhow::{Result, ensure};
use e2e::issuer::{ISSUER, Issuer};
use e2e::probe::Probe;
use serde_json::json;

use crate::access::{POLICY, answered, everything, grant, listeners, target};
use crate::site::{FORWARD, Site, route};

const HOST: &str = "mallory.example.org";

fn keys(namespace: &str, issuer: &Issuer) -> String {
    let set = json!({"keys": [issuer.jwk()]});
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: keys, namespace: {namespace}}}\n\
         data: {{jwks.json: '{set}'}}\n---\n"
    )
}

fn policy(namespace: &str, targets: &str, keys_of: &str) -> String {
    format!(
        "{POLICY}metadata: {{name: tokens, namespace: {namespace}}}\n\
         spec: {{targetRefs: [{targets}], jwt: {{issuer: \"{ISSUER}\", jwks: {{configMapRef: \
         {{name: keys, namespace: {keys_of}, key: jwks.json}}}}}}}}\n---\n"
    )
}

fn bearing(token: &str, probe: Probe) -> Probe {
    probe.header("authorization", &format!("Bearer {token}"))
}

/// The status with which the bearer of a token is answered.
async fn with(token: &str, probe: Probe) -> Result<u16> {
    Ok(bearing(token, probe).send().await?.status)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn keys_of_a_stranger_are_had_by_a_grant_alone_and_open_nothing() -> Result<()> {
    let (hers, own) = (Issuer::new()?, Issuer::new()?);
    let (alice, mallory) = (hers.token(json!({}))?, own.token(json!({}))?);
    let site = Site::start(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    let guarded = "guarded.example.org";
    let policy_of_alice = policy("alice", &target("HTTPRoute", "guarded"), "alice");
    let route = route("alice", "guarded", guarded, FORWARD);
    site.save("guarded.yaml", &(route + &policy_of_alice))?;
    site.save("keys.yaml", &keys("alice", &hers))?;
    answered(&site, guarded, 401).await?;
    ensure!(with(&alice, site.tls(guarded)).await? == 200, "hers passes");
    let before = listeners(&site).await?;
    // Mallory's policy names alice's routes and the Gateway, with keys of her own.
    let all = everything();
    let with_keys = keys("mallory", &own) + &policy("mallory", &all, "mallory");
    site.save("mallory.yaml", &with_keys)?;
    answered(&site, HOST, 401).await?;
    site.served_by("alice.example.org", "alice").await?;
    ensure!(with(&mallory, site.tls(HOST)).await? == 200, "at her host");
    ensure!(with(&alice, site.tls(HOST)).await? == 401, "not her issuer");
    let opened = with(&mallory, site.tls(guarded)).await?;
    ensure!(opened == 401, "the token opens nothing of alice's");
    ensure!(with(&alice, site.tls(guarded)).await? == 200, "hers passes");
    // Alice's keys are not hers to name, whether they are there or not.
    site.save("mallory.yaml", &policy("mallory", &all, "alice"))?;
    answered(&site, HOST, 500).await?;
    site.save("grant.yaml", &grant("ConfigMap", "keys"))?;
    answered(&site, HOST, 401).await?;
    ensure!(
        with(&alice, site.tls(HOST)).await? == 200,
        "alice lends them"
    );
    site.remove("grant.yaml")?;
    answered(&site, HOST, 500).await?;
    ensure!(with(&alice, site.tls(guarded)).await? == 200, "hers passes");
    // A policy without its keys closes.
    site.remove("keys.yaml")?;
    answered(&site, guarded, 500).await?;
    let closed = with(&alice, site.tls(guarded)).await?;
    ensure!(closed == 500, "nobody passes");
    site.save("keys.yaml", &keys("alice", &hers))?;
    answered(&site, guarded, 401).await?;
    ensure!(with(&alice, site.tls(guarded)).await? == 200, "hers passes");
    ensure!(
        listeners(&site).await? == before,
        "no listener changes for keys"
    );
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn claims_that_alice_asks_for_are_asked_whatever_a_stranger_writes() -> Result<()> {
    let issuer = Issuer::new()?;
    let (member, anybody) = (
        issuer.token(json!({"groups": ["members"]}))?,
        issuer.token(json!({}))?,
    );
    let site = Site::start(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    let guarded = "guarded.example.org";
    let asking = policy("alice", &target("HTTPRoute", "guarded"), "alice").replace(
        "jwt: {",
        "jwt: {requiredClaims: [{name: groups, valueType: StringArray, values: [members]}], ",
    );
    let route = route("alice", "guarded", guarded, FORWARD);
    let all = route + &asking + &keys("alice", &issuer);
    site.save("guarded.yaml", &all)?;
    answered(&site, guarded, 401).await?;
    // The same issuer, at the same name, and without a claim.
    let open = keys("mallory", &issuer) + &policy("mallory", &everything(), "mallory");
    site.save("mallory.yaml", &open)?;
    answered(&site, HOST, 401).await?;
    for (token, hers, own) in [(&member, 200, 200), (&anybody, 403, 200)] {
        let found = with(token, site.tls(guarded)).await?;
        ensure!(found == hers, "at alice's host: {found}");
        let found = with(token, site.tls(HOST)).await?;
        ensure!(found == own, "at mallory's host: {found}");
    }
    // Claims that mallory asks for are asked for at her host alone.
    let closed = open.replace(
        "jwt: {",
        "jwt: {requiredClaims: [{name: nobody, values: [has it]}], ",
    );
    site.save("mallory.yaml", &closed)?;
    site.answered_with(&bearing(&member, site.tls(HOST)), 403)
        .await?;
    let found = with(&member, site.tls(guarded)).await?;
    ensure!(found == 200, "at alice's host: {found}");
    site.alice_is_unharmed(1).await
}
