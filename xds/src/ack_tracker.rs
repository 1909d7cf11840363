//! The connected clients of each view, the generation that each has acknowledged, and the resources
//! that each refuses.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;
use tokio::sync::{broadcast, watch};

use crate::debug::{Refused, StreamState};
use crate::rejection::{Part, Rejection};
use crate::stream_progress::StreamProgress;
use crate::{Fingerprint, Generation, Kind, View};

/// An event between a view and its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node opened a stream.
    Connected {
        /// The view that it reads.
        view: View,
        /// The node's name.
        node: Arc<str>,
    },
    /// A node's stream ended.
    Disconnected {
        /// The view that it read.
        view: View,
        /// The node's name.
        node: Arc<str>,
    },
    /// A node refused a resource.
    Rejected(Rejection),
    /// A node no longer refuses a resource: it accepted a newer version, or the resource or the
    /// node is gone.
    Recovered(Rejection),
}

/// The progress of one connected node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeProgress {
    /// The node's name, by its credential, else as it calls itself.
    pub node: Arc<str>,
    /// Its authenticated identity.
    pub identity: Arc<str>,
    /// The generation up to which all resources that it subscribes to are acknowledged, except for
    /// those of [`Progress::rejections`].
    pub acknowledged: Generation,
}

/// The progress of the nodes of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The latest generation of the view.
    pub published: Generation,
    /// The connected nodes, by name.
    pub nodes: Vec<NodeProgress>,
    /// The rejected resources that are held back, sorted by node, kind and name.
    pub rejections: Vec<Rejection>,
}

impl Progress {
    /// Returns the number of connected nodes that acknowledged generation `g`, and the number of
    /// all connected nodes.
    pub fn acknowledged(&self, g: Generation) -> (usize, usize) {
        (
            self.nodes.iter().filter(|n| n.acknowledged >= g).count(),
            self.nodes.len(),
        )
    }
}

/// Identifies a stream within its view's tracker.
pub(crate) type StreamId = u64;

/// A client with an open stream.
pub(crate) struct Member {
    /// The node's name, by its credential, else as it calls itself.
    pub(crate) node: Arc<str>,
    /// Its authenticated identity.
    pub(crate) identity: Arc<str>,
    /// Its instance of that identity, where its credential proves one.
    pub(crate) instance: Option<Arc<str>>,
    /// Its source address.
    pub(crate) address: Option<IpAddr>,
    /// Its client certificate.
    pub(crate) credential: Option<Fingerprint>,
    /// The version of its program, as it reports it.
    pub(crate) version: Option<Arc<str>>,
    /// Start of the stream, in seconds since 1970.
    pub(crate) connected: u64,
    /// Its progress.
    pub(crate) progress: Arc<StreamProgress>,
}

#[derive(Default)]
struct Entries {
    next: StreamId,
    streams: HashMap<StreamId, Member>,
    rejections: BTreeMap<(StreamId, Kind, Arc<str>), Vec<Rejection>>,
}

/// The tracker of one view.
pub(crate) struct AckTracker {
    view: View,
    entries: Mutex<Entries>,
    changed: watch::Sender<u64>,
    /// Changes with the progress of any view; shared by the trackers of all views.
    any_changed: Arc<watch::Sender<u64>>,
    events: broadcast::Sender<Event>,
}

