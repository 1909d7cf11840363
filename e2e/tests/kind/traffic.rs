//! Clients that ask all the time, and count what fails.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::probe::{Connection, Probe};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Requests all the time: each over a connection of its own, and over one that is kept for as long
/// as Envoy lets it.
pub(crate) struct Traffic {
    stop: watch::Sender<bool>,
    tasks: JoinSet<(usize, Vec<String>)>,
}

impl Traffic {
    pub(crate) fn start(probe: &Probe) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for _ in 0..2 {
            tasks.spawn(one_by_one(probe.clone(), stopped.clone()));
        }
        tasks.spawn(over_one_connection(probe.clone(), stopped));
        Self { stop, tasks }
    }

    /// Ends it: there were this many requests at least, and none failed.
    pub(crate) async fn none_failed(self, least: usize) -> Result<()> {
        self.stop.send_replace(true);
        let all = self.tasks.join_all().await;
        let count: usize = all.iter().map(|(count, _)| count).sum();
        let failed: Vec<String> = all.into_iter().flat_map(|(_, failed)| failed).collect();
        println!("{count} requests, {} failed", failed.len());
        ensure!(
            failed.is_empty(),
            "{} of {count} requests failed:\n{}",
            failed.len(),
            failed[..failed.len().min(20)].join("\n")
        );
        ensure!(count >= least, "only {count} requests were made");
        Ok(())
    }
}

async fn one_by_one(probe: Probe, stopped: watch::Receiver<bool>) -> (usize, Vec<String>) {
    let mut count = 0;
    let mut failed = Vec::new();
    while !*stopped.borrow() {
        count += 1;
        match probe.send().await {
            Ok(answer) if answer.status == 200 => {}
            other => failed.push(format!("request {count}: {other:?}")),
        }
        sleep(Duration::from_millis(10)).await;
    }
    (count, failed)
}

async fn over_one_connection(probe: Probe, stopped: watch::Receiver<bool>) -> (usize, Vec<String>) {
    let mut count = 0;
    let mut failed = Vec::new();
    let mut held = None::<Connection>;
    while !*stopped.borrow() {
        count += 1;
        if held.as_ref().is_none_or(Connection::is_closed) {
            match probe.connect().await {
                Ok(connection) => held = Some(connection),
                Err(error) => {
                    failed.push(format!("connection before request {count}: {error}"));
                    continue;
                }
            }
        }
        let connection = held.as_mut().expect("it was made");
        match connection.ask(&probe).await {
            Ok(answer) if answer.status == 200 => {}
            // A connection that Envoy closed between two requests is opened again, as every client
            // does.
            Err(_) if connection.is_closed() => held = None,
            other => failed.push(format!("request {count} over one connection: {other:?}")),
        }
        sleep(Duration::from_millis(20)).await;
    }
    (count, failed)
}
