//! AccessPolicies with a login on a real Envoy, at a certified provider of OpenID Connect: the way
//! of a browser there and back, who is not sent there, what does not open a host, and what becomes
//! of sessions.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::oidc::{
    Browser, CLIENT_SECRET, ISSUER_HOST, PASSWORD, Provider, USER, client_secret, login,
};
use e2e::probe::Probe;
use e2e::webdriver::DrivenBrowser;
use e2e_inside::world::{gatewright, object};
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;
use hyper::Method;
use serde_json::{Value, json};

use super::access::{HOST, OTHER, Site, parameters};
use super::users::told;

/// The secret of a client that the provider does not know.
const WRONG: &str = "another-secret-of-a-client";
/// How long access tokens are valid, where no test waits for their end.
pub(super) const LONG: Duration = Duration::from_secs(300);
pub(super) const PAGE: &str = "https://shop.example.org/cart?item=1";
pub(super) const OTHER_PAGE: &str = "https://other.example.org/cart";

/// The policy of a route with a login.
pub(super) fn policy(route: &str, oidc: Value) -> Change {
    policy_with(route, &[route], json!({"oidc": oidc}))
}

/// A policy of routes with this and the targets in its `spec`.
pub(super) fn policy_with(name: &str, routes: &[&str], mut spec: Value) -> Change {
    let targets = routes.iter().map(
        |name| json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name}),
    );
    spec["targetRefs"] = targets.collect();
    gatewright("AccessPolicy", name, spec)
}

fn secret(text: &str) -> Change {
    object(client_secret("default", "login", text))
}

pub(super) struct Shop {
    pub(super) site: Site,
    pub(super) provider: Provider,
}

impl Shop {
    /// Both hosts ask for a login, each by a policy of its own.
    async fn start() -> Result<Self> {
        let policies = ["shop", "other"].map(|route| policy(route, login()));
        Self::serving(LONG, policies.into()).await
    }

    /// Hosts with these policies, and a provider whose access tokens are valid for this long.
    pub(super) async fn serving(lifetime: Duration, policies: Vec<Change>) -> Result<Self> {
        Self::with_secret(CLIENT_SECRET, lifetime, policies).await
    }

    /// The same, with this secret of the client.
    async fn with_secret(
        client_secret: &str,
        lifetime: Duration,
        policies: Vec<Change>,
    ) -> Result<Self> {
        let back = [HOST, OTHER].map(|host| format!("https://{host}/oauth2/callback"));
        let back = back.each_ref().map(String::as_str);
        let provider = Provider::with_secret(client_secret, lifetime, &back).await?;
        let mut changes: Vec<Change> = provider
            .objects("default")
            .into_iter()
            .map(object)
            .collect();
        changes.extend(policies);
        changes.push(secret(client_secret));
        Ok(Self {
            site: Site::start(changes).await?,
            provider,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.site.https))
    }

