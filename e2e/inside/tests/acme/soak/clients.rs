//! Clients that send requests all the time: to the hosts that never change, over connections that
//! they keep, and to every host that is live, over new and kept connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use e2e::probe::Connection;
use e2e_inside::fuzz::Choice;
use tokio::sync::{RwLock, RwLockWriteGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::host::{Host, Protocol};

/// Clients of every live host.
const ROAMING: u64 = 4;
/// Connections that each of them keeps.
const KEPT: usize = 8;
/// Pause of a client between two requests.
const PAUSE: Duration = Duration::from_millis(15);

/// Clients, which run until they are dropped.
pub(super) struct Clients {
    shared: Arc<Shared>,
    running: JoinSet<()>,
}

/// What clients share.
struct Shared {
    live: Mutex<BTreeMap<String, Arc<Host>>>,
    /// Held by each client during a request.
    requests: RwLock<()>,
    began: Instant,
    step: Mutex<String>,
    answers: AtomicU64,
    /// Connections to hosts that never change.
    steady: AtomicU64,
    /// Connections of roaming clients.
    roaming: AtomicU64,
    failures: Mutex<Vec<String>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics while holding it")
}

impl Clients {
    /// Starts clients of all live hosts.
    pub(super) fn start(seed: u64) -> Self {
        let shared = Arc::new(Shared {
            live: Mutex::default(),
            requests: RwLock::default(),
            began: Instant::now(),
            step: Mutex::default(),
            answers: AtomicU64::default(),
            steady: AtomicU64::default(),
            roaming: AtomicU64::default(),
            failures: Mutex::default(),
        });
        let mut running = JoinSet::new();
        for number in 0..ROAMING {
            running.spawn(roam(shared.clone(), Choice::new(seed ^ (number << 32))));
        }
        Self { shared, running }
    }

    /// Starts clients of a host that never changes, one for each protocol.
    pub(super) fn stay(&mut self, host: &Arc<Host>) {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            self.running
                .spawn(stay(self.shared.clone(), host.clone(), protocol));
        }
    }

    /// Says what is being done, for messages.
    pub(super) fn during(&self, step: &str) {
        step.clone_into(&mut held(&self.shared.step));
    }

    /// Has requests sent to a host, which is live from now on.
    pub(super) fn add(&self, host: &Arc<Host>) {
        held(&self.shared.live).insert(host.name.clone(), host.clone());
    }

    /// Has no more requests sent to some hosts, and waits for the last answers.
    pub(super) async fn remove(&self, names: &[String]) {
        held(&self.shared.live).retain(|name, _| !names.contains(name));
        drop(self.pause().await);
    }

    /// Waits for all answers. No request is sent until the guard is dropped.
    pub(super) async fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.shared.requests.write().await
    }

    /// Checks that no request has failed, and that every client still runs.
    ///
    /// # Panics
    /// Else: so programs print the ends of their logs.
    pub(super) fn check(&mut self) {
        let failures = held(&self.shared.failures);
        assert!(
            failures.is_empty(),
            "{} requests failed beside {} answers: {:#?}",
            failures.len(),
            self.answers(),
            &failures[..failures.len().min(20)]
        );
        assert!(self.running.try_join_next().is_none(), "a client has ended");
    }

    /// Returns the number of right answers.
    pub(super) fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Relaxed)
    }

    /// Returns the number of connections.
    pub(super) fn connections(&self) -> u64 {
        self.steady_connections() + self.shared.roaming.load(Ordering::Relaxed)
    }

    /// Returns the number of connections to hosts that never change.
    pub(super) fn steady_connections(&self) -> u64 {
        self.shared.steady.load(Ordering::Relaxed)
    }

    /// Returns the time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.shared.began.elapsed()
    }
}

impl Shared {
    fn fail(&self, host: &Host, protocol: Protocol, whose: &str, why: &str) {
        held(&self.failures).push(format!(
            "{} by {protocol:?} over {whose} after {:?}, {}: {why}",
            host.name,
            self.began.elapsed(),
            held(&self.step)
        ));
    }

    /// Sends a request, counts its connection if that is new, and returns it if it accepts more.
    async fn ask(
        &self,
        host: &Host,
        protocol: Protocol,
        connection: Option<Connection>,
        connections: &AtomicU64,
    ) -> Option<Connection> {
        let whose = match connection {
            Some(_) => "a kept connection",
            None => "a new connection",
        };
        match host.ask(protocol, connection).await {
            Ok(right) => {
                self.answers.fetch_add(1, Ordering::Relaxed);
                connections.fetch_add(u64::from(right.is_new), Ordering::Relaxed);
                right.connection
            }
            Err(why) => {
                self.fail(host, protocol, whose, &why);
                None
            }
        }
    }
}

/// Sends requests to a host over one connection.
async fn stay(shared: Arc<Shared>, host: Arc<Host>, protocol: Protocol) {
    let mut kept = None;
    loop {
        {
            let _sending = shared.requests.read().await;
            kept = shared.ask(&host, protocol, kept, &shared.steady).await;
        }
        sleep(PAUSE).await;
    }
}

/// A connection that a roaming client keeps.
struct Kept {
    host: Arc<Host>,
    protocol: Protocol,
    connection: Connection,
}

/// Sends requests to live hosts: a half over new connections, a quarter over new ones that are
/// kept, and a quarter over kept ones.
async fn roam(shared: Arc<Shared>, mut choice: Choice) {
    let mut kept: VecDeque<Kept> = VecDeque::new();
    loop {
        {
            let _sending = shared.requests.read().await;
            let live: Vec<Arc<Host>> = held(&shared.live).values().cloned().collect();
            // A removed host that comes back is another one.
            kept.retain(|one| live.iter().any(|host| Arc::ptr_eq(host, &one.host)));
            if !live.is_empty() {
                turn(&shared, &mut choice, &live, &mut kept).await;
            }
        }
        sleep(PAUSE).await;
    }
}

async fn turn(shared: &Shared, choice: &mut Choice, live: &[Arc<Host>], kept: &mut VecDeque<Kept>) {
    let way = choice.below(4);
    let used = match way {
        0 => kept.remove(choice.below(kept.len())),
        _ => None,
    };
    let (host, protocol, open) = match used {
        Some(Kept {
            host,
            protocol,
            connection,
        }) => (host, protocol, Some(connection)),
        None => {
            let protocol = Protocol::of(choice.below(2));
            (choice.of(live).clone(), protocol, None)
        }
    };
    let connection = shared.ask(&host, protocol, open, &shared.roaming).await;
    if way <= 1
        && let Some(connection) = connection
    {
        kept.push_back(Kept {
            host,
            protocol,
            connection,
        });
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}
