//! `gatewright backup` and `gatewright restore`: what an installation of a cluster needs to go on in
//! another one.

use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use gatewright_kubernetes::backup;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::cli;
use crate::private_file;
use crate::progress::progress;

/// The largest backup that is read.
const BYTES: u64 = 1 << 30;

/// Writes a backup. Returns true.
///
/// # Errors
/// When something cannot be read, or the file cannot be written.
pub async fn back_up(options: &cli::Backup) -> Result<bool> {
    let (client, _) = options.cluster.connect().await?;
    progress("reading the cluster");
    let objects = backup::read(&client, &options.cluster.installation).await;
    progress("");
    let objects = objects?;
    let count = objects.len();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let text = Zeroizing::new(serde_json::to_string_pretty(&list)? + "\n");
    if options.output == Path::new("-") {
        io::stdout().write_all(text.as_bytes())?;
        return Ok(true);
    }
    let mut file = private_file::create(&options.output)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    writeln!(
        io::stdout(),
        "{}: {count} objects, with private keys: encrypt it before you store it elsewhere",
        options.output.display()
    )?;
    Ok(true)
}

/// Restores a backup. Returns true.
///
/// # Errors
/// When it cannot be read, or must not be restored.
pub async fn restore(options: &cli::Restore) -> Result<bool> {
    let place = options.file.display().to_string();
    let mut text = Zeroizing::new(String::new());
    if options.file == Path::new("-") {
        io::stdin().lock().take(BYTES).read_to_string(&mut text)?;
    } else {
        let file = std::fs::File::open(&options.file).with_context(|| place.clone())?;
        file.take(BYTES)
            .read_to_string(&mut text)
            .with_context(|| place.clone())?;
    }
    let mut list: Value = serde_json::from_str(&text).with_context(|| place.clone())?;
    let Value::Array(objects) = list["items"].take() else {
        bail!("{place}: no backup, it is no List");
    };
    let (client, _) = options.cluster.connect().await?;
    let installation = &options.cluster.installation;
    let restored = backup::restore(&client, installation, &objects).await?;
    writeln!(
        io::stdout(),
        "{} objects are restored, {} were there. Next: what authors write, then the controller (docs/backup.md)",
        restored.created,
        restored.present
    )?;
    Ok(true)
}
