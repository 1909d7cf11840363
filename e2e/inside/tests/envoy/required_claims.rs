//! Claims that AccessPolicies ask for, on a real Envoy: tokens without one are answered 403.

use anyhow::{Context, Result, ensure};
use e2e::issuer::{ISSUER, Issuer};
use gatewright_core::translate::Change;
use serde_json::{Value, json};

use super::access::{Site, policy_with};
use super::tokens::{expect, keys, policy};

/// Expects a status for tokens with each of these claims.
async fn answered(site: &Site, issuer: &Issuer, status: u16, all: &[Value]) -> Result<()> {
    for claims in all {
        let token = issuer.token(claims.clone())?;
        expect(site, Some(&token), status)
            .await
            .with_context(|| format!("{claims}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_token_has_all_claims_with_one_of_their_values() -> Result<()> {
    let (issuer, stranger) = (Issuer::new()?, Issuer::new()?);
    let claims = json!([
        {"name": "org.roles", "valueType": "StringArray", "values": ["admin", "owner"]},
        {"name": "tier", "values": ["gold"]},
    ]);
    let jwt = json!({"jwks": keys(&[issuer.jwk()]), "requiredClaims": claims});
    let site = Site::start(vec![policy(jwt)]).await?;
    let good = [
        json!({"org": {"roles": ["owner"]}, "tier": "gold"}),
        json!({"org": {"roles": ["x", "admin"], "more": 1}, "tier": "gold"}),
    ];
    answered(&site, &issuer, 200, &good).await?;
    let lacking = [
        json!({}),
        json!({"tier": "gold"}),
        json!({"org": {"roles": ["owner"]}}),
        json!({"org": {"roles": ["owner"]}, "tier": "Gold"}),
        json!({"org": {"roles": ["owner"]}, "tier": "gold "}),
        json!({"org": {"roles": ["owner"]}, "tier": ["gold"]}),
        json!({"org": {"roles": ["owner"]}, "tier": true}),
        json!({"org": {"roles": []}, "tier": "gold"}),
        json!({"org": {"roles": [["owner"]]}, "tier": "gold"}),
        json!({"org": {"roles": "owner"}, "tier": "gold"}),
        json!({"org": [{"roles": ["owner"]}], "tier": "gold"}),
        json!({"org.roles": ["owner"], "tier": "gold"}),
        json!({"roles": ["owner"], "tier": "gold"}),
    ];
    answered(&site, &issuer, 403, &lacking).await?;
    answered(&site, &stranger, 401, &good).await?;
    expect(&site, None, 401).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn scopes_are_a_list_and_other_texts_with_spaces_are_none() -> Result<()> {
    let issuer = Issuer::new()?;
    let claims = json!([
        {"name": "scope", "valueType": "StringArray", "values": ["orders:read"]},
        {"name": "groups", "valueType": "StringArray", "values": ["admins"]},
    ]);
    let jwt = json!({"jwks": keys(&[issuer.jwk()]), "requiredClaims": claims});
    let site = Site::start(vec![policy(jwt)]).await?;
    let good = [
        json!({"scope": "openid orders:read", "groups": ["admins"]}),
        json!({"scope": ["orders:read"], "groups": ["admins"]}),
    ];
    answered(&site, &issuer, 200, &good).await?;
    let lacking = [
        json!({"scope": "openid orders:reader", "groups": ["admins"]}),
        json!({"scope": "openid", "groups": ["admins"]}),
        json!({"scope": "orders:read", "groups": "no admins"}),
        json!({"scope": "orders:read", "groups": ["no admins"]}),
    ];
    answered(&site, &issuer, 403, &lacking).await
}

/// A policy on the route as a whole.
fn of_route(jwt: Value) -> Change {
    let route = json!({"kind": "HTTPRoute", "name": "shop"});
    policy_with("shop", route, json!({"jwt": jwt}))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn claims_of_several_policies_add_up_and_a_missing_one_is_logged() -> Result<()> {
    let issuer = Issuer::new()?;
    let group = json!([{"name": "group", "values": ["staff"]}]);
    let team = json!([{"name": "team", "values": ["red"]}]);
    let outer = json!({"issuer": ISSUER, "jwks": keys(&[issuer.jwk()]), "requiredClaims": group});
    let inner = json!({"jwks": keys(&[issuer.jwk()]), "requiredClaims": team});
    let site = Site::start(vec![of_route(outer), policy(inner)]).await?;
    let lacking = [json!({"group": "staff"}), json!({"team": "red"})];
    answered(&site, &issuer, 403, &lacking).await?;
    let both = [json!({"group": "staff", "team": "red"})];
    answered(&site, &issuer, 200, &both).await?;
    let reason = site.reason("/admin").await?;
    ensure!(reason == Some("ClaimMissing"), "{reason:?}");
    Ok(())
}
