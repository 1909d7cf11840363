//! Records what changed, and how long Envoys took, in the history and the histogram.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::sync::mpsc;
use xds::{NodeProgress, Progress};

use super::change_subject::text;
use crate::event::Events;
use crate::fleet_views::{PerView, ViewId};
use crate::history::{
    Author, ChangeKind, ChangedObject, EntryId, EnvoyTime, History, HistoryEntry, NAMED, Outcome,
    kind_of_change, milliseconds,
};
use crate::propagation::Propagation;
use gatewright_core::inputs::{Kind, Listener, Object, ObjectChange, ObjectKey, RouteKey, SetKey};
use gatewright_core::model::Hostname;
use gatewright_core::store::Store;
use gatewright_core::translate::Change;
use xds::Generation;

/// The maximum number of objects whose arrival is remembered until they are applied.
const ARRIVALS: usize = 100_000;

/// The time after which an object that is not applied was dropped.
const DROPPED: Duration = Duration::from_secs(600);
/// The maximum length of what is told of a loss, in characters.
const LOSS: usize = 300;
/// The maximum number of pairs of a host and a hostname of an object that are compared.
const COMPARED: usize = 1 << 20;

/// The history, the histogram, and the objects that have arrived.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) history: History,
    pub(super) propagation: Propagation,
    /// Where entries go to be stored. What it has no room for is not stored.
    store: Option<mpsc::Sender<HistoryEntry>>,
    arrivals: BTreeMap<ObjectKey, Arrival>,
}

/// The arrival of an object that is not applied yet.
struct Arrival {
    /// Since the caller's origin.
    at: Duration,
    author: Author,
}

/// Changes of one kind in one namespace that are applied in one step.
struct Group {
    kind: ChangeKind,
    namespace: Arc<str>,
    /// The arrival of the first.
    arrived: Duration,
    /// At most [`NAMED`].
    objects: Vec<ChangedObject>,
    more_objects: usize,
    /// The hostnames of the objects, before and after.
    hostnames: Vec<Hostname>,
}

impl Group {
    fn new(kind: ChangeKind, namespace: Arc<str>, arrived: Duration) -> Self {
        Self {
            kind,
            namespace,
            arrived,
            objects: Vec::new(),
            more_objects: 0,
            hostnames: Vec::new(),
        }
    }

    fn add(&mut self, object: ChangedObject) {
        if self.objects.len() == NAMED {
            self.more_objects += 1;
        } else {
            self.objects.push(object);
        }
    }
}

/// The changes of a step, before it is known what comes of them.
pub(super) struct Noted {
    groups: Vec<Group>,
    now: SystemTime,
    at: Duration,
}

impl Noted {
    /// Adds what objects lose by the step: an entry of each namespace, since what changed may be of
    /// another one.
    pub(super) fn add_losses(&mut self, events: &Events, store: &Store) {
        let mut groups: BTreeMap<Arc<str>, Group> = BTreeMap::new();
        for event in events.iter() {
            let Some((object, reason, message)) = event.loss() else {
                continue;
            };
            let namespace = object.name.namespace.clone();
            let group = groups
                .entry(namespace.clone())
                .or_insert_with(|| Group::new(ChangeKind::Decision, namespace, self.at));
            let message: String = message.chars().take(LOSS).collect();
            let change = Change::delete(object.clone());
            group.hostnames.extend(hostnames(&change, store));
            group.add(ChangedObject {
                object: format!("{object} {reason}: {message}"),
                author: Author::default(),
            });
        }
        self.groups.extend(groups.into_values());
    }
}

/// The recorded changes of a step, whose acknowledgements are awaited.
#[derive(Default)]
pub(super) struct Recorded {
    entries: Vec<(EntryId, ChangeKind, Duration)>,
    /// When each Envoy acknowledged the step.
    acknowledged: BTreeMap<Arc<str>, Duration>,
}

impl Recorder {
    /// Goes on with the history of earlier runs, and stores each entry when it is new, and when its
    /// outcome is known.
    pub(super) fn keep(&mut self, history: History, store: mpsc::Sender<HistoryEntry>) {
        self.history = history;
        self.store = Some(store);
    }

    fn store(&self, id: &EntryId) {
        if let (Some(store), Some(entry)) = (&self.store, self.history.get(id)) {
            // Nothing waits for a disk: what finds no room is remembered in memory only.
            let _ = store.try_send(entry.clone());
        }
    }

    /// Notes that an object has arrived. What is noted first counts until it is applied; what is
    /// not applied for long was dropped on its way.
    pub(super) fn arrived(&mut self, key: ObjectKey, author: Author, at: Duration) {
        let earlier = self.arrivals.get_mut(&key);
        if let Some(earlier) = earlier.filter(|earlier| at < earlier.at + DROPPED) {
            earlier.author = author;
        } else if self.arrivals.len() < ARRIVALS {
            self.arrivals.insert(key, Arrival { at, author });
        }
    }

