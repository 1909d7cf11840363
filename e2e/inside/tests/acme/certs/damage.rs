//! Damaged files: the content of one is lost or waits for an operator, all other hosts are served.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::site::Site;

/// Returns the only file whose name begins with this prefix.
fn only(folder: PathBuf, prefix: &str) -> Result<PathBuf> {
    let mut found = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    found
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        })
        .with_context(|| format!("{prefix} in {}", folder.display()))
}

/// Truncates a file to its half.
fn damage(path: &PathBuf) -> Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    Ok(file.set_len(file.metadata()?.len() / 2)?)
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn a_damaged_account_and_a_damaged_ca_stop_nobody_and_wait_for_an_operator() -> Result<()> {
    let mut site = Site::new().await?;
    let before = [("a.example.test", "acme"), ("b.inside.test", "internal-ca")];
    site.publish(&before)?;
    site.start(&[])?;
    site.served("a.example.test").await?;
    site.row("b.inside.test", |row| row["expires"].is_string())
        .await?;
    let orders = site.pebble.orders();
    site.program = None;

    let state = site.state.path().to_owned();
    damage(&only(state.join("acme/accounts"), "acme")?)?;
    let ca = state.join("ca/inside.test");
    damage(&ca.join("ca.json"))?;
    let after = [
        ("c.example.test", "acme"),
        ("d.inside.test", "internal-ca"),
        ("e.other.test", "internal-ca"),
    ];
    site.publish(&[&before[..], &after[..]].concat())?;
    site.start(&[])?;
    // Hosts with a certificate are served, and so are hosts that need neither of the two files.
    site.served("a.example.test").await?;
    site.row("b.inside.test", |row| row["expires"].is_string())
        .await?;
    site.row("e.other.test", |row| row["expires"].is_string())
        .await?;
    // The others get the reason and the fix.
    let said = |word: &'static str| {
        move |row: &serde_json::Value| {
            row["lastError"]
                .as_str()
                .is_some_and(|text| text.contains(word))
        }
    };
    site.row("c.example.test", said("gatewright certs new-account acme"))
        .await?;
    site.row("d.inside.test", said("mv ")).await?;
    let (_, text) = site.ask(&["certs"])?;
    ensure!(
        text.contains("! issuer acme waits")
            && text.contains("! the internal CA of inside.test waits"),
        "{text}"
    );
    ensure!(site.pebble.orders() == orders, "nothing was ordered anew");

    // He does, and without a restart.
    let (code, text) = site.ask(&["certs", "new-account", "acme"])?;
    ensure!(code == 0, "{text}");
    site.served("c.example.test").await?;
    fs::rename(&ca, state.join("ca-damaged"))?;
    site.row("d.inside.test", |row| {
        row["expires"].is_string() && row["lastError"].is_null()
    })
    .await?;
    let (_, text) = site.ask(&["certs"])?;
    ensure!(!text.contains("waits"), "{text}");
    Ok(())
}
