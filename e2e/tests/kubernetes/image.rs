//! The container image: reproducible digest, non-root user, and no superfluous content.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::deploy::folder;
use serde_json::Value;

/// Builds it into an archive and returns its digest.
fn build(archive: &Path, more: &[&str]) -> Result<String> {
    let program = e2e::gatewright::binary()?;
    let mut build = Command::new(folder().join("image/build"));
    build.arg("--binary").arg(format!("linux/amd64={}", program.display())).args(["--version", "0.0.1"]);
    let out = build.arg("--output").arg(archive).args(more).output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?.trim().to_owned())
}

fn tar(arguments: &[&str]) -> Result<Vec<u8>> {
    let out = Command::new("tar").args(arguments).output()?;
    ensure!(out.status.success(), "tar {}: {}", arguments.join(" "), String::from_utf8_lossy(&out.stderr));
    Ok(out.stdout)
}

#[test]
#[ignore = "needs a built gatewright and python3"]
fn the_image_is_reproducible_and_has_nothing_but_the_program() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("image").tempdir()?;
    let (one, two) = (dir.path().join("one.tar"), dir.path().join("two.tar"));
    let digest = build(&one, &["--with-libraries"])?;
    assert_eq!(build(&two, &["--with-libraries"])?, digest);
    assert_eq!(std::fs::read(&one)?, std::fs::read(&two)?, "the archives are the same to the byte");

    let archive = one.display().to_string();
    let document = |name: &str| -> Result<Value> { Ok(serde_json::from_slice(&tar(&["-xOf", &archive, name])?)?) };
    let blob = |value: &Value| -> Result<String> {
        Ok(format!(
            "blobs/sha256/{}",
            value.as_str().and_then(|name| name.strip_prefix("sha256:")).context("a digest")?
        ))
    };
    let index = document("index.json")?;
    assert_eq!(index["manifests"][0]["digest"], digest.as_str());
    let manifest = document(&blob(&index["manifests"][0]["digest"])?)?;
    let config = document(&blob(&manifest["config"]["digest"])?)?;
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/gatewright");
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.version"], "0.0.1");
    assert_eq!(config["created"], "1970-01-01T00:00:00Z");
    // Docker before 25 reads this one.
    assert_eq!(document("manifest.json")?[0]["RepoTags"][0], "gatewright:0.0.1");

    let layer = dir.path().join("layer.tar.gz");
    std::fs::write(&layer, tar(&["-xOf", &archive, &blob(&manifest["layers"][0]["digest"])?])?)?;
    let listed = String::from_utf8(tar(&["-tzf", &layer.display().to_string()])?)?;
    let files: BTreeSet<&str> = listed.lines().filter(|path| !path.ends_with('/')).collect();
    let ours =
        ["etc/group", "etc/nsswitch.conf", "etc/passwd", "etc/ssl/certs/ca-certificates.crt", "usr/bin/gatewright"];
    let more: Vec<&&str> = files.iter().filter(|file| !ours.contains(file) && !file.contains(".so")).collect();
    assert!(more.is_empty() && ours.iter().all(|file| files.contains(file)), "{files:?}");
    Ok(())
}
