//! What Envoys get.

use std::collections::BTreeMap;

use gatewright_control::publish::{encode, name};
use gatewright_core::translate::Resource;
use serde::Serialize;

use super::drain::Drain;
use super::world::World;

/// What Envoys get.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceChanges {
    /// The changes by the service that sends them: `lds`, `rds`, `srds`, `cds`, `eds`, `sds`.
    pub types: BTreeMap<&'static str, TypeChanges>,
    /// The connections that are drained.
    pub drains: Vec<Drain>,
}

/// The resources of a type that change.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeChanges {
    /// The number of new ones.
    pub added: usize,
    /// The number of changed ones.
    pub changed: usize,
    /// The number of removed ones.
    pub removed: usize,
    /// The bytes of new and changed ones, as each Envoy that serves them gets them.
    pub bytes: usize,
}

impl ResourceChanges {
    /// The number of resources that change.
    pub fn count(&self) -> usize {
        let types = self.types.values();
        types.map(|of| of.added + of.changed + of.removed).sum()
    }

    /// The bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.types.values().map(|of| of.bytes).sum()
    }
}

/// Returns what Envoys get.
pub(super) fn changes(before: &World, after: &World) -> ResourceChanges {
    let mut changes = ResourceChanges::default();
    let (old, new) = (&before.emitted.0, &after.emitted.0);
    for (key, resource) in new {
        let was = old.get(key);
        if was.is_some_and(|was| std::sync::Arc::ptr_eq(was, resource) || was == resource) {
            continue;
        }
        let of = changes.types.entry(name(key).0.label()).or_default();
        if was.is_some() {
            of.changed += 1;
        } else {
            of.added += 1;
        }
        of.bytes += encode(resource).body().len();
    }
    for (key, was) in old {
        let now = new.get(key);
        if now.is_none() {
            let of = changes.types.entry(name(key).0.label()).or_default();
            of.removed += 1;
        }
        if let Resource::Frontend(frontend) = &**was
            && now != Some(was)
        {
            let now = now.and_then(|now| match &**now {
                Resource::Frontend(frontend) => Some(frontend),
                _ => None,
            });
            changes.drains.extend(Drain::new(frontend, now));
        }
    }
    changes
}
