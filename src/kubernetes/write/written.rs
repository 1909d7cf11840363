//! Objects as the API server answered to our writes, until the watch brings them: the plan must not
//! write again what the watch has not brought yet. Pure.
//!
//! An event of the watch that arrives while a write runs may be of a later state than the answer.
//! Then the answer is not used.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time for which an answer counts. The watch may never bring an object that was deleted right
/// after the write: it lists anew after an interruption.
const COUNTS_FOR: Duration = Duration::from_secs(30);

/// A point in the sequence of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// The answers to writes of objects `K`, with what the plan reads of them, `T`.
pub(crate) struct Written<K, T> {
    answers: BTreeMap<K, (T, Instant)>,
    /// The last event of each object since the oldest running write began.
    heard: BTreeMap<K, Moment>,
    now: Moment,
}

impl<K, T> Default for Written<K, T> {
    fn default() -> Self {
        Self {
            answers: BTreeMap::new(),
            heard: BTreeMap::new(),
            now: Moment::default(),
        }
    }
}

impl<K: Ord + Clone, T> Written<K, T> {
    /// Notes an event of the watch about an object, which takes the place of an answer. `is_writing`
    /// if a write is running.
    pub(crate) fn hear(&mut self, key: &K, is_writing: bool) {
        self.answers.remove(key);
        if is_writing {
            self.now.0 += 1;
            self.heard.insert(key.clone(), self.now);
        }
    }

    /// Returns the present point, at which a write begins. `is_first` if no other write runs: the
    /// events before it matter to nobody then.
    pub(crate) fn begin(&mut self, is_first: bool) -> Moment {
        if is_first {
            self.heard.clear();
        }
        self.now
    }

    /// Takes in the answer to a write that began at `begun`.
    pub(crate) fn answered(&mut self, key: K, object: T, begun: Moment, now: Instant) {
        if self.heard.get(&key).is_none_or(|heard| *heard <= begun) {
            self.answers.insert(key, (object, now + COUNTS_FOR));
        }
    }

    /// Drops the answers that do not count any longer.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.answers.retain(|_, (_, until)| *until > now);
    }

    /// Returns the answer to the last write of an object that the watch has not brought yet.
    pub(crate) fn get(&self, key: &K) -> Option<&T> {
        self.answers.get(key).map(|(object, _)| object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_until_the_watch_brings_the_object() {
        let now = Instant::now();
        let mut written: Written<&str, u8> = Written::default();
        let begun = written.begin(true);
        written.answered("a", 1, begun, now);
        written.answered("b", 1, begun, now);
        written.hear(&"a", false);
        assert_eq!(written.get(&"a"), None, "the watch brought it");
        assert_eq!(written.get(&"b"), Some(&1), "the watch has not brought it");
        written.expire(now + COUNTS_FOR - Duration::from_millis(1));
        assert_eq!(written.get(&"b"), Some(&1), "it still counts");
        written.expire(now + COUNTS_FOR);
        assert_eq!(written.get(&"b"), None, "the watch may never bring it");
    }

    #[test]
    fn an_event_during_a_write_may_be_later_than_its_answer() {
        let now = Instant::now();
        let mut written: Written<&str, u8> = Written::default();
        let first = written.begin(true);
        written.hear(&"a", true);
        let second = written.begin(false);
        written.answered("a", 1, first, now);
        assert_eq!(written.get(&"a"), None, "it was heard of meanwhile");
        written.answered("a", 2, second, now);
        assert_eq!(
            written.get(&"a"),
            Some(&2),
            "the event was before this write"
        );
    }
}
