//! The images of an installation: `gatewright images` lists those that the chart renders, and a
//! digest is that in a real registry.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use e2e::deploy::{folder, manifests};
use e2e::gatewright::Gatewright;
use e2e::helm::{Helm, examples};
use e2e::registry::Registry;
use serde_json::Value;

/// Returns the images of the pods of these objects.
fn rendered(objects: &[Value]) -> BTreeSet<String> {
    let containers = |object: &Value| {
        let of = |field: &str| {
            object
                .pointer(&format!("/spec/template/spec/{field}"))
                .and_then(Value::as_array)
                .cloned()
        };
        [of("initContainers"), of("containers")]
            .into_iter()
            .flatten()
            .flatten()
            .collect::<Vec<_>>()
    };
    let images = objects.iter().flat_map(containers);
    images
        .filter_map(|container| container["image"].as_str().map(str::to_owned))
        .collect()
}

/// Returns the list of `gatewright images`.
fn listed(more: &[&str]) -> Result<BTreeSet<String>> {
    let out = Gatewright::run(&[&["images", "-o", "json"], more].concat())?;
    ensure!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let all: Vec<Value> = serde_json::from_slice(&out.stdout)?;
    Ok(all
        .iter()
        .filter_map(|image| image["reference"].as_str().map(str::to_owned))
        .collect())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn every_image_that_the_chart_renders_is_listed_and_no_other() -> Result<()> {
    let helm = Helm::new(None)?;
    assert_eq!(listed(&[])?, rendered(&helm.template(&[])?));
    let plain: Vec<Value> = manifests(&folder())?
        .into_iter()
        .map(|(_, object)| object)
        .collect();
    assert_eq!(listed(&[])?, rendered(&plain), "the plain manifests");
    for (name, file) in examples()? {
        assert_eq!(
            listed(&["-f", &file])?,
            rendered(&helm.template(&["-f", &file])?),
            "{name}"
        );
    }
    // By digest, from digests.yaml of a release; values of a site override it.
    let digests = helm.home().join("digests.yaml");
    let site = helm.home().join("site.yaml");
    let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let text = format!(
        "image: {{digest: '{}'}}\nenvoy: {{image: {{digest: '{}'}}}}\n",
        digest("a"),
        digest("b")
    );
    std::fs::write(&digests, text)?;
    std::fs::write(
        &site,
        "image: {repository: registry.example.org/ours/gatewright}\n",
    )?;
    let files = [&digests, &site].map(|path| path.display().to_string());
    let both = ["-f", &files[0], "-f", &files[1]];
    let all = listed(&both)?;
    assert_eq!(all, rendered(&helm.template(&both)?));
    let ours = format!(
        "registry.example.org/ours/gatewright:{}@{}",
        env!("CARGO_PKG_VERSION"),
        digest("a")
    );
    assert!(all.contains(&ours), "{all:?}");
    assert!(
        all.iter()
            .any(|image| image.ends_with(&format!("@{}", digest("b")))),
        "{all:?}"
    );
    Ok(())
}

#[test]
#[ignore = "needs a built gatewright"]
fn the_table_has_a_line_for_each_image_and_wrong_values_are_refused() -> Result<()> {
    let out = Gatewright::run(&["images"])?;
    let told = String::from_utf8(out.stdout)?;
    let lines: Vec<Vec<&str>> = told
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["COMPONENT", "IMAGE", "TAG", "DIGEST"]);
    assert_eq!(
        lines[1][..3],
        ["gatewright", "gatewright", env!("CARGO_PKG_VERSION")]
    );
    assert_eq!(lines.len(), 3, "{told}");
    assert_eq!(lines[2][0], "envoy", "{told}");
    let dir = tempfile::Builder::new().prefix("images").tempdir()?;
    let wrong = dir.path().join("values.yaml");
    std::fs::write(&wrong, "envoy: {image: {digest: newest}}")?;
    let out = Gatewright::run(&["images", "--values", &wrong.display().to_string()])?;
    assert_eq!(out.status.code(), Some(1));
    let why = String::from_utf8_lossy(&out.stderr);
    assert!(
        why.contains("envoy.image.digest: expected sha256:"),
        "{why}"
    );
    Ok(())
}

fn digest(reference: &str) -> Result<Output> {
    Command::new(folder().join("image/digest"))
        .arg(reference)
        .output()
        .context("python3 is missing")
}

/// Builds an image of a small program.
fn archive(path: &Path) -> Result<String> {
    let mut build = Command::new(folder().join("image/build"));
    build.args([
        "--binary",
        "linux/amd64=/bin/true",
        "--with-libraries",
        "--version",
        "0.0.1",
        "--output",
    ]);
    let out = build.arg(path).output()?;
    ensure!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(String::from_utf8(out.stdout)?.trim().to_owned())
}

#[tokio::test]
#[ignore = "needs a container registry: e2e/tools install registry"]
async fn the_digest_of_a_release_is_the_one_that_a_registry_has() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("images").tempdir()?;
    let path = dir.path().join("image.tar");
    let built = archive(&path)?;
    let registry = Registry::start().await?;
    registry.push(&path, "ours/gatewright:0.0.1")?;

    let name = format!("{}/ours/gatewright", registry.host());
    let told = digest(&format!("{name}:0.0.1"))?;
    assert_eq!(
        String::from_utf8_lossy(&told.stdout).trim(),
        built,
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
    let missing = digest(&format!("{name}:0.0.2"))?;
    assert_eq!(
        missing.status.code(),
        Some(1),
        "a missing image is an error"
    );
    assert_eq!(missing.stdout.len(), 0, "nothing is printed");
    assert!(
        String::from_utf8_lossy(&missing.stderr).contains("404"),
        "{missing:?}"
    );
    // So is the one that a release pins Envoy to, of which this is a mirror.
    let pinned = |variables: &[(&str, &str)]| {
        let mut command = Command::new(folder().join("release/envoy-digest"));
        let mirror = format!("{name}:0.0.1");
        for variable in ["ENVOY_DIGEST", "UNPINNED"] {
            command.env_remove(variable);
        }
        command
            .env("ENVOY_MIRROR", mirror)
            .envs(variables.iter().copied())
            .output()
    };
    let told = pinned(&[])?;
    assert_eq!(
        String::from_utf8_lossy(&told.stdout).trim(),
        built,
        "{told:?}"
    );
    let given = format!("sha256:{}", "0a".repeat(32));
    assert_eq!(
        String::from_utf8_lossy(&pinned(&[("ENVOY_DIGEST", &given)])?.stdout).trim(),
        given
    );
    assert_eq!(
        pinned(&[("ENVOY_DIGEST", "latest")])?.status.code(),
        Some(1)
    );
    drop(registry);
    let none = pinned(&[])?;
    assert_eq!(none.status.code(), Some(1), "a release goes by a digest");
    assert_eq!(none.stdout.len(), 0, "a release goes by a digest");
    assert!(
        String::from_utf8_lossy(&none.stderr).contains("ENVOY_DIGEST=sha256:"),
        "{none:?}"
    );
    let none = pinned(&[("UNPINNED", "1")])?;
    assert_eq!(none.status.code(), Some(0), "unless somebody says so");
    assert_eq!(none.stdout.len(), 0, "unless somebody says so");
    let gone = digest(&format!("{name}:0.0.1"))?;
    assert_eq!(gone.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&gone.stderr).contains("does not say"),
        "{gone:?}"
    );
    Ok(())
}
