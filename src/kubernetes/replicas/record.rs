//! The record of a replica that does not write statuses: the progress of its Envoys, for the lease holder. Pure.
//!
//! Generations are local to a replica. All replicas share the state that a translation led to: a record names that
//! state by a digest, and its reader knows in which generations of its own it had that state. A record of a state that
//! the reader never had adds nothing to what is known of an Envoy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatewright_control::fleet_views::{FleetViews, Generations, PerView};
use gatewright_core::model::EnvoyFleet;
use serde::{Deserialize, Serialize};
use xds::{Generation, Kind, NodeProgress, Part, Progress, Rejection, View};

/// The maximum number of rejections in a record, and the maximum length of the text of each.
const REFUSALS: usize = 16;
const TEXT: usize = 512;

/// The record of one replica, about the Envoys that are connected to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    /// The digest of the state that the replica published.
    state: String,
    /// The shared fleet, or all fleets where they share a view.
    #[serde(flatten)]
    shared: ViewProgress,
    /// The dedicated fleet, where it has a view of its own.
    #[serde(skip_serializing_if = "ViewProgress::is_empty")]
    dedicated: ViewProgress,
    /// The Envoys of Gateways' own, by Gateway.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    isolated: BTreeMap<String, ViewProgress>,
    /// The rejections of Envoys.
    refused: Vec<Refusal>,
}

/// The progress of the Envoys of one view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct ViewProgress {
    /// The names of the Envoys that have acknowledged all of the state.
    acknowledged: BTreeSet<String>,
    /// The names of the other Envoys.
    behind: BTreeSet<String>,
}

