//! Reported statuses.

use std::collections::BTreeMap;

use super::dirty::Dirty;
use super::fingerprint::fingerprint;
use super::parents::Parents;
use crate::key::ParentKey;
use gatewright_objects::inputs::{Kind, ObjectKey, SetKey};
use gatewright_objects::model::{ConditionType, ObjectName, Status};
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::status::{ObjectStatus, Reported, StatusBody};

/// The statuses that were reported, with counts.
#[derive(Default)]
pub(crate) struct Statuses {
    reported: BTreeMap<ObjectKey, Reported>,
    /// The accepted ListenerSets, by Gateway, and the reverse index.
    accepted_sets: MultiMap<ObjectName, SetKey>,
    gateway_of_set: BTreeMap<SetKey, ObjectName>,
}

impl Statuses {
    /// True if an object has a status of ours.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        self.reported.contains_key(key)
    }

    /// The objects with a status of ours.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.reported.keys()
    }

    /// The number of statuses whose conditions are all good, and the number of others.
    pub(crate) fn good_and_bad(&self) -> (usize, usize) {
        let good = self
            .reported
            .values()
            .filter(|reported| reported.is_healthy)
            .count();
        (good, self.reported.len() - good)
    }

    /// The number of accepted ListenerSets of a Gateway.
    pub(crate) fn accepted_sets(&self, gateway: &ObjectName) -> usize {
        self.accepted_sets.count(gateway)
    }

    /// Sets the status of an object, and adds it to the result if it changed.
    pub(crate) fn set(
        &mut self,
        key: &ObjectKey,
        status: Option<ObjectStatus>,
        parents: &Parents,
        dirty: &mut Dirty,
    ) {
        if let Some(set) = SetKey::of(key) {
            self.count_listener_set(&set, status.as_ref(), parents, dirty);
        }
        let new = status.as_ref().map(|status| Reported {
            fingerprint: fingerprint(status),
            is_healthy: status.is_healthy(),
        });
        let old = match new {
            Some(new) => self.reported.insert(key.clone(), new),
            None => self.reported.remove(key),
        };
        if old != new {
            dirty.tell(key.clone(), status);
        }
    }

    /// Updates the number of accepted ListenerSets of the Gateway.
    fn count_listener_set(
        &mut self,
        set: &SetKey,
        status: Option<&ObjectStatus>,
        parents: &Parents,
        dirty: &mut Dirty,
    ) {
        let accepted = status.is_some_and(|status| match &status.body {
            StatusBody::ListenerSet(set) => set
                .conditions
                .iter()
                .any(|c| c.kind == ConditionType::Accepted && c.status == Status::True),
            _ => false,
        });
        let gateway = parents
            .get(&ParentKey::ListenerSet(set.clone()))
            .map(|p| p.placement.gateway.clone());
        let now = gateway.filter(|_| accepted);
        let before = match &now {
            Some(gateway) => self.gateway_of_set.insert(set.clone(), gateway.clone()),
            None => self.gateway_of_set.remove(set),
        };
        if before == now {
            return;
        }
        if let Some(old) = &before {
            self.accepted_sets.remove(old, set);
        }
        if let Some(new) = &now {
            self.accepted_sets.insert(new.clone(), set.clone());
        }
        let gateways = [before, now]
            .into_iter()
            .flatten()
            .map(|name| ObjectKey::new(Kind::Gateway, name));
        dirty.statuses.extend(gateways);
    }
}
