//! AccessPolicies that only report, on a real Envoy: they refuse, change and delay nothing, and the
//! access log names them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::issuer::{ISSUER, Issuer};
use e2e_inside::world::object;
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::access::{HOST, OTHER, Site, admin_with, policy_with};
use super::tokens::keys;
use super::users::told;

/// Envoy writes its lines at least every ten seconds.
const WRITTEN: Duration = Duration::from_secs(30);
/// The versions of HTTP by which each client asks.
const PROBES: usize = 4;

/// Waits until all lines of a path are written, and returns what each says of policies that would
/// have refused the request.
async fn reports(site: &Site, path: &str) -> Result<Vec<Value>> {
    let deadline = Instant::now() + WRITTEN;
    loop {
        let lines = site.world.access_log();
        let found = lines.iter().filter(|line| line["path"] == path);
        let found: Vec<Value> = found.map(|line| line["would_refuse"].clone()).collect();
        if found.len() == PROBES {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "{path}: {lines:#?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Sends requests by each version of HTTP, and expects this status, and these words of the log.
async fn expect(
    site: &Site,
    (client, host, path): (&str, &str, &str),
    status: u16,
    policy: Option<&str>,
) -> Result<()> {
    site.each(client, (host, path), &[], status).await?;
    let found = reports(site, path).await?;
    ensure!(
        found.iter().all(|one| one.as_str() == policy),
        "{client} for {host}{path}: {found:?}, not {policy:?}"
    );
    Ok(())
}

/// The parameters of the Gateway with a log of this mode.
fn parameters(site: &Site, mode: &str) -> Change {
    let spec = json!({"accessLog": {"mode": mode},
        "clients": [{"ports": [site.http, site.https], "forwardedFor": {"hops": 1}}]});
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "default", "name": "edge"}, "spec": spec}),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_reported_client_is_served_and_refused_once_the_policy_is_enforced() -> Result<()> {
    let gateway = json!({"kind": "Gateway", "name": "edge"});
    let outer = json!({"deny": ["203.0.113.0/24", "10.9.0.0/16"]});
    let inner = json!({"allow": ["10.0.0.0/8"]});
    let reported = |list: &Value| json!({"enforcement": "Report", "clientAddress": list});
    let site = Site::start(vec![
        policy_with("outer", gateway.clone(), reported(&outer)),
        admin_with("inner", reported(&inner)),
    ])
    .await?;
    for (client, host, path, would) in [
        ("10.2.0.1", HOST, "/admin/both", None),
        ("192.0.2.1", HOST, "/admin/inner", Some("default/inner")),
        ("10.9.0.1", HOST, "/admin/outer", Some("default/outer")),
        // The outermost one would have been the first.
        ("203.0.113.1", HOST, "/admin/first", Some("default/outer")),
        ("203.0.113.1", HOST, "/elsewhere", Some("default/outer")),
        ("192.0.2.1", OTHER, "/admin/other", None),
    ] {
        expect(&site, (client, host, path), 200, would).await?;
    }
    // One that is enforced says the same; the other one sees what passes.
    let enforced = json!({"clientAddress": outer});
    site.world
        .settle(vec![policy_with("outer", gateway, enforced)])
        .await?;
    for (client, path, status, would) in [
        ("203.0.113.1", "/admin/refused", 403, None),
        ("192.0.2.1", "/admin/passes", 200, Some("default/inner")),
    ] {
        expect(&site, (client, HOST, path), status, would).await?;
    }
    // Lines of errors alone are those of reports as well.
    site.world.settle(vec![parameters(&site, "Errors")]).await?;
    site.each("10.2.0.1", (HOST, "/admin/unlogged"), &[], 200)
        .await?;
    expect(
        &site,
        ("192.0.2.1", HOST, "/admin/errors"),
        200,
        Some("default/inner"),
    )
    .await?;
    let lines = site.world.access_log();
    ensure!(
        lines.iter().all(|line| line["path"] != "/admin/unlogged"),
        "a line of what nobody reports"
    );
    let enforced = json!({"clientAddress": inner});
    site.world
        .settle(vec![admin_with("inner", enforced)])
        .await?;
    expect(&site, ("192.0.2.1", HOST, "/admin/enforced"), 403, None).await
}

/// Sends a request with a token by each version of HTTP, and expects what the log says of it. The
/// backend gets what the client sends.
async fn passes(site: &Site, token: Option<&str>, path: &str, policy: Option<&str>) -> Result<()> {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let bearer = bearer.as_deref().map(|bearer| ("authorization", bearer));
    let headers: Vec<_> = [("x-sub", "root")].into_iter().chain(bearer).collect();
    for answer in site.each("10.2.0.1", (HOST, path), &headers, 200).await? {
        for (name, value) in &headers {
            ensure!(
                told(&answer, name)? == json!([value]),
                "{name} is as the client wrote it: {:?}",
                answer.echoed("headers")
            );
        }
        ensure!(told(&answer, "x-payload")?.is_null(), "no payload");
    }
    let found = reports(site, path).await?;
    ensure!(
        found.iter().all(|one| one.as_str() == policy),
        "{path}: {found:?}, not {policy:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn reported_tokens_reach_the_backend_as_the_client_wrote_them() -> Result<()> {
    let (issuer, stranger) = (Issuer::new()?, Issuer::new()?);
    let claims = json!([{"name": "scope", "valueType": "StringArray", "values": ["orders"]}]);
    let jwt = json!({"issuer": ISSUER, "audiences": ["shop"], "jwks": keys(&[issuer.jwk()]),
        "requiredClaims": claims, "claimToHeaders": [{"claim": "sub", "header": "X-Sub"}],
        "forwardPayloadHeader": "X-Payload", "credentials": "Remove"});
    let reporting = json!({"enforcement": "Report", "jwt": jwt});
    let site = Site::start(vec![admin_with("staff", reporting)]).await?;
    let good = json!({"sub": "alice", "scope": "openid orders"});
    let tokens = [
        (issuer.token(good.clone())?, false),
        (stranger.token(good.clone())?, true),
        (issuer.token(json!({"scope": "openid"}))?, true),
        (issuer.token(json!({"scope": "orders", "aud": "x"}))?, true),
        (issuer.token(json!({"scope": "orders", "exp": 1}))?, true),
        (issuer.token(json!({"scope": "orders", "iss": "x"}))?, true),
        ("no token".to_owned(), true),
    ];
    for (index, (token, would)) in tokens.iter().enumerate() {
        let path = format!("/admin/{index}");
        let expected = would.then_some("default/staff");
        passes(&site, Some(token), &path, expected)
            .await
            .with_context(|| format!("token {index}"))?;
    }
    passes(&site, None, "/admin/none", Some("default/staff")).await?;
    // A policy without claims asks for a token all the same.
    let jwt = json!({"issuer": ISSUER, "jwks": keys(&[issuer.jwk()])});
    let plain = json!({"enforcement": "Report", "jwt": jwt});
    site.world.settle(vec![admin_with("staff", plain)]).await?;
    let any = issuer.token(json!({}))?;
    passes(&site, Some(&any), "/admin/any", None).await?;
    passes(&site, None, "/admin/anonymous", Some("default/staff")).await?;
    let enforced = json!({"jwt": jwt});
    site.world
        .settle(vec![admin_with("staff", enforced)])
        .await?;
    expect(&site, ("10.2.0.1", HOST, "/admin/enforced"), 401, None).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn what_cannot_be_rehearsed_or_read_closes_nothing() -> Result<()> {
    let users = json!({"enforcement": "Report", "basicAuth": {"users": {"name": "users"}}});
    let list = json!({"enforcement": "Report", "clientAddress": {"allow": ["10.0.0.1/8"]}});
    let site = Site::start(vec![admin_with("users", users), admin_with("list", list)]).await?;
    expect(&site, ("192.0.2.1", HOST, "/admin/open"), 200, None).await
}
