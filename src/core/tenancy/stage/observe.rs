//! The stage that reads back existing objects with derived names: their owners, and the places of
//! hosts.

use std::sync::Arc;

use super::placement::Placement;
use crate::delta::{Derived, DerivedKind, Existing};
use crate::rule::host::HostId;
use crate::rule::names;
use crate::rule::solving;
use crate::state::claims::Claims;
use crate::state::derivations::Derivations;
use crate::state::dirty::Dirty;
use crate::state::places::Places;
use crate::state::tenants::Tenants;
use gatewright_objects::model::ObjectName;

/// The states that the stage reads and writes.
pub(crate) struct Observing<'a> {
    pub(crate) claims: &'a Claims,
    pub(crate) placement: Placement<'a>,
    pub(crate) derivations: &'a mut Derivations,
}

impl<'a> Observing<'a> {
    fn tenants(&self) -> &'a Tenants {
        self.placement.tenants
    }

    /// Reads an existing object with a derived name: its owner, and the hosts that have listeners
    /// in it.
    pub(crate) fn observe(&mut self, key: Derived, new: Option<Existing>, dirty: &mut Dirty) {
        touch_certified(self.placement.tenants, self.placement.places, &key, dirty);
        if names::challenges_of(&key.name.name).is_some() {
            self.observe_solver(&key, new.as_ref().map(|there| there.owner.as_str()), dirty);
        }
        let Some(new) = new else {
            let namespace = key.name.namespace.clone();
            self.derivations.observe(key, None);
            dirty
                .tenants
                .extend(self.tenants().in_namespace(&namespace).cloned());
            return;
        };
        if self.derivations.existing(&key) == Some(&new) {
            return;
        }
        let tenants: Vec<ObjectName> = self
            .tenants()
            .in_namespace(&key.name.namespace)
            .cloned()
            .collect();
        for tenant in &tenants {
            let shard = match key.kind {
                DerivedKind::Gateway if key.name == *tenant => 0,
                DerivedKind::ListenerSet => match names::overflow_of(&key.name.name) {
                    Some((of, number)) if *of == *tenant.name => number,
                    _ => continue,
                },
                _ => continue,
            };
            let ours = self.tenants().has(&new, tenant);
            if !ours && shard > 0 {
                // Another writer created an object under this name first: hosts with a place there
                // move to the next number.
                let key = (tenant.clone(), shard);
                let held = self.placement.places.in_shard(&key);
                let held: Vec<HostId> = held
                    .filter_map(|(hostname, _)| self.placement.hosts.find(tenant, hostname))
                    .collect();
                for host in held {
                    self.placement.take(host, dirty);
                    self.placement.hosts.touch(host, dirty);
                }
            }
            for (name, hostname) in new.hosts.iter().filter(|_| ours) {
                // A listener with another name is not ours: the object was edited.
                let name: Arc<str> = Arc::from(name.as_str());
                if *name != *names::OfHost::new(&tenant.name, hostname.as_str()).listener
                    || self.placement.places.holder(tenant, name.clone()).is_some()
                {
                    continue;
                }
                let host = self.placement.hosts.hold(tenant, hostname);
                self.placement.put(host, name, None, shard);
                self.placement.hosts.touch(host, dirty);
            }
        }
        self.derivations.observe(key, Some(new));
        for tenant in &tenants {
            if self.tenants().is_unmanaged(tenant) && self.tenants().readiness(tenant).is_some() {
                dirty.claims.extend(self.claims.on(tenant));
            }
        }
        dirty.tenants.extend(tenants);
    }

    /// Reads an existing object with the name of a challenge route: one of another writer's,
    /// created or deleted, is evaluated again.
    fn observe_solver(&mut self, key: &Derived, owner: Option<&str>, dirty: &mut Dirty) {
        let Some(tenant) = tenant_of(self.tenants(), key).cloned() else {
            return;
        };
        let solving = self
            .tenants()
            .resolved(&tenant)
            .and_then(|valid| valid.template.solving.as_ref());
        let theirs = owner
            .is_some_and(|owner| solving.is_some_and(|solving| solving.namespace_uid != owner));
        if theirs || self.derivations.is_blocked(&tenant, key) {
            dirty.claims.extend(self.claims.on(&tenant));
            dirty.tenants.insert(tenant);
        }
    }
}

/// Marks the host whose Certificate was created, was deleted or changed its owner.
pub(crate) fn touch_certified(
    tenants: &Tenants,
    places: &Places,
    key: &Derived,
    dirty: &mut Dirty,
) {
    if key.kind != DerivedKind::Certificate {
        return;
    }
    for tenant in tenants.in_namespace(&key.name.namespace) {
        let short = key
            .name
            .name
            .strip_prefix(&*tenant.name)
            .and_then(|rest| rest.strip_prefix('-'));
        let listener = short
            .and_then(|rest| rest.strip_suffix("-tls"))
            .map(|short| format!("https-{short}"));
        let host = listener.and_then(|listener| places.holder(tenant, Arc::from(listener)));
        dirty.hosts.extend(host);
    }
}

/// The TenantGateway that an object with a derived name would belong to.
pub(crate) fn tenant_of<'a>(tenants: &'a Tenants, derived: &Derived) -> Option<&'a ObjectName> {
    if let Some((namespace, _)) = names::challenges_of(&derived.name.name) {
        return tenants
            .in_namespace(namespace)
            .find(|tenant| solving::is_of(&derived.name.name, tenant));
    }
    tenants
        .in_namespace(&derived.name.namespace)
        .find(|tenant| match derived.kind {
            DerivedKind::Gateway => derived.name.name == tenant.name,
            _ => derived
                .name
                .name
                .strip_prefix(&*tenant.name)
                .is_some_and(|rest| rest.starts_with('-')),
        })
}