impl AckTracker {
    pub(crate) fn new(
        view: View,
        any_changed: Arc<watch::Sender<u64>>,
        events: broadcast::Sender<Event>,
    ) -> AckTracker {
        AckTracker {
            view,
            entries: Mutex::default(),
            changed: watch::Sender::new(0),
            any_changed,
            events,
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn notify(&self, event: Option<Event>) {
        if let Some(event) = event {
            // Having no receiver is no error: the state above is authoritative, events are a
            // convenience.
            let _ = self.events.send(event);
        }
        self.changed.send_modify(|n| *n += 1);
        self.any_changed.send_modify(|n| *n += 1);
    }

    pub(crate) fn connect(&self, member: Member) -> StreamId {
        let node = member.node.clone();
        let id = {
            let mut entries = self.entries();
            entries.next += 1;
            let id = entries.next;
            entries.streams.insert(id, member);
            id
        };
        self.notify(Some(Event::Connected {
            view: self.view.clone(),
            node,
        }));
        id
    }

    pub(crate) fn disconnect(&self, id: StreamId) {
        let (member, recovered) = {
            let mut entries = self.entries();
            let member = entries.streams.remove(&id);
            let keys: Vec<_> = entries
                .rejections
                .keys()
                .filter(|(s, _, _)| *s == id)
                .cloned()
                .collect();
            let recovered: Vec<_> = keys
                .iter()
                .filter_map(|k| entries.rejections.remove(k))
                .flatten()
                .collect();
            (member, recovered)
        };
        for rejection in recovered {
            self.notify(Some(Event::Recovered(rejection)));
        }
        if let Some(member) = member {
            self.notify(Some(Event::Disconnected {
                view: self.view.clone(),
                node: member.node,
            }));
        }
    }

    /// Notifies watchers that the acknowledged generation of a node changed.
    pub(crate) fn notify_progress(&self) {
        self.notify(None);
    }

    pub(crate) fn reject(
        &self,
        id: StreamId,
        kind: Kind,
        name: Arc<str>,
        version: Arc<str>,
        text: Arc<str>,
    ) {
        self.set(id, kind, name, version, vec![(None, text)]);
    }

    /// Sets the parts of a resource that are held back; with none, all of it is accepted. Returns
    /// the new ones.
    pub(crate) fn divide(
        &self,
        id: StreamId,
        kind: Kind,
        name: Arc<str>,
        version: Arc<str>,
        parts: Vec<(Part, Arc<str>)>,
    ) -> Vec<Rejection> {
        let parts = parts
            .into_iter()
            .map(|(part, text)| (Some(part), text))
            .collect();
        self.set(id, kind, name, version, parts)
    }

    pub(crate) fn recover(&self, id: StreamId, kind: Kind, name: Arc<str>) {
        self.set(id, kind, name, "".into(), Vec::new());
    }

    /// Sets the rejections of one resource, and sends events for the differences. Returns the new
    /// ones.
    fn set(
        &self,
        id: StreamId,
        kind: Kind,
        name: Arc<str>,
        version: Arc<str>,
        parts: Vec<(Option<Part>, Arc<str>)>,
    ) -> Vec<Rejection> {
        let (before, after) = {
            let mut entries = self.entries();
            let Some(node) = entries.streams.get(&id).map(|m| m.node.clone()) else {
                return Vec::new();
            };
            let view = &self.view;
            let after: Vec<Rejection> = parts
                .into_iter()
                .map(|(part, text)| {
                    let (view, node, name, version) =
                        (view.clone(), node.clone(), name.clone(), version.clone());
                    Rejection {
                        view,
                        node,
                        kind,
                        name,
                        part,
                        version,
                        text,
                    }
                })
                .collect();
            let before = if after.is_empty() {
                entries.rejections.remove(&(id, kind, name))
            } else {
                entries.rejections.insert((id, kind, name), after.clone())
            };
            (before.unwrap_or_default(), after)
        };
        for recovered in before.iter().filter(|one| !is_in(&after, one)) {
            self.notify(Some(Event::Recovered(recovered.clone())));
        }
        let new: Vec<Rejection> = after
            .into_iter()
            .filter(|one| !before.iter().any(|other| same(one, other)))
            .collect();
        for rejected in &new {
            self.notify(Some(Event::Rejected(rejected.clone())));
        }
        new
    }

    /// Returns the generation up to which no stream needs removals any more.
    pub(crate) fn low_watermark(&self) -> Generation {
        self.entries()
            .streams
            .values()
            .map(|m| m.progress.forgettable())
            .min()
            .unwrap_or(Generation::MAX)
    }

    /// Returns the progress of every node. A node with several streams has that of its slowest.
    pub(crate) fn report(&self, published: Generation) -> Progress {
        let entries = self.entries();
        let mut nodes: BTreeMap<(Arc<str>, Arc<str>), Generation> = BTreeMap::new();
        for member in entries.streams.values() {
            let acknowledged = member.progress.acknowledged();
            nodes
                .entry((member.node.clone(), member.identity.clone()))
                .and_modify(|g| *g = (*g).min(acknowledged))
                .or_insert(acknowledged);
        }
        let mut rejections: Vec<_> = entries.rejections.values().flatten().cloned().collect();
        rejections.sort_by(|a, b| {
            (&a.node, a.kind, &a.name, &a.part).cmp(&(&b.node, b.kind, &b.name, &b.part))
        });
        Progress {
            published,
            nodes: nodes
                .into_iter()
                .map(|((node, identity), acknowledged)| NodeProgress {
                    node,
                    identity,
                    acknowledged,
                })
                .collect(),
            rejections,
        }
    }

    /// Returns the state of every stream, for people.
    pub(crate) fn streams(&self) -> Vec<StreamState> {
        let entries = self.entries();
        let mut ids: Vec<_> = entries.streams.keys().copied().collect();
        ids.sort_unstable();
        let state = |id: StreamId| {
            let member = entries.streams.get(&id)?;
            let refused = entries
                .rejections
                .range((id, Kind::ALL[0], "".into())..)
                .take_while(|((stream, _, _), _)| *stream == id);
            Some(StreamState {
                node: member.node.clone(),
                identity: member.identity.clone(),
                instance: member.instance.clone(),
                address: member.address,
                credential: member.credential.clone(),
                version: member.version.clone(),
                connected: member.connected,
                last_ack: member.progress.last_ack(),
                acknowledged: member.progress.acknowledged(),
                subscriptions: member.progress.subscriptions(),
                refused: refused.flat_map(|(_, all)| all).map(Refused::new).collect(),
            })
        };
        ids.into_iter().filter_map(state).collect()
    }
}

fn is_in(all: &[Rejection], one: &Rejection) -> bool {
    all.iter().any(|other| other.part == one.part)
}

/// The rejection of a part stays the same while the rest of its resource changes.
fn same(a: &Rejection, b: &Rejection) -> bool {
    a.part == b.part && a.text == b.text && (a.part.is_some() || a.version == b.version)
}
