//! AccessPolicies with a login on a real Envoy, at a provider that answers what it should not: what
//! logs have of it, which sessions browsers keep, and what the provider gets.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use e2e::oidc::{Browser, CLIENT_ID, ISSUER_HOST, client_secret};
use e2e::probe::Probe;
use e2e::scripted_provider::{CODE, ScriptedProvider};
use e2e::webdriver::DrivenBrowser;
use e2e_inside::world::{edge_route, object, service};
use futures::{StreamExt, TryStreamExt, stream};
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::access::{HOST, OTHER, Site};
use super::logins::{OTHER_PAGE, PAGE, policy, policy_with, written};
use super::users::told;

/// What is in everything that must not be logged.
const CANARY: &str = "canari";
const SECRET: &str = "canari-secret-of-the-client";
const BACK: &str = "/oauth2/callback";
/// The most bytes of a cookie's name and value that browsers keep.
const COOKIE: usize = 4096;

struct Scripted {
    site: Site,
    provider: ScriptedProvider,
}

/// A login at the provider, whose pages are behind the same port as the site's.
fn login(more: &Value) -> Value {
    let id = format!("https://{ISSUER_HOST}");
    let mut oidc = json!({"clientID": CLIENT_ID, "clientSecret": {"name": "login"},
        "scopes": ["offline_access"],
        "provider": {"issuer": id, "authorizationEndpoint": format!("{id}/auth"),
            "tokenEndpoint": format!("{id}/token"), "backendRef": {"name": "id", "port": 80}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        if field == "endSessionEndpoint" {
            oidc["provider"][field] = value.clone();
        } else {
            oidc[field] = value.clone();
        }
    }
    oidc
}

fn secret(text: &str) -> Change {
    object(client_secret("default", "login", text))
}

impl Scripted {
    async fn start(policies: Vec<Change>) -> Result<Self> {
        let provider = ScriptedProvider::start().await?;
        let rules = json!([{"backendRefs": [{"name": "id", "port": 80}]}]);
        let mut changes = service("id", provider.address());
        changes.push(edge_route("id", ISSUER_HOST, rules));
        changes.push(secret(SECRET));
        changes.extend(policies);
        let site = Site::start(changes).await?;
        Ok(Self { site, provider })
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.site.https))
    }

    fn hosts(&self) -> [(&'static str, SocketAddr); 3] {
        [HOST, OTHER, ISSUER_HOST].map(|host| (host, self.address()))
    }

    fn browser(&self) -> Browser {
        Browser::new(&self.hosts())
    }

    /// A browser that has begun a login, and the URL of its way back.
    async fn begun(&self, page: &str) -> Result<(Browser, String)> {
        let mut browser = self.browser();
        let answer = browser.open(page).await?;
        let target = answer.header("location").context("a redirect")?.to_owned();
        let answer = browser.open(&target).await?;
        let back = answer.header("location").context("the way back")?;
        Ok((browser, back.to_owned()))
    }

    /// The status of the way back of a login.
    async fn finished(&self) -> Result<(Browser, u16)> {
        let (mut browser, back) = self.begun(PAGE).await?;
        let answer = browser.open(&back).await?;
        Ok((browser, answer.status))
    }
}

fn log(ports: [u16; 2], query: &str) -> Change {
    let clients = json!([{"ports": ports, "forwardedFor": {"hops": 1}}]);
    let log = json!({"mode": "All", "query": query, "requestHeaders": ["referer"],
        "responseHeaders": ["location"]});
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "default", "name": "edge"},
        "spec": {"accessLog": log, "clients": clients}}),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn nothing_of_a_provider_and_of_a_login_is_logged() -> Result<()> {
    let end = format!("https://{ISSUER_HOST}/end_session");
    let all = json!({"forwardAccessToken": true, "endSessionEndpoint": end});
    let shop = Scripted::start(vec![policy("shop", login(&all))]).await?;
    let huge = format!("{{\"access_token\": \"{}\"}}", CANARY.repeat(20_000));
    let tokens = json!({"access_token": "canari", "id_token": "canari",
        "refresh_token": "canari", "expires_in": "in an hour: canari"});
    for query in ["Omit", "Keep"] {
        let ports = [shop.site.http, shop.site.https];
        shop.site.world.settle(vec![log(ports, query)]).await?;
        for (status, kind, body) in [
            (200, "application/json", tokens.to_string()),
            (
                200,
                "application/json",
                r#"{"access_token": 5, "id_token": "canari"}"#.to_owned(),
            ),
            (
                200,
                "application/json",
                r#"{"id_token": "canari: a{b} c?d"}"#.to_owned(),
            ),
            (
                200,
                "application/json",
                r#"{"access_token": "canari", "expires_in": 0}"#.to_owned(),
            ),
            (
                200,
                "application/json",
                r#"{"access_token": "canari", "expires_in": -1}"#.to_owned(),
            ),
            (200, "application/json", r#"["canari"]"#.to_owned()),
            (200, "application/json", "\"canari".to_owned()),
            (200, "text/html", "<p>canari: {canari}</p>".to_owned()),
            (200, "text/plain", String::new()),
            (200, "application/json", huge.clone()),
            (204, "application/json", String::new()),
            (302, "text/plain", CANARY.to_owned()),
            (
                400,
                "application/json",
                r#"{"error": "canari", "error_description": "canari"}"#.to_owned(),
            ),
            (401, "text/plain", "canari{canari".to_owned()),
            (500, "text/plain", CANARY.to_owned()),
            (503, "text/html", "canari?canari".to_owned()),
        ] {
            shop.provider.answers(status, kind, &body);
            let (_, answered) = shop.finished().await?;
            ensure!(
                matches!(answered, 401 | 503),
                "{status} {body:.80}: {answered}"
            );
            // The same where a session is renewed.
            for (name, accept) in [("page", "text/html"), ("call", "*/*")] {
                let refresh = format!("__Host-gw-refresh.default.shop=canari-{name}");
                let probe = Probe::https(shop.address(), HOST).path(&format!("/{name}"));
                let probe = probe.header("cookie", &refresh).header("accept", accept);
                let answer = probe.send().await?;
                ensure!(matches!(answer.status, 302 | 401), "{body:.80}: {answer:?}");
            }
        }
        // Answers through the browser that are none of a login which it has begun.
        let state =
            BASE64_URL_SAFE_NO_PAD.encode(r#"{"url": "https://canari/: a", "flow_id": "canari"}"#);
        let text = BASE64_URL_SAFE_NO_PAD.encode("canari: canari");
        for fields in [
            "error=canari&error_description=canari&state=canari".to_owned(),
            format!("code={CODE}&state=canari"),
            format!("code={CODE}&state={state}"),
            format!("code={CODE}&state={text}"),
        ] {
            let probe = Probe::https(shop.address(), HOST).path(&format!("{BACK}?{fields}"));
            let referer = format!("https://{HOST}{BACK}?{fields}");
            probe.header("referer", &referer).answered(401).await?;
        }
        let (mut browser, back) = shop.begun(PAGE).await?;
        for name in browser
            .cookies(HOST)
            .keys()
            .filter(|name| name.contains("verifier"))
        {
            browser.set_cookie(HOST, name, "canari-verifier");
        }
        ensure!(
            browser.open(&back).await?.status == 401,
            "a verifier of nobody"
        );
        // A login, and its end, whose URL has the ID token.
        shop.provider.gives(&json!({}));
        let (mut browser, status) = shop.finished().await?;
        ensure!(status == 302, "{status}");
        ensure!(browser.open(PAGE).await?.status == 200, "a session");
        let answer = browser.open(&format!("https://{HOST}/logout")).await?;
        let hint = answer.header("location").context("the end")?;
        ensure!(hint.contains("id_token_hint=canari-id"), "{hint}");
        let last = format!("/last-{query}");
        Probe::https(shop.address(), HOST)
            .path(&last)
            .answered(401)
            .await?;
        let reason = shop.site.reason(&last).await?;
        ensure!(reason == Some("Unauthenticated"), "{reason:?}");
        let failed = shop.site.reason(BACK).await?;
        ensure!(failed == Some("LoginFailed"), "{failed:?}");
    }
    let lines = shop.site.world.access_log();
    let with: Vec<&Value> = lines
        .iter()
        .filter(|line| line.to_string().contains(CANARY))
        .collect();
    ensure!(with.is_empty(), "{with:#?}");
    let envoy = shop.site.world.envoy.log();
    ensure!(!envoy.contains(CANARY), "Envoy's own log: {envoy}");
    Ok(())
}

/// The bytes of a cookie with a token of so many bytes: 16 of a vector, whole blocks of 16 with at
/// least one byte more than the token, all of it in base64 without padding.
fn cookie(name: &str, token: usize) -> usize {
    let encrypted = 16 + (token / 16 + 1) * 16;
    name.len() + (encrypted * 4).div_ceil(3)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_session_that_browsers_would_not_keep_is_refused() -> Result<()> {
    let end = json!({"endSessionEndpoint": format!("https://{ISSUER_HOST}/end_session")});
    let forwards = json!({"forwardAccessToken": true});
    let shop = Scripted::start(vec![policy("shop", login(&json!({})))]).await?;
    for (more, token, part) in [
        (&forwards, "access_token", "access"),
        (&end, "id_token", "id"),
        (&json!({}), "refresh_token", "refresh"),
    ] {
        let world = &shop.site.world;
        world.settle(vec![policy("shop", login(more))]).await?;
        let name = format!("__Host-gw-{part}.default.shop");
        let most = (2900..3100)
            .rev()
            .find(|bytes| cookie(&name, *bytes) <= COOKIE);
        let most = most.context("a size that fits")?;
        for (bytes, expected) in [
            (100, 302),
            (most, 302),
            (most + 1, 431),
            (6000, 431),
            (20_000, 431),
        ] {
            shop.provider.gives(&json!({token: "t".repeat(bytes)}));
            let (mut browser, status) = shop.finished().await?;
            ensure!(status == expected, "{bytes} bytes of {token}: {status}");
            let kept = browser.cookies(HOST).contains_key(&name);
            ensure!(kept == (status == 302), "{bytes} bytes of {token}: {kept}");
            if kept {
                let answer = browser.open(PAGE).await?;
                ensure!(answer.status == 200, "{bytes} bytes of {token}: {answer:?}");
            }
        }
        // Nobody needs the others.
        let large = json!({"access_token": "t".repeat(9000), "id_token": "t".repeat(9000),
            "refresh_token": "t", token: "t"});
        shop.provider.gives(&large);
        let (_, status) = shop.finished().await?;
        ensure!(status == 302, "without {token}: {status}");
    }
    let reason = shop.site.reason(BACK).await?;
    ensure!(
        reason.is_none_or(|reason| reason == "SessionTooLarge"),
        "{reason:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Chromium"]
async fn a_browser_is_told_of_a_session_that_is_too_large_and_goes_nowhere() -> Result<()> {
    let forwards = login(&json!({"forwardAccessToken": true}));
    let shop = Scripted::start(vec![policy("shop", forwards)]).await?;
    let browser = DrivenBrowser::start(&shop.hosts()).await?;
    shop.provider
        .gives(&json!({"access_token": "t".repeat(5000)}));
    browser.open(PAGE).await?;
    let text = browser.text().await?;
    ensure!(text.contains("does not fit into a cookie"), "{text}");
    let asked = shop.provider.asked().len();
    ensure!(asked == 1, "one code: {asked}");
    // The largest that fits is kept.
    let name = "__Host-gw-access.default.shop";
    let most = (2900..3100)
        .rev()
        .find(|bytes| cookie(name, *bytes) <= COOKIE);
    shop.provider
        .gives(&json!({"access_token": "t".repeat(most.context("a size")?)}));
    browser.open(PAGE).await?;
    ensure!(browser.url().await? == PAGE, "{}", browser.url().await?);
    ensure!(
        browser.text().await?.contains("/cart?item=1"),
        "of the backend"
    );
    browser.open(PAGE).await?;
    let asked = shop.provider.asked().len();
    ensure!(asked == 2, "the session is kept: {asked}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Chromium"]
async fn a_browser_with_a_hundred_unfinished_logins_opens_the_site_and_logs_in() -> Result<()> {
    let shop = Scripted::start(vec![policy("shop", login(&json!({})))]).await?;
    shop.provider.asks_first();
    let browser = DrivenBrowser::start(&shop.hosts()).await?;
    for page in 0..100 {
        browser.open(&format!("https://{HOST}/tab/{page}")).await?;
        let url = browser.url().await?;
        let form = format!("https://{ISSUER_HOST}/auth?");
        ensure!(url.starts_with(&form), "tab {page}: {url}");
    }
    browser.open(PAGE).await?;
    browser.click("#on").await?;
    ensure!(browser.url().await? == PAGE, "{}", browser.url().await?);
    ensure!(
        browser.text().await?.contains("/cart?item=1"),
        "of the backend"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn only_navigations_begin_a_login() -> Result<()> {
    let shop = Scripted::start(vec![policy("shop", login(&json!({})))]).await?;
    for alpn in ["http/1.1", "h2"] {
        let page = Probe::https(shop.address(), HOST).alpn(&[alpn]);
        let page = page.header("accept", "text/html");
        let answer = page.answered(302).await?;
        ensure!(answer.headers.contains_key("set-cookie"), "{answer:?}");
        for (name, value, status) in [
            ("sec-fetch-mode", "navigate", 302),
            ("sec-fetch-mode", "cors", 401),
            ("sec-fetch-mode", "same-origin", 401),
            ("sec-fetch-mode", "no-cors", 401),
            ("sec-purpose", "prefetch", 401),
            ("sec-purpose", "prefetch;prerender", 401),
        ] {
            let answer = page.clone().header(name, value).answered(status).await?;
            let begins = answer.headers.contains_key("set-cookie");
            ensure!(begins == (status == 302), "{name}: {value}: {answer:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn who_invents_sessions_reaches_the_provider_at_the_rate_of_his_address() -> Result<()> {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop"});
    let limit = json!({"limit": {"requests": 3, "per": "Hour"}, "by": {"type": "ClientAddress"}});
    let calm = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
        "metadata": {"namespace": "default", "name": "calm"},
        "spec": {"targetRefs": [target], "rateLimit": [limit]}});
    let policies = vec![policy("shop", login(&json!({}))), object(calm)];
    let shop = Scripted::start(policies).await?;
    shop.provider.answers(400, "text/plain", "no");
    let invented = Probe::https(shop.address(), HOST)
        .header("x-forwarded-for", "192.0.2.7")
        .header("cookie", "__Host-gw-refresh.default.shop=x");
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(invented.send().await?.status);
    }
    ensure!(
        statuses == [[401; 3].as_slice(), &[429; 7]].concat(),
        "{statuses:?}"
    );
    let asked = shop.provider.asked().len();
    ensure!(asked == 3, "{asked} requests for tokens");
    // Others log in meanwhile.
    shop.provider.gives(&json!({}));
    let (mut browser, status) = shop.finished().await?;
    ensure!(status == 302, "{status}");
    ensure!(browser.open(PAGE).await?.status == 200, "a session");
    Ok(())
}

/// Those of many addresses have no rate but that of the Envoy.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn invented_sessions_of_many_reach_the_provider_at_a_rate() -> Result<()> {
    const BATCH: usize = 200;
    const BATCHES: usize = 100;
    let shop = Scripted::start(vec![policy("shop", login(&json!({})))]).await?;
    shop.provider.answers(400, "text/plain", "no");
    let invented =
        Probe::https(shop.address(), HOST).header("cookie", "__Host-gw-refresh.default.shop=x");
    let began = Instant::now();
    let (mut sent, mut asked) = (0, 0);
    while sent == asked {
        ensure!(sent < BATCH * BATCHES, "all {sent} reached the provider");
        let batch = stream::iter(0..BATCH).map(async |_| invented.send().await);
        let answers: Vec<_> = batch.buffer_unordered(16).try_collect().await?;
        ensure!(answers.iter().all(|answer| answer.status == 401));
        sent += BATCH;
        asked = shop.provider.asked().len();
    }
    // The world's Envoy has two workers.
    let most = 2 * (100 + 50 * (began.elapsed().as_secs() + 1));
    ensure!(u64::try_from(asked)? <= most, "{asked} of at most {most}");
    // The rate is one of the provider: it admits logins as soon as they end.
    shop.provider.gives(&json!({}));
    let until = Instant::now() + Duration::from_secs(60);
    while shop.finished().await?.1 != 302 {
        ensure!(Instant::now() < until, "nobody logs in");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_provider_gets_client_and_secret_as_a_form_has_them() -> Result<()> {
    let shop = Scripted::start(vec![policy("shop", login(&json!({})))]).await?;
    for (client, text, sent) in [
        (
            "shop",
            "open-sesame/open.sesame_~",
            "shop:open-sesame/open.sesame_~",
        ),
        (
            "shop",
            "a+b/c==d%2Be&f?g:h#i",
            "shop:a%2Bb/c%3D%3Dd%252Be%26f%3Fg%3Ah%23i",
        ),
        (
            "shop",
            "ein Geheimnis für alle",
            "shop:ein%20Geheimnis%20f%C3%BCr%20alle",
        ),
        (
            "we:ird/id+1",
            "open-sesame-open-sesame",
            "we%3Aird/id%2B1:open-sesame-open-sesame",
        ),
    ] {
        let policy = policy("shop", login(&json!({"clientID": client})));
        shop.site.world.settle(vec![policy, secret(text)]).await?;
        let (mut browser, status) = shop.finished().await?;
        ensure!(status == 302, "{status}");
        let asked = shop.provider.asked();
        let (credentials, _) = asked.last().context("a request for tokens")?;
        ensure!(credentials == sent, "{credentials}");
        ensure!(browser.open(PAGE).await?.status == 200, "a session");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_login_of_a_domain_leads_to_its_hosts_alone() -> Result<()> {
    let back = format!("https://{HOST}{BACK}");
    let shared = login(&json!({"cookieDomain": "example.org", "redirectURL": back}));
    let people = policy_with("people", &["shop", "other"], json!({"oidc": shared}));
    let shop = Scripted::start(vec![people]).await?;
    for (target, expected) in [
        (OTHER_PAGE, 302),
        ("https://example.org/", 302),
        ("https://evil.example.net/", 401),
        ("https://example.org.evil.example.net/", 401),
        ("https://badexample.org/", 401),
        ("https://shop.example.org@evil.example.net/", 401),
    ] {
        let (mut browser, back) = shop.begun(PAGE).await?;
        let flow = written(&browser, HOST);
        ensure!(flow.contains("gw-nonce"), "{flow}");
        let (begin, state) = back.split_once("state=").context("a state")?;
        let state = BASE64_URL_SAFE_NO_PAD.decode(state)?;
        let mut state: Value = serde_json::from_slice(&state)?;
        state["url"] = json!(target);
        let state = BASE64_URL_SAFE_NO_PAD.encode(state.to_string());
        let answer = browser.open(&format!("{begin}state={state}")).await?;
        ensure!(answer.status == expected, "{target}: {answer:?}");
        if expected == 302 {
            ensure!(answer.header("location") == Some(target), "{answer:?}");
        }
    }
    // Cookies of a login that is under way are for its way back.
    let mut browser = shop.browser();
    let answer = browser.open(PAGE).await?;
    for set in answer.headers.get_all("set-cookie") {
        let set = set.to_str()?.to_ascii_lowercase();
        ensure!(set.contains(&format!("path={BACK}")), "{set}");
    }
    let (mut browser, back) = shop.begun(OTHER_PAGE).await?;
    let (url, answer) = browser.follow(&back).await?;
    ensure!(
        (url.as_str(), answer.status) == (OTHER_PAGE, 200),
        "{url}: {answer:?}"
    );
    ensure!(
        told(&answer, "host")?.is_array(),
        "of the backend: {answer:?}"
    );
    Ok(())
}
