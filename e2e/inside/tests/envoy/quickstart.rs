//! Runs pages of `docs/` as a reader would who has the program and no cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::walkthrough::{Place, follow_part};

/// Runs a part of a page in an empty directory and a network of its own, with the program and one
/// of the tools.
fn followed(page: &str, part: &str, tool: &str) -> Result<()> {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let path = root.join(".tools").join(tool);
    ensure!(
        path.exists(),
        "no {tool} at {}; run: e2e/tools install {tool}",
        path.display()
    );
    let programs = tempfile::Builder::new().prefix("programs").tempdir()?;
    for (name, program) in [(tool, path), ("gatewright", e2e::gatewright::binary()?)] {
        std::os::unix::fs::symlink(program.canonicalize()?, programs.path().join(name))
            .context(name.to_owned())?;
    }
    let dir = tempfile::Builder::new().prefix("quickstart").tempdir()?;
    let path = vec![programs.path().to_owned()];
    let place = Place {
        dir: dir.path().to_owned(),
        path,
        alone: true,
        ..Place::default()
    };
    follow_part(&root.join("docs").join(page), part, &place)
}

#[test]
#[ignore = "needs Envoy, curl, and root or user namespaces: e2e/tools install envoy"]
fn standalone_is_as_its_page_says() -> Result<()> {
    followed("quickstart.md", "standalone", "envoy")
}

#[test]
#[ignore = "needs Envoy, curl, openssl, and root or user namespaces: e2e/tools install envoy"]
fn teams_attach_certificates_as_their_page_says() -> Result<()> {
    followed("hostnames.md", "teams", "envoy")
}

#[test]
#[ignore = "builds the program, and needs root or user namespaces"]
fn ingresses_become_what_the_page_says() -> Result<()> {
    followed("migrate.md", "", "envoy")
}
