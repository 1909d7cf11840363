//! The record of a replica that does not write statuses: the progress of its Envoys, for the lease
//! holder. Pure.
//!
//! Generations are local to a replica. All replicas share the state that a translation led to: a
//! record names that state by a digest, and its reader knows in which generations of its own it had
//! that state. A record of a state that the reader never had adds nothing to what is known of an
//! Envoy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatewright_control::fleet_views::{FleetViews, Generations, PerView};
use gatewright_core::model::EnvoyFleet;
use serde::{Deserialize, Serialize};
use xds::{Generation, Kind, NodeProgress, Part, Progress, Rejection, View, one_line};

/// The maximum number of rejections of one view in a record, and the maximum lengths of the message
/// of each and of its other texts, in characters.
const REFUSALS: usize = 16;
const TEXT: usize = 512;
const NAME: usize = 1024;
/// The maximum sizes of all names of Envoys and of all rejections, in bytes of JSON: the API server
/// refuses an object with annotations of more than 256 KiB. Views divide them, so that none takes
/// the place of another's.
const NODES_BYTES: usize = 128 << 10;
const REFUSALS_BYTES: usize = 64 << 10;

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
}

/// The progress of the Envoys of one view, and their rejections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct ViewProgress {
    /// The names of the Envoys that have acknowledged all of the state.
    acknowledged: BTreeSet<String>,
    /// The names of the other Envoys.
    behind: BTreeSet<String>,
    /// The rejections of the Envoys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refusal>,
}

impl ViewProgress {
    /// Sorts the Envoys by whether they have acknowledged the generation in which the view got the
    /// state.
    fn new(since: Generation, progress: &Progress) -> Self {
        let (done, behind): (Vec<_>, Vec<_>) = progress
            .nodes
            .iter()
            .partition(|node| node.acknowledged >= since);
        fn names(nodes: Vec<&NodeProgress>) -> BTreeSet<String> {
            nodes
                .into_iter()
                .map(|node| node.node.to_string())
                .collect()
        }
        let refused = progress
            .rejections
            .iter()
            .take(REFUSALS)
            .map(Refusal::new)
            .collect();
        Self {
            acknowledged: names(done),
            behind: names(behind),
            refused,
        }
    }

    fn nodes_bytes(&self) -> usize {
        self.names().map(|(name, _)| json_bytes(name)).sum()
    }

    fn refusals_bytes(&self) -> usize {
        self.refused.iter().map(Refusal::json_bytes).sum()
    }

