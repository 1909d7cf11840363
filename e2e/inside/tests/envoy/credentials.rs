//! The header `Authorization` on a real Envoy: one credential, whatever the case of its scheme and
//! however many spaces are behind it, and nothing else.

use anyhow::{Context, Result, ensure};
use e2e::issuer::Issuer;
use e2e::probe::Answer;
use e2e_inside::world::object;
use serde_json::{Value, json};

use super::access::{HOST, Site, admin_with};
use super::tokens::{keys, policy};
use super::users::told;

const CLIENT: &str = "10.2.0.1";
/// `alice:secret`, and its hash by SHA-1.
const ALICE: &str = "YWxpY2U6c2VjcmV0";
const SECRET: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

/// Sends these headers `Authorization` by each version of HTTP, and expects this status.
async fn expect(site: &Site, credentials: &[String], status: u16) -> Result<Vec<Answer>> {
    let headers: Vec<(&'static str, &str)> = credentials
        .iter()
        .map(|value| ("authorization", value.as_str()))
        .collect();
    let answers = site.each(CLIENT, (HOST, "/admin"), &headers, status).await;
    answers.with_context(|| format!("{credentials:?}"))
}

/// Ways to write one good credential of a scheme.
fn good(scheme: &str, credential: &str) -> Vec<Vec<String>> {
    let (lower, upper) = (scheme.to_ascii_lowercase(), scheme.to_ascii_uppercase());
    [
        format!("{scheme} {credential}"),
        format!("{lower} {credential}"),
        format!("{upper} {credential}"),
        format!("{scheme}   {credential}"),
        format!("{lower}     {credential}"),
    ]
    .map(|value| vec![value])
    .into()
}

/// Ways to write a good credential beside another one, or as no credential of a scheme.
fn bad(scheme: &str, good: &str, forged: &str) -> Vec<Vec<String>> {
    let lower = scheme.to_ascii_lowercase();
    let mut all: Vec<Vec<String>> = [
        format!("{lower} {forged} {scheme} {good}"),
        format!("{scheme} {forged} {scheme} {good}"),
        format!("{scheme} {good} {scheme} {forged}"),
        format!("{scheme} {forged},{scheme} {good}"),
        format!("{scheme} {good}, {scheme} {forged}"),
        format!("{scheme} {good},"),
        format!("{scheme} {good} {forged}"),
        format!("Other x {scheme} {good}"),
        format!("x{scheme} {good}"),
        format!("{scheme}\t{good}"),
        format!("{scheme} \t{good}"),
        format!("{scheme} \"{good}\""),
        format!("{scheme}: {good}"),
        format!("{scheme}={good}"),
        format!("Other {good}"),
        good.to_owned(),
        scheme.to_owned(),
    ]
    .map(|value| vec![value])
    .into();
    let (good, forged) = (format!("{scheme} {good}"), format!("{scheme} {forged}"));
    all.push(vec![good.clone(), forged.clone()]);
    all.push(vec![forged, good.clone()]);
    all.push(vec![good.clone(), "Other x".to_owned()]);
    all.push(vec!["Other x".to_owned(), good.clone()]);
    all.push(vec![good.clone(), good]);
    all
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_token_passes_alone_whatever_the_case_of_its_scheme() -> Result<()> {
    let (issuer, stranger) = (Issuer::new()?, Issuer::new()?);
    let site = Site::start(vec![policy(json!({"jwks": keys(&[issuer.jwk()])}))]).await?;
    let token = issuer.token(json!({}))?;
    for credentials in good("Bearer", &token) {
        for answer in expect(&site, &credentials, 200).await? {
            let sent = json!([credentials[0]]);
            ensure!(told(&answer, "authorization")? == sent, "as it is");
            ensure!(told(&answer, "x-gw-token")?.is_null(), "nothing of ours");
        }
    }
    let forged = stranger.token(json!({"sub": "admin"}))?;
    for credentials in bad("Bearer", &token, &forged) {
        expect(&site, &credentials, 401).await?;
    }
    // What a client writes in our headers is no token.
    let ours = [("x-gw-token", "Bearer x"), ("x-gw-no-token", &*token)];
    site.each(CLIENT, (HOST, "/admin"), &ours, 401).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_password_passes_alone_whatever_the_case_of_its_scheme() -> Result<()> {
    let users = json!({"apiVersion": "v1", "kind": "Secret", "type": "gatewright.io/htpasswd",
        "metadata": {"namespace": "default", "name": "staff"},
        "stringData": {".htpasswd": format!("alice:{SECRET}\n")}});
    let basic = admin_with("admin", json!({"basicAuth": {"users": {"name": "staff"}}}));
    let site = Site::start(vec![object(users), basic]).await?;
    for credentials in good("Basic", ALICE) {
        for answer in expect(&site, &credentials, 200).await? {
            let written = json!([format!("Basic {ALICE}")]);
            ensure!(
                told(&answer, "authorization")? == written,
                "{credentials:?}"
            );
        }
    }
    for credentials in bad("Basic", ALICE, "Ym9iOnNlY3JldA==") {
        expect(&site, &credentials, 401).await?;
    }
    Ok(())
}

/// Both listeners keep what a request of 8 KiB and more has, and Envoy reads no more of a token.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_token_has_at_most_8_kib() -> Result<()> {
    let issuer = Issuer::new()?;
    let site = Site::start(vec![policy(json!({"jwks": keys(&[issuer.jwk()])}))]).await?;
    for (padding, status) in [(5_000, 200), (8_000, 401), (20_000, 401)] {
        let token = issuer.token(json!({"padding": "p".repeat(padding)}))?;
        expect(&site, &[format!("Bearer {token}")], status).await?;
    }
    Ok(())
}

/// A policy for an audience, and what a token says.
fn audiences() -> Vec<(Value, u16)> {
    vec![
        (json!("shop"), 200),
        (json!(["other", "shop"]), 200),
        (json!("https://shop/"), 403),
        (json!("https://shop"), 403),
        (json!("http://shop"), 403),
        (json!("shop/"), 403),
        (json!("SHOP"), 403),
        (json!(["https://shop/", "other"]), 403),
        (json!({"shop": "shop"}), 401),
        (json!([]), 403),
        (json!(null), 403),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn audiences_are_compared_as_they_are() -> Result<()> {
    let issuer = Issuer::new()?;
    let jwt = json!({"audiences": ["shop"], "jwks": keys(&[issuer.jwk()])});
    let site = Site::start(vec![policy(jwt)]).await?;
    for (audience, status) in audiences() {
        let token = issuer.token(json!({"aud": audience}))?;
        let answers = expect(&site, &[format!("Bearer {token}")], status).await;
        answers.with_context(|| audience.to_string())?;
    }
    // One that is a URL is compared as a whole.
    let jwt = json!({"audiences": ["https://shop/"], "jwks": keys(&[issuer.jwk()])});
    site.world.settle(vec![policy(jwt)]).await?;
    for (audience, status) in [("https://shop/", 200), ("shop", 403), ("https://shop", 403)] {
        let token = issuer.token(json!({"aud": audience}))?;
        expect(&site, &[format!("Bearer {token}")], status).await?;
    }
    Ok(())
}

/// What docs/access.md says of claims in headers.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn claims_reach_backends_as_the_page_says_or_are_refused() -> Result<()> {
    let issuer = Issuer::new()?;
    let claims = json!([{"claim": "of", "header": "X-Of"}]);
    let jwt = json!({"jwks": keys(&[issuer.jwk()]), "claimToHeaders": claims});
    let site = Site::start(vec![policy(jwt)]).await?;
    for (claim, header) in [
        (json!("Zoe 3"), "Zoe 3"),
        (json!(3), "3"),
        (json!(9_007_199_254_740_992_u64), "9007199254740992"),
        (json!(9_007_199_254_740_993_u64), "9007199254740992"),
        (json!(-3), "-3.000000"),
        (json!(1.5), "1.500000"),
        (json!(true), "true"),
        (json!(["a"]), "WyJhIl0="),
    ] {
        let token = issuer.token(json!({"of": claim}))?;
        for answer in expect(&site, &[format!("Bearer {token}")], 200).await? {
            ensure!(told(&answer, "x-of")? == json!([header]), "{claim}");
        }
    }
    for claim in [
        "a\rb",
        "a\nb",
        "a\r\nx-admin: 1",
        "a\0b",
        "\u{7}",
        "a\u{7f}",
    ] {
        let token = issuer.token(json!({"of": claim}))?;
        let answers = expect(&site, &[format!("Bearer {token}")], 403).await;
        answers.with_context(|| format!("{claim:?}"))?;
    }
    Ok(())
}
