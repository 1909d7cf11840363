//! Statuses as they were handed out.

use std::collections::BTreeMap;

use super::dirty::Dirty;
use super::fingerprint::fingerprint;
use super::key::ParentKey;
use super::parents::Parents;
use super::status::{ObjectStatus, Reported, StatusBody};
use crate::inputs::{Kind, ObjectKey};
use crate::model::{ConditionType, ObjectName, Status};
use crate::multimap::MultiMap;

/// The statuses that were handed out, and what is counted of them.
#[derive(Default)]
pub(super) struct Statuses {
    reported: BTreeMap<ObjectKey, Reported>,
    /// The ListenerSets that are accepted, by Gateway, and the same the other way round.
    accepted_sets: MultiMap<ObjectName, ObjectName>,
    gateway_of_set: BTreeMap<ObjectName, ObjectName>,
}

impl Statuses {
    /// Whether an object has a status of ours.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.reported.contains_key(key)
    }

    /// The objects that have one.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.reported.keys()
    }

    /// How many need nobody's attention, and how many do.
    pub(super) fn good_and_bad(&self) -> (usize, usize) {
        let good = self.reported.values().filter(|reported| reported.is_good).count();
        (good, self.reported.len() - good)
    }

    /// How many ListenerSets of a Gateway are accepted.
    pub(super) fn accepted_sets(&self, gateway: &ObjectName) -> usize {
        self.accepted_sets.count(gateway)
    }

    /// Takes in the status of an object, and hands it out where it is different.
    pub(super) fn set(&mut self, key: &ObjectKey, status: Option<ObjectStatus>, parents: &Parents, dirty: &mut Dirty) {
        if key.kind == Kind::ListenerSet {
            self.count_listener_set(key, status.as_ref(), parents, dirty);
        }
        let new =
            status.as_ref().map(|status| Reported { fingerprint: fingerprint(status), is_good: status.is_good() });
        let old = match new {
            Some(new) => self.reported.insert(key.clone(), new),
            None => self.reported.remove(key),
        };
        if old != new {
            dirty.tell(key.clone(), status);
        }
    }

    /// Keeps `attachedListenerSets` of the Gateway up to date.
    fn count_listener_set(
        &mut self,
        key: &ObjectKey,
        status: Option<&ObjectStatus>,
        parents: &Parents,
        dirty: &mut Dirty,
    ) {
        let accepted = status.is_some_and(|status| match &status.body {
            StatusBody::ListenerSet(set) => {
                set.conditions.iter().any(|c| c.kind == ConditionType::Accepted && c.status == Status::True)
            }
            _ => false,
        });
        let gateway = parents.get(&ParentKey::ListenerSet(key.name.clone())).map(|p| p.stand.gateway.clone());
        let now = gateway.filter(|_| accepted);
        let before = match &now {
            Some(gateway) => self.gateway_of_set.insert(key.name.clone(), gateway.clone()),
            None => self.gateway_of_set.remove(&key.name),
        };
        if before == now {
            return;
        }
        if let Some(old) = &before {
            self.accepted_sets.remove(old, &key.name);
        }
        if let Some(new) = &now {
            self.accepted_sets.insert(new.clone(), key.name.clone());
        }
        let gateways = [before, now].into_iter().flatten().map(|name| ObjectKey::new(Kind::Gateway, name));
        dirty.statuses.extend(gateways);
    }
}
