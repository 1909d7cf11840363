//! Supervisor of Envoy: starts it, adopts the one of an earlier run, replaces it, and ends it.
//!
//! The running Envoys are not stored, but found each time: a program that was killed leaves
//! processes, and no file that could be wrong about them.

mod access_log;
mod asking;
mod launch;
mod log;
mod plan;
mod process;
mod program;
mod tidy;

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use gatewright_control::event::{PROCESS, warn_of_file};
use gatewright_control::tasks::blocking;
use gatewright_envoy::ConnectionLimit;

use launch::{DETACH, Launch, SHELL, digest};
use plan::{Info, Plan, Wanted, plan};
use process::{Process, Signal};
pub use program::{NoEnvoy, find};

use super::private_dir::write_private;
use crate::connection_pressure;
use crate::huge_pages;

/// The lifetime after which an exit of Envoy does not count as a failed start, so that the back-off
/// is reset.
const STEADY: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The polling interval of Envoy's admin socket.
const ADMIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The polling interval of a process whose end the kernel does not announce.
const PROCESS_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time in which an Envoy of an earlier run must answer; otherwise it counts as hung.
const ANSWER: Duration = Duration::from_secs(10);
/// The time after which a missing configuration of Envoy is logged.
const CONFIGURED: Duration = Duration::from_secs(60);
/// The maximum time for requests in progress before Envoy is ended.
const REQUESTS: Duration = Duration::from_secs(5);
/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(3);
/// The additional time, beyond that for its connections, in which an Envoy that was replaced by a
/// hot restart must end.
const LATE: Duration = Duration::from_secs(10);

/// The configuration of an Envoy to run.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// The Envoy executable.
    pub program: PathBuf,
    /// The private directory.
    pub dir: PathBuf,
    /// The bootstrap.
    pub bootstrap: String,
    /// The limit of connections, as in the bootstrap.
    pub connections: ConnectionLimit,
    /// The admin socket, as in the bootstrap.
    pub admin: PathBuf,
    /// The fate of Envoy when this program is killed or fails.
    pub lifetime: Lifetime,
    /// The time that connections of a replaced Envoy have to end, in seconds.
    pub patience: u32,
}

/// The path of the access log in a private directory.
pub fn access_log(dir: &Path) -> PathBuf {
    dir.join(access_log::FILE)
}

/// Returns the ids of the running Envoys of a private directory.
pub(super) fn pids_of(dir: &Path) -> Vec<u32> {
    let found = fs::metadata(dir).and_then(|meta| process::find(dir, meta.uid()));
    found
        .unwrap_or_default()
        .into_iter()
        .map(|process| process.pid)
        .collect()
}

/// Returns whether an Envoy of a private directory runs.
pub fn has_envoy(dir: &Path) -> bool {
    !pids_of(dir).is_empty()
}

/// The fate of Envoy when this program is killed or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Envoy serves on, and the next start adopts it.
    Independent,
    /// Envoy ends too.
    WithProgram,
}

/// An order to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Keeps Envoy running.
    Run,
    /// Ends Envoy after its requests, within a short time.
    End,
    /// Ends Envoy at once.
    EndNow,
    /// Leaves Envoy running without this program.
    Leave,
}

/// A running Envoy: a child of ours, or of an earlier run.
struct Running {
    process: Process,
    child: Option<Child>,
}

impl Running {
    /// Waits for its end. Returns the exit status as text, if it is known.
    async fn ended(&mut self) -> String {
        let Some(child) = &mut self.child else {
            gone(&self.process).await;
            return String::new();
        };
        match child.wait().await {
            Ok(status) => format!(" ({status})"),
            Err(error) => format!(" ({error})"),
        }
    }
}

