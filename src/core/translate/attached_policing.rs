//! The stage of policies on Gateways, ListenerSets and routes: each is judged by itself when it
//! changes or something that it refers to; then the units of what it is attached to are compiled
//! again, if something else comes of it.

use std::sync::Arc;

use super::admission::Admission;
use super::attached_policies::{AttachedPolicies, JudgedAttachment};
use super::dirty::Dirty;
use super::key::{ParentKey, RouteKey};
use super::policing::{touch_listeners, touch_units_of};
use super::quotas::Quotas;
use super::{access, route_traffic};
use crate::inputs::{AttachedPolicy, AttachedRules, AttachmentTarget, Kind, ObjectKey, SetKey};
use crate::store::Store;

/// The stage that judges policies.
pub(super) struct AttachedPolicing<'a> {
    pub(super) store: &'a Store,
    pub(super) quotas: &'a Quotas,
    pub(super) admission: Admission<'a>,
    pub(super) attached: &'a mut AttachedPolicies,
}

impl AttachedPolicing<'_> {
    /// Judges a policy by itself, and marks the units of its targets. The work does not grow with
    /// the other policies.
    pub(super) fn judge(&mut self, key: &ObjectKey, dirty: &mut Dirty) {
        let policy = self.store.attached_policy(key);
        let new = policy.map(|policy| self.judged(key, policy));
        dirty.statuses.insert(key.clone());
        for target in self.attached.set(key, new) {
            self.touch(key.kind, &target, dirty);
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
        match &policy.rules {
            AttachedRules::Access(rules) => access::judged(policy, rules, beyond, self.store),
            AttachedRules::Traffic(rules) => {
                route_traffic::judged(policy, rules, beyond, self.quotas.of_objects())
            }
        }
    }

    /// Marks the units of a target: everything that its listeners, or its route, serve.
    fn touch(&self, kind: Kind, target: &AttachmentTarget, dirty: &mut Dirty) {
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
        // An AccessPolicy counts for routes of its own namespace alone.
        let namespace = Some(&object.name.namespace).filter(|_| kind == Kind::AccessPolicy);
        touch_listeners(self.admission, &parent, dirty, |listener| {
            section.is_none_or(|section| *listener.name == *section)
        });
        self.touch_charges(&parent, namespace, dirty);
        if let (ParentKey::Gateway(gateway), None) = (&parent, section) {
            for set in self.store.indexes().sets_by_gateway(gateway) {
                let set = ParentKey::ListenerSet(SetKey::clone(set));
                touch_listeners(self.admission, &set, dirty, |_| true);
                self.touch_charges(&set, namespace, dirty);
            }
        }
    }

    /// Marks the routes at a parent for which a policy counts: those of a namespace, or all.
    fn touch_charges(&self, key: &ParentKey, namespace: Option<&Arc<str>>, dirty: &mut Dirty) {
        let Admission {
            parents,
            attachments,
            ..
        } = self.admission;
        let Some(parent) = parents.get(key) else {
            return;
        };
        for listener in &parent.listeners {
            let id = parent.id(listener);
            for name in attachments.names_of(&id) {
                let routes = attachments.contributors(name, &id).map(|(route, _)| route);
                let meant = routes.filter(|route| {
                    namespace.is_none_or(|namespace| route.name.namespace == *namespace)
                });
                dirty.charged.extend(meant.cloned());
            }
        }
    }
}

/// Marks the statuses of the policies that are attached to an object.
pub(super) fn touch_statuses(object: &ObjectKey, store: &Store, dirty: &mut Dirty) {
    let attached = store.indexes().attached_by_target(object);
    dirty.statuses.extend(attached.cloned());
}
