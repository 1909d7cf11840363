//! Watches a few objects of one kind, such as the ConfigMaps through which replicas exchange state.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::api::Api;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{debug, warn};

use gatewright_control::event::WATCH;

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// An event of the watch, as in kube's watcher.
#[derive(Debug)]
pub enum PeerEvent<K> {
    /// An object was added or changed.
    Applied(Box<K>),
    /// The object of this name was deleted.
    Deleted(String),
    /// The list is complete.
    Synced,
}

/// Sends the messages that `convert` makes of the events, until the receiver is dropped. An object
/// that a new list lacks counts as deleted. `what` names the watched objects in the log.
pub(crate) async fn follow<K, T>(
    api: Api<K>,
    config: Config,
    what: &str,
    out: mpsc::Sender<T>,
    convert: impl Fn(PeerEvent<K>) -> Option<T>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = pin!(watcher(api, config));
    let mut before = BTreeSet::new();
    let mut now = BTreeSet::new();
    let mut unlisted = false;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = out.closed() => return,
        };
        let mut peer_events = Vec::new();
        match event {
            Some(Ok(Event::Init)) => before.append(&mut now),
            Some(Ok(Event::InitApply(object) | Event::Apply(object))) => {
                now.insert(object.name_any());
                peer_events.push(PeerEvent::Applied(Box::new(object)));
            }
            Some(Ok(Event::Delete(object))) => {
                now.remove(&object.name_any());
                peer_events.push(PeerEvent::Deleted(object.name_any()));
            }
            Some(Ok(Event::InitDone)) => {
                unlisted = false;
                peer_events.extend(
                    std::mem::take(&mut before)
                        .difference(&now)
                        .cloned()
                        .map(PeerEvent::Deleted),
                );
                peer_events.push(PeerEvent::Synced);
            }
            Some(Err(error)) => {
                // A watch that ends now and then is normal; a failed list is warned about once.
                if matches!(error, watcher::Error::InitialListFailed(_))
                    && !std::mem::replace(&mut unlisted, true)
                {
                    warn!(event = WATCH, kind = what, "watching {what}: {error}");
                } else {
                    debug!(event = WATCH, kind = what, "watching {what}: {error}");
                }
                sleep(PAUSE).await;
            }
            None => return,
        }
        for message in peer_events.into_iter().filter_map(&convert) {
            if out.send(message).await.is_err() {
                return;
            }
        }
    }
}
