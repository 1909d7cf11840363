//! Clients that send requests continuously, and record failures.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::probe::{Connection, Failure, Probe};

/// Time limit, long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// Pause between requests of a client with a connection of its own.
const PAUSE: Duration = Duration::from_millis(2);

/// Clients that run until they are dropped.
#[derive(Debug)]
pub struct Load {
    counts: Arc<Mutex<Counts>>,
    started: Instant,
    _clients: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Good answers, by client.
    good: BTreeMap<&'static str, u64>,
    /// Connections of clients with persistent connections.
    opened: BTreeMap<&'static str, u64>,
    /// Failures, with the time since the start.
    failures: Vec<String>,
}

impl Load {
    /// Starts clients of a host on a cleartext port and on a TLS port: with new connections, with
    /// persistent ones of HTTP/1.1 and HTTP/2, and with slow requests.
    pub fn start(http: SocketAddr, https: SocketAddr, host: &str) -> Self {
        let plain = Probe::http(http, host);
        let tls = Probe::https(https, host);
        let mut load = Self {
            counts: Arc::default(),
            started: Instant::now(),
            _clients: JoinSet::new(),
        };
        load.each("new connections", plain.clone());
        load.each("new connections beside", plain.clone());
        load.each("TLS handshakes", tls.clone());
        load.each("slow requests", plain.clone().path("/delay/200"));
        load.kept("a connection of HTTP/1.1", plain);
        load.kept("a connection of HTTP/2", tls);
        load
    }

    fn each(&mut self, name: &'static str, probe: Probe) {
        let counts = self.counts.clone();
        let started = self.started;
        self._clients.spawn(async move {
            loop {
                let answer = probe.send().await;
                note(&counts, started, name, answer.map(|answer| answer.status));
                sleep(PAUSE).await;
            }
        });
    }

    fn kept(&mut self, name: &'static str, probe: Probe) {
        let counts = self.counts.clone();
        let started = self.started;
        self._clients.spawn(async move {
            let mut kept: Option<Connection> = None;
            loop {
                let mut open = kept.take();
                let takes_more = match &mut open {
                    Some(connection) => connection.takes_more().await,
                    None => false,
                };
                let connection = match open.filter(|_| takes_more) {
                    Some(connection) => Ok(connection),
                    None => {
                        *counts
                            .lock()
                            .expect("nobody panics while holding it")
                            .opened
                            .entry(name)
                            .or_default() += 1;
                        probe.connect().await
                    }
                };
                let answer = match connection {
                    Ok(mut connection) => {
                        let answer = connection.ask(&probe).await;
                        kept = answer.is_ok().then_some(connection);
                        answer
                    }
                    Err(failure) => Err(failure),
                };
                if answer.as_ref().is_ok_and(|a| {
                    a.headers.get("connection").is_some_and(|v| {
                        v.to_str()
                            .is_ok_and(|value| value.eq_ignore_ascii_case("close"))
                    })
                }) {
                    kept = None;
                }
                note(&counts, started, name, answer.map(|answer| answer.status));
                sleep(PAUSE).await;
            }
        });
    }

    /// Waits until every client has got so many more answers.
    ///
    /// # Errors
    /// When a request failed, or the time limit is over.
    pub async fn more(&self, answers: u64) -> Result<()> {
        let before = self
            .counts
            .lock()
            .expect("nobody panics while holding it")
            .good
            .clone();
        let deadline = Instant::now() + LIMIT;
        loop {
            self.failures()?;
            let now = self
                .counts
                .lock()
                .expect("nobody panics while holding it")
                .good
                .clone();
            let more = |(name, count): (&&'static str, &u64)| {
                count - before.get(*name).copied().unwrap_or(0) >= answers
            };
            if now.len() == 6 && now.iter().all(more) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "after {before:?} there is only {now:?}"
            );
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Checks that all requests were answered so far.
    ///
    /// # Errors
    /// The failures.
    pub fn failures(&self) -> Result<()> {
        let counts = self.counts.lock().expect("nobody panics while holding it");
        let Counts { good, failures, .. } = &*counts;
        ensure!(
            failures.is_empty(),
            "{} failed beside {good:?}: {:#?}",
            failures.len(),
            &failures[..failures.len().min(20)]
        );
        Ok(())
    }

    /// Returns the number of connections, by client with persistent connections.
    pub fn opened(&self) -> BTreeMap<&'static str, u64> {
        self.counts
            .lock()
            .expect("nobody panics while holding it")
            .opened
            .clone()
    }

    /// Returns the number of answers.
    pub fn answers(&self) -> u64 {
        self.counts
            .lock()
            .expect("nobody panics while holding it")
            .good
            .values()
            .sum()
    }
}

fn note(
    counts: &Mutex<Counts>,
    started: Instant,
    name: &'static str,
    status: Result<u16, Failure>,
) {
    let mut counts = counts.lock().expect("nobody panics while holding it");
    match status {
        Ok(200) => *counts.good.entry(name).or_default() += 1,
        other => counts
            .failures
            .push(format!("{name} after {:?}: {other:?}", started.elapsed())),
    }
}
