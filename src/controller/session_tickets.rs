//! Reads the keys of session tickets for the translation, and has the lease holder rotate them.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use gatewright_control::event::XDS_KEYS;
use gatewright_core::model::TicketKeys;
use gatewright_kubernetes::keys::Keys;
use gatewright_kubernetes::lease::{Term, leads};

/// The interval of the requests until the keys are known.
const FIRST_INTERVAL: Duration = Duration::from_secs(2);
/// The interval after that: the next key is known a whole period before it is used.
const INTERVAL: Duration = Duration::from_secs(60);
/// The number of failures after which hosts are served without session tickets. An Envoy that runs
/// on would close the connections of the hosts that have them.
const PATIENCE: u32 = 5;

/// Sends the keys, first once it is known whether there are any, and then whenever they change.
/// Runs until `stop`.
pub(super) async fn keep(
    keys: Keys,
    term: watch::Receiver<Term>,
    told: mpsc::Sender<Option<TicketKeys>>,
    mut stop: watch::Receiver<bool>,
) {
    tokio::select! {
        () = follow(keys, term, told) => {}
        // An error means that the sender was dropped.
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn follow(keys: Keys, term: watch::Receiver<Term>, told: mpsc::Sender<Option<TicketKeys>>) {
    let mut last: Option<Option<TicketKeys>> = None;
    let mut logged = None;
    let mut failures = 0;
    loop {
        let may_write = leads(*term.borrow());
        let found = match keys.tickets(may_write).await {
            Ok(found) => {
                logged = None;
                Some(found.map(|rotation| rotation.keys()))
            }
            Err(error) => {
                failures += 1;
                let text = error.to_string();
                if logged.as_ref() != Some(&text) {
                    warn!(event = XDS_KEYS, "{text}");
                    logged = Some(text);
                }
                (last.is_none() && failures >= PATIENCE).then_some(None)
            }
        };
        // Keys that were there and are not found now are still those of Envoys.
        let is_known = last.as_ref().is_some_and(Option::is_some);
        if let Some(found) = found.filter(|found| found.is_some() || !is_known)
            && last.as_ref() != Some(&found)
        {
            if found.is_some() {
                info!(event = XDS_KEYS, "session tickets have new keys");
            }
            last = Some(found.clone());
            if told.send(found).await.is_err() {
                return;
            }
        }
        let is_known = last.as_ref().is_some_and(Option::is_some);
        sleep(if is_known { INTERVAL } else { FIRST_INTERVAL }).await;
    }
}