    /// Notes the changes of a step that is about to be applied, by kind and namespace, without
    /// those that change nothing. All changes before the first publication are one.
    pub(super) fn note(
        &mut self,
        changes: &[Change],
        store: &Store,
        is_start: bool,
        (now, at): (SystemTime, Duration),
    ) -> Noted {
        let mut groups: BTreeMap<(ChangeKind, Arc<str>), Group> = BTreeMap::new();
        for change in changes {
            let key = change.key();
            let arrival = key.as_ref().and_then(|key| self.arrivals.remove(key));
            if matches!(change, Change::Object(ObjectChange::Put(object)) if store.holds(object)) {
                continue;
            }
            let (kind, namespace) = if is_start {
                (ChangeKind::Start, "".into())
            } else {
                let namespace = key.as_ref().map(|key| key.name.namespace.clone());
                (kind_of_change(change), namespace.unwrap_or_default())
            };
            let group = groups
                .entry((kind, namespace.clone()))
                .or_insert_with(|| Group::new(kind, namespace, at));
            let Arrival { at, author } = arrival.unwrap_or(Arrival {
                at,
                author: Author::default(),
            });
            group.arrived = group.arrived.min(at);
            group.add(ChangedObject {
                object: text(change),
                author,
            });
            // The first state is of all hosts.
            if !is_start {
                group.hostnames.extend(hostnames(change, store));
            }
        }
        if changes.is_empty() {
            let mut group = Group::new(ChangeKind::Certificate, "".into(), at);
            group.add(ChangedObject {
                object: "validity of certificates".to_owned(),
                author: Author::default(),
            });
            groups.insert((group.kind, group.namespace.clone()), group);
        }
        Noted {
            groups: groups.into_values().collect(),
            now,
            at,
        }
    }

    /// Records the changes of a step with the hostnames that it affects, and whether Envoys get
    /// anything.
    pub(super) fn record(
        &mut self,
        noted: Noted,
        hosts: &BTreeSet<String>,
        outcome: Outcome,
    ) -> Recorded {
        let together = noted.groups.len().saturating_sub(1);
        let mut recorded = Recorded::default();
        for group in noted.groups {
            let queued = noted.at.saturating_sub(group.arrived);
            let at = noted.now.checked_sub(queued).unwrap_or(noted.now);
            let at = Timestamp::try_from(at).unwrap_or_default();
            let mut entry = HistoryEntry::new(group.namespace, group.kind, at);
            entry.objects = group.objects;
            entry.more_objects = group.more_objects;
            let touched = touched(hosts, &group.hostnames, together == 0);
            let named: BTreeSet<&str> = group.hostnames.iter().map(Hostname::as_str).collect();
            let (named, others): (Vec<String>, Vec<String>) = touched
                .into_iter()
                .partition(|host| named.contains(host.as_str()));
            entry.named_hosts = named.len();
            entry.more_hosts = (named.len() + others.len()).saturating_sub(NAMED);
            entry.hosts = named.into_iter().chain(others).take(NAMED).collect();
            entry.together = together;
            entry.outcome = outcome;
            let id = self.history.push(entry);
            self.store(&id);
            recorded.entries.push((id, group.kind, group.arrived));
        }
        recorded
    }

    /// Takes in the progress of Envoys with the publications of a step.
    pub(super) fn progressed(
        &mut self,
        recorded: &mut Recorded,
        published: &[(ViewId, Generation)],
        progress: &PerView<Progress>,
        at: Duration,
    ) {
        let before = recorded.acknowledged.len();
        for (view, made) in published {
            let nodes = progress.get(*view).map(|progress| &progress.nodes);
            let have: Vec<&NodeProgress> = nodes
                .into_iter()
                .flatten()
                .filter(|node| node.acknowledged >= *made)
                .collect();
            for node in have {
                let acknowledged = &mut recorded.acknowledged;
                acknowledged.entry(node.node.clone()).or_insert(at);
            }
        }
        if recorded.acknowledged.len() > before {
            for (id, _, arrived) in &recorded.entries {
                let times = times(&recorded.acknowledged, *arrived);
                let more = times.len().saturating_sub(NAMED);
                self.history.update(id, |entry| {
                    entry.envoys = times.into_iter().skip(more).collect();
                    entry.more_envoys = more;
                });
            }
        }
    }

