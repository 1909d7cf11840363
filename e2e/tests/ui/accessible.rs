//! What axe-core finds: nothing, in light and dark colours.

use anyhow::Result;

use super::{BROKEN, SHOP, Site};

#[tokio::test]
#[ignore = "needs Envoy and Chromium: e2e/tools install"]
async fn everybody_can_use_the_page() -> Result<()> {
    let site = Site::start(Vec::new()).await?;
    site.probe(BROKEN).answered(500).await?;
    let ui = site.ui().await?;
    let page = ui.page().await?;
    page.until_row(SHOP, "ok").await?;
    for scheme in ["light", "dark"] {
        page.colours(scheme).await?;
        for (view, content) in [
            ("hosts", SHOP),
            (&*format!("host/{BROKEN}"), "GET /"),
            ("certificates", "internal-ca"),
            ("owners", "Record of ownership"),
            ("policies", "trafficpolicy shop/limit"),
            ("envoys", "on this machine"),
            ("objects", "ResolvedRefs"),
        ] {
            page.go(view).await?;
            page.until_text(content).await?;
            let violations = page.violations().await?;
            assert!(violations.is_empty(), "{view} in {scheme}: {violations:#?}");
        }
    }
    Ok(())
}
