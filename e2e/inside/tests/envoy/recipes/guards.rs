//! Recipes that admit clients, and limit their requests.

use anyhow::{Result, ensure};
use e2e::oidc::{Browser, ISSUER_HOST};
use hyper::Method;
use serde_json::json;

use super::site::{Site, answered_by, until_by};

/// alice with open-sesame.
const ALICE: &str = "Basic YWxpY2U6b3Blbi1zZXNhbWU=";

pub(super) async fn cors(site: &Site) -> Result<()> {
    let probe = site.https("cors.example.org");
    let preflight = probe
        .clone()
        .method(Method::OPTIONS)
        .header("access-control-request-method", "POST");
    for request in [preflight.clone(), probe.clone()] {
        let answer = request
            .header("origin", "https://app.example.com")
            .answered(200)
            .await?;
        let origin = answer.header("access-control-allow-origin");
        ensure!(origin == Some("https://app.example.com"), "{answer:?}");
        let credentials = answer.header("access-control-allow-credentials");
        ensure!(credentials == Some("true"), "{answer:?}");
    }
    let other = probe.header("origin", "https://other.example.com");
    let answer = other.answered(200).await?;
    let origin = answer.header("access-control-allow-origin");
    ensure!(origin.is_none(), "{answer:?}");
    Ok(())
}

pub(super) async fn allow_addresses(site: &Site) -> Result<()> {
    let probe = site.https("intranet.example.org");
    let admin = probe.clone().path("/admin/users");
    answered_by(&probe, "web").await?;
    admin.answered(403).await?;
    let ours = [("198.51.100.0/24", "127.0.0.0/8")];
    site.edit("allow-addresses", &ours)?;
    until_by(&admin, "web").await
}

pub(super) async fn basic_auth(site: &Site) -> Result<()> {
    let probe = site.https("staff.example.org").header("x-user", "root");
    let answer = probe.answered(401).await?;
    let asked = answer.header("www-authenticate").unwrap_or_default();
    ensure!(asked.starts_with("Basic "), "{asked}");
    let wrong = probe.clone().header("authorization", "Basic YWxpY2U6");
    wrong.answered(401).await?;
    let answer = probe.header("authorization", ALICE).answered(200).await?;
    let headers = answer.echoed("headers")?;
    ensure!(headers["x-user"] == json!(["alice"]), "{headers}");
    ensure!(headers["authorization"].is_null(), "{headers}");
    Ok(())
}

pub(super) async fn jwt(site: &Site) -> Result<()> {
    let probe = site.https("api.example.org");
    probe.answered(401).await?;
    for (claims, status) in [
        (json!({"sub": "alice"}), 200),
        (json!({"aud": "bank"}), 403),
        (json!({"iss": "https://other.example.org"}), 401),
        (json!({"exp": 1_000_000_000}), 401),
    ] {
        let bearer = format!("Bearer {}", site.issuer.token(claims)?);
        let answer = probe
            .clone()
            .header("authorization", &bearer)
            .answered(status)
            .await?;
        if status == 200 {
            let headers = answer.echoed("headers")?;
            ensure!(headers["x-sub"] == json!(["alice"]), "{headers}");
        }
    }
    for (groups, status) in [(json!(["staff", "admins"]), 200), (json!(["staff"]), 403)] {
        let token = site.issuer.token(json!({"groups": groups}))?;
        let admin = probe.clone().path("/admin/users");
        let admin = admin.header("authorization", &format!("Bearer {token}"));
        admin.answered(status).await?;
    }
    Ok(())
}

pub(super) async fn oidc(site: &Site) -> Result<()> {
    let host = "members.example.org";
    site.https(host).answered(401).await?;
    let hosts = [
        (host, site.https_address()),
        (ISSUER_HOST, site.provider.address()),
    ];
    let mut browser = Browser::new(&hosts);
    let page = format!("https://{host}/orders");
    let back = browser.log_in(&page).await?;
    let (url, answer) = browser.follow(&back).await?;
    ensure!((url, answer.status) == (page.clone(), 200), "{answer:?}");
    let renewed = browser.cookies(host);
    let renewed = renewed.keys().any(|name| name.contains("gw-refresh"));
    ensure!(renewed, "a refresh token");
    let (url, answer) = browser.follow(&format!("https://{host}/logout")).await?;
    let form = format!("https://{ISSUER_HOST}/login/");
    ensure!(url.starts_with(&form), "{url}: {answer:?}");
    let answer = browser.open(&page).await?;
    ensure!(answer.status == 302, "{answer:?}");
    Ok(())
}

pub(super) async fn rate_limit(site: &Site) -> Result<()> {
    let probe = site.https("login.example.org");
    let attempt = probe.clone().method(Method::POST).path("/login");
    let mut admitted = 0;
    // A token is added every 12 s.
    while admitted < 20 {
        let answer = attempt.send().await?;
        if answer.status == 429 {
            ensure!(answer.header("retry-after").is_some(), "{answer:?}");
            break;
        }
        ensure!(answer.status == 200, "{answer:?}");
        admitted += 1;
    }
    ensure!((5..20).contains(&admitted), "{admitted} attempts");
    answered_by(&probe.path("/login"), "web").await?;
    Ok(())
}

pub(super) async fn compression(site: &Site) -> Result<()> {
    let probe = site.https("fast.example.org");
    let filled = probe.header("x-filling", &"x".repeat(3000));
    for (accepted, encoding) in [("gzip, br", Some("br")), ("gzip", Some("gzip")), ("", None)] {
        let answer = filled
            .clone()
            .header("accept-encoding", accepted)
            .send()
            .await?;
        ensure!(answer.header("content-encoding") == encoding, "{answer:?}");
    }
    Ok(())
}

pub(super) async fn upload_size(site: &Site) -> Result<()> {
    let probe = site.https("uploads.example.org").method(Method::POST);
    for (path, bytes, status) in [
        ("/", 100_000, 200),
        ("/", 100_001, 413),
        ("/upload", 1_000_000, 200),
        ("/upload", 20_000_001, 413),
    ] {
        let upload = probe.clone().path(path).body(vec![b'x'; bytes]);
        upload.answered(status).await?;
    }
    Ok(())
}