impl Supervisor {
    /// Keeps Envoy running until another order, and carries that out.
    pub async fn run(self, mut orders: watch::Receiver<Order>) {
        let log = self.log();
        let access_log = access_log(&self.dir);
        let order = tokio::select! {
            never = self.keep_running() => match never {},
            never = log::follow(&log) => match never {},
            never = access_log::rotate(&access_log, &self.admin) => match never {},
            never = connection_pressure::follow(&self.admin, &self.connections) => match never {},
            order = orders.wait_for(|order| *order != Order::Run) => order.ok().map(|order| *order),
        };
        match (order, self.lifetime) {
            // `None`: the sender of orders has failed.
            (Some(Order::Leave), _) | (None, Lifetime::Independent) => {
                for process in self.running().await {
                    info!(
                        event = PROCESS,
                        pid = process.pid,
                        "envoy: process {} serves on",
                        process.pid
                    );
                }
            }
            _ => self.end(orders).await,
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.join("envoy.log")
    }

    /// Returns the running Envoys of this directory, oldest first.
    async fn running(&self) -> Vec<Process> {
        let dir = self.dir.clone();
        let found = blocking("processes of Envoy", move || {
            // The user of this process: the directory was checked to belong to it.
            let uid = fs::metadata(&dir)?.uid();
            process::find(&dir, uid)
        });
        let found = found.await.map_err(std::io::Error::from).flatten();
        found.unwrap_or_else(|error| {
            warn!(
                event = PROCESS,
                "envoy: processes cannot be listed: {error}"
            );
            Vec::new()
        })
    }

    /// Removes files of Envoys that do not run any more, but for the bootstrap of the next one.
    async fn tidy(&self) {
        let running = self.running().await;
        let next = digest(&self.bootstrap, self.lifetime);
        block_in_place(|| tidy::tidy(&self.dir, &running, Some(&next)));
    }

    /// Removes the files of all Envoys, of which none is started again.
    async fn tidy_at_the_end(&self) {
        let running = self.running().await;
        block_in_place(|| tidy::tidy(&self.dir, &running, None));
    }

    async fn keep_running(&self) -> Infallible {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            let found = self.running().await;
            let plan = self.plan(&found).await;
            match self.carry_out(plan).await {
                Err(error) => warn!(
                    event = PROCESS,
                    "envoy: {} cannot be started: {error}",
                    self.program.display()
                ),
                Ok(mut running) => {
                    let others: Vec<Process> = found
                        .into_iter()
                        .filter(|other| *other != running.process)
                        .collect();
                    let process = running.process.clone();
                    let settled = async {
                        self.replace(&process, others).await;
                        std::future::pending::<()>().await;
                    };
                    tokio::select! {
                        how = running.ended() => {
                            warn!(event = PROCESS, pid = process.pid, "envoy: process {} ended{how}; see {}", process.pid, self.log().display());
                        }
                        () = settled => {}
                    }
                }
            }
            self.tidy().await;
            if began.elapsed() > STEADY {
                pause = FIRST_PAUSE;
            }
            sleep(pause).await;
            info!(event = PROCESS, "envoy: starting again");
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Returns the plan for the running Envoys.
    async fn plan(&self, found: &[Process]) -> Plan {
        if found.is_empty() {
            return Plan::Start;
        }
        let answer = timeout(ANSWER, self.answer(found)).await.ok().flatten();
        let (version, hot_restart_version) = tokio::join!(
            program::version(&self.program),
            program::hot_restart_version(&self.program)
        );
        let digest = digest(&self.bootstrap, self.lifetime);
        plan(
            found,
            answer.as_ref(),
            &Wanted {
                digest,
                version,
                hot_restart_version,
            },
        )
    }

    /// Returns the information from the Envoy that has the admin socket; `None` when all have
    /// ended.
    async fn answer(&self, found: &[Process]) -> Option<Info> {
        while found.iter().any(Process::is_alive) {
            for process in found.iter().rev() {
                let answer = asking::info(&self.admin_of(process)).await;
                if let Some(info) =
                    answer.filter(|info| found.iter().any(|process| info.is_of(process)))
                {
                    return Some(info);
                }
            }
            sleep(ADMIN_POLL_INTERVAL).await;
        }
        None
    }

    /// Returns the path of a process's admin socket, which may differ from the present one.
    fn admin_of(&self, process: &Process) -> PathBuf {
        let path = || {
            let text = fs::read_to_string(process.launch.bootstrap(&self.dir)).ok()?;
            let bootstrap: serde_json::Value = serde_json::from_str(&text).ok()?;
            Some(
                bootstrap
                    .pointer("/admin/address/pipe/path")?
                    .as_str()?
                    .into(),
            )
        };
        path().unwrap_or_else(|| self.admin.clone())
    }

    /// Returns the path to which the admin socket of an Envoy is moved while another is started
    /// beside it.
    fn old_admin(&self) -> PathBuf {
        self.dir.join("envoy-admin-old.sock")
    }

    async fn carry_out(&self, plan: Plan) -> std::io::Result<Running> {
        match plan {
            Plan::Start => self.start(tidy::free_base_id(), 0).await,
            Plan::Adopt(process) => {
                info!(
                    event = PROCESS,
                    pid = process.pid,
                    "envoy: took over process {}, which served on while this program was away",
                    process.pid
                );
                Ok(Running {
                    process,
                    child: None,
                })
            }
            Plan::Restart(process, why) => {
                info!(
                    event = PROCESS,
                    pid = process.pid,
                    "envoy: {why}: replacing it by a hot restart"
                );
                // During its own start it would refuse a hot restart, and be without a supervisor
                // afterwards.
                let configured = self.configured(&process, self.admin_of(&process));
                if timeout(CONFIGURED, configured).await.is_err() {
                    warn!(
                        event = PROCESS,
                        pid = process.pid,
                        "envoy: process {} has no configuration: it may refuse a hot restart",
                        process.pid
                    );
                }
                self.start(process.launch.base_id, process.launch.epoch + 1)
                    .await
            }
            Plan::Replace(why) => {
                warn!(
                    event = PROCESS,
                    "envoy: {why}: starting another beside it, to end it when that one serves"
                );
                // The moved socket stays reachable under its new path.
                let _ = fs::rename(&self.admin, self.old_admin());
                self.start(tidy::free_base_id(), 0).await
            }
        }
    }

    async fn start(&self, base_id: u32, epoch: u32) -> std::io::Result<Running> {
        let launch = Launch {
            base_id,
            epoch,
            digest: digest(&self.bootstrap, self.lifetime),
        };
        block_in_place(|| write_private(&launch.bootstrap(&self.dir), self.bootstrap.as_bytes()))?;
        block_in_place(|| connection_pressure::reset(&self.connections))?;
        let log = log::open(&self.log()).map_or_else(
            |error| {
                warn_of_file(&self.log(), error);
                Stdio::null()
            },
            Stdio::from,
        );
        let arguments = launch.arguments(&self.dir, self.patience);
        let (pid, child) = match self.lifetime {
            Lifetime::Independent => (self.detached(arguments, log).await?, None),
            Lifetime::WithProgram => {
                let mut command = self.bound();
                command
                    .args(arguments)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(log);
                let child = huge_pages::spare(|| command.spawn())?;
                (child.id().unwrap_or_default(), Some(child))
            }
        };
        info!(event = PROCESS, pid, "envoy: started, process {pid}");
        Ok(Running {
            process: Process::of_child(pid, launch),
            child,
        })
    }

    /// Starts an Envoy that outlives this program.
    async fn detached(&self, arguments: Vec<OsString>, log: Stdio) -> std::io::Result<u32> {
        let mut shell = Command::new(SHELL);
        shell
            .args(["-c", DETACH, "sh"])
            .arg(&self.program)
            .args(arguments);
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0);
        let mut shell = huge_pages::spare(|| shell.spawn())?;
        let mut stdin = shell.stdin.take().expect("piped");
        let stdout = shell.stdout.take().expect("piped");
        let line = BufReader::new(stdout)
            .lines()
            .next_line()
            .await?
            .unwrap_or_default();
        let status = shell.wait().await?;
        let pid = line.trim().parse().ok().filter(|_| status.success());
        let pid = pid.ok_or_else(|| {
            std::io::Error::other(format!("{SHELL} ended ({status}) and said {line:?}"))
        })?;
        stdin.write_all(b"go\n").await?;
        Ok(pid)
    }

    /// Returns the command of an Envoy that ends with this program.
    fn bound(&self) -> Command {
        // setpriv sets the parent-death signal (`PR_SET_PDEATHSIG`) before it executes Envoy, with
        // the same process id.
        let setpriv = ["/usr/bin/setpriv", "/bin/setpriv"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        let mut command = match setpriv {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command
                    .args(["--pdeathsig", "TERM", "--"])
                    .arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.process_group(0);
        command
    }

    /// Waits until a process has its configuration, and ends the Envoys that it replaces.
    async fn replace(&self, process: &Process, others: Vec<Process>) {
        if others.is_empty() {
            return;
        }
        if timeout(CONFIGURED, self.configured(process, self.admin.clone()))
            .await
            .is_err()
        {
            warn!(
                event = PROCESS,
                pid = process.pid,
                "envoy: process {} still has no configuration; what it is to replace serves on",
                process.pid
            );
            self.configured(process, self.admin.clone()).await;
        }
        let (same, foreign): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|other| other.launch.base_id == process.launch.base_id);
        for other in &same {
            let new = process.pid;
            let old = other.pid;
            let patience = self.patience;
            info!(
                event = PROCESS,
                pid = new,
                "envoy: process {new} serves in place of process {old}, whose connections have {patience} s to end"
            );
        }
        for other in foreign {
            self.retire(&other).await;
        }
        // Its successor ends it.
        let late = Duration::from_secs(self.patience.into()) + LATE;
        for other in same {
            if timeout(late, gone(&other)).await.is_err() {
                warn!(
                    event = PROCESS,
                    pid = other.pid,
                    "envoy: process {} was replaced and does not end: it is killed",
                    other.pid
                );
                end(&other).await;
            }
        }
        self.tidy().await;
    }

    /// Waits until a process has its configuration.
    async fn configured(&self, process: &Process, admin: PathBuf) {
        while !asking::info(&admin)
            .await
            .is_some_and(|info| info.is_of(process) && info.is_live())
        {
            sleep(ADMIN_POLL_INTERVAL).await;
        }
    }

    /// Ends an Envoy that cannot be replaced by a hot restart, after its requests have ended.
    async fn retire(&self, process: &Process) {
        let admin = self.old_admin();
        let is_it = asking::info(&admin)
            .await
            .is_some_and(|info| info.is_of(process));
        if is_it && asking::end_connections(&admin).await {
            asking::stop_listening(&admin).await;
            idle(&admin, Duration::from_secs(self.patience.into())).await;
        }
        end(process).await;
        let _ = fs::remove_file(&admin);
        info!(
            event = PROCESS,
            pid = process.pid,
            "envoy: process {} was replaced and has ended",
            process.pid
        );
    }

    /// Ends all running Envoys.
    async fn end(&self, mut orders: watch::Receiver<Order>) {
        let running = self.running().await;
        if running.is_empty() {
            self.tidy_at_the_end().await;
            return;
        }
        let drained = async {
            if asking::end_connections(&self.admin).await {
                idle(&self.admin, REQUESTS).await;
            }
        };
        tokio::select! {
            () = drained => {}
            // An error means that the sender was dropped, which ends them as well.
            _ = orders.wait_for(|order| *order == Order::EndNow) => {}
        }
        for process in &running {
            process.signal(Signal::Term);
        }
        for process in &running {
            end(process).await;
        }
        self.tidy_at_the_end().await;
    }
}

/// Waits until no request is in progress, with a timeout.
async fn idle(admin: &Path, patience: Duration) {
    let requests = async {
        while asking::under_way(admin)
            .await
            .is_some_and(|count| count > 0)
        {
            sleep(ADMIN_POLL_INTERVAL).await;
        }
    };
    if timeout(patience, requests).await.is_err() {
        warn!(
            event = PROCESS,
            "envoy: requests that are still under way after {} s are cut off",
            patience.as_secs()
        );
    }
}

/// Ends a process.
async fn end(process: &Process) {
    process.signal(Signal::Term);
    if timeout(GRACE, gone(process)).await.is_err() {
        warn!(
            event = PROCESS,
            pid = process.pid,
            "envoy: process {} does not end: it is killed",
            process.pid
        );
        process.signal(Signal::Kill);
        if timeout(GRACE, gone(process)).await.is_err() {
            warn!(
                event = PROCESS,
                pid = process.pid,
                "envoy: process {} is killed and still there",
                process.pid
            );
        }
    }
}

/// Waits until a process has ended.
async fn gone(process: &Process) {
    if let Some(end) = process.end() {
        // After an error the process is polled.
        let _ = end.readable().await;
    }
    while process.is_alive() {
        sleep(PROCESS_POLL_INTERVAL).await;
    }
}
