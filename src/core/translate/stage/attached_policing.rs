//! The stage of policies on Gateways, ListenerSets and routes: each is judged by itself when it
//! changes or something that it refers to; then the units of what it is attached to are compiled
//! again, if something else comes of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::admission::Admission;
use super::policing::{touch_listeners, touch_units_of};
use crate::key::{ParentKey, RouteKey};
use crate::settings::judged;
use crate::state::attached_policies::{AttachedPolicies, JudgedAttachment};
use crate::state::dirty::Dirty;
use crate::state::parent::Parent;
use crate::state::quotas::Quotas;
use gatewright_objects::inputs::{AttachedPolicy, AttachmentTarget, Kind, ObjectKey, SetKey};
use gatewright_objects::store::Store;

/// The stage that judges policies.
pub(crate) struct AttachedPolicing<'a> {
    pub(crate) store: &'a Store,
    pub(crate) quotas: &'a Quotas,
    pub(crate) admission: Admission<'a>,
    pub(crate) attached: &'a mut AttachedPolicies,
}

impl AttachedPolicing<'_> {
    /// Judges a policy by itself, and marks the units of its targets. The work does not grow with
    /// the other policies.
    pub(crate) fn judge(&mut self, key: &ObjectKey, dirty: &mut Dirty) {
        let policy = self.store.attached_policy(key);
        let new = policy.map(|policy| self.judged(key, policy));
        dirty.statuses.insert(key.clone());
        let [before, after] = [self.attached.get(key), new.as_ref()]
            .map(|judged| judged.and_then(|judged| judged.credentials.as_ref()));
        if before != after {
            dirty.logins.insert(key.name.clone());
        }
        // The Services that it sends requests to are uses of their targets.
        let policy = policy.filter(|_| key.kind == Kind::AccessPolicy);
        let targets = policy.into_iter().flat_map(|policy| &policy.targets);
        dirty
            .uses
            .extend(targets.map(|target| target.object.clone()));
        for target in self.attached.set(key, new) {
            dirty.uses.insert(target.object.clone());
            self.touch(&target, dirty);
            // It says which policies affect it.
            dirty.statuses.insert(target.object.clone());
            if key.kind == Kind::AccessPolicy {
                self.touch_defaults(&target, dirty);
                self.touch_beside(&target.object, dirty);
            }
            if key.kind == Kind::TrafficPolicy {
                // Another one may be the first of its target now.
                let others = self.attached.on(&target.object);
                let others = others.map(|judged| judged.policy.key());
                dirty
                    .statuses
                    .extend(others.filter(|other| other.kind == key.kind));
            }
        }
    }

    fn judged(&self, key: &ObjectKey, policy: &Arc<AttachedPolicy>) -> JudgedAttachment {
        let beyond = self.quotas.attached_beyond(key);
        let limits = (
            self.quotas.of_objects(),
            self.quotas.matching_micros(&key.name.namespace),
        );
        judged(policy, beyond, limits, self.store)
    }

    /// Marks the units of a target: everything that its listeners, or its route, serve.
    fn touch(&self, target: &AttachmentTarget, dirty: &mut Dirty) {
        let AttachmentTarget { object, section } = target;
        if let Some(route) = RouteKey::of(object) {
            touch_units_of(self.admission, &route, dirty);
            dirty.charged.insert(route);
            return;
        }
        let Some(parent) = ParentKey::of(object) else {
            return;
        };
        let section = section.as_deref();
        // One that is not there closes all of them.
        let known = self.admission.parents.get(&parent);
        let meant = section.filter(|name| known.is_some_and(|at| at.listener(name).is_some()));
        touch_listeners(self.admission, &parent, dirty, |listener| {
            meant.is_none_or(|section| *listener.name == *section)
        });
        self.touch_charges(&parent, dirty);
        if let (ParentKey::Gateway(gateway), None) = (&parent, section) {
            for set in self.store.indexes().sets_by_gateway(gateway) {
                let set = ParentKey::ListenerSet(SetKey::clone(set));
                touch_listeners(self.admission, &set, dirty, |_| true);
                self.touch_charges(&set, dirty);
            }
        }
    }

    /// Marks the routes that default Gateways count with the target of an AccessPolicy: a route, or
    /// those at a default Gateway, also such as it refuses.
    fn touch_defaults(
        &self,
        AttachmentTarget { object, .. }: &AttachmentTarget,
        dirty: &mut Dirty,
    ) {
        if let Some(route) = RouteKey::of(object) {
            let there = self.store.route(&route);
            let meant = there.is_some_and(|there| there.uses_defaults);
            dirty.attachments.extend(Some(route).filter(|_| meant));
            return;
        }
        let parent = ParentKey::of(object).and_then(|key| self.admission.parents.get(&key));
        if parent.is_some_and(Parent::is_default) {
            dirty
                .attachments
                .extend(self.store.defaulted_routes().cloned());
        }
    }

    /// Marks the statuses of the policies beside one: those of a route share the time that a token
    /// may take.
    fn touch_beside(&self, object: &ObjectKey, dirty: &mut Dirty) {
        if RouteKey::of(object).is_some() {
            touch_statuses(object, self.store, dirty);
            return;
        }
        let Some(parent) = ParentKey::of(object) else {
            return;
        };
        let sets = match &parent {
            ParentKey::Gateway(gateway) => self.store.indexes().sets_by_gateway(gateway).collect(),
            ParentKey::ListenerSet(_) => Vec::new(),
        };
        let sets = sets
            .into_iter()
            .map(|set| ParentKey::ListenerSet(SetKey::clone(set)));
        for key in std::iter::once(parent.clone()).chain(sets) {
            let Some(parent) = self.admission.parents.get(&key) else {
                continue;
            };
            for route in self.admission.attachments.routes_at(parent) {
                touch_statuses(&route.object(), self.store, dirty);
            }
        }
    }

    /// Marks the routes at a parent, for which its policies count.
    fn touch_charges(&self, key: &ParentKey, dirty: &mut Dirty) {
        let Admission {
            parents,
            attachments,
            ..
        } = self.admission;
        let Some(parent) = parents.get(key) else {
            return;
        };
        dirty.charged.extend(attachments.routes_at(parent));
    }
}

