//! Who is connected, what each has acknowledged, and what each refuses.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;
use tokio::sync::{broadcast, watch};

use crate::debug::{Refused, StreamState};
use crate::rejection::{Part, Rejection};
use crate::stream_progress::StreamProgress;
use crate::{Fingerprint, Generation, Kind, View};

/// What happened between a view and its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node opened a stream.
    Connected {
        /// The view it sees.
        view: View,
        /// The node, as it calls itself.
        node: Arc<str>,
    },
    /// A node's stream ended.
    Disconnected {
        /// The view it saw.
        view: View,
        /// The node, as it calls itself.
        node: Arc<str>,
    },
    /// A node refused a resource.
    Rejected(Rejection),
    /// A node no longer refuses a resource: it took a newer version, the resource is gone, or so is the node.
    Recovered(Rejection),
}

/// One connected node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeProgress {
    /// The node, as it calls itself.
    pub node: Arc<str>,
    /// Who it is, as authenticated.
    pub identity: Arc<str>,
    /// Everything it subscribes to that was published up to here is acknowledged, except for what
    /// [`Progress::rejections`] lists.
    pub acknowledged: Generation,
}

/// How far the nodes of a view are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The latest generation of the view.
    pub published: Generation,
    /// The connected nodes, by name.
    pub nodes: Vec<NodeProgress>,
    /// What is held back, by node, kind and name.
    pub rejections: Vec<Rejection>,
}

impl Progress {
    /// Of how many connected nodes (second) how many (first) acknowledged generation `g`.
    pub fn acknowledged(&self, g: Generation) -> (usize, usize) {
        (self.nodes.iter().filter(|n| n.acknowledged >= g).count(), self.nodes.len())
    }
}

/// Names one stream in a ledger.
pub(crate) type StreamId = u64;

/// A client with a stream.
pub(crate) struct Member {
    /// The node, as its credential names it, else as it calls itself.
    pub(crate) node: Arc<str>,
    /// Who it is, as authenticated.
    pub(crate) identity: Arc<str>,
    /// Which of that identity, where its credential proves it.
    pub(crate) instance: Option<Arc<str>>,
    /// The address that it comes from.
    pub(crate) address: Option<IpAddr>,
    /// The certificate that it showed.
    pub(crate) credential: Option<Fingerprint>,
    /// The version of its program, as it says.
    pub(crate) version: Option<Arc<str>>,
    /// When the stream began, in seconds since 1970.
    pub(crate) connected: u64,
    /// How far it is.
    pub(crate) standing: Arc<StreamProgress>,
}

#[derive(Default)]
struct Entries {
    next: StreamId,
    streams: HashMap<StreamId, Member>,
    rejections: BTreeMap<(StreamId, Kind, Arc<str>), Vec<Rejection>>,
}

/// The accounts of one view.
pub(crate) struct AckTracker {
    view: View,
    entries: Mutex<Entries>,
    changed: watch::Sender<u64>,
    /// That of all views.
    any_changed: Arc<watch::Sender<u64>>,
    events: broadcast::Sender<Event>,
}

