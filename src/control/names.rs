//! Names of Services of type ExternalName and of XBackends: looks up the wanted ones, and announces
//! their addresses.
//!
//! ```text
//! wanted names ==> schedule ==> look-ups (DNS) ==> addresses, as facts ==> translate ==> endpoints
//! ```
//!
//! Envoys resolve no name: whatever a name leads to is judged before they are given it. Each
//! Service has its name looked up for itself, so that tenants learn nothing of each other's.

mod schedule;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use acme::dns::{LookupError, NameAddresses, Resolver};
use gatewright_core::external_name::{ExternalName, NameResolution};
use gatewright_core::model::{ObjectName, ServiceInWords};
use gatewright_core::translate::{Change, Fact};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use self::schedule::{Question, Schedule};
use crate::event::EXTERNAL_NAME;
use crate::tasks::{joined, named};

/// The maximum time of a look-up.
const LIMIT: Duration = Duration::from_secs(10);
/// The time for which Envoys wait, after a start, for addresses of names that are looked up for the
/// first time: a restart takes no endpoints from them. It is short, since everybody waits for the
/// slowest name.
pub const FIRST_LOOKUPS: Duration = Duration::from_secs(2);

/// Wanted names, new or changed, by their Services; `None` if one is not wanted any more.
type Wishes = BTreeMap<ObjectName, Option<ExternalName>>;

/// The side that wants names.
#[derive(Clone)]
pub struct WantedNames(mpsc::UnboundedSender<Wishes>);

impl WantedNames {
    /// Passes on which names are wanted now.
    pub fn want(&self, wishes: Wishes) {
        if !wishes.is_empty() {
            // The task ends only with the program.
            let _ = self.0.send(wishes);
        }
    }
}

/// The task that looks names up.
pub struct NameResolver {
    resolvers: Vec<SocketAddr>,
    wishes: mpsc::UnboundedReceiver<Wishes>,
    announce: mpsc::Sender<Vec<Change>>,
}

impl NameResolver {
    /// Asks these resolvers, or those of the machine. Returns the sides that want names, and that
    /// are told their addresses.
    pub fn new(resolvers: Vec<SocketAddr>) -> (Self, WantedNames, mpsc::Receiver<Vec<Change>>) {
        let (sender, wishes) = mpsc::unbounded_channel();
        let (announce, announced) = mpsc::channel(16);
        let task = Self {
            resolvers,
            wishes,
            announce,
        };
        (task, WantedNames(sender), announced)
    }

    /// Runs until it is stopped.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let stopped = async move {
            // An error means that the sender was dropped.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::select! {
            () = self.look_up_all() => {}
            () = stopped => {}
        }
    }

    /// Looks names up while there are both other sides.
    async fn look_up_all(mut self) {
        let mut schedule = Schedule::default();
        let mut running = JoinSet::new();
        loop {
            for question in schedule.take_due(Instant::now()) {
                let resolvers = self.resolvers.clone();
                running.spawn(named("a name", look_up(question, resolvers)));
            }
            let next = schedule.next();
            tokio::select! {
                wishes = self.wishes.recv() => {
                    let Some(wishes) = wishes else { return };
                    let now = Instant::now();
                    for (service, name) in wishes {
                        schedule.want(service, name, now);
                    }
                }
                Some(ended) = running.join_next() => {
                    let Some((question, outcome)) = joined(ended) else { continue };
                    let Some(resolution) = schedule.take(&question, outcome, Instant::now()) else { continue };
                    log(&question.service, &resolution);
                    let fact = Fact::Resolved(question.service, resolution);
                    if self.announce.send(vec![Change::Fact(fact)]).await.is_err() {
                        return;
                    }
                }
                () = until(next) => {}
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

async fn look_up(
    question: Question,
    resolvers: Vec<SocketAddr>,
) -> (Question, Result<NameAddresses, LookupError>) {
    let outcome = match resolver(resolvers) {
        Some(resolver) => {
            let answer = resolver.name_addresses(question.name.as_str());
            tokio::time::timeout(LIMIT, answer)
                .await
                .unwrap_or(Err(LookupError::Silent))
        }
        None => Err(LookupError::Silent),
    };
    (question, outcome)
}

/// The resolver. That of the machine is read each time, since it may change.
fn resolver(resolvers: Vec<SocketAddr>) -> Option<Resolver> {
    let made = if resolvers.is_empty() {
        Resolver::system()
    } else {
        Resolver::new(resolvers)
    };
    made.inspect_err(|error| warn!(event = EXTERNAL_NAME, "{error}"))
        .ok()
}

fn log(service: &ObjectName, resolution: &NameResolution) {
    let (name, count) = (&resolution.name, resolution.addresses.len());
    let namespace = &*service.namespace;
    let shown = ServiceInWords(service);
    match &resolution.problem {
        None => {
            debug!(event = EXTERNAL_NAME, object = %service, namespace, "{shown}: {name} has {count} addresses");
        }
        Some(problem) => {
            warn!(event = EXTERNAL_NAME, object = %service, namespace, "{shown}: {name}: {problem}");
        }
    }
}
