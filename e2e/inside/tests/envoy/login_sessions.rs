//! Sessions of AccessPolicies with a login on a real Envoy, at a certified provider of OpenID
//! Connect: how they are renewed, which hosts share one, and whose tokens pass.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::oidc::{Browser, OTHER_USER, login};
use e2e::probe::Probe;
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::access::{HOST, OTHER};
use super::logins::{LONG, OTHER_PAGE, PAGE, Shop, policy, policy_with, written};
use super::users::told;

/// How long access tokens are valid, where a test waits for their end.
const SHORT: Duration = Duration::from_secs(4);
/// Time limit of a wait on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const DOMAIN: &str = "example.org";

/// A login with more fields.
fn login_with(more: &[(&str, Value)]) -> Value {
    let mut oidc = login();
    for (field, value) in more {
        oidc[field] = value.clone();
    }
    oidc
}

/// Waits until a browser has removed the session at a host, whose time is over.
async fn over(browser: &Browser, host: &str) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while browser
        .cookies(host)
        .keys()
        .any(|name| name.contains("gw-hmac"))
    {
        ensure!(Instant::now() < deadline, "{:?}", browser.cookies(host));
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// A browser with the cookies of a host at a host, by the names that another policy has.
fn carried(shop: &Shop, cookies: &Browser, from: &str, to: &str, names: [&str; 2]) -> Browser {
    let mut thief = shop.browser();
    for (name, value) in cookies.cookies(from) {
        thief.set_cookie(to, &name, &value);
        thief.set_cookie(to, &name.replace(names[0], names[1]), &value);
    }
    thief
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_refresh_token_renews_a_session_and_without_one_it_ends() -> Result<()> {
    let renewed = login_with(&[
        ("scopes", json!(["offline_access"])),
        ("forwardAccessToken", json!(true)),
    ]);
    let policies = vec![policy("shop", renewed), policy("other", login())];
    let shop = Shop::serving(SHORT, policies).await?;
    let mut browser = shop.session().await?;
    let answer = browser.open(PAGE).await?;
    let first = told(&answer, "authorization")?;
    let cookies = told(&answer, "cookie")?.to_string();
    ensure!(!cookies.contains("gw-refresh"), "a backend gets {cookies}");
    shop.log_in(&mut browser, OTHER_PAGE).await?;
    let old = browser.clone();
    over(&browser, OTHER).await?;
    over(&browser, HOST).await?;
    // Without a refresh token.
    let answer = browser.open(OTHER_PAGE).await?;
    ensure!(answer.status == 302, "the session ended: {answer:?}");
    shop.refuses(OTHER, &written(&old, OTHER)).await?;
    // With one that belongs to another policy.
    let names = ["default.shop", "default.other"];
    let mut thief = carried(&shop, &old, HOST, OTHER, names);
    ensure!(thief.open(OTHER_PAGE).await?.status == 302, "none of it");
    // With its own: no page of the provider, also for what is no page.
    let forms = shop.provider.requests("/login/username");
    let asked = shop.provider.requests("/oauth/token");
    let answer = browser.open(PAGE).await?;
    ensure!(answer.status == 200, "renewed: {answer:?}\n{}", shop.logs());
    ensure!(
        shop.provider.requests("/oauth/token") == asked + 1,
        "{}",
        shop.logs()
    );
    let second = told(&answer, "authorization")?;
    ensure!(second != first && second.is_array(), "{second} {first}");
    over(&browser, HOST).await?;
    let cookies = written(&browser, HOST);
    ensure!(cookies.contains("gw-refresh"), "{cookies}");
    let post = Probe::https(shop.address(), HOST).method(Method::POST);
    let post = post.header("cookie", &cookies);
    post.answered(200).await.with_context(|| shop.logs())?;
    ensure!(
        shop.provider.requests("/login/username") == forms,
        "nobody logged in: {}",
        shop.logs()
    );
    // The provider changed the refresh token each time: older ones renew nothing.
    let mut old = old;
    ensure!(old.open(PAGE).await?.status == 302, "it was used");
    shop.refuses(HOST, &written(&old, HOST)).await?;
    Ok(())
}

/// As docs/access.md has it: the provider gives another refresh token each time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn of_requests_at_once_one_renews_a_session_with_a_token_that_rotates() -> Result<()> {
    let renewed = login_with(&[("scopes", json!(["offline_access"]))]);
    let shop = Shop::serving(SHORT, vec![policy("shop", renewed)]).await?;
    let browser = shop.session().await?;
    over(&browser, HOST).await?;
    let cookies = written(&browser, HOST);
    let call = Probe::https(shop.address(), HOST).header("cookie", &cookies);
    let calls = (0..8).map(|_| call.send());
    let answers = futures::future::join_all(calls).await;
    let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    let renewed: Vec<_> = answers.iter().filter(|one| one.status == 200).collect();
    let refused = answers.iter().filter(|one| one.status == 401).count();
    ensure!(renewed.len() == 1, "{answers:?}");
    ensure!(refused == 7, "{answers:?}");
    let kept = renewed[0].headers.get_all("set-cookie").iter();
    let kept = kept.filter_map(|set| set.to_str().ok()?.split(';').next());
    let kept = kept.collect::<Vec<_>>().join("; ");
    let call = Probe::https(shop.address(), HOST).header("cookie", &kept);
    call.answered(200).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_logout_at_the_provider_ends_refresh_tokens() -> Result<()> {
    let renewed = login_with(&[("scopes", json!(["offline_access"]))]);
    let people = policy_with("people", &["shop", "other"], json!({"oidc": renewed}));
    let shop = Shop::serving(SHORT, vec![people]).await?;
    // A session is for its host, and a refresh token for each host of the policy.
    let spare = shop.session().await?;
    let mut elsewhere = shop.browser();
    for (name, value) in spare.cookies(HOST) {
        if !name.contains("gw-refresh") {
            elsewhere.set_cookie(OTHER, &name, &value);
        }
    }
    ensure!(elsewhere.open(OTHER_PAGE).await?.status == 302, "the host");
    let mut elsewhere = carried(&shop, &spare, HOST, OTHER, ["", ""]);
    ensure!(elsewhere.open(OTHER_PAGE).await?.status == 200, "renewed");
    // A logout by the browser alone.
    let mut browser = shop.session().await?;
    let copy = browser.clone();
    browser.open(&format!("https://{HOST}/logout")).await?;
    ensure!(browser.cookies(HOST).is_empty(), "no cookie");
    over(&copy, HOST).await?;
    // The provider does not know of the logout: the browser did not go there.
    let mut thief = copy.clone();
    let answer = thief.open(PAGE).await?;
    ensure!(answer.status == 200, "{answer:?}");
    let (_, answer) = thief.follow(&format!("https://{HOST}/logout")).await?;
    ensure!(answer.status == 200, "the page of the login: {answer:?}");
    ensure!(
        shop.provider.requests("/end_session") == 1,
        "{}",
        shop.logs()
    );
    let mut copy = copy;
    let answer = copy.open(PAGE).await?;
    ensure!(answer.status == 302, "the token is void: {answer:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn hosts_of_a_policy_share_a_session_in_a_domain_and_no_other_policy_does() -> Result<()> {
    let back = format!("https://{HOST}/oauth2/callback");
    let shared = login_with(&[
        ("cookieDomain", json!(DOMAIN)),
        ("redirectURL", json!(back)),
    ]);
    let people = policy_with("people", &["shop", "other"], json!({"oidc": shared}));
    let shop = Shop::serving(LONG, vec![people]).await?;
    let mut browser = shop.browser();
    // The way back is at the other host.
    let way = browser.log_in(OTHER_PAGE).await?;
    ensure!(way.starts_with(&back), "{way}");
    let (url, answer) = browser.follow(&way).await?;
    ensure!(
        (url.as_str(), answer.status) == (OTHER_PAGE, 200),
        "{url}: {answer:?}\n{}",
        shop.logs()
    );
    let answer = browser.open(PAGE).await?;
    ensure!(answer.status == 200, "the same session: {answer:?}");
    for name in browser.cookies(HOST).keys() {
        ensure!(name.starts_with("gw-"), "of the domain: {name}");
    }
    shop.refuses(HOST, "").await?;
    // The end at one host is the end at both.
    let mut gone = browser.clone();
    gone.open(&format!("https://{HOST}/logout")).await?;
    for page in [PAGE, OTHER_PAGE] {
        let answer = gone.open(page).await?;
        ensure!(answer.status == 302, "{page}: {answer:?}");
    }
    // Another policy with the same domain, client and secret, whose host gets the cookies.
    let other = login_with(&[("cookieDomain", json!(DOMAIN))]);
    let alone = policy_with("people", &["shop"], json!({"oidc": other}));
    let world = &shop.site.world;
    world.settle(vec![alone, policy("other", other)]).await?;
    ensure!(browser.open(PAGE).await?.status == 200, "its own");
    let answer = browser.open(OTHER_PAGE).await?;
    ensure!(answer.status == 302, "the other's: {answer:?}");
    shop.refuses(OTHER, &written(&browser, OTHER)).await?;
    let names = ["default.people", "default.other"];
    let mut thief = carried(&shop, &browser, HOST, OTHER, names);
    ensure!(thief.open(OTHER_PAGE).await?.status == 302, "none of it");
    shop.refuses(OTHER, &written(&thief, OTHER)).await?;
    // Browsers refuse cookies for a domain that is not theirs: nobody is sent to log in.
    let strange = login_with(&[("cookieDomain", json!(OTHER))]);
    let strange = policy_with("people", &["shop"], json!({"oidc": strange}));
    world.settle(vec![strange]).await?;
    let answer = shop.browser().open(PAGE).await?;
    ensure!(answer.status == 401, "{answer:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_token_of_a_login_has_to_have_the_claims_of_the_policy() -> Result<()> {
    let oidc = login_with(&[("forwardAccessToken", json!(true))]);
    let issuer = &oidc["provider"]["issuer"];
    let keys = json!({"remote": {"uri": format!("{}/keys", issuer.as_str().context("a URL")?),
        "backendRef": {"name": "id", "port": 443}}});
    let jwt = json!({"issuer": issuer, "audiences": ["shop"], "jwks": keys,
        "requiredClaims": [{"name": "sub", "values": ["id1"]}],
        "claimToHeaders": [{"claim": "sub", "header": "X-Sub"}]});
    let people = policy_with("people", &["shop"], json!({"oidc": oidc, "jwt": jwt}));
    let shop = Shop::serving(LONG, vec![people]).await?;
    let mut browser = shop.session().await?;
    let answer = browser.open(PAGE).await?;
    ensure!(told(&answer, "x-sub")? == json!(["id1"]), "{answer:?}");
    let token = told(&answer, "authorization")?;
    let token = token[0].as_str().context("a token")?.to_owned();
    // The token without the login opens nothing.
    let bearer = Probe::https(shop.address(), HOST).header("authorization", &token);
    bearer.answered(401).await?;
    let page = bearer.clone().header("accept", "text/html");
    page.answered(302).await?;
    // Another user, who has a session, and writes the token of the first one.
    let mut other = shop.browser();
    let way = other.log_in_as(OTHER_USER, PAGE).await?;
    let (_, answer) = other.follow(&way).await?;
    ensure!(answer.status == 403, "{answer:?}\n{}", shop.logs());
    let cookies = written(&other, HOST);
    let pretends = bearer.header("cookie", &cookies);
    pretends.answered(403).await?;
    Ok(())
}