/// Marks everything at a Gateway or ListenerSet that has other listeners than before, if a policy
/// names one of them: as long as there is none of that name, the policy closes all.
pub(crate) fn touch_sections(
    admission: Admission<'_>,
    store: &Store,
    (key, old): (&ParentKey, Option<&Parent>),
    dirty: &mut Dirty,
) {
    let new = admission.parents.get(key);
    let [before, after] = [old, new].map(|parent| parent.map(listener_names));
    let mut policies = store.indexes().attached_by_target(&key.object());
    let is_named = before != after
        && policies.any(|policy| {
            policy.kind == Kind::AccessPolicy && names_section(store, policy, &key.object())
        });
    if !is_named {
        return;
    }
    touch_listeners(admission, key, dirty, |_| true);
    if let Some(parent) = new {
        dirty
            .charged
            .extend(admission.attachments.routes_at(parent));
    }
}

/// Marks the hosts of listeners that verify their clients, and did not before, or the reverse:
/// backends are told of certificates that were verified alone.
pub(crate) fn touch_verified(
    admission: Admission<'_>,
    (key, old): (&ParentKey, Option<&Parent>),
    dirty: &mut Dirty,
) {
    let new = admission.parents.get(key);
    let [before, after] = [old, new].map(|parent| {
        let listeners = parent.into_iter().flat_map(|parent| &parent.listeners);
        let verifying = listeners.filter(|listener| listener.verifies_clients());
        verifying
            .map(|listener| listener.name.clone())
            .collect::<BTreeSet<_>>()
    });
    if before != after {
        touch_listeners(admission, key, dirty, |listener| {
            before.contains(&listener.name) != after.contains(&listener.name)
        });
    }
}

fn listener_names(parent: &Parent) -> Vec<&str> {
    parent.listeners.iter().map(|one| &*one.name).collect()
}

fn names_section(store: &Store, policy: &ObjectKey, object: &ObjectKey) -> bool {
    store.attached_policy(policy).is_some_and(|policy| {
        let mut targets = policy.targets.iter();
        targets.any(|target| target.object == *object && target.section.is_some())
    })
}

/// Marks the statuses of the policies that are attached to an object.
pub(crate) fn touch_statuses(object: &ObjectKey, store: &Store, dirty: &mut Dirty) {
    let attached = store.indexes().attached_by_target(object);
    dirty.statuses.extend(attached.cloned());
}
