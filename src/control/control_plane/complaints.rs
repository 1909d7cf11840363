//! Conditions that need somebody's attention, each told once for as long as it stands.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::event::Event;
use gatewright_core::inputs::ObjectKey;
use gatewright_core::translate::ObjectStatus;

/// Digests of what stands, by object. Objects without such a condition take no place.
#[derive(Default)]
pub(super) struct Complaints(BTreeMap<ObjectKey, Vec<u64>>);

impl Complaints {
    /// Takes in an object's status, and returns those of its conditions that need attention and were not told yet.
    pub(super) fn news(&mut self, key: &ObjectKey, status: Option<&ObjectStatus>) -> Vec<Event> {
        let now = complaints(key, status);
        if now.is_empty() {
            self.0.remove(key);
            return now;
        }
        let before = self.0.insert(key.clone(), now.iter().map(digest).collect()).unwrap_or_default();
        now.into_iter().filter(|event| !before.contains(&digest(event))).collect()
    }
}

fn digest(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    event.to_string().hash(&mut hasher);
    hasher.finish()
}

/// The conditions of an object that need somebody's attention.
fn complaints(key: &ObjectKey, status: Option<&ObjectStatus>) -> Vec<Event> {
    let Some(status) = status.filter(|status| !status.is_good()) else { return Vec::new() };
    let mut events: Vec<Event> = status
        .conditions()
        .filter(|condition| !condition.is_good())
        .map(|c| Event::Condition {
            object: key.clone(),
            generation: status.generation,
            condition: c.kind.to_string(),
            status: format!("{:?}", c.status),
            reason: c.reason.as_str().to_owned(),
            message: c.message.to_string(),
            frozen: false,
        })
        .collect();
    events.dedup();
    events
}
