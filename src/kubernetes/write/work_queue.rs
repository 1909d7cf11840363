//! Work queue: each item is queued at most once, never runs twice at the same time, and is retried
//! with a back-off. Items that are due are taken from one namespace after the other, so that a
//! namespace with thousands of them delays the items of others by one of its own. Pure: the time is
//! an argument.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::ObjectName;

/// An item of the queue.
pub trait Queued: Ord + Clone {
    /// The namespace in whose turn it is taken.
    fn namespace(&self) -> &str;
}

impl Queued for ObjectName {
    fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl Queued for ObjectKey {
    fn namespace(&self) -> &str {
        &self.name.namespace
    }
}

/// The shard of a record, which is ours.
impl Queued for String {
    fn namespace(&self) -> &str {
        ""
    }
}

impl Queued for () {
    fn namespace(&self) -> &str {
        ""
    }
}

/// The items that are queued or running.
#[derive(Debug)]
pub struct WorkQueue<K> {
    /// The time at which each item is due.
    due: BTreeMap<K, Instant>,
    lines: Lines<K>,
    running: BTreeSet<K>,
    /// The items that were queued again while they ran.
    again: BTreeMap<K, Instant>,
    failures: BTreeMap<K, u32>,
}

/// The queued items by namespace.
#[derive(Debug)]
struct Lines<K> {
    all: BTreeMap<String, Line<K>>,
    /// The time of the first item of each namespace that has no turn.
    heads: BTreeSet<(Instant, String)>,
    /// The namespaces with items that were due, in the order of their turns.
    turns: VecDeque<String>,
}

/// The queued items of one namespace.
#[derive(Debug)]
struct Line<K> {
    by_time: BTreeSet<(Instant, K)>,
    has_turn: bool,
}

impl<K: Queued> Lines<K> {
    fn insert(&mut self, at: Instant, key: K) {
        let namespace = key.namespace().to_owned();
        let new = Line {
            by_time: BTreeSet::new(),
            has_turn: false,
        };
        let line = self.all.entry(namespace.clone()).or_insert(new);
        let before = line.first();
        line.by_time.insert((at, key));
        if !line.has_turn {
            if let Some(before) = before {
                self.heads.remove(&(before, namespace.clone()));
            }
            self.heads
                .insert((before.map_or(at, |before| before.min(at)), namespace));
        }
    }

    fn remove(&mut self, at: Instant, key: &K) {
        let namespace = key.namespace();
        let Some(line) = self.all.get_mut(namespace) else {
            return;
        };
        let before = line.first();
        line.by_time.remove(&(at, key.clone()));
        // A line with a turn is removed when the turn comes.
        if line.has_turn {
            return;
        }
        let now = line.first();
        if let Some(before) = before {
            self.heads.remove(&(before, namespace.to_owned()));
        }
        if let Some(now) = now {
            self.heads.insert((now, namespace.to_owned()));
        } else {
            self.all.remove(namespace);
        }
    }

    /// Removes and returns the next item that is due.
    fn take(&mut self, now: Instant) -> Option<K> {
        while self.heads.first().is_some_and(|(at, _)| *at <= now) {
            let (_, namespace) = self.heads.pop_first()?;
            if let Some(line) = self.all.get_mut(&namespace) {
                line.has_turn = true;
                self.turns.push_back(namespace);
            }
        }
        while let Some(namespace) = self.turns.pop_front() {
            let Some(line) = self.all.get_mut(&namespace) else {
                continue;
            };
            let taken = if line.first().is_some_and(|at| at <= now) {
                line.by_time.pop_first()
            } else {
                None
            };
            match line.first() {
                Some(at) if at <= now => self.turns.push_back(namespace),
                Some(at) => {
                    line.has_turn = false;
                    self.heads.insert((at, namespace));
                }
                None => {
                    self.all.remove(&namespace);
                }
            }
            if let Some((_, key)) = taken {
                return Some(key);
            }
        }
        None
    }