    /// The addresses at which browsers find the hosts and the provider.
    pub(super) fn hosts(&self) -> [(&'static str, SocketAddr); 3] {
        let own = self.address();
        [
            (HOST, own),
            (OTHER, own),
            (ISSUER_HOST, self.provider.address()),
        ]
    }

    pub(super) fn browser(&self) -> Browser {
        Browser::new(&self.hosts())
    }

    /// A browser with a session at `PAGE`.
    pub(super) async fn session(&self) -> Result<Browser> {
        let mut browser = self.browser();
        self.log_in(&mut browser, PAGE).await?;
        Ok(browser)
    }

    /// Logs in on the way to a page, and comes back to it.
    pub(super) async fn log_in(&self, browser: &mut Browser, page: &str) -> Result<()> {
        let back = browser.log_in(page).await.with_context(|| self.logs())?;
        let (url, answer) = browser.follow(&back).await?;
        ensure!(url == page, "back where it began: {url}\n{}", self.logs());
        ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    }

    pub(super) fn logs(&self) -> String {
        format!("{}\n{}", self.provider.log(), self.site.world.envoy.log())
    }

    /// What no browser asks for a page: answered 401, in each version of HTTP.
    pub(super) async fn refuses(&self, host: &str, cookies: &str) -> Result<()> {
        for alpn in ["http/1.1", "h2"] {
            let probe = Probe::https(self.address(), host).alpn(&[alpn]);
            let probe = if cookies.is_empty() {
                probe
            } else {
                probe.header("cookie", cookies)
            };
            probe.answered(401).await?;
            let json = probe.clone().header("accept", "application/json");
            json.answered(401).await?;
            let page = probe.header("accept", "text/html");
            page.method(Method::POST).answered(401).await?;
        }
        Ok(())
    }
}

/// A request of no browser with the cookies of one.
fn inside_of(shop: &Shop, browser: &Browser) -> Probe {
    Probe::https(shop.address(), HOST).header("cookie", &written(browser, HOST))
}

/// The cookies of a host, as a browser sends them.
pub(super) fn written(browser: &Browser, host: &str) -> String {
    let cookies = browser.cookies(host);
    let pairs = cookies
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("; ")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_browser_logs_in_at_the_provider_and_out_again() -> Result<()> {
    let shop = Shop::start().await?;
    let mut browser = shop.session().await?;
    let cookies = browser.cookies(HOST);
    for name in cookies.keys() {
        ensure!(name.starts_with("__Host-gw-"), "of the host alone: {name}");
        let of_flow = name.contains("gw-nonce") || name.contains("gw-verifier");
        ensure!(!of_flow, "they end with the login: {name}");
    }
    ensure!(
        !cookies.keys().any(|name| name.contains("gw-access")),
        "{cookies:?}"
    );
    let answer = browser.open(PAGE).await?;
    ensure!(told(&answer, "authorization")?.is_null(), "no token");
    // Sessions are for requests without a page, too.
    let inside = inside_of(&shop, &browser);
    inside.answered(200).await?;
    inside.clone().method(Method::POST).answered(200).await?;
    // The end of the session.
    let copy = browser.clone();
    let answer = browser.open(&format!("https://{HOST}/logout")).await?;
    ensure!(answer.status == 302, "{answer:?}");
    let target = answer.header("location").context("a redirect")?;
    let end = format!("https://{ISSUER_HOST}/end_session?");
    ensure!(target.starts_with(&end), "{target}");
    ensure!(
        browser.cookies(HOST).is_empty(),
        "{:?}",
        browser.cookies(HOST)
    );
    // The provider sends it on to the root of the host, which asks again.
    let (url, answer) = browser.follow(target).await?;
    let form = format!("https://{ISSUER_HOST}/login/username?");
    ensure!(url.starts_with(&form), "{url}: {answer:?}");
    ensure!(
        shop.provider.requests("/end_session") == 1,
        "{}",
        shop.logs()
    );
    let answer = browser.open(PAGE).await?;
    ensure!(answer.status == 302, "it is asked again: {answer:?}");
    // A copy of the cookies is valid until the end of the access token.
    inside_of(&shop, &copy).answered(200).await?;
    // Plain HTTP is closed.
    let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, shop.site.http));
    Probe::http(plain, HOST).answered(500).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn who_has_no_session_gets_nothing_whatever_the_cookies_say() -> Result<()> {
    let shop = Shop::start().await?;
    shop.refuses(HOST, "").await?;
    let socket = Probe::https(shop.address(), HOST)
        .alpn(&["http/1.1"])
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    socket.answered(401).await?;
    let session = shop.session().await?;
    let cookies = session.cookies(HOST);
    ensure!(cookies.len() >= 3, "{cookies:?}");
    for (name, value) in &cookies {
        let mut forged = session.clone();
        // Another digit or letter in the middle.
        let (begin, end) = value.split_at(value.len() / 2);
        let other = if end.starts_with('1') { "2" } else { "1" };
        forged.set_cookie(HOST, name, &format!("{begin}{other}{}", &end[1..]));
        let answer = forged.open(PAGE).await?;
        ensure!(answer.status == 302, "{name} is forged: {answer:?}");
        shop.refuses(HOST, &written(&forged, HOST)).await?;
    }
    // A session lives no longer than its token, whatever a client adds to it.
    let expires = cookies.keys().find(|name| name.contains("gw-expires"));
    let mut longer = session.clone();
    longer.set_cookie(HOST, expires.context("its end")?, "4102444800");
    ensure!(longer.open(PAGE).await?.status == 302, "it is signed");
    // Not at another host, by the same names or by those of its policy.
    shop.refuses(OTHER, &written(&session, HOST)).await?;
    let mut stranger = shop.browser();
    for (name, value) in &cookies {
        stranger.set_cookie(OTHER, name, value);
        let name = name.replace("default.shop", "default.other");
        stranger.set_cookie(OTHER, &name, value);
    }
    ensure!(stranger.open(OTHER_PAGE).await?.status == 302, "none of it");
    shop.refuses(OTHER, &written(&stranger, OTHER)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_provider_that_decodes_credentials_knows_any_secret() -> Result<()> {
    for text in ["k3Jx+8s/Zq==A+b%41&c=d:e", "ein Geheimnis für alle + 100 %"] {
        let policies = vec![policy("shop", login())];
        let shop = Shop::with_secret(text, LONG, policies).await?;
        let mut browser = shop.session().await?;
        ensure!(browser.open(PAGE).await?.status == 200, "{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_way_back_that_is_not_the_browsers_own_opens_nothing() -> Result<()> {
    let shop = Shop::start().await?;
    // The way back of an adversary, whose account the victim would use (RFC 6749, 10.12).
    let mut adversary = shop.browser();
    let back = adversary.log_in(PAGE).await?;
    let mut victim = shop.browser();
    let answer = victim.open(&back).await?;
    ensure!(
        answer.status == 401,
        "without a login of its own: {answer:?}"
    );
    victim.open(PAGE).await?;
    let answer = victim.open(&back).await?;
    ensure!(answer.status == 401, "with another login: {answer:?}");
    // A state that is changed.
    let (begin, state) = back.split_once("state=").context("a state")?;
    let mut chars: Vec<char> = state.chars().collect();
    chars[20] = if chars[20] == 'A' { 'B' } else { 'A' };
    let changed: String = chars.into_iter().collect();
    let answer = adversary
        .clone()
        .open(&format!("{begin}state={changed}"))
        .await?;
    ensure!(answer.status == 401, "{answer:?}");
    // A code of nobody.
    let query = back.split_once('?').context("a query")?.1;
    let code = query.split('&').find(|part| part.starts_with("code="));
    let forged = back.replace(code.context("a code")?, "code=AAAA");
    let answer = adversary.clone().open(&forged).await?;
    ensure!(answer.status == 401, "{answer:?}");
    let (url, answer) = adversary.follow(&back).await?;
    ensure!(
        (url.as_str(), answer.status) == (PAGE, 200),
        "its own login"
    );
    // The log has the reason, and neither code nor state of any of them.
    let reason = shop.site.reason("/oauth2/callback").await?;
    ensure!(reason == Some("Unauthenticated"), "{reason:?}");
    let lines = json!(shop.site.world.access_log()).to_string();
    for text in ["code=", "state="] {
        ensure!(!lines.contains(text), "{text} in {lines}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn sessions_end_with_the_secret_and_tokens_are_forwarded_if_asked() -> Result<()> {
    let shop = Shop::start().await?;
    let world = &shop.site.world;
    let mut session = shop.session().await?;
    // Another secret has other keys of cookies, and the provider does not know it.
    world.settle(vec![secret(WRONG)]).await?;
    ensure!(session.open(PAGE).await?.status == 302, "the session ended");
    let back = session.log_in(PAGE).await?;
    let answer = session.open(&back).await?;
    ensure!(answer.status == 401, "the provider refused: {answer:?}");
    let key = ObjectKey::new(Kind::Secret, ObjectName::new("default", "login"));
    world.settle(vec![Change::delete(key)]).await?;
    for host in [HOST, OTHER] {
        for probe in shop.site.by("10.2.0.1", host, "/cart") {
            probe.header("accept", "text/html").answered(500).await?;
        }
    }
    let mut oidc = login();
    oidc["forwardAccessToken"] = json!(true);
    world
        .settle(vec![secret(CLIENT_SECRET), policy("shop", oidc)])
        .await?;
    let mut session = shop.session().await?;
    let answer = session.open(PAGE).await?;
    let token = told(&answer, "authorization")?;
    let token = token[0].as_str().context("a token")?;
    ensure!(token.starts_with("Bearer "), "{token}");
    let cookies = written(&session, HOST);
    ensure!(!cookies.contains(&token[7..]), "encrypted at the browser");
    // A client does not choose what backends get.
    let probe = Probe::https(shop.address(), HOST).header("cookie", &cookies);
    let answer = probe
        .header("authorization", "Bearer mine")
        .answered(200)
        .await?;
    ensure!(
        told(&answer, "authorization")?[0] != "Bearer mine",
        "{answer:?}"
    );
    let log = world.envoy.log();
    for text in [CLIENT_SECRET, WRONG, &token[7..]] {
        ensure!(!log.contains(text), "a log has {text}");
        let lines = world.access_log();
        ensure!(!json!(lines).to_string().contains(text), "access log");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Chromium"]
async fn a_browser_logs_in() -> Result<()> {
    let shop = Shop::start().await?;
    let browser = DrivenBrowser::start(&shop.hosts()).await?;
    let form = format!("https://{ISSUER_HOST}/login/username?");
    browser.open(PAGE).await?;
    let url = browser.url().await?;
    ensure!(url.starts_with(&form), "{url}\n{}", shop.logs());
    browser.type_in("username", USER).await?;
    browser.type_in("password", PASSWORD).await?;
    browser.click("button").await?;
    ensure!(browser.url().await? == PAGE, "{}", browser.url().await?);
    let text = browser.text().await?;
    ensure!(text.contains("/cart?item=1"), "of the backend: {text}");
    // The session is for the host alone.
    browser.open(&format!("https://{HOST}/")).await?;
    let text = browser.text().await?;
    let cookie = "__Host-gw-id.default.shop=";
    ensure!(text.contains(cookie), "of the session: {text}");
    browser.open(OTHER_PAGE).await?;
    ensure!(browser.url().await?.starts_with(&form), "another host");
    // The end: at the host, at the provider, and back at the host, which asks again.
    browser.open(&format!("https://{HOST}/logout")).await?;
    let url = browser.url().await?;
    ensure!(url.starts_with(&form), "{url}\n{}", shop.logs());
    ensure!(
        shop.provider.requests("/end_session") == 1,
        "{}",
        shop.logs()
    );
    browser.open(PAGE).await?;
    ensure!(browser.url().await?.starts_with(&form), "no session");
    Ok(())
}

/// The details of the line with this path, once it is written.
async fn details(shop: &Shop, path: &str) -> Result<String> {
    let reason = shop.site.reason(path).await?;
    ensure!(reason == Some("Unauthenticated"), "{reason:?}");
    let lines = shop.site.world.access_log();
    let line = lines.iter().find(|line| line["path"] == path);
    Ok(line.context("the line")?["details"].to_string())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_log_has_queries_of_refused_requests_only_if_it_keeps_them() -> Result<()> {
    let shop = Shop::start().await?;
    let refused = Probe::https(shop.address(), HOST);
    let refused = refused.path("/orders?voucher=secret?token=secret");
    refused.answered(401).await?;
    let words = details(&shop, "/orders").await?;
    ensure!(words.ends_with("is_not_allowed\""), "{words}");
    let ports = [shop.site.http, shop.site.https];
    let kept = parameters(ports, "Keep");
    shop.site.world.settle(vec![kept]).await?;
    refused.answered(401).await?;
    let words = details(&shop, "/orders?voucher=secret?token=secret").await?;
    ensure!(
        words.ends_with("is_not_allowed\""),
        "the path has it: {words}"
    );
    Ok(())
}
