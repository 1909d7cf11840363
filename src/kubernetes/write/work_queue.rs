//! Work queue: each item is queued at most once, never runs twice at the same time, and is retried with a back-off.
//! Pure: the time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The items that are queued or running.
#[derive(Debug)]
pub struct WorkQueue<K> {
    /// The time at which each item is due.
    due: BTreeMap<K, Instant>,
    by_time: BTreeSet<(Instant, K)>,
    running: BTreeSet<K>,
    /// The items that were queued again while they ran.
    again: BTreeMap<K, Instant>,
    failures: BTreeMap<K, u32>,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            by_time: BTreeSet::new(),
            running: BTreeSet::new(),
            again: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> WorkQueue<K> {
    /// Queues an item for the time `at`, or leaves it at an earlier time. An item that failed keeps its back-off.
    pub fn want(&mut self, key: K, at: Instant) {
        if self.running.contains(&key) {
            let when = self.again.entry(key).or_insert(at);
            *when = at.min(*when);
            return;
        }
        match self.due.get(&key) {
            Some(old) if *old <= at || self.failures.contains_key(&key) => return,
            Some(old) => {
                self.by_time.remove(&(*old, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.by_time.insert((at, key));
    }

    /// Removes an item, and resets its failures.
    pub fn drop(&mut self, key: &K) {
        if let Some(at) = self.due.remove(key) {
            self.by_time.remove(&(at, key.clone()));
        }
        self.again.remove(key);
        self.failures.remove(key);
    }

    /// Returns the next item that is due. It runs until [`WorkQueue::done`] or [`WorkQueue::failed`].
    pub fn take(&mut self, now: Instant) -> Option<K> {
        let (at, _) = self.by_time.first()?;
        if *at > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.due.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// Notes that the work of an item succeeded, or was not needed.
    pub fn done(&mut self, key: &K) {
        self.failures.remove(key);
        self.ran(key);
    }

    /// Notes that the work of an item failed. It is retried after the time that `pause` returns for the number of
    /// consecutive failures before.
    pub fn failed(&mut self, key: &K, now: Instant, pause: impl FnOnce(u32) -> Option<Duration>) {
        let failures = self.failures.entry(key.clone()).or_default();
        let pause = pause(*failures);
        *failures = failures.saturating_add(1);
        // An item that was queued again meanwhile keeps the back-off too: the failure may not depend on the content.
        if self.again.remove(key).is_some() || pause.is_some() {
            let at = now + pause.unwrap_or(Duration::from_secs(1));
            self.running.remove(key);
            self.due.insert(key.clone(), at);
            self.by_time.insert((at, key.clone()));
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
        self.by_time.first().map(|(at, _)| *at)
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

    #[test]
    fn a_thing_waits_once_and_runs_once() {
        let now = Instant::now();
        let mut queue = WorkQueue::default();
        queue.want("a", now + SECOND);
        queue.want("b", now);
        queue.want("a", now);
        queue.want("a", now + SECOND);
        assert_eq!((queue.take(now), queue.take(now), queue.take(now)), (Some("a"), Some("b"), None));
        queue.want("a", now);
        assert_eq!((queue.take(now), queue.running(), queue.waiting()), (None, 2, 1));
        queue.done(&"a");
        assert_eq!(queue.take(now), Some("a"));
        queue.done(&"a");
        queue.done(&"b");
        assert_eq!((queue.take(now + SECOND), queue.next()), (None, None));
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
        assert_eq!((queue.take(now), queue.next()), (None, Some(now + SECOND)));
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
