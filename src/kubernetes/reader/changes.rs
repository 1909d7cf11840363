//! Changes of what a user may read: watches that say only that something is different, after which
//! a view is read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::DynamicObject;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{ReadError, View};
use crate::watch::discovery::discover;
use gatewright_control::tasks::named;
use gatewright_core::inputs::Kind;
use gatewright_core::namespaces::Namespaces;

/// The pause after a watch that could not begin: then the view is read again, as after a change.
const RETRY: Duration = Duration::from_secs(10);

/// The watches of what a view has read. They end when it is dropped.
#[derive(Debug)]
pub struct Changes {
    changed: Arc<Notify>,
    scopes: BTreeMap<Kind, Namespaces>,
    _watches: JoinSet<()>,
}

impl Changes {
    /// Begins to watch what a view has read. Pods and nodes, which change without an effect on
    /// hostnames, are not watched.
    ///
    /// # Errors
    /// When the API server does not say which kinds it serves.
    pub async fn watch(client: &Client, view: &View) -> Result<Self, ReadError> {
        let kinds: Vec<Kind> = view.read.keys().copied().collect();
        let served = discover(client, &kinds).await?;
        let changed = Arc::new(Notify::new());
        let mut watches = JoinSet::new();
        for (kind, namespaces) in &view.read {
            let Some(resource) = served.resource(*kind) else {
                continue;
            };
            let apis: Vec<Api<DynamicObject>> = match namespaces {
                _ if matches!(kind, Kind::Pod | Kind::Node) => Vec::new(),
                Namespaces::All => vec![Api::all_with(client.clone(), resource)],
                Namespaces::Listed(_) if !kind.namespaced() => Vec::new(),
                Namespaces::Listed(names) => names
                    .iter()
                    .map(|name| Api::namespaced_with(client.clone(), name, resource))
                    .collect(),
            };
            for api in apis {
                watches.spawn(named("watch of a page", follow(api, changed.clone())));
            }
        }
        Ok(Self {
            changed,
            scopes: view.read.clone(),
            _watches: watches,
        })
    }

    /// Waits until something changed since the last call.
    pub async fn next(&self) {
        self.changed.notified().await;
    }

    /// Returns whether these are the watches of a view.
    pub fn are_of(&self, view: &View) -> bool {
        self.scopes == view.read
    }
}

/// Watches objects until it is aborted. What changed before a watch began is a change as well.
async fn follow(api: Api<DynamicObject>, changed: Arc<Notify>) {
    loop {
        let first = api.list_metadata(&ListParams::default().limit(1)).await;
        let version = first.ok().and_then(|list| list.metadata.resource_version);
        changed.notify_one();
        let Some(version) = version else {
            sleep(RETRY).await;
            continue;
        };
        let begun = api.watch_metadata(&WatchParams::default(), &version).await;
        let Ok(events) = begun else {
            sleep(RETRY).await;
            continue;
        };
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            match event {
                WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_) => {
                    changed.notify_one();
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(_) => break,
            }
        }
    }
}
