//! The pictures of docs/ui.md: each run takes them, and `UPDATE=1` stores them.

use std::path::Path;

use anyhow::{Context, Result};

use super::{BROKEN, SHOP, Site};

/// The most bytes of a picture in the repository.
const BYTES: usize = 200 << 10;

#[tokio::test]
#[ignore = "needs Envoy and Chromium: e2e/tools install"]
async fn the_pictures_of_the_docs_can_be_taken() -> Result<()> {
    let site = Site::start(Vec::new()).await?;
    site.probe(BROKEN).path("/cart").answered(500).await?;
    let ui = site.ui().await?;
    let page = ui.page().await?;
    page.until_row(SHOP, "ok").await?;
    for (name, view, scheme, content) in [
        ("hosts", "hosts", "light", SHOP),
        ("host", &*format!("host/{BROKEN}"), "dark", "GET /cart"),
        ("certificates", "certificates", "light", "internal-ca"),
    ] {
        page.colours(scheme).await?;
        page.go(view).await?;
        page.until_text(content).await?;
        let picture = page.browser.picture().await?;
        assert_eq!(size(&picture)?, (1200, 800), "{name}");
        assert!(
            (5_000..BYTES).contains(&picture.len()),
            "{name} has {} bytes",
            picture.len()
        );
        if std::env::var_os("UPDATE").is_some() {
            let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pictures");
            std::fs::create_dir_all(&pictures)?;
            std::fs::write(pictures.join(format!("ui-{name}.png")), picture)?;
        }
    }
    Ok(())
}

/// The width and the height of a PNG, from its first chunk (PNG specification, 11.2.2).
fn size(png: &[u8]) -> Result<(u32, u32)> {
    let number = |at: usize| -> Result<u32> {
        let bytes = png.get(at..at + 4).context("a header")?;
        Ok(u32::from_be_bytes(bytes.try_into()?))
    };
    Ok((number(16)?, number(20)?))
}
