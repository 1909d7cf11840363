//! AccessPolicies with `externalAuth` on a real Envoy: servers by HTTP and by gRPC, on plain HTTP
//! and over TLS, their refusals with status and headers, what backends and clients get of a
//! consent, the end of a server, and oauth2-proxy, at which a browser logs in.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use e2e::auth::{AuthServer, COOKIE, KEY};
use e2e::grpc::{DENIAL, DENIED, Grpc};
use e2e::oauth2_proxy::Oauth2Proxy;
use e2e::oidc::{Browser, ISSUER_HOST, Provider};
use e2e::probe::{Answer, Probe};
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{edge_route, free_port, service};
use gatewright_core::translate::Change;
use hyper::Method;
use serde_json::{Value, json};

use super::access::{HOST, OTHER, Site, admin_with, policy_with};
use super::users::told;

const CLIENT: &str = "10.2.0.1";
const PAGE: &str = "https://shop.example.org/cart?item=1&color=red";

/// A policy of a route with a server at port 80 of a Service.
fn asking(route: &str, mut auth: Value) -> Change {
    auth["backendRef"]["port"] = json!(80);
    let target = json!({"kind": "HTTPRoute", "name": route});
    policy_with(route, target, json!({"externalAuth": auth}))
}

/// The servers of a test, and a site with these policies.
async fn site(servers: &[(&str, SocketAddr)], policies: Vec<Change>) -> Result<Site> {
    let servers = servers
        .iter()
        .flat_map(|(name, address)| service(name, *address));
    Site::start(servers.chain(policies).collect()).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_server_by_http_permits_requests_and_its_refusals_are_passed_on() -> Result<()> {
    let auth = AuthServer::start().await?;
    let http = json!({"path": "/check", "allowedHeaders": ["X-In"],
        "allowedResponseHeaders": ["X-User"], "clientResponseHeaders": ["Set-Cookie"]});
    let asked = json!({"protocol": "HTTP", "backendRef": {"name": "auth"}, "http": http,
        "forwardBody": {"maxSize": 8}});
    let site = site(&[("auth", auth.address())], vec![asking("shop", asked)]).await?;
    for answer in site.each(CLIENT, (HOST, "/a"), &[], 401).await? {
        ensure!(&answer.body[..] == b"the server's word", "{answer:?}");
        ensure!(answer.header("x-extra") == Some("1"), "{answer:?}");
    }
    let questions = auth.asked();
    ensure!(questions.len() == 4, "one for each: {questions:?}");
    let headers = [("authorization", KEY), ("x-user", "root"), ("x-in", "1")];
    for answer in site.each(CLIENT, (HOST, "/a?b=c"), &headers, 200).await? {
        ensure!(told(&answer, "x-user")? == json!(["alice"]), "the server's");
        ensure!(told(&answer, "x-extra")?.is_null(), "it is not listed");
        let cookies = answer.headers.get_all("set-cookie").iter();
        let cookies: Vec<_> = cookies.collect();
        ensure!(cookies == [COOKIE], "the client has it: {cookies:?}");
    }
    for question in auth.asked() {
        ensure!(question.line == "GET /check/a?b=c", "{question:?}");
        ensure!(question.headers.contains_key("x-in"), "{question:?}");
        ensure!(!question.headers.contains_key("x-user"), "{question:?}");
    }
    // The other host asks nobody.
    site.each(CLIENT, (OTHER, "/"), &[], 200).await?;
    for probe in site.by(CLIENT, HOST, "/") {
        let probe = probe.method(Method::POST).header("authorization", KEY);
        probe.body("12345678").answered(200).await?;
    }
    // Over HTTP/2 Envoy 1.40 sends the server a longer one as well.
    let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, site.http));
    let probe = Probe::http(plain, HOST).method(Method::POST);
    let probe = probe.header("authorization", KEY).body("123456789");
    probe.answered(413).await?;
    auth.asked();
    drop(auth);
    for probe in site.by(CLIENT, HOST, "/") {
        let probe = probe.header("authorization", KEY);
        let answer = probe.until(403, PATIENCE).await;
        answer.with_context(|| site.world.envoy.log())?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_server_with_one_path_is_told_the_url_that_backends_do_not_get() -> Result<()> {
    let auth = AuthServer::start().await?;
    let http = json!({"path": "/api/verify", "pathType": "Exact"});
    let asked = json!({"protocol": "HTTP", "backendRef": {"name": "auth", "port": 80},
        "http": http});
    let policies = vec![admin_with("admin", json!({"externalAuth": asked}))];
    let site = site(&[("auth", auth.address())], policies).await?;
    let headers = [
        ("authorization", KEY),
        ("x-original-url", "https://forged.example/"),
    ];
    let answers = site.each(CLIENT, (HOST, "/admin/x?y=z"), &headers, 200);
    for answer in answers.await? {
        ensure!(told(&answer, "x-original-url")?.is_null(), "{answer:?}");
        ensure!(told(&answer, "x-original-method")?.is_null(), "{answer:?}");
        ensure!(told(&answer, "x-user")? == json!(["alice"]), "{answer:?}");
    }
    let questions = auth.asked();
    for (question, scheme) in questions.iter().zip(["http", "http", "https", "https"]) {
        ensure!(question.line == "GET /api/verify", "{question:?}");
        let url = question.headers["x-original-url"].to_str()?;
        let expected = format!("{scheme}://{HOST}/admin/x?y=z");
        ensure!(url.eq_ignore_ascii_case(&expected), "{url}");
        ensure!(
            question.headers["x-original-method"] == "GET",
            "{question:?}"
        );
        let path = &question.headers["x-auth-request-redirect"];
        ensure!(path == "/admin/x?y=z", "{path:?}");
    }
    ensure!(questions.len() == 4, "one for each: {questions:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_server_by_grpc_permits_requests_and_policies_add_up() -> Result<()> {
    let auth = AuthServer::start().await?;
    let grpc = Grpc::start("grpc").await?;
    let down = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let servers = [
        ("auth", auth.address()),
        ("grpc", grpc.address()),
        ("down", down),
    ];
    let of_rule = json!({"protocol": "HTTP", "backendRef": {"name": "auth", "port": 80}});
    let policies = vec![
        asking(
            "shop",
            json!({"protocol": "GRPC", "backendRef": {"name": "grpc"}}),
        ),
        admin_with("admin", json!({"externalAuth": of_rule})),
        asking(
            "other",
            json!({"protocol": "GRPC", "backendRef": {"name": "down"}, "timeout": "200ms"}),
        ),
    ];
    let site = site(&servers, policies).await?;
    site.each(CLIENT, (HOST, "/"), &[], 200).await?;
    ensure!(grpc.calls() == 4, "{} calls", grpc.calls());
    let denied = site.each(CLIENT, (HOST, "/"), &[(DENIED, "1")], DENIAL);
    for answer in denied.await? {
        ensure!(answer.header(DENIED) == Some("by the server"), "{answer:?}");
    }
    ensure!(auth.asked().is_empty(), "the rule's server is another");
    // The rule needs the consent of both.
    site.each(CLIENT, (HOST, "/admin"), &[], 401).await?;
    let key = [("authorization", KEY)];
    site.each(CLIENT, (HOST, "/admin"), &key, 200).await?;
    let both = [("authorization", KEY), (DENIED, "1")];
    site.each(CLIENT, (HOST, "/admin"), &both, DENIAL).await?;
    // A server that nobody has started.
    site.each(CLIENT, (OTHER, "/"), &key, 403).await?;
    Ok(())
}

/// The header that oauth2-proxy sets for a backend.
const USER: &str = "x-auth-request-user";

/// The policy and the route of the recipe in `docs/access.md`.
fn recipe() -> Vec<Change> {
    let http = json!({"path": "/", "pathType": "Exact",
        "allowedHeaders": ["Accept", "Cookie", "X-Forwarded-Proto"],
        "allowedResponseHeaders": ["X-Auth-Request-User", "X-Auth-Request-Email"],
        "clientResponseHeaders": ["Set-Cookie"]});
    let auth = json!({"protocol": "HTTP", "backendRef": {"name": "oauth2-proxy"}, "http": http});
    let rules = json!([{"matches": [{"path": {"value": "/oauth2"}}],
        "backendRefs": [{"name": "oauth2-proxy", "port": 80}]}]);
    vec![asking("shop", auth), edge_route("login", HOST, rules)]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and oauth2-proxy"]
async fn a_browser_logs_in_by_oauth2_proxy() -> Result<()> {
    let provider = Provider::start(&[&format!("https://{HOST}/oauth2/callback")]).await?;
    let proxy = Oauth2Proxy::start(&provider).await?;
    let site = site(&[("oauth2-proxy", proxy.address())], recipe()).await?;
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, site.https));
    let mut browser = Browser::new(&[(HOST, at), (ISSUER_HOST, provider.address())]);
    let back = browser
        .log_in(PAGE)
        .await
        .with_context(|| logs(&proxy, &site))?;
    let (url, answer) = browser
        .follow(&back)
        .await
        .with_context(|| logs(&proxy, &site))?;
    ensure!(
        url == PAGE,
        "back where it began: {url}\n{}",
        logs(&proxy, &site)
    );
    ensure!(answer.status == 200, "{answer:?}\n{}", logs(&proxy, &site));
    ensure!(is_user(&answer)?, "{answer:?}");
    // The session goes on, and what a client says of itself does not count.
    let cookies = browser.cookies(HOST);
    let pairs = cookies
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let cookies = pairs.collect::<Vec<_>>().join("; ");
    let inside = Probe::https(at, HOST).header("cookie", &cookies);
    let answer = inside.header(USER, "root").answered(200).await?;
    ensure!(is_user(&answer)?, "{answer:?}");
    let outside = Probe::https(at, HOST).header(USER, "root");
    let answer = outside.clone().answered(302).await?;
    let location = answer.header("location").unwrap_or_default();
    ensure!(
        location.starts_with(&format!("https://{ISSUER_HOST}/auth?")),
        "{location}"
    );
    let script = outside.clone().header("accept", "application/json");
    script.answered(401).await?;
    // What the server permits to everybody is no path of the backend.
    for path in ["/ping", "/ready", "/robots.txt"] {
        outside.clone().path(path).answered(302).await?;
    }
    // The end of the session.
    browser
        .open(&format!("https://{HOST}/oauth2/sign_out"))
        .await?;
    let answer = browser.open(PAGE).await?;
    ensure!(answer.status == 302, "{answer:?}");
    drop(proxy);
    let answer = Probe::https(at, HOST).header("cookie", &cookies);
    answer.until(403, PATIENCE).await?;
    Ok(())
}

fn logs(proxy: &Oauth2Proxy, site: &Site) -> String {
    format!("{}\n{}", proxy.log(), site.world.envoy.log())
}

/// True if the backend got the subject of the user, and no other name.
fn is_user(answer: &Answer) -> Result<bool> {
    Ok(told(answer, USER)? == json!(["id1"]))
}
