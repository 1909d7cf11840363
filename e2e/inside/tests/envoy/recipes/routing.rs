//! Where requests go, and with which path and headers.

use anyhow::{Result, ensure};
use e2e::probe::Probe;
use hyper::Method;
use serde_json::json;

use super::site::{Site, answered_by, until_by};

async fn redirected(probe: &Probe, location: &str) -> Result<()> {
    let answer = probe.answered(301).await?;
    let found = answer.header("location");
    ensure!(found == Some(location), "{probe:?}: {found:?}");
    Ok(())
}

pub(super) async fn base(site: &Site) -> Result<()> {
    let host = "headers.example.org";
    let port = site.https_address().port();
    let location = format!("https://{host}:{port}/cart?id=7");
    redirected(&site.http(host).path("/cart?id=7"), &location).await
}

pub(super) async fn plain_http(site: &Site) -> Result<()> {
    answered_by(&site.http("plain.example.org"), "web").await?;
    site.https("plain.example.org").answered(404).await?;
    Ok(())
}

pub(super) async fn www_to_apex(site: &Site) -> Result<()> {
    let host = "www.example.org";
    for probe in [site.https(host), site.http(host)] {
        redirected(&probe.path("/a?b=1"), "https://example.org/a?b=1").await?;
    }
    answered_by(&site.https("example.org"), "web").await?;
    Ok(())
}

pub(super) async fn canary_by_weight(site: &Site) -> Result<()> {
    let probe = site.https("canary.example.org");
    let mut connection = probe.connect().await?;
    let mut canary = 0;
    for _ in 0..300 {
        let answer = connection.ask(&probe).await?;
        ensure!(answer.status == 200, "{}", answer.status);
        canary += i32::from(answer.echoed("name")? == "next");
    }
    ensure!((1..100).contains(&canary), "{canary} of 300, not about 30");
    Ok(())
}

pub(super) async fn canary_by_header(site: &Site) -> Result<()> {
    let probe = site.https("beta.example.org");
    answered_by(&probe, "web").await?;
    for (name, value, version) in [
        ("x-canary", "always", "next"),
        ("x-canary", "never", "web"),
        ("cookie", "canary=always", "next"),
        ("cookie", "a=b; canary=always; c=d", "next"),
        ("cookie", "a=b; canary=never", "web"),
        ("cookie", "nocanary=always", "web"),
    ] {
        let probe = probe.clone().header(name, value);
        answered_by(&probe, version).await?;
    }
    Ok(())
}

pub(super) async fn blue_green(site: &Site) -> Result<()> {
    let store = site.https("store.example.org");
    answered_by(&store, "web").await?;
    answered_by(&site.https("store-preview.example.org"), "next").await?;
    let switched = [
        (
            "{name: web, port: 80, weight: 1}",
            "{name: web, port: 80, weight: 0}",
        ),
        (
            "{name: next, port: 80, weight: 0}",
            "{name: next, port: 80, weight: 1}",
        ),
    ];
    site.edit("blue-green", &switched)?;
    until_by(&store, "next").await
}

async fn path_is(probe: &Probe, path: &str) -> Result<()> {
    let answer = probe.answered(200).await?;
    let found = answer.echoed("path")?;
    ensure!(found == path, "{probe:?}: {found}");
    Ok(())
}

pub(super) async fn rewrite_path(site: &Site) -> Result<()> {
    let probe = site.https("rewrite.example.org").path("/v1/users?id=7");
    path_is(&probe, "/api/2024/users?id=7").await?;
    let host = probe.answered(200).await?.echoed("host")?;
    ensure!(host == "api.internal", "{host}");
    path_is(&probe.path("/health"), "/internal/healthz").await
}

pub(super) async fn strip_prefix(site: &Site) -> Result<()> {
    let probe = site.https("apps.example.org");
    for (written, path) in [("/wiki/a?b", "/a?b"), ("/wiki", "/"), ("/wiki/", "/")] {
        let probe = probe.clone().path(written);
        path_is(&probe, path).await?;
        answered_by(&probe, "next").await?;
    }
    let other = probe.path("/wikis");
    path_is(&other, "/wikis").await?;
    answered_by(&other, "web").await?;
    Ok(())
}

pub(super) async fn headers(site: &Site) -> Result<()> {
    let probe = site
        .https("headers.example.org")
        .header("x-environment", "test")
        .header("x-debug", "1");
    let answer = probe.answered(200).await?;
    let headers = answer.echoed("headers")?;
    ensure!(
        headers["x-environment"] == json!(["production"]),
        "{headers}"
    );
    ensure!(headers["x-debug"].is_null(), "{headers}");
    let strict = answer.header("strict-transport-security");
    ensure!(strict == Some("max-age=31536000"), "{strict:?}");
    Ok(())
}

pub(super) async fn grpc(site: &Site) -> Result<()> {
    let probe = site
        .https("grpc.example.org")
        .alpn(&["h2"])
        .method(Method::POST)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let add = probe.clone().path("/shop.v1.Cart/Add");
    let answer = answered_by(&add, "web").await?;
    let version = answer.echoed("version")?;
    ensure!(version == "HTTP/2.0", "{version}");
    answered_by(&probe.clone().path("/shop.v1.Cart/Preview"), "next").await?;
    let other = probe.path("/shop.v1.Orders/Add").answered(200).await?;
    let status = other.header("grpc-status");
    ensure!(status == Some("12"), "not UNIMPLEMENTED: {status:?}");
    Ok(())
}

pub(super) async fn maintenance(site: &Site) -> Result<()> {
    let probe = site.https("closed.example.org").path("/cart");
    let answer = probe.answered(503).await?;
    ensure!(answer.body == "<h1>We are back at noon</h1>", "{answer:?}");
    let retry = answer.header("retry-after");
    ensure!(retry == Some("600"), "{retry:?}");
    answered_by(&probe.header("x-tester", "yes"), "web").await?;
    Ok(())
}

pub(super) async fn error_pages(site: &Site) -> Result<()> {
    let probe = site.https("polite.example.org");
    answered_by(&probe, "web").await?;
    for (status, page) in [
        (404, "<h1>There is nothing here</h1>"),
        (503, "<h1>Sorry, we are working on it</h1>"),
    ] {
        let probe = probe.clone().path(&format!("/status/{status}"));
        let answer = probe.answered(status).await?;
        ensure!(answer.body == page, "{answer:?}");
    }
    Ok(())
}

pub(super) async fn static_files(site: &Site) -> Result<()> {
    let probe = site.https("files.example.org");
    for (path, text) in [
        ("/robots.txt", "User-agent: *\nDisallow: /cart\n"),
        (
            "/.well-known/security.txt",
            "Contact: mailto:security@example.org\nExpires: 2030-01-01T00:00:00Z\n",
        ),
    ] {
        let answer = probe.clone().path(path).answered(200).await?;
        ensure!(answer.body == text, "{path}: {answer:?}");
    }
    answered_by(&probe, "web").await?;
    Ok(())
}
