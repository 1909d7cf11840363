//! AccessPolicies with tokens (JSON Web Tokens) on a real Envoy: whose tokens pass, what backends
//! get of them, and a table of keys that are odd: Envoy loads each set that is accepted.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use e2e::issuer::{ISSUER, Issuer, encoded};
use e2e::key_server::KeyServer;
use e2e::probe::Answer;
use e2e_inside::world::{gatewright, object, service};
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::access::{HOST, OTHER, Site, admin_with};
use super::users::told;

const CLIENT: &str = "10.2.0.1";
/// Time limit of a wait on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A policy on the rule `admin` of the route.
pub(super) fn policy(mut jwt: Value) -> Change {
    jwt["issuer"] = json!(ISSUER);
    admin_with("admin", json!({"jwt": jwt}))
}

pub(super) fn keys(all: &[Value]) -> Value {
    json!({"inline": json!({"keys": all}).to_string()})
}

/// Sends a request with a token by each version of HTTP, and expects this status.
pub(super) async fn expect(site: &Site, token: Option<&str>, status: u16) -> Result<Vec<Answer>> {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let bearer = bearer.as_deref().map(|bearer| ("authorization", bearer));
    let headers: Vec<_> = [("x-sub", "root")].into_iter().chain(bearer).collect();
    site.each(CLIENT, (HOST, "/admin"), &headers, status).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn tokens_of_the_issuer_pass_and_backends_get_their_claims() -> Result<()> {
    let (issuer, stranger) = (Issuer::new()?, Issuer::new()?);
    let claims =
        json!([{"claim": "sub", "header": "X-Sub"}, {"claim": "org.team", "header": "X-Team"}]);
    let jwt = json!({"audiences": ["shop", "shop2"], "jwks": keys(&[issuer.jwk()]),
        "claimToHeaders": claims, "forwardPayloadHeader": "X-Payload", "credentials": "Remove"});
    let site = Site::start(vec![policy(jwt)]).await?;
    let good = issuer.token(json!({"sub": "alice", "org": {"team": "red"}}))?;
    for answer in expect(&site, Some(&good), 200).await? {
        ensure!(
            told(&answer, "x-sub")? == json!(["alice"]),
            "the claim alone"
        );
        ensure!(told(&answer, "x-team")? == json!(["red"]), "a nested claim");
        ensure!(told(&answer, "authorization")?.is_null(), "no token");
        ensure!(told(&answer, "x-payload")?.is_array(), "the payload");
    }
    // A claim that the token does not have is not taken from the client.
    let anonymous = issuer.token(json!({}))?;
    for answer in expect(&site, Some(&anonymous), 200).await? {
        ensure!(told(&answer, "x-sub")?.is_null(), "nobody");
    }
    expect(&site, None, 401).await?;
    for (claims, status) in [
        (json!({"iss": "https://other.example.org"}), 401),
        (json!({"exp": 1}), 401),
        (json!({"exp": null}), 401),
        (json!({"aud": "other"}), 403),
        (json!({"aud": ["other", "shop2"]}), 200),
    ] {
        let token = issuer.token(claims)?;
        expect(&site, Some(&token), status).await?;
    }
    let forged = stranger.token(json!({"sub": "alice"}))?;
    expect(&site, Some(&forged), 401).await?;
    let unsigned = encoded(br#"{"alg":"none"}"#);
    let payload = good.split('.').nth(1).context("a payload")?;
    expect(&site, Some(&format!("{unsigned}.{payload}.")), 401).await?;
    // Not in the address, and not at another host.
    let by_address = format!("/admin?access_token={good}");
    for probe in site.by(CLIENT, HOST, &by_address) {
        ensure!(probe.send().await?.status == 401, "{probe:?}");
    }
    for probe in site.by(CLIENT, OTHER, "/admin") {
        ensure!(probe.send().await?.status == 200, "{probe:?}");
    }
    Ok(())
}

/// Waits until a token is answered with this status.
async fn until(site: &Site, token: &str, status: u16) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    let bearer = format!("Bearer {token}");
    for probe in site.by(CLIENT, HOST, "/admin") {
        let probe = probe.header("authorization", &bearer);
        loop {
            let found = probe.send().await?.status;
            if found == status {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "{probe:?} is answered {found}, not {status}"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn keys_of_a_service_are_fetched_and_fetched_again() -> Result<()> {
    let (issuer, next) = (Issuer::new()?, Issuer::new()?);
    let (token, of_next) = (issuer.token(json!({}))?, next.token(json!({}))?);
    let server = KeyServer::start(&[issuer.jwk()]).await?;
    let remote = json!({"uri": "https://id.example.org/keys", "cacheDuration": "10s",
        "backendRef": {"name": "keys", "port": 80}});
    let changes = service("keys", server.address())
        .into_iter()
        .chain([policy(json!({"jwks": {"remote": remote}}))]);
    let site = Site::start(changes.collect()).await?;
    ensure!(server.asked().is_empty(), "nobody has sent a token");
    until(&site, &token, 200).await?;
    expect(&site, Some(&of_next), 401).await?;
    expect(&site, None, 401).await?;
    let asked = server.asked();
    ensure!(
        !asked.is_empty() && asked.iter().all(|url| url == "id.example.org/keys"),
        "{asked:?}"
    );
    // The issuer changes its key.
    server.show(&[next.jwk()]);
    until(&site, &of_next, 200).await?;
    until(&site, &token, 401).await?;
    // Sets that Envoy would load, though the first key is good.
    for (set, why) in beyond(&next.jwk()) {
        server.show(&set);
        let refused = until(&site, &of_next, 401).await;
        refused.with_context(|| why.to_owned())?;
        server.show(&[next.jwk()]);
        until(&site, &of_next, 200).await?;
    }
    for (set, why) in within(&next.jwk()) {
        server.show(&[issuer.jwk()]);
        until(&site, &of_next, 401).await?;
        server.show(&set);
        let taken = until(&site, &of_next, 200).await;
        taken.with_context(|| why.to_owned())?;
    }
    // Nobody answers for the keys.
    drop(server);
    until(&site, &of_next, 401).await?;
    for probe in site.by(CLIENT, OTHER, "/admin") {
        ensure!(probe.send().await?.status == 200, "{probe:?}");
    }
    Ok(())
}

/// The base points of P-384 and P-521 (SP 800-186).
fn p384() -> Value {
    json!({"kty": "EC", "crv": "P-384",
        "x": "qofKIr6LBTeOscce8yCtdG4dO2KLp5uYWfdB4IJUKjhVAvJdv1UpbDpUXjhydgq3",
        "y": "NhfeSpYmLG9dnpi_kpLcKfj0Hb0omhR86doxE7XwuMAKYLHOHX6BnXpDHXyQ6g5f"})
}

fn p521() -> Value {
    json!({"kty": "EC", "crv": "P-521",
        "x": "AMaFjga3BATpzZ4-y2YjlbRCnGSBOQU_tSH4KK9ga009uqFLXnfv51ko_h3BJ6L_qN4zSLPBhWpCm_l-fjHC5b1m",
        "y": "ARg5KWp4mjvABFyKX7QsfRvZmPVESVebRGgXr70XJz5mLJfucple9CZAxVC5AT-tB2E1PHCGonLCQIi-lHaf0WZQ"})
}

fn behind(first: &Value, others: Vec<Value>) -> Vec<Value> {
    std::iter::once(first.clone()).chain(others).collect()
}

/// Sets that no Envoy takes, with a good key at their start.
fn beyond(good: &Value) -> Vec<(Vec<Value>, &'static str)> {
    let long = json!({"kty": "RSA", "n": encoded(&[0xd5; 1024]), "e": "AQAB"});
    let slow = json!({"kty": "RSA", "n": encoded(&[0xd5; 512]), "e": "Af____8"});
    let large = json!({"kty": "EC", "crv": "P-256", "x": good["x"], "y": good["y"],
        "x5c": ["a".repeat(40_000)]});
    let spelled = json!({"kty": "EC", "crv": "P-256", "x": good["x"], "y": good["y"],
        "note": "a\"b"});
    vec![
        (
            vec![good.clone(); 700],
            "more bytes than an answer has room for",
        ),
        (vec![good.clone(); 17], "17 keys"),
        (behind(good, vec![p521(); 2]), "two of P-521"),
        (behind(good, vec![p384(); 3]), "three of P-384"),
        (behind(good, vec![p521(), p384()]), "of both"),
        (behind(good, vec![long]), "8192 bits"),
        (behind(good, vec![slow]), "a long exponent"),
        (behind(good, vec![large]), "40,000 bytes"),
        (behind(good, vec![spelled]), "an escape"),
    ]
}

/// Sets that they do take.
fn within(good: &Value) -> Vec<(Vec<Value>, &'static str)> {
    let slash = json!({"kty": "EC", "crv": "P-256", "x": good["x"], "y": good["y"],
        "x5c": ["a".repeat(20_000)]});
    vec![
        (vec![good.clone(); 16], "16 keys"),
        (behind(good, vec![p521()]), "one of P-521"),
        (behind(good, vec![p384(); 2]), "two of P-384"),
        (behind(good, vec![rsa(4096, 0xd5, "AQAB"); 3]), "RSA"),
        (behind(good, vec![slash]), "certificates"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn what_follows_a_token_whose_keys_are_fetched_is_asked_for_as_well() -> Result<()> {
    let issuer = Issuer::new()?;
    let server = KeyServer::start(&[issuer.jwk()]).await?;
    let remote = json!({"uri": "https://id.example.org/keys", "cacheDuration": "10s",
        "backendRef": {"name": "keys", "port": 80}});
    let claims = json!([{"name": "groups", "valueType": "StringArray", "values": ["staff"]}]);
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop",
        "sectionName": "admin"});
    let limits = json!([{"limit": {"requests": 3, "per": "Hour"}, "by": {"type": "Everyone"}}]);
    let limit = gatewright(
        "TrafficPolicy",
        "admin",
        json!({"targetRefs": [target], "rateLimit": limits}),
    );
    let guard = policy(json!({"jwks": {"remote": remote}, "requiredClaims": claims}));
    let changes = service("keys", server.address()).into_iter().chain([guard]);
    let site = Site::start(changes.collect()).await?;
    let stranger = issuer.token(json!({"groups": ["guests"]}))?;
    let staff = issuer.token(json!({"groups": ["staff"]}))?;
    // Each worker fetches the keys when the first token comes.
    for _ in 0..4 {
        expect(&site, Some(&stranger), 403).await?;
    }
    expect(&site, Some(&staff), 200).await?;
    // The filters of all matches of the rule are made together now, and forget the keys.
    site.world.settle(vec![limit]).await?;
    for _ in 0..4 {
        expect(&site, Some(&stranger), 403).await?;
    }
    for probe in site.by(CLIENT, HOST, "/admin") {
        let probe = probe.header("authorization", &format!("Bearer {staff}"));
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(probe.send().await?.status);
        }
        ensure!(
            statuses.ends_with(&[429]) && statuses.iter().all(|one| [200, 429].contains(one)),
            "{probe:?}: {statuses:?}"
        );
    }
    Ok(())
}

fn p256(x: &str, y: &str) -> Value {
    json!({"kty": "EC", "crv": "P-256", "x": x, "y": y})
}

/// A key with a modulus of so many bits and this last byte.
fn rsa(bits: usize, last: u8, e: &str) -> Value {
    let mut modulus = vec![0xd5; bits / 8];
    *modulus.last_mut().expect("it has bytes") = last;
    json!({"kty": "RSA", "n": encoded(&modulus), "e": e})
}

/// Keys that are odd, and whether the set is accepted with a good key behind them.
fn odd() -> Vec<(Value, bool)> {
    // The base point of P-256 (SP 800-186).
    let x = "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY";
    let y = "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU";
    let mut with_zero = vec![0];
    with_zero.extend(URL_SAFE_NO_PAD.decode(x).expect("Base64"));
    vec![
        (p256(x, y), true),
        (p256(x, x), false),
        (p256(&encoded(&with_zero), y), false),
        (p256("", ""), false),
        (p256("AAAA", "AAAA"), false),
        (p256(&format!("{x}="), y), false),
        (json!({"kty": "EC", "crv": "P-384", "x": x, "y": y}), false),
        (
            json!({"kty": "EC", "crv": "secp256k1", "x": x, "y": y}),
            false,
        ),
        (
            json!({"kty": "EC", "crv": "P-256", "alg": "ES384", "x": x, "y": y}),
            false,
        ),
        (json!({"kty": "EC", "crv": "P-256", "x": 7, "y": y}), false),
        (rsa(2048, 0xd5, "AQAB"), true),
        (rsa(2048, 0xd5, "Aw"), true),
        (rsa(4096, 0xd5, "AQAB"), true),
        (rsa(2048, 0xd4, "AQAB"), false),
        (rsa(2048, 0xd5, "AQAA"), false),
        (rsa(2048, 0xd5, "AQ"), false),
        (rsa(2048, 0xd5, "EQ"), true),
        (rsa(2048, 0xd5, "AQAD"), false),
        (rsa(2048, 0xd5, "AgAAAAAB"), false),
        (rsa(1024, 0xd5, "AQAB"), false),
        (rsa(8192, 0xd5, "AQAB"), false),
        (rsa(2048, 0xd5, ""), false),
        (json!({"kty": "RSA", "n": "", "e": "AQAB"}), false),
        (json!({"kty": "RSA", "use": "enc", "alg": "RSA-OAEP"}), true),
        (json!({"kty": "OKP", "crv": "Ed25519", "x": x}), true),
        (json!({"kty": "unheard-of"}), true),
        (json!({"kty": "oct", "k": "c2VjcmV0"}), false),
        (json!({}), false),
        (json!("key"), false),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn sets_of_odd_keys_are_loaded_by_envoy_or_close_their_policy() -> Result<()> {
    let issuer = Issuer::new()?;
    let site = Site::start(Vec::new()).await?;
    let token = issuer.token(json!({}))?;
    for (key, is_accepted) in odd() {
        let jwks = keys(&[key.clone(), issuer.jwk()]);
        // It waits until Envoy has acknowledged all resources.
        site.world
            .settle(vec![policy(json!({"jwks": jwks}))])
            .await?;
        let status = if is_accepted { 200 } else { 500 };
        expect(&site, Some(&token), status)
            .await
            .with_context(|| format!("{key}"))?;
        let [probe, ..] = site.by(CLIENT, HOST, "/");
        ensure!(probe.send().await?.status == 200, "the rest: {key}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn keys_of_a_config_map_are_replaced_and_their_loss_closes_the_policy() -> Result<()> {
    let (issuer, next) = (Issuer::new()?, Issuer::new()?);
    fn map(keys: &[Value]) -> Change {
        object(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": "keys"},
            "data": {"jwks.json": json!({"keys": keys}).to_string()}}))
    }
    let reference = json!({"configMapRef": {"name": "keys", "key": "jwks.json"}});
    let site = Site::start(vec![policy(json!({"jwks": reference}))]).await?;
    let (token, next_token) = (issuer.token(json!({}))?, next.token(json!({}))?);
    expect(&site, Some(&token), 500).await?;
    site.world.settle(vec![map(&[issuer.jwk()])]).await?;
    expect(&site, Some(&token), 200).await?;
    expect(&site, Some(&next_token), 401).await?;
    site.world.settle(vec![map(&[next.jwk()])]).await?;
    expect(&site, Some(&token), 401).await?;
    expect(&site, Some(&next_token), 200).await?;
    let key = ObjectKey::new(Kind::ConfigMap, ObjectName::new("default", "keys"));
    site.world.settle(vec![Change::delete(key)]).await?;
    expect(&site, Some(&next_token), 500).await?;
    Ok(())
}
