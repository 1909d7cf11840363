//! The output of `make release`: complete, for both platforms, with valid checksums, and
//! reproducible. The programs in it are small ones; `make image` builds the real one.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::deploy::folder;
use e2e::gatewright::binary;
use e2e::helm::Helm;
use e2e::walkthrough::Place;
use serde_json::Value;

use super::image::{platforms, tar};
use super::pages::followed;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// A digest of Envoy's image, as passed by a user who knows it.
const ENVOY: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

pub(super) fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("{command:?}"))?;
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{command:?}: {why}");
    Ok(String::from_utf8(out.stdout)?)
}

#[test]
#[ignore = "needs Helm and kubectl: e2e/tools install helm kubernetes"]
fn a_program_that_is_not_optimised_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let small = dir.path().join("small");
    let large = dir.path().join("large");
    std::fs::write(&small, format!("#!/bin/sh\necho gatewright {VERSION}\n"))?;
    std::fs::set_permissions(&small, std::fs::Permissions::from_mode(0o755))?;
    std::fs::File::create(&large)?.set_len(25_000_001)?;
    let mut build = Command::new(folder().join("release/build"));
    build.args([Path::new(VERSION), &small, &dir.path().join("dist")]);
    build.args([
        format!("linux/amd64={}", small.display()),
        format!("linux/arm64={}", large.display()),
    ]);
    build.env("UNPINNED", "1");
    let refused = build.output()?;
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("has 25000001 bytes, expected 25000000 or less"),
        "{why}"
    );
    Ok(())
}

/// Makes a release of a program that calls the one of this build, for two platforms.
pub(super) fn release(dir: &Path, more: &[(&str, &str)]) -> Result<BTreeMap<String, String>> {
    let program = dir.join("gatewright");
    std::fs::write(
        &program,
        format!("#!/bin/sh\nexec '{}' \"$@\"\n", binary()?.display()),
    )?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let image = dir.join("image.tar");
    output(
        Command::new(folder().join("image/build"))
            .args([
                "--binary",
                "linux/amd64=/bin/true",
                "--with-libraries",
                "--version",
                VERSION,
                "--output",
            ])
            .arg(&image),
    )?;
    let into = dir.join("dist");
    let platforms =
        ["amd64", "arm64"].map(|platform| format!("linux/{platform}={}", program.display()));
    output(
        Command::new(folder().join("release/build"))
            .env("ENVOY_DIGEST", ENVOY)
            .env("TRIAL", "1")
            .envs(more.iter().copied())
            .args([Path::new(VERSION), &image, &into])
            .args(platforms),
    )?;
    output(
        Command::new("sha256sum")
            .args(["--check", "--quiet", "SHA256SUMS"])
            .current_dir(&into),
    )?;
    let sums = std::fs::read_to_string(into.join("SHA256SUMS"))?;
    let sums = sums.lines().filter_map(|line| line.split_once("  "));
    Ok(sums
        .map(|(sum, name)| (name.to_owned(), sum.to_owned()))
        .collect())
}

/// Installs the chart of a release, with its digests and values of the site.
async fn as_the_page_says(release: &Path) -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    server
        .apply(include_str!("../../../deploy/namespace.yaml"))
        .await?;
    let values =
        "controller: {replicas: 3}\nimage: {repository: registry.example.org/gatewright}\n";
    let place = Place {
        dir: release.to_owned(),
        before: format!("cat >my-values.yaml <<'END'\n{values}END"),
        replaced: vec![("gatewright-VERSION", format!("gatewright-{VERSION}"))],
        ..Place::default()
    };
    followed(&server, "quickstart.md", "images", place).await?;
    let controller = server
        .api("apps/v1", "Deployment", "gatewright-system")
        .await?
        .get("gatewright-controller")
        .await?;
    let container = &controller.data["spec"]["template"]["spec"]["containers"][0];
    let digests = std::fs::read_to_string(release.join("digests.yaml"))?;
    let own = digests
        .lines()
        .find_map(|line| line.strip_prefix("  digest: "))
        .context("a digest")?;
    assert!(
        container["image"]
            .as_str()
            .is_some_and(|image| image.ends_with(own)),
        "{container}"
    );
    assert_eq!(controller.data["spec"]["replicas"], 3);
    Ok(())
}

/// Compiles a static program of a few lines, which runs another one or says its version.
fn small_program(compiler: &str, path: &Path, text: &str) -> Result<()> {
    std::fs::create_dir_all(path.parent().context("a directory")?)?;
    let source = path.with_extension("c");
    std::fs::write(&source, text)?;
    output(
        Command::new(compiler)
            .args(["-static", "-s", "-o"])
            .arg(path)
            .arg(&source),
    )
    .map(drop)
}

