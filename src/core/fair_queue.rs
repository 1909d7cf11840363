//! The work queue of changes, with fair queueing by namespace: a namespace with many changes delays
//! another's change by no more than a bounded batch. Pure.
//!
//! ```text
//! changes ==> one queue for each namespace ==> a batch: some of each in turn ==> pipeline
//! ```
//!
//! Of the changes of one namespace, those of what others refer to come first, and its deletions
//! last, in whatever order they were queued.
//!
//! The queue has one entry per subject: a newer version of an object replaces the queued one. So
//! the queue is never longer than the number of objects and facts, however often they change. A
//! namespace has one batch of changes in progress at Envoys at a time, since Envoys apply updates
//! one after the other.

mod ranked;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::inputs::{Kind, Object, ObjectChange, ObjectKey};
use crate::translate::{Change, FactKey};
use ranked::{Place, Rank, Ranked};

/// The weight of a batch, in changes of small objects.
const BATCH: u64 = 64;
/// The weight of one namespace's changes in a batch before the next namespace's turn.
const QUANTUM: u64 = 8;
/// The longest time that a namespace waits for Envoys to acknowledge its last batch.
const ACK_TIMEOUT: Duration = Duration::from_millis(100);

/// The work queue.
#[derive(Default)]
pub struct FairQueue {
    waiting: HashMap<Subject, Waiting>,
    /// The queued subjects of each namespace.
    queues: BTreeMap<Arc<str>, Ranked>,
    /// The namespaces with a queue, the next first.
    order: VecDeque<Arc<str>>,
    /// The number of the next change.
    next: u64,
    /// Namespaces whose last batch is in progress: the publication, and its time.
    under_way: BTreeMap<Arc<str>, (u64, Instant)>,
}

/// The queued changes of one subject.
struct Waiting {
    place: Place,
    namespace: Arc<str>,
    /// The newest version, preceded by the deletion of the object if there was one.
    changes: Vec<Change>,
}

/// The subject of a change. Only the last change of a subject counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Object(ObjectKey),
    Fact(FactKey),
}

impl Subject {
    fn of(change: &Change) -> Self {
        match change {
            Change::Object(change) => Subject::Object(change.key()),
            Change::Fact(fact) => Subject::Fact(fact.key()),
        }
    }
}

/// The namespace of a change; empty for changes that belong to none.
fn namespace_of(change: &Change) -> Arc<str> {
    match change {
        Change::Object(change) => {
            let ObjectKey { kind, name } = change.key();
            match kind {
                Kind::Namespace => name.name.clone(),
                _ => name.namespace.clone(),
            }
        }
        Change::Fact(fact) => fact.namespace(),
    }
}

impl FairQueue {
    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if a change of an object is queued.
    pub fn holds(&self, key: &ObjectKey) -> bool {
        self.waiting.contains_key(&Subject::Object(key.clone()))
    }

    /// The number of queued objects and facts.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds changes. New objects precede deletions, so that nothing is missing in between.
    pub fn push(&mut self, changes: Vec<Change>) {
        let mut gone = BTreeSet::new();
        for change in changes {
            match change {
                Change::Object(ObjectChange::Delete(key))
                    if !self.waiting.contains_key(&Subject::Object(key.clone())) =>
                {
                    gone.insert(key);
                }
                Change::Object(ObjectChange::Put(object)) => {
                    let key = object.key();
                    if gone.remove(&key) {
                        self.add(Change::delete(key));
                    }
                    self.add(Change::put(object));
                }
                change => self.add(change),
            }
        }
        for key in gone {
            self.add(Change::delete(key));
        }
    }

    fn add(&mut self, change: Change) {
        let subject = Subject::of(&change);
        let rank = Rank::of(&change);
        if let Some(waiting) = self.waiting.get_mut(&subject) {
            if let Some(queue) = self.queues.get_mut(&waiting.namespace) {
                queue.remove(waiting.place);
                waiting.place.0 = rank;
                queue.insert(waiting.place, subject);
            }
            waiting.supersede(change);
            return;
        }
        let place = (rank, self.next);
        let namespace = namespace_of(&change);
        self.next += 1;
        let queue = match self.queues.entry(namespace.clone()) {
            Entry::Occupied(queue) => queue.into_mut(),
            Entry::Vacant(none) => {
                self.order.push_back(namespace.clone());
                none.insert(Ranked::default())
            }
        };
        queue.insert(place, subject.clone());
        self.waiting.insert(
            subject,
            Waiting {
                place,
                namespace,
                changes: vec![change],
            },
        );
    }