impl AckTracker {
    pub(crate) fn new(
        view: View,
        any_changed: Arc<watch::Sender<u64>>,
        events: broadcast::Sender<Event>,
    ) -> AckTracker {
        AckTracker { view, entries: Mutex::default(), changed: watch::Sender::new(0), any_changed, events }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn tell(&self, event: Option<Event>) {
        if let Some(event) = event {
            // Nobody listening is fine: the state above is the truth, events are a convenience.
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
        self.tell(Some(Event::Connected { view: self.view.clone(), node }));
        id
    }

    pub(crate) fn disconnect(&self, id: StreamId) {
        let (member, recovered) = {
            let mut entries = self.entries();
            let member = entries.streams.remove(&id);
            let keys: Vec<_> = entries.rejections.keys().filter(|(s, _, _)| *s == id).cloned().collect();
            let recovered: Vec<_> = keys.iter().filter_map(|k| entries.rejections.remove(k)).flatten().collect();
            (member, recovered)
        };
        for rejection in recovered {
            self.tell(Some(Event::Recovered(rejection)));
        }
        if let Some(member) = member {
            self.tell(Some(Event::Disconnected { view: self.view.clone(), node: member.node }));
        }
    }

    /// Some node acknowledged more, or less, than before.
    pub(crate) fn moved(&self) {
        self.tell(None);
    }

    pub(crate) fn reject(&self, id: StreamId, kind: Kind, name: Arc<str>, version: Arc<str>, text: Arc<str>) {
        self.set(id, kind, name, version, vec![(None, text)]);
    }

    /// Parts of a resource are held back; with none, all of it is taken. Returns those that were not before.
    pub(crate) fn divide(
        &self,
        id: StreamId,
        kind: Kind,
        name: Arc<str>,
        version: Arc<str>,
        parts: Vec<(Part, Arc<str>)>,
    ) -> Vec<Rejection> {
        let parts = parts.into_iter().map(|(part, text)| (Some(part), text)).collect();
        self.set(id, kind, name, version, parts)
    }

    pub(crate) fn recover(&self, id: StreamId, kind: Kind, name: Arc<str>) {
        self.set(id, kind, name, "".into(), Vec::new());
    }

    /// Says what is held back of one resource from now on. Returns what is new of it.
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
            let rejection = |(part, text)| {
                let (view, node, name, version) = (view.clone(), node.clone(), name.clone(), version.clone());
                Rejection { view, node, kind, name, part, version, text }
            };
            let after: Vec<Rejection> = parts.into_iter().map(rejection).collect();
            let before = match after.is_empty() {
                true => entries.rejections.remove(&(id, kind, name)),
                false => entries.rejections.insert((id, kind, name), after.clone()),
            };
            (before.unwrap_or_default(), after)
        };
        let is_in = |all: &[Rejection], one: &Rejection| all.iter().any(|other| other.part == one.part);
        for recovered in before.iter().filter(|one| !is_in(&after, one)) {
            self.tell(Some(Event::Recovered(recovered.clone())));
        }
        // A part stays what it is while the rest of its resource changes.
        let same = |a: &Rejection, b: &Rejection| {
            a.part == b.part && a.text == b.text && (a.part.is_some() || a.version == b.version)
        };
        let new: Vec<Rejection> =
            after.into_iter().filter(|one| !before.iter().any(|other| same(one, other))).collect();
        for rejected in &new {
            self.tell(Some(Event::Rejected(rejected.clone())));
        }
        new
    }

    /// The generation every stream has considered; removals before it are of no more interest.
    pub(crate) fn passed(&self) -> Generation {
        self.entries().streams.values().map(|m| m.standing.passed()).min().unwrap_or(Generation::MAX)
    }

    /// How far every node is. A node with several streams is as far as its slowest.
    pub(crate) fn report(&self, published: Generation) -> Progress {
        let entries = self.entries();
        let mut nodes: BTreeMap<(Arc<str>, Arc<str>), Generation> = BTreeMap::new();
        for member in entries.streams.values() {
            let acknowledged = member.standing.acknowledged();
            nodes
                .entry((member.node.clone(), member.identity.clone()))
                .and_modify(|g| *g = (*g).min(acknowledged))
                .or_insert(acknowledged);
        }
        let mut rejections: Vec<_> = entries.rejections.values().flatten().cloned().collect();
        rejections.sort_by(|a, b| (&a.node, a.kind, &a.name, &a.part).cmp(&(&b.node, b.kind, &b.name, &b.part)));
        Progress {
            published,
            nodes: nodes
                .into_iter()
                .map(|((node, identity), acknowledged)| NodeProgress { node, identity, acknowledged })
                .collect(),
            rejections,
        }
    }

    /// Every stream, for people.
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
                last_ack: member.standing.last_ack(),
                acknowledged: member.standing.acknowledged(),
                subscriptions: member.standing.subscriptions(),
                refused: refused.flat_map(|(_, all)| all).map(Refused::new).collect(),
            })
        };
        ids.into_iter().filter_map(state).collect()
    }
}
