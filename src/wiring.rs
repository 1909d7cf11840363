//! The wiring that `standalone` and `controller` have in common: tasks that both run, the channels
//! from them to the main loop, and the order to stop.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, interval};

use crate::history_file;
use crate::tasks::Tasks;
use gatewright_control::certificates::AddressQuery;
use gatewright_control::heartbeat::{self, Heartbeat};
use gatewright_control::names::{NameResolver, WantedNames};
use gatewright_control::{AdminRequest, ControlPlane, host_watch, serve_admin};
use gatewright_core::translate::Change;

/// The interval at which the validity of certificates is checked.
const CERTIFICATES: Duration = Duration::from_secs(60);
/// The maximum number of questions to the main loop that wait.
const QUESTIONS: usize = 64;

/// The tasks, and what ends them.
pub(crate) struct Wiring {
    tasks: Tasks,
    stopper: watch::Sender<bool>,
    /// The heartbeat of the main loop.
    pub(crate) heartbeat: Heartbeat,
    /// Questions to the main loop.
    pub(crate) asks: mpsc::Sender<AdminRequest>,
}

/// What arrives at the main loop.
pub(crate) struct Arrivals {
    /// Questions by the admin socket, and by probes.
    pub(crate) questions: mpsc::Receiver<AdminRequest>,
    /// Questions of the certificate manager.
    pub(crate) places: mpsc::Receiver<AddressQuery>,
    /// The addresses of wanted names.
    pub(crate) resolved: mpsc::Receiver<Vec<Change>>,
    /// The times of heartbeats.
    pub(crate) beats: Interval,
    /// The times at which the validity of certificates is checked.
    pub(crate) certificates: Interval,
}

/// Where the main loop sends what it wants, and others what they ask.
pub(crate) struct Senders {
    /// The names that are to be looked up.
    pub(crate) names: WantedNames,
    /// Questions where Envoys serve a host.
    pub(crate) places: mpsc::Sender<AddressQuery>,
}

impl Wiring {
    /// Starts the resolver of names, with these DNS servers.
    pub(crate) fn start(resolvers: Vec<std::net::SocketAddr>) -> (Self, Senders, Arrivals) {
        let (stopper, _) = watch::channel(false);
        let (asks, questions) = mpsc::channel(QUESTIONS);
        let (places, places_asked) = mpsc::channel(16);
        let (resolver, names, resolved) = NameResolver::new(resolvers);
        let mut wiring = Self {
            tasks: Tasks::default(),
            stopper,
            heartbeat: Heartbeat::new(Instant::now()),
            asks,
        };
        wiring.spawn_infallible("names", |stop| resolver.run(stop));
        let arrivals = Arrivals {
            questions,
            places: places_asked,
            resolved,
            beats: interval(heartbeat::PERIOD),
            certificates: interval(CERTIFICATES),
        };
        (wiring, Senders { names, places }, arrivals)
    }

    /// The order to stop, for a task.
    pub(crate) fn stop(&self) -> watch::Receiver<bool> {
        self.stopper.subscribe()
    }

    /// Spawns a task, with the order to stop.
    pub(crate) fn spawn<F>(
        &mut self,
        name: &'static str,
        task: impl FnOnce(watch::Receiver<bool>) -> F,
    ) where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let stop = self.stop();
        self.tasks.spawn(name, task(stop));
    }

    /// Spawns a task that has no error of its own, with the order to stop.
    pub(crate) fn spawn_infallible<F>(
        &mut self,
        name: &'static str,
        task: impl FnOnce(watch::Receiver<bool>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop();
        self.tasks.spawn_infallible(name, task(stop));
    }

    /// Returns a control plane that goes on with the history in a file, which a task writes.
    pub(crate) async fn keep_history(&mut self, file: PathBuf, live: ControlPlane) -> ControlPlane {
        let (live, keeping) = history_file::kept(file, live, self.stop()).await;
        self.tasks.spawn("history", keeping);
        live
    }

    /// Serves the admin socket, with other routes than those of every program, and what the program
    /// says of itself.
    pub(crate) fn serve_admin(
        &mut self,
        socket: PathBuf,
        live: &ControlPlane,
        others: Router,
        about: Value,
    ) {
        let about = get(async move || Json(about.clone()));
        let hosts = host_watch::routes(live.host_revisions(), self.stop());
        let others = others.route("/about", about).merge(hosts);
        let (asks, heartbeat) = (self.asks.clone(), self.heartbeat.clone());
        self.spawn("admin", |stop| async move {
            serve_admin(&socket, asks, heartbeat, others, stop)
                .await
                .with_context(|| format!("admin socket {}", socket.display()))
        });
    }

    /// Waits until a task ends. Returns the error by which the program ends.
    pub(crate) async fn ended(&mut self) -> Error {
        self.tasks.ended().await
    }

    /// Stops the tasks, and waits for them.
    pub(crate) async fn end(self) {
        self.stopper.send_replace(true);
        self.tasks.end().await;
    }
}
