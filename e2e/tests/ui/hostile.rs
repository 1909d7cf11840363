//! What tenants and clients write is text for the page, and never becomes part of it.

use anyhow::Result;
use serde_json::json;

use super::{Site, object, route};

/// What would run if it became HTML, in one case: names of headers are in lower case.
const SCRIPT: &str = "<img src=x onerror=window.hostile=1><script>window.hostile=1</script>";

#[tokio::test]
#[ignore = "needs Envoy and Chromium: e2e/tools install"]
async fn what_tenants_write_is_text() -> Result<()> {
    let mut noted = route("blue", "noted.example.org", "web");
    noted["metadata"]["annotations"] = json!({SCRIPT: SCRIPT, "note": SCRIPT});
    let mut named = route("blue", "named.example.org", "web");
    named["spec"]["rules"][0]["matches"] = json!([{"path":
        {"type": "RegularExpression", "value": format!("/({SCRIPT}")}}]);
    let mut section = route("blue", "section.example.org", "web");
    section["spec"]["parentRefs"][0]["sectionName"] = json!(SCRIPT);
    let policy = json!({"spec": {"targetRefs": [{"group": "gateway.networking.k8s.io",
        "kind": "HTTPRoute", "name": "noted"}], "requestBody": {"maxBytes": SCRIPT}}});
    let policy = object(
        "gatewright.io/v1alpha1",
        "TrafficPolicy",
        ("blue", "hostile"),
        policy,
    );
    let site = Site::start(vec![noted, named, section, policy]).await?;
    site.probe("broken.example.org")
        .path("/%3Cimg%20src=x%20onerror=window.hostile=1%3E")
        .header("user-agent", SCRIPT)
        .answered(500)
        .await?;
    let ui = site.ui().await?;
    let page = ui.page().await?;
    page.until_row("named.example.org", "").await?;
    let mut shown = false;
    for (view, content) in [
        ("hosts", "named.example.org"),
        ("host/named.example.org", "httproute blue/named"),
        ("host/noted.example.org", "httproute blue/noted"),
        ("host/broken.example.org", "GET /%3Cimg"),
        (&*format!("host/{SCRIPT}"), "No listener and no route"),
        ("certificates", "internal-ca"),
        ("owners", "Record of ownership"),
        ("policies", "trafficpolicy shop/limit"),
        ("envoys", "on this machine"),
        ("objects", "Kinds"),
    ] {
        page.go(view).await?;
        page.until_text(content).await?;
        let text = page.browser.text().await?;
        shown |= text.contains("onerror=window.hostile=1");
        let is_hostile = page.browser.run("return window.hostile", &[]).await?;
        assert!(is_hostile.is_null(), "{view} ran it");
        let script = "return document.querySelectorAll('img, main script').length";
        assert_eq!(
            page.browser.run(script, &[]).await?,
            0,
            "{view} has elements of it"
        );
    }
    assert!(shown, "it is shown as text");
    let run = "const element = document.createElement('div'); \
        try { element.innerHTML = '<b>x</b>'; return 'made'; } catch (error) { return error.name; }";
    let refused = page.browser.run(run, &[]).await?;
    assert_eq!(
        refused, "TypeError",
        "the browser makes no element of a text"
    );
    Ok(())
}
