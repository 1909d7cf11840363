//! What a release publishes: image and chart in a registry, by the scripts that the workflow calls,
//! and manifests of package managers. The workflows themselves are checked by actionlint.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::manifests::documents;
use e2e::deploy::folder;
use e2e::helm::Helm;
use e2e::registry::Registry;

use super::installed::tool;
use super::release::{output, release};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const PROJECT: &str = "https://github.com/example/gatewright";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Helm, kubectl and a registry: e2e/tools install helm kubernetes registry"]
async fn image_and_chart_are_pulled_from_the_registry_that_has_them() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("published").tempdir()?;
    let registry = Registry::start().await?;
    let owner = format!("{}/example", registry.host());
    let image = format!("{owner}/gatewright");
    let variables = [("IMAGE", image.as_str()), ("PROJECT_URL", PROJECT)];
    let sums = release(dir.path(), &variables)?;
    let dist = dir.path().join("dist");
    let push = || {
        let mut command = Command::new(folder().join("release/push"));
        command.arg(&dist).arg(&owner).env("PLAIN_HTTP", "1");
        command
    };
    let published = output(&mut push())?;
    assert_eq!(output(&mut push())?, published, "what is there stays");

    // The chart names the image that the registry has.
    let (own, chart) = published.trim().split_once('\n').context("two lines")?;
    let own_digest = own.split('@').nth(1).context("a digest")?;
    let helm = Helm::new(None)?;
    let name = format!("oci://{owner}/charts/gatewright");
    let pulled = helm.run(&[
        "pull",
        &name,
        "--version",
        VERSION,
        "--plain-http",
        "--destination",
        &dir.path().display().to_string(),
    ])?;
    ensure!(
        chart.starts_with(&format!("{owner}/charts/gatewright:{VERSION}@sha256:")),
        "{chart} {pulled}"
    );
    let rendered = output(Command::new(tool("helm")?).args([
        "template",
        "gatewright",
        &name,
        "--plain-http",
        "--version",
        VERSION,
    ]))?;
    ensure!(
        rendered.contains(&format!("image: {image}:{VERSION}\n")),
        "{rendered}"
    );
    let digest =
        output(Command::new(folder().join("image/digest")).arg(format!("{image}:{VERSION}")))?;
    assert_eq!(
        digest.trim(),
        own_digest,
        "the digest is that of the archive"
    );
    let digests = std::fs::read_to_string(dist.join("digests.yaml"))?;
    ensure!(
        digests.contains(own_digest) && digests.contains(&image),
        "{digests}"
    );
    let described = helm.run(&["show", "chart", &name, "--version", VERSION, "--plain-http"])?;
    ensure!(
        described.contains(PROJECT) && described.contains(own),
        "{described}"
    );

    // Signatures are for digests, whatever a tag will name.
    let log = dir.path().join("signed");
    let cosign = dir.path().join("cosign");
    std::fs::write(
        &cosign,
        format!("#!/bin/sh\necho \"$@\" >>'{}'\n", log.display()),
    )?;
    std::fs::set_permissions(&cosign, std::fs::Permissions::from_mode(0o755))?;
    output(
        Command::new(folder().join("release/sign"))
            .arg(&dist)
            .env("COSIGN", &cosign)
            .env("COSIGN_KEY", "our.key"),
    )?;
    let signed = std::fs::read_to_string(&log)?;
    let signs = |name: &str| {
        signed.lines().any(|line| {
            line.starts_with("sign ") && line.contains("--key our.key") && line.ends_with(name)
        })
    };
    let chart_digest = chart.split('@').nth(1).context("a digest")?;
    ensure!(
        signs(&format!("{image}@{own_digest}"))
            && signs(&format!("{owner}/charts/gatewright@{chart_digest}"))
            && signed.contains("SHA256SUMS"),
        "{signed}"
    );

    // A tag that is another image is not replaced.
    let archive = dist.join(format!("gatewright-{VERSION}-image.tar"));
    super::image::build(
        &archive,
        &[("linux/amd64", "/bin/false".as_ref())],
        &["--with-libraries"],
    )?;
    let refused = push().output()?;
    let why = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        !refused.status.success() && why.contains("a tag is not pushed twice"),
        "{why}"
    );
    for name in ["krew.yaml", "gatewright.rb"] {
        let text = std::fs::read_to_string(dist.join(name))?;
        for platform in ["amd64", "arm64"] {
            let archive = format!("gatewright-{VERSION}-linux-{platform}.tar.gz");
            let address = format!("{PROJECT}/releases/download/v{VERSION}/{archive}");
            ensure!(
                text.contains(&address) && text.contains(&sums[&archive]),
                "{name}: {text}"
            );
        }
    }
    let krew = std::fs::read_to_string(dist.join("krew.yaml"))?;
    ensure!(documents(&krew)?.len() == 1, "{krew}");
    Ok(())
}

#[test]
#[ignore = "needs actionlint: e2e/tools install actionlint"]
fn workflows_are_valid_and_call_scripts_that_there_are() -> Result<()> {
    let root = folder().join("..");
    output(
        Command::new(tool("actionlint")?)
            .arg("-no-color")
            .current_dir(&root),
    )?;
    for entry in std::fs::read_dir(root.join(".github/workflows"))? {
        let text = std::fs::read_to_string(entry?.path())?;
        let words = text.split(|c: char| c.is_whitespace() || ";$\"()".contains(c));
        let is_script = |word: &&str| {
            ["deploy/", "e2e/", ".ci/"]
                .iter()
                .any(|folder| word.starts_with(folder))
        };
        for script in words.filter(is_script) {
            ensure!(root.join(script).exists(), "there is no {script}");
        }
    }
    Ok(())
}