    /// All queued changes, in order of arrival.
    pub fn into_changes(self) -> Vec<Change> {
        let mut waiting: Vec<Waiting> = self.waiting.into_values().collect();
        waiting.sort_by_key(|waiting| waiting.place.1);
        waiting
            .into_iter()
            .flat_map(|waiting| waiting.changes)
            .collect()
    }

    /// Returns urgent changes to be applied at once. They replace the queued changes of the same
    /// subjects; a queued deletion of an object that returns is kept before them.
    #[must_use]
    pub fn take_urgent(&mut self, changes: Vec<Change>) -> Vec<Change> {
        if self.waiting.is_empty() {
            return changes;
        }
        let mut all = Vec::with_capacity(changes.len());
        for change in changes {
            match self.waiting.remove(&Subject::of(&change)) {
                Some(mut waiting) => {
                    if let Some(queue) = self.queues.get_mut(&waiting.namespace) {
                        queue.remove(waiting.place);
                    }
                    waiting.supersede(change);
                    all.append(&mut waiting.changes);
                }
                None => all.push(change),
            }
        }
        all
    }

    /// The number of the next change: see [`FairQueue::has_taken`].
    pub fn mark(&self) -> u64 {
        self.next
    }

    /// True if all changes before a mark have been taken.
    pub fn has_taken(&self, mark: u64) -> bool {
        let mut oldest = self.queues.values().filter_map(Ranked::oldest);
        oldest.all(|oldest| oldest >= mark)
    }

    /// Takes the next batch, from namespaces without a batch in progress; empty if all have to
    /// wait. `acknowledged` is the publication that all Envoys have acknowledged.
    #[must_use]
    pub fn take(&mut self, acknowledged: u64, now: Instant) -> Batch {
        self.under_way.retain(|_, (publication, since)| {
            *publication > acknowledged && now < *since + ACK_TIMEOUT
        });
        let mut batch = Batch::default();
        let mut left = BATCH;
        let mut held = VecDeque::new();
        while left > 0
            && let Some(namespace) = self.order.pop_front()
        {
            if self.under_way.contains_key(&namespace) {
                held.push_back(namespace);
                continue;
            }
            let mut share = QUANTUM.min(left);
            let queue = self
                .queues
                .get_mut(&namespace)
                .expect("a namespace in the order has a queue");
            while share > 0
                && let Some(subject) = queue.pop()
            {
                let waiting = self.waiting.remove(&subject).expect("a subject waits");
                let weight: u64 = waiting.changes.iter().map(weight).sum();
                share = share.saturating_sub(weight);
                left = left.saturating_sub(weight);
                batch.changes.extend(waiting.changes);
                batch.namespaces.insert(waiting.namespace);
            }
            if queue.is_empty() {
                self.queues.remove(&namespace);
            } else {
                self.order.push_back(namespace);
            }
        }
        // Namespaces that have to wait stay ahead of those that had their turn.
        held.append(&mut self.order);
        self.order = held;
        batch
    }

    /// Records that the batch of these namespaces is in progress, as this publication.
    pub fn published(&mut self, namespaces: BTreeSet<Arc<str>>, publication: u64, now: Instant) {
        self.under_way.extend(
            namespaces
                .into_iter()
                .map(|namespace| (namespace, (publication, now))),
        );
    }

    /// The latest time at which there is a batch to take without further acknowledgements; `None`
    /// if the queue is empty.
    pub fn due(&self, acknowledged: u64, now: Instant) -> Option<Instant> {
        let waiting = self.order.iter().filter(|_| !self.waiting.is_empty());
        waiting
            .map(|namespace| match self.under_way.get(namespace) {
                Some((publication, since)) if *publication > acknowledged => *since + ACK_TIMEOUT,
                _ => now,
            })
            .min()
    }
}

/// Changes that are applied together.
#[derive(Debug, Default)]
pub struct Batch {
    /// The changes.
    pub changes: Vec<Change>,
    /// The namespaces of the changes.
    pub namespaces: BTreeSet<Arc<str>>,
}

impl Waiting {
    /// Replaces the queued changes by a newer one. A deletion before the object's return is kept: a
    /// consumer must know that the object was replaced.
    fn supersede(&mut self, change: Change) {
        let comes_again = matches!(change, Change::Object(ObjectChange::Put(_)))
            && matches!(self.changes[0], Change::Object(ObjectChange::Delete(_)));
        self.changes.truncate(usize::from(comes_again));
        self.changes.push(change);
    }
}

