//! An Envoy that refuses configuration that the program accepts: a refusal that no check of ours
//! can prevent.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Returns a valid regular expression that is too large for a [`strict`] Envoy, in a path that
/// begins with `/<word>`.
pub(crate) fn too_large(word: &str) -> String {
    format!("/{word}[a-z]{{600}}")
}

/// Makes a wrapper of Envoy with a lower limit for regular expressions than in our bootstrap; it is
/// removed with the directory.
pub(crate) fn strict() -> Result<(TempDir, String)> {
    let dir = tempfile::Builder::new().prefix("strict").tempdir()?;
    let path = dir.path().join("envoy");
    let envoy = e2e::envoy::binary()?.canonicalize()?.display().to_string();
    let script = format!(
        "#!/bin/sh\nfor config; do :; done\n\
         sed 's/\\(\"re2.max_program_size.[a-z]*_level\": *\\)[0-9]*/\\1500/g' \"$config\" > \"$config.strict.json\"\n\
         exec '{envoy}' --use-dynamic-base-id --log-level info --drain-time-s 5 --config-path \"$config.strict.json\"\n"
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    let path = path.to_str().context("a path in UTF-8")?.to_owned();
    Ok((dir, path))
}