    /// Returns the time at which the next item is due.
    fn next(&self) -> Option<Instant> {
        let due = self
            .turns
            .iter()
            .find_map(|namespace| self.all.get(namespace)?.first());
        let head = self.heads.first().map(|(at, _)| *at);
        due.into_iter().chain(head).min()
    }
}

impl<K: Ord> Line<K> {
    fn first(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            lines: Lines {
                all: BTreeMap::new(),
                heads: BTreeSet::new(),
                turns: VecDeque::new(),
            },
            running: BTreeSet::new(),
            again: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Queued> WorkQueue<K> {
    /// Queues an item for the time `at`, or leaves it at an earlier time. An item that failed keeps
    /// its back-off.
    pub fn want(&mut self, key: K, at: Instant) {
        if self.running.contains(&key) {
            let when = self.again.entry(key).or_insert(at);
            *when = at.min(*when);
            return;
        }
        match self.due.get(&key) {
            Some(old) if *old <= at || self.failures.contains_key(&key) => return,
            Some(old) => {
                self.lines.remove(*old, &key);
            }
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.lines.insert(at, key);
    }

    /// Removes an item, and resets its failures.
    pub fn drop(&mut self, key: &K) {
        if let Some(at) = self.due.remove(key) {
            self.lines.remove(at, key);
        }
        self.again.remove(key);
        self.failures.remove(key);
    }

    /// Returns the next item that is due. It runs until [`WorkQueue::done`] or
    /// [`WorkQueue::failed`].
    pub fn take(&mut self, now: Instant) -> Option<K> {
        let key = self.lines.take(now)?;
        self.due.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// Notes that the work of an item succeeded, or was not needed.
    pub fn done(&mut self, key: &K) {
        self.failures.remove(key);
        self.ran(key);
    }

    /// Notes that the work of an item failed. It is retried after the time that `pause` returns for
    /// the number of consecutive failures before.
    pub fn failed(&mut self, key: &K, now: Instant, pause: impl FnOnce(u32) -> Option<Duration>) {
        let failures = self.failures.entry(key.clone()).or_default();
        let pause = pause(*failures);
        *failures = failures.saturating_add(1);
        // An item that was queued again meanwhile keeps the back-off too: the failure may not
        // depend on the content.
        if self.again.remove(key).is_some() || pause.is_some() {
            let at = now + pause.unwrap_or(Duration::from_secs(1));
            self.running.remove(key);
            self.due.insert(key.clone(), at);
            self.lines.insert(at, key.clone());
        } else {
            self.running.remove(key);
            self.failures.remove(key);
        }
    }

    fn ran(&mut self, key: &K) {
        self.running.remove(key);
        if let Some(at) = self.again.remove(key) {
            self.want(key.clone(), at);
        }
    }

    /// Returns the time at which the next item is due.
    pub fn next(&self) -> Option<Instant> {
        self.lines.next()
    }

    /// Returns whether an item is running.
    pub fn is_running(&self, key: &K) -> bool {
        self.running.contains(key)
    }

    /// Returns whether an item is queued, or is queued again while it runs.
    pub fn is_wanted(&self, key: &K) -> bool {
        self.due.contains_key(key) || self.again.contains_key(key)
    }

    /// Returns the number of consecutive failures of an item.
    pub fn failures(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or_default()
    }

    /// Returns the number of running items.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the number of queued items.
    pub fn waiting(&self) -> usize {
        self.due.len() + self.again.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// `a` is in namespace `a`, `mallory/1` in `mallory`.
    impl Queued for &'static str {
        fn namespace(&self) -> &str {
            self.split('/').next().unwrap_or_default()
        }
    }

    #[test]
    fn a_namespace_with_many_items_delays_others_by_one() {
        let now = Instant::now();
        let mut queue = WorkQueue::default();
        for item in ["mallory/1", "mallory/2", "mallory/3", "mallory/4"] {
            queue.want(item, now);
        }
        queue.want("alice", now + SECOND);
        queue.want("bob", now + SECOND * 2);
        assert_eq!(queue.take(now), Some("mallory/1"));
        let at = now + SECOND;
        assert_eq!(
            [queue.take(at), queue.take(at), queue.take(at)].map(Option::unwrap_or_default),
            ["mallory/2", "alice", "mallory/3"]
        );
        queue.drop(&"mallory/4");
        assert_eq!(queue.take(at), None, "the turn of nobody");
        assert_eq!(queue.next(), Some(now + SECOND * 2), "the turn of nobody");
        queue.want("mallory/5", at);
        assert_eq!(queue.take(at), Some("mallory/5"), "the flood has its turn");
        assert_eq!(queue.take(at), None, "the next one has to wait");
        assert_eq!(queue.take(now + SECOND * 2), Some("bob"));
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn a_thing_waits_once_and_runs_once() {
        let now = Instant::now();
        let mut queue = WorkQueue::default();
        queue.want("a", now + SECOND);
        queue.want("b", now);
        queue.want("a", now);
        queue.want("a", now + SECOND);
        assert_eq!(queue.take(now), Some("a"), "the first one runs");
        assert_eq!(queue.take(now), Some("b"), "the second one runs");
        assert_eq!(queue.take(now), None, "nothing else waits");
        queue.want("a", now);
        assert_eq!(queue.take(now), None, "what runs is not taken again");
        assert_eq!(queue.running(), 2, "both run");
        assert_eq!(queue.waiting(), 1, "the repeated one waits");
        queue.done(&"a");
        assert_eq!(queue.take(now), Some("a"));
        queue.done(&"a");
        queue.done(&"b");
        assert_eq!(
            queue.take(now + SECOND),
            None,
            "a finished item is not taken"
        );
        assert_eq!(queue.next(), None, "nothing is due");
    }

    #[test]
    fn a_failure_is_not_tried_sooner_because_it_is_wanted_again() {
        let now = Instant::now();
        let mut queue = WorkQueue::default();
        queue.want("a", now);
        queue.take(now);
        queue.want("a", now);
        queue.failed(&"a", now, |_| Some(SECOND));
        queue.want("a", now);
        assert_eq!(queue.take(now), None, "the wish does not shorten the wait");
        assert_eq!(queue.next(), Some(now + SECOND), "it is due at its time");
        queue.take(now + SECOND);
        queue.failed(&"a", now, |failures| Some(SECOND * (failures + 1)));
        assert_eq!(queue.next(), Some(now + SECOND * 2), "the second in a row");
        queue.drop(&"a");
        queue.want("a", now);
        queue.take(now);
        queue.failed(&"a", now, |failures| {
            assert_eq!(failures, 0);
            None
        });
        assert_eq!(queue.next(), None);
    }
}