/// Nothing of Rust is compiled: programs of both platforms are where the build would put them.
#[test]
#[ignore = "needs Helm, kubectl, maturin, compilers for arm64 and QEMU: e2e/tools install helm kubernetes maturin cross"]
fn make_release_makes_everything_for_two_platforms() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("release").tempdir()?;
    let target = dir.path().join("target");
    let into = dir.path().join("dist");
    let at = |triple: &str| target.join(triple).join("image/gatewright");
    let other = binary()?.display().to_string();
    let runs = format!(
        "#include <unistd.h>\nint main(int c, char **v) {{ v[0] = {other:?}; execv(v[0], v); return 127; }}\n"
    );
    small_program("cc", &at("x86_64-unknown-linux-gnu"), &runs)?;
    let says = format!(
        "#include <stdio.h>\nint main(void) {{ puts(\"gatewright {VERSION}\"); return 0; }}\n"
    );
    small_program(
        "aarch64-linux-gnu-gcc",
        &at("aarch64-unknown-linux-gnu"),
        &says,
    )?;
    let mut make = Command::new("make");
    make.arg("--no-print-directory")
        .arg("-C")
        .arg(folder().join(".."))
        .arg("release");
    make.args([
        "PLATFORMS=linux/amd64 linux/arm64",
        "CARGO=true",
        "IMAGE=gatewright-trial",
    ]);
    make.arg(format!("DIST={}", into.display()))
        .env("CARGO_TARGET_DIR", &target)
        .env("UNPINNED", "1");
    // An engine of this machine is not given the image.
    make.env("DOCKER_HOST", "unix:///nonexistent")
        .env_remove("BINARY")
        .env_remove("MAKEFLAGS");
    output(&mut make)?;

    output(
        Command::new("sha256sum")
            .args(["--check", "--quiet", "SHA256SUMS"])
            .current_dir(&into),
    )?;
    let sums = std::fs::read_to_string(into.join("SHA256SUMS"))?;
    for (platform, triple) in [
        ("amd64", "x86_64-unknown-linux-gnu"),
        ("arm64", "aarch64-unknown-linux-gnu"),
    ] {
        let name = format!("gatewright-{VERSION}-linux-{platform}.tar.gz");
        assert!(sums.contains(&name), "{sums}");
        let machine = triple.split('-').next().unwrap_or_default();
        assert!(sums.contains(&format!("_{machine}.whl\n")), "{sums}");
        let packed = tar(&[
            "-xzOf",
            &into.join(name).display().to_string(),
            "gatewright",
        ])?;
        assert!(
            packed == std::fs::read(at(triple))?,
            "the program of {platform} is another one"
        );
    }
    let archive = into.join(format!("gatewright-{VERSION}-image.tar"));
    assert_eq!(platforms(&archive)?, ["amd64", "arm64"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Helm, kubectl and Kubernetes: e2e/tools install helm kubernetes gateway-api"]
async fn a_release_is_whole_and_the_same_twice() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("release").tempdir()?;
    let sums = release(dir.path(), &[])?;
    let into = dir.path().join("dist");
    let named = |name: &str| format!("gatewright-{VERSION}{name}");
    let wanted: BTreeSet<String> = [
        "-chart.tgz",
        "-image.tar",
        "-linux-amd64.tar.gz",
        "-linux-arm64.tar.gz",
        ".cdx.json",
    ]
    .map(named)
    .into_iter()
    .chain(
        [
            "crds.yaml",
            "digests.yaml",
            "images.json",
            "install.yaml",
            "notes.md",
        ]
        .map(str::to_owned),
    )
    .collect();
    assert_eq!(sums.keys().cloned().collect::<BTreeSet<_>>(), wanted);

    let listed = output(
        Command::new("tar")
            .arg("-tzf")
            .arg(into.join(named("-linux-arm64.tar.gz"))),
    )?;
    for file in [
        "gatewright",
        "LICENSE",
        "completion/gatewright.zsh",
        "man/man1/gatewright.1",
        "man/man1/gatewright-certs-renew.1",
    ] {
        assert!(listed.lines().any(|line| line == file), "{file}: {listed}");
    }
    let bill: Value =
        serde_json::from_str(&std::fs::read_to_string(into.join(named(".cdx.json")))?)?;
    assert_eq!(
        bill["bomFormat"], "CycloneDX",
        "the bill is in the format of CycloneDX"
    );
    assert_eq!(
        bill["metadata"]["component"]["name"], "gatewright",
        "it is that of the program"
    );
    let crates: Vec<&str> = bill["components"]
        .as_array()
        .context("components")?
        .iter()
        .filter_map(|of| of["name"].as_str())
        .collect();
    assert!(
        ["tokio", "clap_mangen", "kube"]
            .iter()
            .all(|name| crates.contains(name))
            && !crates.contains(&"proptest")
    );
    let images: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(into.join("images.json"))?)?;
    let digests: Vec<&str> = images
        .iter()
        .filter_map(|image| image["digest"].as_str())
        .collect();
    assert_eq!(digests.len(), 2, "{images:?}");
    assert_eq!(digests[1], ENVOY, "{images:?}");
    let manifests = std::fs::read_to_string(into.join("install.yaml"))?;
    assert!(
        manifests.contains(&format!("image: gatewright:{VERSION}\n")),
        "{manifests}"
    );
    let envoy = images[1]["reference"].as_str().context("a reference")?;
    assert!(
        envoy.ends_with(&format!("@{ENVOY}")) && manifests.contains(&format!("image: {envoy}\n")),
        "{manifests}"
    );
    let chart = into.join(named("-chart.tgz")).display().to_string();
    let rendered = Helm::new(None)?.run(&["template", "gatewright", &chart])?;
    assert!(
        rendered.contains(&format!("image: {envoy}\n")),
        "{rendered}"
    );
    assert!(std::fs::metadata(into.join("notes.md"))?.len() > 0);
    as_the_page_says(&into).await?;

    let again = tempfile::Builder::new().prefix("release").tempdir()?;
    let second = release(again.path(), &[])?;
    // Only the trial program itself contains the path of its folder, and both builds share it.
    assert_eq!(second, sums);
    Ok(())
}
