//! What policies may change: the units, statuses and charges of what they are about.

use std::collections::BTreeSet;

use super::admission::Admission;
use super::policing::Policing;
use crate::key::{ParentKey, RouteKey};
use crate::state::attachments::handed_out;
use crate::state::dirty::Dirty;
use crate::state::parent::{Parent, ParentListener};
use gatewright_objects::inputs::{Kind, ObjectKey, PolicyTarget, SetKey};
use gatewright_objects::model::ObjectName;
use gatewright_objects::store::Store;

impl Policing<'_> {
    /// Marks what a policy of a kind on a target may change there.
    pub(super) fn touch_guarded(&self, kind: Kind, target: &PolicyTarget, dirty: &mut Dirty) {
        self.touch(target, dirty);
        // It says which policies affect it.
        dirty.statuses.insert(target.object.clone());
        if kind == Kind::AccessPolicy {
            self.touch_defaults(target, dirty);
            self.touch_beside(&target.object, dirty);
        }
    }

    /// Marks the units of a target: everything that its listeners, or its route, serve.
    fn touch(&self, target: &PolicyTarget, dirty: &mut Dirty) {
        let PolicyTarget { object, section } = target;
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
    fn touch_defaults(&self, PolicyTarget { object, .. }: &PolicyTarget, dirty: &mut Dirty) {
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
    let mut policies = store.indexes().policies_by_target(&key.object());
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
    store.policy(policy).is_some_and(|policy| {
        let mut targets = policy.targets.iter();
        targets.any(|target| target.object == *object && target.section.is_some())
    })
}

/// Marks the statuses of the policies on an object.
pub(crate) fn touch_statuses(object: &ObjectKey, store: &Store, dirty: &mut Dirty) {
    let attached = store.indexes().policies_by_target(object);
    dirty.statuses.extend(attached.cloned());
}

/// Marks a Gateway that may have other tracing, or none: its frontends, and its ports, which cost
/// more or less then, as do those of its ListenerSets.
pub(super) fn touch_traced(gateway: &ObjectName, store: &Store, dirty: &mut Dirty) {
    dirty.bindings.insert(gateway.clone());
    dirty.parents.insert(ParentKey::Gateway(gateway.clone()));
    let sets = store.indexes().sets_by_gateway(gateway).cloned();
    dirty.parents.extend(sets.map(ParentKey::ListenerSet));
}

/// Marks everything that a route gives to hostnames.
pub(crate) fn touch_units_of(admission: Admission<'_>, key: &RouteKey, dirty: &mut Dirty) {
    let Admission {
        parents,
        attachments,
        ..
    } = admission;
    for (listener, hostname, _) in handed_out(key, attachments.of(key)) {
        if let Some(id) = parents.frontend_of(&listener) {
            attachments.touch_solved(&id, &listener, &hostname, dirty);
            admission.touch_kept(&id, &listener, &hostname, key, dirty);
            dirty.units.insert((id, hostname));
        }
    }
}

/// Marks every host of the listeners of a parent that have filters.
pub(crate) fn touch_filtered(admission: Admission<'_>, key: &ParentKey, dirty: &mut Dirty) {
    touch_listeners(admission, key, dirty, |listener| {
        listener.guard.filters.is_some()
    });
}

/// Marks every host of some listeners of a parent.
pub(crate) fn touch_listeners(
    admission: Admission<'_>,
    key: &ParentKey,
    dirty: &mut Dirty,
    is_meant: impl Fn(&ParentListener) -> bool,
) {
    let Some(parent) = admission.parents.get(key) else {
        return;
    };
    for listener in parent
        .listeners
        .iter()
        .filter(|listener| is_meant(listener))
    {
        let frontend = parent.frontend(listener.transport_port());
        let id = parent.id(listener);
        let kept = admission.kept_under(&id, &listener.hostname);
        let names = admission
            .attachments
            .names_of(&id)
            .cloned()
            .chain(kept)
            .chain([listener.hostname.clone()]);
        dirty
            .units
            .extend(names.map(|name| (frontend.clone(), name)));
    }
}
