//! What a release publishes: image and chart in a registry, by the scripts that the workflow calls,
//! and manifests of package managers. The workflows themselves are checked by actionlint.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::manifests::documents;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::deploy::folder;
use e2e::helm::{Helm, NAMESPACE};
use e2e::registry::Registry;

use super::installed::tool;
use super::release::{output, release};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What cosign says of an image that it found signed by the key.
const SIGNED: &str = "signatures were verified against the specified public key";
const PROJECT: &str = "https://github.com/example/gatewright";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Helm, kubectl, a registry and cosign: e2e/tools install helm kubernetes registry cosign"]
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
    let images = images_of_an_installation(&name).await?;
    let ours: Vec<&str> = images
        .lines()
        .filter(|name| name.contains("gatewright"))
        .collect();
    ensure!(
        ours.len() > 2 && ours.iter().all(|name| *name == image_at(&image)),
        "{images}"
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
    let signer = Cosign::with_keys(dir.path().join("signer"))?;
    let unsigned = signer.verify(&image_at(&image))?;
    ensure!(unsigned.contains("no signatures found"), "{unsigned}");
    signer.sign(&dist)?;
    for name in [
        image_at(&image),
        format!("{image}@{own_digest}"),
        chart.replace(&format!(":{VERSION}@"), "@"),
    ] {
        let verified = signer.verify(&name)?;
        ensure!(verified.contains(SIGNED), "{name}: {verified}");
    }
    let stranger = Cosign::with_keys(dir.path().join("stranger"))?;
    let refused = stranger.verify(&image_at(&image))?;
    ensure!(!refused.contains(SIGNED), "{refused}");
    let sums_file = dist.join("SHA256SUMS");
    ensure!(signer.verifies_file(&sums_file)? && !stranger.verifies_file(&sums_file)?);
    let listed = std::fs::read_to_string(&sums_file)?;
    std::fs::write(&sums_file, listed.to_uppercase())?;
    ensure!(
        !signer.verifies_file(&sums_file)?,
        "a changed file is refused"
    );
    std::fs::write(&sums_file, listed)?;

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

/// Installs the chart of a registry into a cluster, and returns the images of its pods, one in a
/// line.
async fn images_of_an_installation(chart: &str) -> Result<String> {
    let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    let kubeconfig = server.kubeconfig("admin", &["system:masters"])?;
    let release = ["gatewright", chart, "--version", VERSION, "--plain-http"];
    output(
        Command::new(tool("helm")?)
            .env("KUBECONFIG", &kubeconfig)
            .arg("install")
            .args(release)
            // Nothing runs Jobs here.
            .args([
                "-n",
                NAMESPACE,
                "--create-namespace",
                "--set",
                "crds.upgrade=false",
            ]),
    )?;
    output(
        Command::new(tool("kubectl")?)
            .env("KUBECONFIG", &kubeconfig)
            .args(["get", "deployments,daemonsets", "-A", "-o"])
            .arg(
                r#"jsonpath={range .items[*].spec.template.spec.containers[*]}{.image}{"\n"}{end}"#,
            ),
    )
}

fn image_at(name: &str) -> String {
    format!("{name}:{VERSION}")
}

/// The real cosign with a key of its own, which asks no service.
struct Cosign {
    keys: PathBuf,
}

impl Cosign {
    fn with_keys(keys: PathBuf) -> Result<Self> {
        std::fs::create_dir(&keys)?;
        let cosign = Self { keys };
        output(cosign.command()?.arg("generate-key-pair"))?;
        Ok(cosign)
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(tool("cosign")?);
        command.current_dir(&self.keys).env("COSIGN_PASSWORD", "");
        Ok(command)
    }

    /// Signs as a release does.
    fn sign(&self, dist: &Path) -> Result<String> {
        output(
            Command::new(folder().join("release/sign"))
                .arg(dist)
                .env("COSIGN", tool("cosign")?)
                .env("COSIGN_KEY", self.keys.join("cosign.key"))
                .env("COSIGN_PASSWORD", ""),
        )
    }

    /// What cosign says of an image or a chart.
    fn verify(&self, name: &str) -> Result<String> {
        let mut command = self.command()?;
        command.args(["verify", "--key=cosign.pub", "--insecure-ignore-tlog", name]);
        let out = command.output()?;
        let verdict = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(
            out.status.success() == verdict.contains(SIGNED),
            "{name}: {verdict}"
        );
        Ok(verdict)
    }

    fn verifies_file(&self, file: &Path) -> Result<bool> {
        let mut command = self.command()?;
        command.args(["verify-blob", "--key=cosign.pub", "--insecure-ignore-tlog"]);
        let bundle = format!("{}.sigstore.json", file.display());
        Ok(command
            .args(["--bundle", &bundle])
            .arg(file)
            .output()?
            .status
            .success())
    }
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
