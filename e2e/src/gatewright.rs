//! The program itself, as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::clock::Clock;
use crate::probe::Probe;
use crate::process::Process;

const LIMIT: Duration = Duration::from_secs(180);

/// The head of a file with the configuration (`--config`).
pub const CONFIGURATION: &str = "apiVersion: config.gatewright.io/v1alpha1\nkind: Configuration\n";

/// A running `gatewright`; killed on drop, its output shown when the test panics.
#[derive(Debug)]
pub struct Gatewright {
    process: Process,
}

impl Gatewright {
    /// Starts the program with these arguments, in an empty private directory. Call it on the
    /// test's own thread: the program is killed with that thread.
    pub fn start(args: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("gatewright")
            .tempdir()
            .context("making a directory")?;
        Ok(Self {
            process: Process::start(&binary()?, &tied(args), dir)?,
        })
    }

    /// Starts a program that is installed elsewhere: its path, perhaps after programs that run it.
    pub fn installed(command: &[&str], args: &[&str]) -> Result<Self> {
        let (program, words) = command.split_first().context("a program")?;
        let dir = tempfile::Builder::new()
            .prefix("gatewright")
            .tempdir()
            .context("making a directory")?;
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        words.extend(tied(args));
        Ok(Self {
            process: Process::start(Path::new(program), &words, dir)?,
        })
    }

    /// Starts `standalone` with Envoy over a directory of manifests and a private directory, with
    /// more options.
    pub fn standalone(manifests: &Path, state: &Path, options: &[&str]) -> Result<Self> {
        let [dir, private] = [manifests, state].map(|path| path.display().to_string());
        let envoy = crate::envoy::binary()?.canonicalize()?;
        let envoy = envoy.display().to_string();
        let usual = [
            "standalone",
            &dir,
            "--state-dir",
            &private,
            "--envoy",
            &envoy,
        ];
        Self::start(&[&usual, options].concat())
    }

    /// Starts the program with a limit of open files, which its Envoy inherits.
    pub fn start_within_files(files: u32, args: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("gatewright")
            .tempdir()
            .context("making a directory")?;
        let mut words = vec![
            format!("--nofile={files}:{files}"),
            binary()?.display().to_string(),
        ];
        words.extend(tied(args));
        Ok(Self {
            process: Process::start(Path::new("/usr/bin/prlimit"), &words, dir)?,
        })
    }

    /// Starts a controller with these arguments and a simulated wall clock.
    pub fn start_by(clock: &Clock, args: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("gatewright")
            .tempdir()
            .context("making a directory")?;
        let mut words = clock.environment()?.to_vec();
        words.push(binary()?.display().to_string());
        words.extend(args.iter().map(|arg| (*arg).to_owned()));
        Ok(Self {
            process: Process::start(Path::new("/usr/bin/env"), &words, dir)?,
        })
    }

    /// Runs the program until it ends.
    pub fn run(args: &[&str]) -> Result<Output> {
        Command::new(binary()?)
            .args(args)
            .output()
            .context("running gatewright")
    }

    /// Returns the bootstrap of a standalone Envoy, whose sockets are in this directory.
    pub fn bootstrap(state: &Path) -> Result<Value> {
        let state = state.display().to_string();
        let made = Self::run(&["bootstrap", "--state-dir", &state])?;
        ensure!(made.status.success(), "gatewright bootstrap: {made:?}");
        Ok(serde_json::from_slice(&made.stdout)?)
    }

