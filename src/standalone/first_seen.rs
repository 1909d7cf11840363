//! The time at which the program first saw each object, which is its creation time here: by the
//! Gateway API the older object goes first, and a manifest's own `creationTimestamp` is whatever
//! its author writes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::claim_log::{ClaimLog, ClaimLogError, Entry};
use gatewright_core::inputs::{Kind, ObjectChange, ObjectKey};
use gatewright_core::model::ObjectName;

/// The objects whose age decides between rivals, with the time of each in milliseconds since the
/// epoch.
pub struct FirstSeen {
    log: ClaimLog<Objects>,
    times: BTreeMap<ObjectKey, i64>,
    /// The latest time that was given.
    latest: i64,
}

/// The record of these times.
struct Objects;

/// One line: the time of an object, or the removal of the object.
#[derive(Serialize, Deserialize)]
struct Line {
    kind: String,
    namespace: String,
    name: String,
    seen: Option<i64>,
}

impl Entry for Objects {
    type Key = ObjectKey;
    type Owner = i64;

    fn line(key: &ObjectKey, seen: Option<&i64>) -> String {
        let ObjectKey { kind, name } = key;
        let (kind, namespace, name) = (
            kind.as_str().to_owned(),
            name.namespace.to_string(),
            name.name.to_string(),
        );
        serde_json::to_string(&Line {
            kind,
            namespace,
            name,
            seen: seen.copied(),
        })
        .expect("strings and a number")
    }

    fn parse(line: &str) -> Result<(ObjectKey, Option<i64>), String> {
        let Line {
            kind,
            namespace,
            name,
            seen,
        } = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let known = Kind::READ.iter().find(|known| known.as_str() == kind);
        let kind = *known.ok_or_else(|| format!("{kind:?} is no kind"))?;
        Ok((ObjectKey::new(kind, ObjectName::new(namespace, name)), seen))
    }
}

impl FirstSeen {
    /// Reads the record.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(path: &Path) -> Result<Self, ClaimLogError> {
        let (log, times) = ClaimLog::open(path)?;
        let latest = times.values().max().copied().unwrap_or_default();
        Ok(Self { log, times, latest })
    }

    /// Sets the creation times of these objects, which are all that there are: others are not known
    /// any more.
    pub fn begin(&mut self, changes: &mut [ObjectChange], now: SystemTime) {
        let there: BTreeSet<ObjectKey> = changes.iter().map(ObjectChange::key).collect();
        let gone: Vec<ObjectKey> = self
            .times
            .keys()
            .filter(|key| !there.contains(key))
            .cloned()
            .collect();
        self.times.retain(|key, _| there.contains(key));
        self.date(
            changes,
            now,
            gone.into_iter().map(|key| (key, None)).collect(),
        );
    }

    /// Sets the creation times of changed objects. New ones are younger than all others, and
    /// equally old.
    pub fn take(&mut self, changes: &mut [ObjectChange], now: SystemTime) {
        self.date(changes, now, BTreeMap::new());
    }

    fn date(
        &mut self,
        changes: &mut [ObjectChange],
        now: SystemTime,
        mut record: BTreeMap<ObjectKey, Option<i64>>,
    ) {
        let now = now
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let now = i64::try_from(now)
            .unwrap_or(i64::MAX)
            .max(self.latest.saturating_add(1));
        for change in changes {
            let key = change.key();
            match change {
                ObjectChange::Put(object) => {
                    let Some(created) = object.created_mut() else {
                        continue;
                    };
                    *created = *self.times.entry(key.clone()).or_insert_with(|| {
                        record.insert(key, Some(now));
                        self.latest = now;
                        now
                    });
                }
                ObjectChange::Delete(_) => {
                    if self.times.remove(&key).is_some() {
                        record.insert(key, None);
                    }
                }
            }
        }
        if !record.is_empty() {
            self.log.append(&record);
        }
    }

    /// Retries lines that could not be written.
    pub fn write(&mut self) {
        self.log.write();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gatewright_core::inputs::Object;
    use serde_json::json;

    use super::*;

    fn put(name: &str) -> ObjectChange {
        let meta = json!({"name": name, "creationTimestamp": "1970-01-01T00:00:07Z"});
        let spec = json!({"gatewayClassName": "c", "listeners": [{"name": "a", "port": 80, "protocol": "HTTP"}]});
        let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": meta, "spec": spec});
        ObjectChange::Put(Object::parse(gateway).expect("a Gateway"))
    }

    fn created(change: &mut ObjectChange) -> i64 {
        let ObjectChange::Put(object) = change else {
            panic!("{change:?}")
        };
        *object.created_mut().expect("a Gateway has an age")
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn an_object_keeps_its_age_over_changes_and_restarts_until_it_is_deleted() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("first-seen");
        let mut seen = FirstSeen::open(&path).expect("opens");
        let mut first = [put("b"), put("c")];
        seen.begin(&mut first, at(100));
        assert_eq!(
            first.each_mut().map(created),
            [100_000; 2],
            "what its author writes does not count"
        );
        // The clock went back.
        let mut later = [put("a"), put("b")];
        seen.take(&mut later, at(50));
        assert_eq!(
            later.each_mut().map(created),
            [100_001, 100_000],
            "a later object is younger"
        );

        let mut seen = FirstSeen::open(&path).expect("opens");
        let mut again = [put("a"), put("b"), put("d")];
        seen.begin(&mut again, at(200));
        assert_eq!(
            again.each_mut().map(created),
            [100_001, 100_000, 200_000],
            "after a restart"
        );
        let mut back = [put("c")];
        seen.take(&mut back, at(300));
        assert_eq!(
            created(&mut back[0]),
            300_000,
            "it was not there at the start"
        );
        seen.take(&mut [ObjectChange::Delete(put("b").key())], at(300));
        let mut back = [put("b")];
        seen.take(&mut back, at(400));
        assert_eq!(created(&mut back[0]), 400_000, "it was deleted");
    }
}
