//! Write conflict back-off: a field that another writer changes back again and again is rewritten
//! at growing intervals. Pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The number of equal writes without a delay: the first edit of another writer is reverted at
/// once.
const FREE: u32 = 2;
const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(600);
/// The minimum time without a change after which a conflict is over; it is at least twice the
/// longest time in which the other writer reverted ours.
const CALM_AFTER: Duration = Duration::from_secs(10);

/// The last write to each object, and the number of equal ones in a row.
#[derive(Debug)]
pub struct WriteConflictBackoff<K>(BTreeMap<K, LastWrite>);

impl<K> Default for WriteConflictBackoff<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// The last write to one object.
#[derive(Debug)]
struct LastWrite {
    content: u64,
    times: u32,
    at: Instant,
    /// True if the other writer reverted our version since.
    undone: bool,
    slowest: Duration,
}

impl<K: Ord + Clone> WriteConflictBackoff<K> {
    /// Returns when a document may be written; `None` is now. The same document as in the last
    /// write, apart from times and versions, means that another writer changed the object since.
    pub fn not_before(&self, key: &K, document: &Value, now: Instant) -> Option<Instant> {
        let last = self
            .0
            .get(key)
            .filter(|last| last.content == content(document) && last.times >= FREE)?;
        let pause = (MIN_DELAY * 2_u32.saturating_pow((last.times - FREE).min(16))).min(MAX_DELAY);
        Some(last.at + pause).filter(|at| *at > now)
    }

    /// Notes that another writer reverted ours.
    pub fn undone(&mut self, key: &K, document: &Value, now: Instant) {
        if let Some(last) = self
            .0
            .get_mut(key)
            .filter(|last| !last.undone && last.content == content(document))
        {
            last.undone = true;
            last.slowest = last.slowest.max(now.saturating_duration_since(last.at));
        }
    }

    /// Notes a write of a document.
    pub fn wrote(&mut self, key: &K, document: &Value, now: Instant) {
        let content = content(document);
        let new = LastWrite {
            content,
            times: 0,
            at: now,
            undone: false,
            slowest: Duration::ZERO,
        };
        let entry = self.0.entry(key.clone()).or_insert(new);
        if entry.content != content || now.duration_since(entry.at) > MAX_DELAY * 2 {
            (entry.times, entry.slowest) = (0, Duration::ZERO);
        }
        *entry = LastWrite {
            content,
            times: entry.times + 1,
            at: now,
            undone: false,
            slowest: entry.slowest,
        };
    }

    /// Takes back the last noted write, which failed.
    pub fn failed(&mut self, key: &K) {
        if let Some(last) = self.0.get_mut(key) {
            last.times = last.times.saturating_sub(1);
        }
    }

    /// Returns the number of equal writes to an object in a row.
    pub fn times(&self, key: &K) -> u32 {
        self.0.get(key).map_or(0, |last| last.times)
    }

    /// Returns the time at which the conflict is over, if nobody changes the object until then.
    pub fn over(&self, key: &K) -> Option<Instant> {
        let last = self.0.get(key)?;
        Some(last.at + (last.slowest * 2).clamp(CALM_AFTER, MAX_DELAY))
    }

    /// Removes the state of a deleted object.
    pub fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }
}

/// Returns a hash of a document without the fields that differ between equal writes.
fn content(document: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (_, part) in document
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "metadata")
    {
        walk(part, &mut hasher);
    }
    hasher.finish()
}

fn walk(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields
                .iter()
                .filter(|(name, _)| *name != "lastTransitionTime")
            {
                name.hash(hasher);
                walk(value, hasher);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, hasher)),
        other => other.to_string().hash(hasher),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use gatewright_core::inputs::{Kind, ObjectKey};
    use gatewright_core::model::ObjectName;

    #[test]
    fn a_reverted_write_is_repeated_ever_more_rarely_and_a_new_one_is_immediate() {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "g"));
        fn document(text: &str, time: &str) -> Value {
            json!({"metadata": {"resourceVersion": time}, "status": {"conditions": [
            {"message": text, "lastTransitionTime": time}]}})
        }
        let mut backoff = WriteConflictBackoff::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for round in 0..6 {
            let document = document("m", &round.to_string());
            if let Some(at) = backoff.not_before(&key, &document, now) {
                pauses.push(at.duration_since(now).as_secs());
                now = at;
            }
            backoff.wrote(&key, &document, now);
        }
        assert_eq!(pauses, [1, 2, 4, 8]);
        assert_eq!(backoff.times(&key), 6);
        assert_eq!(backoff.not_before(&key, &document("other", "9"), now), None);
        backoff.wrote(&key, &document("other", "9"), now);
        assert_eq!(backoff.times(&key), 1);
    }

    #[test]
    fn a_fight_is_over_soon_after_the_other_stops() {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "g"));
        let document = json!({"spec": {"a": 1}});
        for (reaction, quiet) in [
            (Duration::from_millis(50), CALM_AFTER),
            (Duration::from_secs(60), Duration::from_secs(120)),
        ] {
            let mut backoff = WriteConflictBackoff::default();
            let mut now = Instant::now();
            for _ in 0..8 {
                backoff.wrote(&key, &document, now);
                backoff.undone(&key, &document, now + reaction);
                // The object is compared again and again until the write is due.
                backoff.undone(&key, &document, now + Duration::from_secs(500));
                now += Duration::from_secs(500);
            }
            backoff.wrote(&key, &document, now);
            assert_eq!(
                backoff.over(&key),
                Some(now + quiet),
                "the other needs {reaction:?}"
            );
        }
    }
}