/// The weight of a change, in changes of small objects.
fn weight(change: &Change) -> u64 {
    1 + match change {
        Change::Object(ObjectChange::Put(Object::Route(route))) => route.matches() / 16,
        Change::Object(ObjectChange::Put(Object::Gateway(gateway))) => {
            gateway.listeners.len() as u64 / 8
        }
        Change::Object(ObjectChange::Put(Object::ListenerSet(set))) => {
            set.listeners.len() as u64 / 8
        }
        Change::Object(ObjectChange::Put(Object::EndpointSlice(slice))) => {
            slice.endpoints() as u64 / 64
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A route of a namespace, with distinct content for each version.
    fn route(namespace: &str, name: &str, version: u32) -> Change {
        Change::put(
            Object::parse(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
                "metadata": {"name": name, "namespace": namespace, "generation": version},
                "spec": {"parentRefs": [{"name": "edge", "namespace": "infra"}], "hostnames": ["a.example.org"]}}))
            .expect("a route"),
        )
    }

    fn gone(change: &Change) -> Change {
        Change::delete(change.key().expect("an object"))
    }

    fn flood(version: u32) -> Vec<Change> {
        (0..500)
            .map(|number| route("mallory", &format!("r{number:03}"), version))
            .collect()
    }

    fn names(batch: &Batch) -> Vec<String> {
        batch
            .changes
            .iter()
            .map(|change| change.key().expect("an object").name.to_string())
            .collect()
    }

    /// Alice's change is in the next batch, however many of mallory's changes are queued before it,
    /// and however often they change.
    #[test]
    fn a_change_waits_for_no_more_than_a_share_of_each_other_namespace() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        queue.push(flood(1));
        assert_eq!(queue.take(0, now).changes.len(), 64, "a bounded batch");
        queue.push(flood(2));
        queue.push(vec![route("alice", "web", 1)]);
        queue.push(flood(3));
        let batch = queue.take(0, now);
        let place = names(&batch).iter().position(|name| name == "alice/web");
        assert_eq!(
            place,
            Some(8),
            "it waits for a share of each other namespace"
        );
        assert_eq!(batch.changes.len(), 64, "the batch is bounded");
        assert_eq!(
            queue.len(),
            500 - 63,
            "versions that were never taken in are not counted"
        );
    }

    #[test]
    fn many_who_change_much_have_one_share_each_before_anybody_has_two() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        for number in 0..100 {
            queue.push(
                (0..20)
                    .map(|route_number| {
                        route(&format!("m{number}"), &format!("r{route_number}"), 1)
                    })
                    .collect(),
            );
        }
        queue.push(vec![route("alice", "web", 1)]);
        let mut before = 0;
        loop {
            let batch = queue.take(0, now);
            match names(&batch).iter().position(|name| name == "alice/web") {
                Some(place) => break before += place,
                None => before += batch.changes.len(),
            }
        }
        assert_eq!(before, 800);
    }

    #[test]
    fn the_newest_version_takes_the_place_of_the_one_that_waits() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        let old = route("a", "one", 1);
        let new = route("a", "one", 2);
        queue.push(vec![old.clone(), route("a", "two", 1)]);
        queue.push(vec![new.clone()]);
        assert_eq!(
            queue.take(0, now).changes,
            [new.clone(), route("a", "two", 1)],
            "in the place of the first"
        );
        queue.push(vec![new.clone(), gone(&new)]);
        assert_eq!(queue.take(0, now).changes, [gone(&new)]);
        queue.push(vec![gone(&new)]);
        queue.push(vec![old.clone()]);
        queue.push(vec![new.clone()]);
        assert_eq!(
            queue.take(0, now).changes,
            [gone(&new), new],
            "it was away meanwhile"
        );
        assert!(queue.is_empty() && queue.due(0, now).is_none());
    }

    #[test]
    fn an_urgent_change_replaces_the_queued_one() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        let old = route("a", "one", 1);
        let new = route("a", "one", 2);
        queue.push(vec![old.clone(), route("a", "two", 1)]);
        let mark = queue.mark();
        assert_eq!(
            queue.take_urgent(vec![new.clone()]),
            std::slice::from_ref(&new)
        );
        queue.push(vec![new.clone()]);
        assert!(!queue.has_taken(mark));
        assert_eq!(
            queue.take(0, now).changes,
            [route("a", "two", 1), new.clone()],
            "once, where it came last"
        );
        assert!(queue.has_taken(mark) && queue.is_empty());
        queue.push(vec![gone(&new)]);
        assert_eq!(
            queue.take_urgent(vec![old.clone()]),
            [gone(&new), old.clone()]
        );
        assert_eq!(queue.take_urgent(vec![old.clone()]), [old]);
    }

    #[test]
    fn a_namespace_waits_until_envoys_have_its_last_batch_and_not_for_ever() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        queue.push(flood(1));
        let first = queue.take(0, now);
        queue.published(first.namespaces, 1, now);
        queue.push(vec![route("alice", "web", 1)]);
        let second = queue.take(0, now);
        assert_eq!(names(&second), ["alice/web"], "a neighbour goes on");
        queue.published(second.namespaces, 2, now);
        assert_eq!(queue.take(0, now).changes.len(), 0, "nothing is taken");
        assert_eq!(
            queue.due(0, now),
            Some(now + ACK_TIMEOUT),
            "it waits until the acknowledgement is overdue"
        );
        assert_eq!(queue.due(1, now), Some(now), "acknowledged");
        let third = queue.take(1, now);
        assert_eq!(third.changes.len(), 64);
        queue.published(third.namespaces, 3, now);
        assert!(queue.take(1, now).changes.is_empty());
        assert_eq!(
            queue.take(1, now + ACK_TIMEOUT).changes.len(),
            64,
            "an Envoy that hangs"
        );
    }

    #[test]
    fn a_large_object_is_as_many_small_ones() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        let matches: Vec<_> = (0..64)
            .map(|number| json!({"path": {"value": format!("/{number}")}}))
            .collect();
        fn large(name: &str, matches: &[serde_json::Value]) -> Change {
            Change::put(
                Object::parse(
                    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
                    "metadata": {"name": name, "namespace": "mallory"},
                    "spec": {"parentRefs": [{"name": "edge"}], "hostnames": ["a.org", "b.org"],
                        "rules": [{"matches": matches}, {"matches": matches}]}}),
                )
                .expect("a route"),
            )
        }
        queue.push(
            (0..20)
                .map(|number| large(&format!("r{number}"), &matches))
                .collect(),
        );
        assert_eq!(queue.take(0, now).changes.len(), 4);
    }

    #[test]
    fn new_objects_precede_deletions() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        let old = route("a", "old", 1);
        let new = route("a", "new", 1);
        queue.push(vec![gone(&old), new.clone()]);
        assert_eq!(queue.take(0, now).changes, [new.clone(), gone(&old)]);
        queue.push(vec![gone(&old), old.clone(), new.clone()]);
        assert_eq!(
            queue.take(0, now).changes,
            [gone(&old), old, new],
            "it came again"
        );
    }

    fn service(name: &str) -> Change {
        Change::put(
            Object::parse(json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": name, "namespace": "a"}, "spec": {"ports": [{"port": 80}]}}))
            .expect("a Service"),
        )
    }

    fn slice(name: &str) -> Change {
        Change::put(
            Object::parse(
                json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": name, "namespace": "a",
                    "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}],
                "ports": [{"port": 80}]}),
            )
            .expect("an EndpointSlice"),
        )
    }

    /// Of many files that are written at once, also where a route waited before.
    #[test]
    fn a_route_comes_after_what_it_refers_to_and_goes_before_it() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        let name = |number: usize, version: u32| format!("s{number}-{version}");
        let routes =
            |version| (0..40).map(move |number| route("a", &format!("r{number}"), version));
        queue.push(routes(1).collect());
        queue.push(
            (0..40)
                .flat_map(|number| {
                    [
                        gone(&service(&name(number, 1))),
                        gone(&slice(&name(number, 1))),
                    ]
                })
                .chain(routes(2))
                .chain(
                    (0..40).flat_map(|number| [service(&name(number, 2)), slice(&name(number, 2))]),
                )
                .collect(),
        );
        queue.push(vec![gone(&route("a", "r7", 2))]);
        let mut taken = Vec::new();
        while !queue.is_empty() {
            let batch = queue.take(0, now);
            assert!(batch.changes.len() <= 64, "a bounded batch");
            taken.extend(batch.changes);
        }
        let ranks: Vec<Rank> = taken.iter().map(Rank::of).collect();
        assert_eq!(ranks.len(), 40 + 4 * 40);
        assert!(ranks.is_sorted(), "{ranks:?}");
    }

    #[test]
    fn a_deletion_does_not_wait_for_ever() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        let old = route("mallory", "old", 1);
        queue.push(vec![gone(&old)]);
        let mut taken = 0;
        loop {
            queue.push(flood(taken));
            let batch = queue.take(0, now);
            taken += 1;
            if batch.changes.contains(&gone(&old)) {
                break;
            }
            assert!(taken < 200, "it waits for {taken} batches");
        }
        assert!(taken > 100, "it was overtaken {taken} times");
    }
}
