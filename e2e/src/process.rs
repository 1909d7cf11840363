//! A child process in a private directory: its output is kept and shown when a test fails, and it
//! is always killed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::usage;

/// Most bytes of a log that a failure shows.
const SHOWN: usize = 16 * 1024;

/// A running program with its directory and its log.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    dir: TempDir,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with `args` in `dir`. `setpriv` makes the kernel kill it when the thread
    /// that started it ends, so that even an aborted test does not leave it running; it then
    /// executes the program under the same process id.
    pub(crate) fn start(program: &Path, args: &[String], dir: TempDir) -> Result<Self> {
        let log = dir.path().join("log");
        let out = std::fs::File::create(&log).context("creating the log file")?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| {
                format!(
                    "starting {} under setpriv (package util-linux)",
                    program.display()
                )
            })?;
        Ok(Self { child, dir, log })
    }

    /// Returns the processor time that it used.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        usage::processor_time(self.child.id())
    }

    /// Kills it and waits for its end.
    pub(crate) fn stop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// Sends it a signal: `STOP`, `CONT` ...
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        ensure!(
            sent.context("running kill")?.success(),
            "signal {name} could not be sent"
        );
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of its log.
    pub(crate) fn log_file(&self) -> &Path {
        &self.log
    }

    /// Returns its output so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Returns the end of its log, for messages.
    pub(crate) fn tail(&self) -> String {
        let log = self.log();
        let mut from = log.len().saturating_sub(SHOWN);
        while !log.is_char_boundary(from) {
            from += 1;
        }
        log[from..].to_owned()
    }

    /// Waits until it accepts connections at an address. `name` is for messages.
    pub(crate) async fn accepts(
        &mut self,
        name: &str,
        address: SocketAddr,
        limit: Duration,
    ) -> Result<()> {
        let deadline = Instant::now() + limit;
        while TcpStream::connect(address).await.is_err() {
            if let Some(status) = self.ended()? {
                bail!("{name} ended with {status}:\n{}", self.tail());
            }
            ensure!(
                Instant::now() < deadline,
                "{name} did not start:\n{}",
                self.tail()
            );
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Returns its exit status, once it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("asking for the exit status")
    }
}

impl Drop for Process {
    #[allow(
        clippy::print_stderr,
        reason = "a failing test shows what its counterpart said"
    )]
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!(
                "--- log of process {} ---\n{}",
                self.child.id(),
                self.tail()
            );
        }
    }
}