impl ViewProgress {
    /// Sorts the Envoys by whether they have acknowledged the generation in which the view got the state.
    fn new(since: Generation, nodes: &[NodeProgress]) -> Self {
        let (done, behind): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.acknowledged >= since);
        let names = |nodes: Vec<&NodeProgress>| nodes.into_iter().map(|node| node.node.to_string()).collect();
        Self { acknowledged: names(done), behind: names(behind) }
    }

    fn is_empty(&self) -> bool {
        self.acknowledged.is_empty() && self.behind.is_empty()
    }

    fn names(&self) -> impl Iterator<Item = (&String, bool)> {
        let done = self.acknowledged.iter().map(|name| (name, true));
        done.chain(self.behind.iter().map(|name| (name, false)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Refusal {
    node: String,
    kind: String,
    name: String,
    /// The virtual host and the route, if only they are rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<(String, String)>,
    version: String,
    text: String,
}

impl Record {
    /// Creates the record of a state, and of the generations in which each view got it.
    pub(crate) fn new(views: &FleetViews, (state, since): (u64, &Generations), own: &PerView<Progress>) -> Self {
        let at = |view| ViewProgress::new(since[view], &own[view].nodes);
        let of_many = |fleet| views.id(&fleet).map(at).unwrap_or_default();
        let isolated = views.iter().filter_map(|(view, _)| match views.fleet(view)? {
            EnvoyFleet::Isolated(gateway) => Some((gateway.to_string(), at(view))),
            EnvoyFleet::Shared | EnvoyFleet::Dedicated => None,
        });
        let refused = own.values().flat_map(|progress| &progress.rejections);
        let refusal = |r: &Rejection| Refusal {
            node: r.node.to_string(),
            kind: r.kind.type_url().to_owned(),
            name: r.name.to_string(),
            part: r.part.as_ref().map(|part| (part.virtual_host.to_string(), part.route.to_string())),
            version: r.version.to_string(),
            text: r.text.chars().take(TEXT).collect(),
        };
        Self {
            state: format!("{state:016x}"),
            shared: of_many(EnvoyFleet::Shared),
            dedicated: if views.are_apart() { of_many(EnvoyFleet::Dedicated) } else { ViewProgress::default() },
            isolated: isolated.filter(|(_, progress)| !progress.is_empty()).collect(),
            refused: refused.take(REFUSALS).map(refusal).collect(),
        }
    }

    /// Returns whether the record has no Envoy.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.dedicated.is_empty() && self.isolated.is_empty()
    }

    fn progress_of(&self, fleet: &EnvoyFleet) -> Option<&ViewProgress> {
        match fleet {
            EnvoyFleet::Shared => Some(&self.shared),
            EnvoyFleet::Dedicated => Some(&self.dedicated),
            EnvoyFleet::Isolated(gateway) => self.isolated.get(&gateway.to_string()),
        }
    }
}

/// The records of the other replicas.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// The records by replica, each with the resource version in which it was read.
    records: BTreeMap<String, (u64, Record)>,
    /// The generation of ours that each Envoy of other replicas is known to have, by fleet.
    known: BTreeMap<EnvoyFleet, BTreeMap<String, Generation>>,
}

impl Others {
    /// Sets the record of a replica; `None` when it was deleted.
    pub(super) fn set(&mut self, replica: &str, record: Option<(u64, Record)>) {
        match record {
            Some(record) => self.records.insert(replica.to_owned(), record),
            None => self.records.remove(replica),
        };
    }

    /// Returns the Envoys of a fleet at other replicas, with the generation of ours that each has. `generation` returns
    /// the generation that had a state. Where all fleets share a view, all Envoys count as those of the shared fleet.
    ///
    /// An Envoy that is connected to us is left out, since its own acknowledgements count. Of an Envoy in two records
    /// the newer record counts, since the Envoy reconnected. An Envoy without any record of a state that we had is left
    /// out: its replica may be of another version of this program, with another digest of the same state.
    pub(super) fn nodes(
        &mut self,
        fleet: &EnvoyFleet,
        own: &BTreeSet<Arc<str>>,
        generation: impl Fn(u64) -> Option<Generation>,
    ) -> Vec<NodeProgress> {
        let mut newest: BTreeMap<&String, (u64, bool, &Record)> = BTreeMap::new();
        for (version, record) in self.records.values() {
            let envoys = record.progress_of(fleet).into_iter().flat_map(ViewProgress::names);
            for (name, done) in envoys.filter(|(name, _)| !own.contains(name.as_str())) {
                let slot = newest.entry(name).or_insert((*version, done, record));
                if slot.0 < *version {
                    *slot = (*version, done, record);
                }
            }
        }
        let known = self.known.entry(fleet.clone()).or_default();
        known.retain(|name, _| newest.contains_key(name));
        let mut nodes = Vec::new();
        for (name, (_, done, record)) in newest {
            let state = u64::from_str_radix(&record.state, 16).ok().filter(|_| done);
            if let Some(has) = state.and_then(&generation) {
                let known = known.entry(name.clone()).or_default();
                *known = has.max(*known);
            }
            if let Some(has) = known.get(name) {
                nodes.push(NodeProgress {
                    node: Arc::from(name.as_str()),
                    identity: Arc::from("of another replica"),
                    acknowledged: *has,
                });
            }
        }
        if known.is_empty() {
            self.known.remove(fleet);
        }
        nodes
    }

    /// Returns the rejections of Envoys at other replicas.
    pub(super) fn refused(&self, view: &View) -> Vec<Rejection> {
        let all = self.records.values().flat_map(|(_, record)| &record.refused);
        let rejection = |refusal: &Refusal| {
            Some(Rejection {
                view: view.clone(),
                node: Arc::from(refusal.node.as_str()),
                kind: Kind::of_type_url(&refusal.kind)?,
                name: Arc::from(refusal.name.as_str()),
                part: refusal.part.as_ref().map(|(virtual_host, route)| Part {
                    virtual_host: Arc::from(virtual_host.as_str()),
                    route: Arc::from(route.as_str()),
                }),
                version: Arc::from(refusal.version.as_str()),
                text: Arc::from(refusal.text.as_str()),
            })
        };
        all.filter_map(rejection).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, acknowledged: Generation) -> NodeProgress {
        NodeProgress { node: Arc::from(name), identity: Arc::from("i"), acknowledged }
    }

    fn record(state: u64, since: Generation, nodes: &[NodeProgress]) -> Record {
        let views = FleetViews::from(View::new("v"));
        let progress = views.each(|_| Progress { published: since, nodes: nodes.to_vec(), rejections: Vec::new() });
        let record = Record::new(&views, (state, &views.each(|_| since)), &progress);
        let text = serde_json::to_string(&record).expect("texts");
        serde_json::from_str(&text).expect("what was written can be read")
    }

    /// Returns names and generations when we had state 7 in generation 70 and state 8 in generation 80.
    fn check(others: &mut Others, own: &[&str]) -> Vec<(String, Generation)> {
        let own = own.iter().map(|name| Arc::from(*name)).collect();
        let had = |state| [(7, 70), (8, 80)].into_iter().find(|(s, _)| *s == state).map(|(_, generation)| generation);
        others.nodes(&EnvoyFleet::Shared, &own, had).into_iter().map(|n| (n.node.to_string(), n.acknowledged)).collect()
    }

    #[test]
    fn acknowledgements_of_another_replica_count_for_the_state_that_they_name() {
        let mut others = Others::default();
        others.set("b", Some((1, record(7, 3, &[node("x", 3), node("y", 2)]))));
        assert_eq!(
            check(&mut others, &[]),
            [("x".to_owned(), 70)],
            "nothing is known of who never had a state of ours"
        );
        others.set("b", Some((2, record(8, 4, &[node("x", 3), node("y", 4)]))));
        assert_eq!(check(&mut others, &[]), [("x".to_owned(), 70), ("y".to_owned(), 80)], "x has what it had");
        others.set("b", Some((3, record(9, 5, &[node("x", 5), node("y", 5)]))));
        assert_eq!(check(&mut others, &[]), [("x".to_owned(), 70), ("y".to_owned(), 80)], "a state that we never had");
        others.set("b", None);
        assert_eq!(check(&mut others, &[]), []);
    }

    #[test]
    fn an_envoy_that_went_to_another_replica_is_counted_once() {
        let mut others = Others::default();
        others.set("b", Some((1, record(7, 1, &[node("x", 1)]))));
        others.set("c", Some((2, record(8, 1, &[node("x", 1)]))));
        assert_eq!(check(&mut others, &[]), [("x".to_owned(), 80)]);
        assert_eq!(check(&mut others, &["x"]), [], "it is connected to us");
    }
}
