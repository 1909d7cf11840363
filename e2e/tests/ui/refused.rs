//! Requests that are refused, and secrets that no response has.

use anyhow::Result;
use e2e::ui::Ui;
use hyper::Method;
use serde_json::json;

use super::{CANARY, DIGEST, SHOP, Site, route, users};

/// The paths of a page, below that of its session.
const PATHS: [&str; 13] = [
    "",
    "page.js",
    "page.css",
    "icon.svg",
    "api/about",
    "api/certificates",
    "api/envoys",
    "api/errors?host=shop.example.org",
    "api/explain?url=https://shop.example.org/&method=GET",
    "api/history?host=shop.example.org",
    "api/owners",
    "api/policies",
    "api/status",
];

#[tokio::test]
#[ignore = "needs Envoy: e2e/tools install envoy"]
async fn only_the_browser_that_opened_the_url_is_answered() -> Result<()> {
    let site = Site::start(Vec::new()).await?;
    let ui = site.ui().await?;
    for path in ["/", "/?token=x", "/?token="] {
        let refused = ui.request(path).send().await?;
        assert_eq!(refused.status, 403, "{path} has no token");
    }
    let session = ui.exchange().await?;
    let field = &session.field;
    for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(field.contains(attribute), "{attribute} in {field}");
    }
    assert!(ui.exchange().await.is_err(), "the token works once");
    for path in PATHS.iter().chain(&["api/events"]) {
        let whole = format!("{}{path}", session.path);
        let bare = ui.request(&whole).send().await?;
        assert_eq!(bare.status, 403, "{path} without the cookie");
        let wrong = ui.request(&whole).header("cookie", "gatewright-ui=x");
        assert_eq!(wrong.send().await?.status, 403, "{path} with a wrong one");
        let foreign = session.request(path).authority("evil.example");
        assert_eq!(foreign.send().await?.status, 403, "{path} of another host");
        for site in ["cross-site", "same-site"] {
            let other = session.request(path).header("sec-fetch-site", site);
            assert_eq!(other.send().await?.status, 403, "{path} from {site}");
        }
    }
    for path in PATHS {
        let written = session.request(path).method(Method::POST).send().await?;
        assert_eq!(written.status, 405, "{path} is only read");
        let answer = session.answer(path).await?;
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(
            policy.starts_with("default-src 'none'; "),
            "{path}: {policy}"
        );
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(
            answer.header("referrer-policy"),
            Some("no-referrer"),
            "{path}"
        );
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy: e2e/tools install envoy"]
async fn no_response_has_a_secret() -> Result<()> {
    let mut more = users();
    more.push(route("blue", "private.example.org", "web"));
    more.push(json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "blue", "name": "own"}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": CANARY, "tls.key": CANARY}}));
    let site = Site::start(more).await?;
    site.probe(SHOP).answered(200).await?;
    let asked = site
        .probe("private.example.org")
        .path(&format!("/?token={CANARY}"))
        .header("authorization", &format!("Bearer {CANARY}"));
    asked.answered(401).await?;
    let ui = site.ui().await?;
    let session = ui.exchange().await?;
    let paths = PATHS.map(|path| path.replace(SHOP, "private.example.org"));
    for path in PATHS
        .iter()
        .copied()
        .chain(paths.iter().map(String::as_str))
    {
        let answer = session.answer(path).await?;
        let text = String::from_utf8_lossy(&answer.body);
        for secret in [CANARY, DIGEST, "PRIVATE KEY"] {
            assert!(!text.contains(secret), "{path} has {secret}: {text}");
        }
    }
    let page = ui_page_source(&site).await?;
    assert!(!page.contains(CANARY), "the list of hosts has it: {page}");
    Ok(())
}

/// What the stream of hosts says first.
async fn ui_page_source(site: &Site) -> Result<String> {
    let state = site.state.path().display().to_string();
    let ui = Ui::start(&["--state-dir", &state]).await?;
    let page = ui.page().await?;
    page.until_row("private.example.org", "").await?;
    let script = "return fetch('api/events').then(async response => { \
        const reader = response.body.getReader(); const decoder = new TextDecoder(); let text = ''; \
        while (!text.includes('\\n\\n')) text += decoder.decode((await reader.read()).value); \
        await reader.cancel(); return text; })";
    let text = page.browser.run(script, &[]).await?;
    Ok(text.as_str().unwrap_or_default().to_owned())
}
