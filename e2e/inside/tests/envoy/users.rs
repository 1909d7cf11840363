//! AccessPolicies with users on a real Envoy: names and passwords on plain HTTP and over HTTP/2, in
//! several lists, behind preflights and lists of addresses, and what becomes of a Secret that is
//! changed or deleted.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use e2e::probe::{Answer, Probe};
use e2e::webdriver::DrivenBrowser;
use e2e_inside::world::object;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;
use hyper::Method;
use serde_json::{Value, json};

use super::access::{HOST, OTHER, Site, admin_with, policy_with};

/// `secret` by SHA-1, and `other`.
const SECRET: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
const CHANGED: &str = "{SHA}0JQeaNqPOBUf+Gph/Fn3xc+fyqI=";
/// Credentials with the password `secret`, and alice's with `other`.
const ALICE: &str = "Basic YWxpY2U6c2VjcmV0";
const BOB: &str = "Basic Ym9iOnNlY3JldA==";
const ALICE_CHANGED: &str = "Basic YWxpY2U6b3RoZXI=";
const CLIENT: &str = "10.2.0.1";

fn users(name: &str, lines: &[(&str, &str)]) -> Change {
    let lines = lines.iter().map(|(user, hash)| format!("{user}:{hash}\n"));
    object(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "gatewright.io/htpasswd",
        "metadata": {"namespace": "default", "name": name},
        "stringData": {".htpasswd": lines.collect::<String>()}}),
    )
}

fn admin(more: Value) -> Change {
    admin_with("admin", more)
}

fn with(probe: Probe, credentials: Option<&str>) -> Probe {
    match credentials {
        Some(credentials) => probe.header("authorization", credentials),
        None => probe,
    }
}

/// Sends a request by each version of HTTP, and expects this status.
async fn expect(
    site: &Site,
    at: (&str, &str),
    credentials: Option<&str>,
    status: u16,
) -> Result<Vec<Answer>> {
    let written = [("x-user", "root")];
    let credentials = credentials.map(|credentials| ("authorization", credentials));
    let headers: Vec<_> = written.into_iter().chain(credentials).collect();
    site.each(CLIENT, at, &headers, status).await
}

