//! `kubectl gatewright ui` with the rights of a developer, in a browser.

use anyhow::Result;
use e2e::cluster::{is_true, service};
use e2e::gatewright::{Gatewright, binary};
use e2e::ui::Ui;

use super::{DEVELOPER, GATEWAY, HOST, Site, route};

/// What may not be read, in the page of a host.
const UNREAD: &str = "gateway platform/edge: you may not read it";

#[tokio::test]
#[ignore = "needs Kubernetes and Chromium: e2e/tools install"]
async fn a_page_of_a_cluster_has_the_rights_of_its_user() -> Result<()> {
    let site = Site::start().await?;
    let server = &site.cluster.server;
    for object in service("shop", "web", 80) {
        server.put(object).await?;
    }
    let mut controller = site.cluster.controller_with("one", &[])?;
    controller.line("xDS at").await?;
    site.is_ready().await?;

    let folder = tempfile::tempdir()?;
    let plugin = folder.path().join("kubectl-gatewright");
    std::os::unix::fs::symlink(binary()?.canonicalize()?, &plugin)?;
    let kubeconfig = server.kubeconfig(DEVELOPER, &[])?.display().to_string();
    let plugin = plugin.display().to_string();
    let kubeconfig = format!("KUBECONFIG={kubeconfig}");
    let command = ["/usr/bin/env", &*kubeconfig, &*plugin];
    let program = Gatewright::installed(&command, &["ui", "-n", "shop"])?;
    let ui = Ui::of(program).await?;
    let page = ui.page().await?;
    page.until_row(HOST, "ok").await?;
    page.browser
        .until("!document.getElementById('marks').hidden")
        .await?;
    page.go(&format!("host/{HOST}")).await?;
    page.until_text(UNREAD).await?;
    // The controller tells its history, and that of no log a request failed.
    page.until_text("httproute shop/web").await?;
    page.until_text("No failed request is in the log").await?;
    page.browser
        .until("document.querySelector('.chain .unread')")
        .await?;
    let text = page.browser.text().await?;
    assert!(!text.contains(&site.port.to_string()), "the port: {text}");

    // A change is seen by a watch.
    server.put(route("missing")).await?;
    page.until_text("BackendNotFound").await?;
    page.go("hosts").await?;
    page.until_row(HOST, "failing").await?;
    server.put(route("web")).await?;
    page.until_row(HOST, "ok").await?;
    for view in ["certificates", "owners", "policies", "envoys", "objects"] {
        page.go(view).await?;
        page.browser
            .until("document.querySelector('main h1')")
            .await?;
        let violations = page.violations().await?;
        assert!(violations.is_empty(), "{view}: {violations:#?}");
    }

    // The platform sees the Gateway; a user without rights sees no name.
    let platform = server.kubeconfig("platform", &["system:masters"])?;
    let ui = Ui::start(&["--kubeconfig", &platform.display().to_string()]).await?;
    let page = ui.page().await?;
    page.go(&format!("host/{HOST}")).await?;
    page.until_text(&format!("HTTP {}", site.port)).await?;
    site.cluster
        .until(GATEWAY, "HTTPRoute", "shop", "web", |route| {
            is_true(&route["status"]["parents"][0], "ResolvedRefs")
        })
        .await?;
    let nobody = server.kubeconfig("nobody", &[])?;
    let ui = Ui::start(&["--kubeconfig", &nobody.display().to_string()]).await?;
    let page = ui.page().await?;
    page.until_text("0 hosts").await?;
    let text = page.browser.text().await?;
    assert!(!text.contains("shop"), "{text}");
    Ok(())
}