    /// Omits what exceeds these sizes. Envoys that have not acknowledged the state are kept before
    /// others: without them, it would seem that all have.
    fn shorten(&mut self, nodes_bytes: usize, refusals_bytes: usize) {
        let mut left = nodes_bytes;
        let mut fits = |bytes: usize| {
            let fits = bytes <= left;
            left -= if fits { bytes } else { 0 };
            fits
        };
        self.behind.retain(|name| fits(json_bytes(name)));
        self.acknowledged.retain(|name| fits(json_bytes(name)));
        let mut left = refusals_bytes;
        let count = self
            .refused
            .iter()
            .take_while(|refusal| {
                let bytes = refusal.json_bytes();
                let fits = bytes <= left;
                left -= if fits { bytes } else { 0 };
                fits
            })
            .count();
        self.refused.truncate(count);
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

impl Refusal {
    fn new(r: &Rejection) -> Self {
        let part = r.part.as_ref().map(|part| {
            (
                one_line(&part.virtual_host, NAME),
                one_line(&part.route, NAME),
            )
        });
        Self {
            node: r.node.to_string(),
            kind: r.kind.type_url().to_owned(),
            name: one_line(&r.name, NAME),
            part,
            version: one_line(&r.version, NAME),
            text: one_line(&r.text, TEXT),
        }
    }

    fn in_view(&self, view: &View) -> Option<Rejection> {
        Some(Rejection {
            view: view.clone(),
            node: Arc::from(self.node.as_str()),
            kind: Kind::of_type_url(&self.kind)?,
            name: Arc::from(self.name.as_str()),
            part: self.part.as_ref().map(|(virtual_host, route)| Part {
                virtual_host: Arc::from(virtual_host.as_str()),
                route: Arc::from(route.as_str()),
            }),
            version: Arc::from(self.version.as_str()),
            text: Arc::from(self.text.as_str()),
        })
    }

    fn json_bytes(&self) -> usize {
        serde_json::to_string(self).expect("texts").len() + 1
    }
}

/// Returns the size of a text in a list of JSON.
fn json_bytes(text: &str) -> usize {
    text.chars()
        .map(|c| match c {
            '"' | '\\' => 2,
            c if c.is_control() => 6,
            c => c.len_utf8(),
        })
        .sum::<usize>()
        + 3
}

/// Divides a size among those who need these: nobody gets more than it needs, and what the small
/// ones leave is divided among the large ones. Returns the largest part.
fn largest_part(mut needs: Vec<usize>, size: usize) -> usize {
    needs.sort_unstable();
    let mut left = size;
    let mut others = needs.len();
    for need in needs {
        if need > left / others {
            return left / others;
        }
        left -= need;
        others -= 1;
    }
    size
}

impl Record {
    /// Creates the record of a state, and of the generations in which each view got it.
    pub(crate) fn new(
        views: &FleetViews,
        (state, since): (u64, &Generations),
        own: &PerView<Progress>,
    ) -> Self {
        let at = |view| ViewProgress::new(since[view], &own[view]);
        let of_many = |fleet| views.id(&fleet).map(at).unwrap_or_default();
        let isolated = views
            .iter()
            .filter_map(|(view, _)| match views.fleet(view)? {
                EnvoyFleet::Isolated(gateway) => Some((gateway.to_string(), at(view))),
                EnvoyFleet::Shared | EnvoyFleet::Dedicated => None,
            });
        let mut record = Self {
            state: format!("{state:016x}"),
            shared: of_many(EnvoyFleet::Shared),
            dedicated: if views.are_apart() {
                of_many(EnvoyFleet::Dedicated)
            } else {
                ViewProgress::default()
            },
            isolated: isolated
                .filter(|(_, progress)| !progress.is_empty())
                .collect(),
        };
        record.shorten();
        record
    }

    /// Shortens the record to the size that the API server accepts.
    fn shorten(&mut self) {
        let needs = |need: fn(&ViewProgress) -> usize| {
            let isolated = self
                .isolated
                .iter()
                .map(|(gateway, of)| json_bytes(gateway) + need(of));
            isolated
                .chain([need(&self.shared), need(&self.dedicated)])
                .collect()
        };
        let nodes_bytes = largest_part(needs(ViewProgress::nodes_bytes), NODES_BYTES);
        let refusals_bytes = largest_part(needs(ViewProgress::refusals_bytes), REFUSALS_BYTES);
        for of in self
            .isolated
            .values_mut()
            .chain([&mut self.shared, &mut self.dedicated])
        {
            of.shorten(nodes_bytes, refusals_bytes);
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

    /// Returns the Envoys of a fleet at other replicas, with the generation of ours that each has.
    /// `generation` returns the generation that had a state. Where all fleets share a view, all
    /// Envoys count as those of the shared fleet.
    ///
    /// An Envoy that is connected to us is left out, since its own acknowledgements count. Of an
    /// Envoy in two records the newer record counts, since the Envoy reconnected. An Envoy without
    /// any record of a state that we had is left out: its replica may be of another version of this
    /// program, with another digest of the same state.
    pub(super) fn nodes(
        &mut self,
        fleet: &EnvoyFleet,
        own: &BTreeSet<Arc<str>>,
        generation: impl Fn(u64) -> Option<Generation>,
    ) -> Vec<NodeProgress> {
        let mut newest: BTreeMap<&String, (u64, bool, &Record)> = BTreeMap::new();
        for (version, record) in self.records.values() {
            let envoys = record
                .progress_of(fleet)
                .into_iter()
                .flat_map(ViewProgress::names);
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

    /// Returns the rejections of Envoys at other replicas, each in the view that its record names.
    pub(super) fn refused(&self, views: &FleetViews) -> Vec<Rejection> {
        let mut all = Vec::new();
        for (id, view) in views.iter() {
            let fleet = views.fleet(id).unwrap_or(EnvoyFleet::Shared);
            let of_view = self
                .records
                .values()
                .filter_map(|(_, record)| record.progress_of(&fleet));
            all.extend(
                of_view
                    .flat_map(|progress| &progress.refused)
                    .filter_map(|refusal| refusal.in_view(view)),
            );
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::ObjectName;

    use super::*;

    fn node(name: &str, acknowledged: Generation) -> NodeProgress {
        NodeProgress {
            node: Arc::from(name),
            identity: Arc::from("i"),
            acknowledged,
        }
    }

    fn record(state: u64, since: Generation, nodes: &[NodeProgress]) -> Record {
        let views = FleetViews::from(View::new("v"));
        let progress = views.each(|_| Progress {
            published: since,
            nodes: nodes.to_vec(),
            rejections: Vec::new(),
        });
        let record = Record::new(&views, (state, &views.each(|_| since)), &progress);
        let text = serde_json::to_string(&record).expect("texts");
        serde_json::from_str(&text).expect("what was written can be read")
    }

    /// Returns names and generations when we had state 7 in generation 70 and state 8 in generation
    /// 80.
    fn check(others: &mut Others, own: &[&str]) -> Vec<(String, Generation)> {
        let own = own.iter().map(|name| Arc::from(*name)).collect();
        others
            .nodes(&EnvoyFleet::Shared, &own, |state| {
                [(7, 70), (8, 80)]
                    .into_iter()
                    .find(|(s, _)| *s == state)
                    .map(|(_, generation)| generation)
            })
            .into_iter()
            .map(|n| (n.node.to_string(), n.acknowledged))
            .collect()
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
        assert_eq!(
            check(&mut others, &[]),
            [("x".to_owned(), 70), ("y".to_owned(), 80)],
            "x has what it had"
        );
        others.set("b", Some((3, record(9, 5, &[node("x", 5), node("y", 5)]))));
        assert_eq!(
            check(&mut others, &[]),
            [("x".to_owned(), 70), ("y".to_owned(), 80)],
            "a state that we never had"
        );
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

    fn rejection(node: &str, name: &str, text: &str) -> Rejection {
        Rejection {
            view: View::new("whatever"),
            node: Arc::from(node),
            kind: Kind::Cluster,
            name: Arc::from(name),
            part: None,
            version: Arc::from("1"),
            text: Arc::from(text),
        }
    }

    /// Returns the record of these nodes and rejections, by fleet, and what another replica reads
    /// in it.
    fn read(
        of: impl Fn(Option<EnvoyFleet>) -> (Vec<NodeProgress>, Vec<Rejection>),
    ) -> (String, Vec<(String, Rejection)>) {
        let gateways = ["bank", "shop"].map(|namespace| ObjectName::new(namespace, "edge"));
        let views = FleetViews::apart().called("test", &gateways);
        let progress = views.each(|view| {
            let (nodes, rejections) = of(views.fleet(view));
            Progress {
                published: 1,
                nodes,
                rejections,
            }
        });
        let record = Record::new(&views, (7, &views.each(|_| 1)), &progress);
        let text = serde_json::to_string(&record).expect("texts");
        let mut others = Others::default();
        others.set(
            "b",
            Some((
                1,
                serde_json::from_str(&text).expect("what was written can be read"),
            )),
        );
        let refused = others
            .refused(&views)
            .into_iter()
            .map(|r| (r.view.to_string(), r));
        (text, refused.collect())
    }

    #[test]
    fn a_rejection_stays_in_the_view_of_its_envoy() {
        let (_, read) = read(|fleet| match fleet {
            Some(EnvoyFleet::Isolated(gateway)) if &*gateway.namespace == "bank" => (
                vec![node("b", 1)],
                vec![rejection("b", "shop/web:80", "bad")],
            ),
            Some(EnvoyFleet::Shared) => (
                vec![node("s", 1)],
                vec![rejection("s", "shop/api:80", "bad")],
            ),
            _ => (Vec::new(), Vec::new()),
        });
        let read: Vec<(&str, &str)> = read
            .iter()
            .map(|(view, r)| (view.as_str(), &*r.name))
            .collect();
        assert_eq!(
            read,
            [
                ("test shared", "shop/api:80"),
                ("test isolated/bank/edge", "shop/web:80")
            ]
        );
    }

    #[test]
    fn a_record_is_bounded_and_no_view_takes_the_place_of_another() {
        let long = "\u{1}\"\u{1f600}".repeat(2_000);
        let (text, read) = read(|fleet| match fleet {
            Some(EnvoyFleet::Isolated(gateway)) if &*gateway.namespace == "bank" => {
                let names: Vec<String> = (0..4_000)
                    .map(|number| format!("{number}{}", &long[..200 * 6]))
                    .collect();
                let nodes = names.iter().map(|name| node(name, 1)).collect();
                (
                    nodes,
                    (0..4_000)
                        .map(|number| rejection("b", &format!("{number}{long}"), &long))
                        .collect(),
                )
            }
            Some(EnvoyFleet::Isolated(_)) => (
                vec![node("pod", 1)],
                vec![rejection("pod", "shop/web:80", "bad")],
            ),
            _ => (
                vec![node("many", 0)],
                vec![rejection("many", "shop/api:80", "bad")],
            ),
        });
        assert!(text.len() < 256 << 10, "{}", text.len());
        for name in [r#""pod""#, r#""many""#] {
            assert!(text.contains(name), "{name} is missing");
        }
        fn of<'a>(view: &str, read: &'a [(String, Rejection)]) -> Vec<&'a Rejection> {
            read.iter()
                .filter(|(at, _)| at == view)
                .map(|(_, r)| r)
                .collect::<Vec<_>>()
        }
        assert_eq!(
            of("test isolated/shop/edge", &read),
            [&Rejection {
                view: View::new("test isolated/shop/edge"),
                ..rejection("pod", "shop/web:80", "bad")
            }]
        );
        let of_bank = of("test isolated/bank/edge", &read);
        assert!((1..=REFUSALS).contains(&of_bank.len()), "{}", of_bank.len());
        assert!(
            of_bank
                .iter()
                .all(|r| !r.name.chars().chain(r.text.chars()).any(char::is_control))
        );
    }

    #[test]
    fn what_small_ones_leave_is_divided_among_the_large_ones() {
        assert_eq!(largest_part(vec![10, 20, 30], 100), 100, "there is enough");
        assert_eq!(largest_part(vec![500, 10, 20, 400], 100), 35);
        assert_eq!(largest_part(Vec::new(), 100), 100);
    }
}