/// The values of a header of the request that the backend received.
pub(super) fn told(answer: &Answer, name: &str) -> Result<Value> {
    Ok(answer.echoed("headers")?[name].clone())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Chromium"]
async fn a_browser_with_a_password_is_not_asked_again_in_other_directories() -> Result<()> {
    let everybody = json!({"users": {"name": "everybody"}});
    let site = Site::start(vec![
        users("everybody", &[("alice", SECRET)]),
        policy_with(
            "shop",
            json!({"kind": "HTTPRoute", "name": "shop"}),
            json!({"basicAuth": everybody}),
        ),
    ])
    .await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, site.https));
    let browser = DrivenBrowser::start(&[(HOST, address)]).await?;
    let first = format!("https://alice:secret@{HOST}/admin/users/7");
    browser.open(&first).await?;
    for path in ["/reports/2026/11", "/static/site.css", "/"] {
        browser.open(&format!("https://{HOST}{path}")).await?;
        let text = browser.text().await?;
        ensure!(text.contains(ALICE), "{path}: {text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn users_pass_with_their_password_in_every_list() -> Result<()> {
    let everybody = json!({"users": {"name": "everybody"}});
    let admins = json!({"users": {"name": "admins"}, "forwardUsernameHeader": "X-User", "credentials": "Remove"});
    let site = Site::start(vec![
        users("everybody", &[("alice", SECRET), ("bob", SECRET)]),
        users("admins", &[("alice", SECRET)]),
        policy_with(
            "shop",
            json!({"kind": "HTTPRoute", "name": "shop"}),
            json!({"basicAuth": everybody}),
        ),
        admin(json!({"clientAddress": {"allow": ["10.0.0.0/8"]}, "basicAuth": admins})),
    ])
    .await?;
    for answer in expect(&site, (HOST, "/"), None, 401).await? {
        let asked = answer.header("www-authenticate").unwrap_or_default();
        ensure!(asked == "Basic realm=\"default/shop\"", "{asked}");
    }
    expect(&site, (HOST, "/"), Some(ALICE_CHANGED), 401).await?;
    expect(&site, (HOST, "/"), Some("Bearer secret"), 401).await?;
    for answer in expect(&site, (HOST, "/"), Some(BOB), 200).await? {
        ensure!(
            told(&answer, "authorization")? == json!([BOB]),
            "the backend gets the credentials"
        );
    }
    // Bob is in the list of the route, and not in that of its rule.
    expect(&site, (HOST, "/admin/bob"), Some(BOB), 401).await?;
    for answer in expect(&site, (HOST, "/admin"), Some(ALICE), 200).await? {
        ensure!(
            told(&answer, "x-user")? == json!(["alice"]),
            "the user alone"
        );
        ensure!(told(&answer, "authorization")?.is_null(), "no credentials");
    }
    // Another host is asked for nothing, and keeps its headers.
    for answer in expect(&site, (OTHER, "/admin"), None, 200).await? {
        ensure!(told(&answer, "x-user")? == json!(["root"]), "as it came");
    }
    ensure!(
        site.reason("/admin/bob").await? == Some("Unauthenticated"),
        "the log has the reason"
    );
    // The address is looked at first, and a preflight before both.
    for probe in site.by("192.0.2.1", HOST, "/admin") {
        let answer = with(probe.clone(), Some(ALICE)).send().await?;
        ensure!(answer.status == 403, "{probe:?}: {}", answer.status);
        let preflight = probe
            .method(Method::OPTIONS)
            .header("origin", "https://www.site.example")
            .header("access-control-request-method", "GET");
        let answer = preflight.send().await?;
        ensure!(answer.status == 200, "{preflight:?}: {}", answer.status);
    }
    // Upgrades and calls of gRPC are asked as well.
    let [plain, ..] = site.by(CLIENT, HOST, "/");
    let upgrade = plain
        .clone()
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    ensure!(
        upgrade.send().await?.status == 401,
        "no WebSocket is opened"
    );
    let [.., h2] = site.by(CLIENT, HOST, "/");
    let call = h2
        .method(Method::POST)
        .header("content-type", "application/grpc");
    let answer = call.send().await?;
    ensure!(
        answer.header("grpc-status") == Some("16"),
        "UNAUTHENTICATED: {answer:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_policy_that_loses_its_users_closes_its_targets_alone() -> Result<()> {
    let people = json!({"basicAuth": {"users": {"name": "people"}}});
    let site = Site::start(vec![admin(people)]).await?;
    expect(&site, (HOST, "/admin"), Some(ALICE), 500).await?;
    expect(&site, (HOST, "/"), None, 200).await?;
    site.world
        .settle(vec![users("people", &[("alice", SECRET)])])
        .await?;
    expect(&site, (HOST, "/admin"), Some(ALICE), 200).await?;
    // Passwords change without a new listener.
    site.world
        .settle(vec![users("people", &[("alice", CHANGED)])])
        .await?;
    expect(&site, (HOST, "/admin"), Some(ALICE), 401).await?;
    expect(&site, (HOST, "/admin"), Some(ALICE_CHANGED), 200).await?;
    // A hash that Envoy does not verify is refused before it gets there.
    let bcrypt = users("people", &[("alice", "$2y$05$abcdefghijklmnopqrstuv")]);
    site.world.settle(vec![bcrypt]).await?;
    expect(&site, (HOST, "/admin"), Some(ALICE_CHANGED), 500).await?;
    let odd = [
        ("a.b@example.org", SECRET),
        ("!\"#$%&'()*+,-./;<=>?@[\\]^_`{|}~", SECRET),
    ];
    site.world.settle(vec![users("people", &odd)]).await?;
    expect(&site, (HOST, "/admin"), Some(ALICE), 401).await?;
    let key = ObjectKey::new(Kind::Secret, ObjectName::new("default", "people"));
    site.world.settle(vec![Change::delete(key)]).await?;
    expect(&site, (HOST, "/admin"), Some(ALICE), 500).await?;
    expect(&site, (HOST, "/"), None, 200).await?;
    Ok(())
}