    /// Waits until it has started Envoy, and returns Envoy's process id.
    pub async fn until_envoy(&self) -> Result<u32> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match crate::usage::child(self.pid(), "envoy") {
                Ok(envoy) => return Ok(envoy),
                Err(error) => ensure!(Instant::now() < deadline, "{error}"),
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until it has printed a line that contains `text`, and returns that line.
    pub async fn line(&mut self, text: &str) -> Result<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let ended = self.process.ended()?;
            let log = self.process.log();
            let complete = &log[..log.rfind('\n').map_or(0, |end| end + 1)];
            if let Some(line) = complete.lines().find(|line| line.contains(text)) {
                return Ok(line.to_owned());
            }
            if let Some(status) = ended {
                bail!(
                    "gatewright ended ({status}) before it printed {text:?}:\n{}",
                    self.process.tail()
                );
            }
            ensure!(
                Instant::now() < deadline,
                "gatewright did not print {text:?} within {LIMIT:?}:\n{}",
                self.process.tail()
            );
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until it has ended by itself, and returns the end of its output.
    pub async fn end(&mut self) -> Result<String> {
        let deadline = Instant::now() + LIMIT;
        while self.process.ended()?.is_none() {
            ensure!(
                Instant::now() < deadline,
                "gatewright did not end within {LIMIT:?}:\n{}",
                self.process.tail()
            );
            sleep(Duration::from_millis(10)).await;
        }
        Ok(self.process.tail())
    }

    /// Returns the status and the body of its probe server at a path.
    pub async fn probe(&mut self, path: &str) -> Result<(u16, String)> {
        const AT: &str = "probes and metrics at http://";
        let line = self.line(AT).await?;
        let address = line
            .split(AT)
            .nth(1)
            .context("an address")?
            .trim()
            .parse()?;
        let answer = Probe::http(address, "localhost").path(path).send().await?;
        Ok((answer.status, String::from_utf8(answer.body.to_vec())?))
    }

    /// Waits for a minute at most until its probe server answers at a path with this status and
    /// this text. Returns the answer.
    pub async fn until_told(&mut self, path: &str, status: u16, text: &str) -> Result<String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let (code, answer) = self.probe(path).await?;
            if code == status && answer.contains(text) {
                return Ok(answer);
            }
            ensure!(
                Instant::now() < deadline,
                "{path} is {code}, and not {status} with {text:?}:\n{answer}"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the state of a watched kind by its metrics.
    pub async fn state(&mut self, kind: &str) -> Result<String> {
        let (_, text) = self.probe("/metrics").await?;
        let start = format!("gatewright_kind{{kind=\"{kind}\",state=\"");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .context("the kind is not told")?;
        Ok(line.split('"').next().unwrap_or_default().to_owned())
    }

    /// True if the program has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.ended()?.is_some())
    }

    /// Sends it a signal: `TERM`, `USR2` ...
    pub fn signal(&self, name: &str) -> Result<()> {
        self.process.signal(name)
    }

    /// Stops it (SIGSTOP), like an overloaded machine.
    pub fn freeze(&self) -> Result<()> {
        self.process.signal("STOP")
    }

    /// Continues it (SIGCONT).
    pub fn thaw(&self) -> Result<()> {
        self.process.signal("CONT")
    }

    /// Returns its output so far.
    pub fn output(&self) -> String {
        self.process.log()
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its private directory.
    pub fn dir(&self) -> &Path {
        self.process.dir()
    }
}

/// The arguments, by which an Envoy ends with its program. One that outlives it would outlive the
/// test: a test that needs this says so and has a guard.
fn tied(args: &[&str]) -> Vec<String> {
    let mut args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let is_standalone = args
        .first()
        .is_some_and(|verb| verb == "standalone" || verb == "serve");
    if is_standalone && !args.iter().any(|arg| arg == "--envoy-lifetime") {
        args.extend(["--envoy-lifetime", "with-program"].map(str::to_owned));
    }
    args
}

/// Returns the path of the program: `$GATEWRIGHT_BIN`, else built by cargo in the profile of this
/// test, once per process. For a test cargo does not build binaries of other packages, so that an
/// existing one may be outdated. `make e2e` builds it before the tests.
pub fn binary() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    if let Some(path) = std::env::var_os("GATEWRIGHT_BIN") {
        return Ok(path.into());
    }
    BUILT
        .get_or_init(|| build().map_err(|error| format!("{error:#}")))
        .clone()
        .map_err(|error| anyhow!(error))
}

fn build() -> Result<PathBuf> {
    // TARGET/PROFILE/deps/TEST
    let test = std::env::current_exe().context("finding the test's own binary")?;
    let profile = test
        .ancestors()
        .nth(2)
        .context("the test's binary lies in no target directory")?;
    let target = profile
        .parent()
        .context("the test's profile lies in no target directory")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--bin",
            "gatewright",
            "--target-dir",
        ])
        .arg(target);
    // The variables that cargo sets for a test describe its package; build scripts of dependencies
    // would see a change of theirs, and half of the crates would be rebuilt.
    let of_the_test = |name: &str| {
        name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_MANIFEST_")
            || name == "CARGO_CRATE_NAME"
    };
    for (name, _) in std::env::vars().filter(|(name, _)| of_the_test(name)) {
        command.env_remove(name);
    }
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let built = command.output().context("running cargo")?;
    ensure!(
        built.status.success(),
        "building gatewright failed:\n{}",
        String::from_utf8_lossy(&built.stderr)
    );
    Ok(profile.join("gatewright"))
}
