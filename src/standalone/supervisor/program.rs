//! The Envoy executable, and its versions.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// The timeout of the query of a version.
const TIMEOUT: Duration = Duration::from_secs(10);

/// No Envoy executable was found.
#[derive(Debug, thiserror::Error)]
#[error(
    "no Envoy found: give one with --envoy PATH, put `envoy` on PATH, install one with `make demo`, or use --no-envoy \
     (looked at {looked})"
)]
pub struct NoEnvoy {
    looked: String,
}

/// Finds the Envoy executable: that of the flag, the one on PATH, otherwise the one that
/// `make demo` installed.
///
/// # Errors
/// When there is none.
pub fn find(flag: Option<&Path>) -> Result<PathBuf, NoEnvoy> {
    let candidates: Vec<PathBuf> = match flag {
        Some(path) => vec![path.to_path_buf()],
        None => {
            let on_path = std::env::var_os("PATH").unwrap_or_default();
            let on_path: Vec<PathBuf> = std::env::split_paths(&on_path)
                .map(|dir| dir.join("envoy"))
                .collect();
            let exe = std::env::current_exe().unwrap_or_default();
            let installed = exe.ancestors().skip(1).map(|dir| dir.join(".tools/envoy"));
            on_path
                .into_iter()
                .chain([PathBuf::from(".tools/envoy")])
                .chain(installed)
                .collect()
        }
    };
    let looked = candidates
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ");
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .and_then(|path| path.canonicalize().ok())
        .ok_or(NoEnvoy { looked })
}

/// Returns the version of the executable, in the form of the admin interface; `None` when it is not
/// known.
pub(super) async fn version(program: &Path) -> Option<String> {
    let printed = print(program, "--version").await?;
    printed
        .split_once("version:")
        .map(|(_, version)| version.trim().to_owned())
}

/// Returns the hot-restart version of the executable; `None` when it is not known.
pub(super) async fn hot_restart_version(program: &Path) -> Option<String> {
    print(program, "--hot-restart-version")
        .await
        .map(|printed| printed.trim().to_owned())
}

async fn print(program: &Path, flag: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.arg(flag).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(TIMEOUT, command.output()).await.ok()?.ok()?;
    // One of the two flags prints to standard error.
    let printed = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&printed).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_envoy_a_sentence_says_what_to_do() {
        let error = find(Some(Path::new("/nowhere/envoy")))
            .expect_err("there is none")
            .to_string();
        assert!(
            error.contains("--envoy PATH") && error.contains("/nowhere/envoy"),
            "{error}"
        );
    }
}