    /// Takes in that all Envoys that a step concerns have acknowledged it.
    pub(super) fn acknowledged(&mut self, recorded: &Recorded, at: Duration) {
        for (id, kind, arrived) in &recorded.entries {
            let took = at.saturating_sub(*arrived);
            self.propagation.observe(*kind, took);
            self.history.update(id, |entry| {
                entry.outcome = Outcome::Acknowledged;
                entry.milliseconds = Some(milliseconds(took));
            });
            self.store(id);
        }
    }

    /// Takes in that the acknowledgements of a step are awaited no longer.
    pub(super) fn given_up(&mut self, recorded: &Recorded) {
        for (id, _, _) in &recorded.entries {
            self.history
                .update(id, |entry| entry.outcome = Outcome::Unknown);
            self.store(id);
        }
    }
}

/// Returns the time that each Envoy took since the arrival, the fastest first.
fn times(acknowledged: &BTreeMap<Arc<str>, Duration>, arrived: Duration) -> Vec<EnvoyTime> {
    let mut times: Vec<EnvoyTime> = acknowledged
        .iter()
        .map(|(envoy, at)| EnvoyTime {
            envoy: envoy.clone(),
            milliseconds: milliseconds(at.saturating_sub(arrived)),
        })
        .collect();
    times.sort_by_key(|time| time.milliseconds);
    times
}

/// Returns the hosts of a step that objects with these hostnames touched: of a wildcard, whose
/// hosts share a resource, only their own. Objects without hostnames may have touched all of them,
/// as may the only objects of a step.
fn touched(hosts: &BTreeSet<String>, own: &[Hostname], is_alone: bool) -> BTreeSet<String> {
    let own = if hosts.len() * own.len() > COMPARED {
        &[]
    } else {
        own
    };
    let mut all = BTreeSet::new();
    for host in hosts {
        let mut is_own = false;
        if let Ok(parsed) = Hostname::parse(host) {
            for own in own {
                if own.covers(&parsed) {
                    all.insert(host.clone());
                } else if parsed.covers(own) {
                    all.insert(own.to_string());
                } else {
                    continue;
                }
                is_own = true;
            }
        }
        if own.is_empty() || is_alone && !is_own {
            all.insert(host.clone());
        }
    }
    all
}

/// Returns the hostnames of an object before and after a change; empty for an object that has none.
fn hostnames(change: &Change, store: &Store) -> Vec<Hostname> {
    let Change::Object(change) = change else {
        return Vec::new();
    };
    let key = change.key();
    let mut all = Vec::new();
    if let Some(route) = RouteKey::of(&key).and_then(|key| store.route(&key)) {
        all.extend(route.hostnames.iter().flatten().cloned());
    }
    if let Some(gateway) = store.gateway(&key.name).filter(|_| is_gateway(&key)) {
        all.extend(of_listeners(&gateway.listeners));
    }
    if let Some(set) = SetKey::of(&key).and_then(|key| store.listener_set(&key)) {
        all.extend(of_listeners(&set.listeners));
    }
    match change {
        ObjectChange::Put(Object::Route(route)) => {
            all.extend(route.hostnames.iter().flatten().cloned());
        }
        ObjectChange::Put(Object::Gateway(gateway)) => all.extend(of_listeners(&gateway.listeners)),
        ObjectChange::Put(Object::ListenerSet(set)) => all.extend(of_listeners(&set.listeners)),
        ObjectChange::Put(_) | ObjectChange::Delete(_) => {}
    }
    all
}

fn is_gateway(key: &ObjectKey) -> bool {
    key.kind == Kind::Gateway
}

fn of_listeners(listeners: &[Arc<Listener>]) -> impl Iterator<Item = Hostname> {
    listeners
        .iter()
        .filter_map(|listener| listener.hostname.as_ref().ok().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_touches_the_hosts_of_its_objects() {
        let hosts = BTreeSet::from(
            ["*.a.example.org", "b.example.org", "c.example.org"].map(str::to_owned),
        );
        fn names(names: &[&str]) -> Vec<Hostname> {
            let parsed = names.iter().map(|name| Hostname::parse(name));
            parsed.collect::<Result<_, _>>().expect("hostnames")
        }
        for (own, is_alone, expected) in [
            (&["x.a.example.org"][..], false, &["x.a.example.org"][..]),
            (
                &["*.example.org"],
                false,
                &["*.a.example.org", "b.example.org", "c.example.org"],
            ),
            (&["c.example.org"], false, &["c.example.org"]),
            (
                &["c.example.org"],
                true,
                &["*.a.example.org", "b.example.org", "c.example.org"],
            ),
            (&["d.example.net"], false, &[]),
            (
                &[],
                false,
                &["*.a.example.org", "b.example.org", "c.example.org"],
            ),
        ] {
            let touched: Vec<String> = touched(&hosts, &names(own), is_alone).into_iter().collect();
            assert_eq!(touched, expected, "{own:?} alone: {is_alone}");
        }
    }
}
