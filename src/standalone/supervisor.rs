//! Starts an Envoy, keeps it running, and takes it along when we go.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// An Envoy that lived this long did not fail at its start: the next restart is quick again.
const STEADY: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long Envoy may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(3);
/// The log starts over at this size.
const LOG_BYTES: usize = 64 << 20;

/// An Envoy to run.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// The program.
    pub program: PathBuf,
    /// Its bootstrap.
    pub bootstrap: PathBuf,
    /// Where its log goes.
    pub log: PathBuf,
}

/// There is no Envoy.
#[derive(Debug, thiserror::Error)]
#[error(
    "no Envoy found: give one with --envoy PATH, put `envoy` on PATH, install one with `make demo`, or use --no-envoy \
     (looked at {looked})"
)]
pub struct NoEnvoy {
    looked: String,
}

/// The Envoy to run: the flag's, the one on PATH, else the one that `make demo` installed.
///
/// # Errors
/// When there is none.
pub fn find(flag: Option<&Path>) -> Result<PathBuf, NoEnvoy> {
    let candidates: Vec<PathBuf> = match flag {
        Some(path) => vec![path.to_path_buf()],
        None => {
            let on_path = std::env::var_os("PATH").unwrap_or_default();
            let on_path: Vec<PathBuf> = std::env::split_paths(&on_path).map(|dir| dir.join("envoy")).collect();
            let exe = std::env::current_exe().unwrap_or_default();
            let installed = exe.ancestors().skip(1).map(|dir| dir.join(".tools/envoy"));
            on_path.into_iter().chain([PathBuf::from(".tools/envoy")]).chain(installed).collect()
        }
    };
    let looked = candidates.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .and_then(|path| path.canonicalize().ok())
        .ok_or(NoEnvoy { looked })
}

impl Supervisor {
    /// Keeps Envoy running until `stop` says so, then ends it.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let started = Instant::now();
            match self.start() {
                Err(error) => warn!("envoy: {} cannot be started: {error}", self.program.display()),
                Ok(mut child) => {
                    info!("envoy: started, process {}", child.id().unwrap_or_default());
                    let stderr = child.stderr.take();
                    let log = async {
                        if let Some(stderr) = stderr {
                            self.keep_log(stderr).await;
                        }
                        std::future::pending::<()>().await;
                    };
                    tokio::select! {
                        ended = child.wait() => match ended {
                            Ok(status) => warn!("envoy: ended ({status}); see {}", self.log.display()),
                            Err(error) => warn!("envoy: {error}"),
                        },
                        () = log => {}
                        () = told(&mut stop) => {
                            end(child).await;
                            return;
                        }
                    }
                }
            }
            if started.elapsed() > STEADY {
                pause = FIRST_PAUSE;
            }
            tokio::select! {
                () = sleep(pause) => info!("envoy: starting again"),
                () = told(&mut stop) => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn start(&self) -> std::io::Result<Child> {
        // setpriv lets the kernel end Envoy when we are killed; it becomes Envoy and keeps the process id.
        let setpriv = ["/usr/bin/setpriv", "/bin/setpriv"].into_iter().find(|path| Path::new(path).exists());
        let mut command = match setpriv {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "TERM", "--"]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(["--use-dynamic-base-id", "--log-level", "info", "--drain-time-s", "5", "--config-path"])
            .arg(&self.bootstrap)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
    }

    /// Copies Envoy's log to its file, and lets warnings through.
    async fn keep_log(&self, stderr: tokio::process::ChildStderr) {
        let mut file = File::options().create(true).append(true).open(&self.log).await.ok();
        let mut written = 0;
        let mut lines = BufReader::new(stderr).split(b'\n');
        while let Ok(Some(mut line)) = lines.next_segment().await {
            let text = String::from_utf8_lossy(&line).into_owned();
            // That Envoy calls the domain matcher work in progress is known, and said at every update of the gate.
            let known = text.contains("marked as work-in-progress");
            if !known && ["[warning]", "[error]", "[critical]"].iter().any(|level| text.contains(level)) {
                warn!(target: "envoy", "{}", text.chars().take(1000).collect::<String>());
            }
            line.push(b'\n');
            written += line.len();
            if let Some(open) = &mut file {
                if written > LOG_BYTES && open.set_len(0).await.is_ok() {
                    written = 0;
                }
                if open.write_all(&line).await.is_err() || open.flush().await.is_err() {
                    // A full disk must not stop Envoy, which would block on a full pipe.
                    file = None;
                }
            }
        }
    }
}

/// Waits until `stop` says so.
async fn told(stop: &mut watch::Receiver<bool>) {
    // An error means that whoever could stop us is gone, which is a reason as good.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn end(mut child: Child) {
    let Some(id) = child.id() else { return };
    // Envoy ends cleanly at SIGTERM; the standard library can only kill.
    let asked = Command::new("kill").args(["-TERM", &id.to_string()]).status().await;
    if !asked.is_ok_and(|status| status.success()) || tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        // It may have ended by itself meanwhile.
        let _ = child.kill().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_envoy_a_sentence_says_what_to_do() {
        let error = find(Some(Path::new("/nowhere/envoy"))).expect_err("there is none").to_string();
        assert!(error.contains("--envoy PATH") && error.contains("/nowhere/envoy"), "{error}");
    }
}
