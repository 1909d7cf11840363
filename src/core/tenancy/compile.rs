//! Rendering what was decided.

use std::sync::Arc;

use super::delta::{Derived, DerivedKind};
use super::engine::{Dirty, Shard, Tenancy};
use super::{Desired, names};
use crate::inputs::Listener;
use crate::model::{Hostname, ObjectName};

impl Tenancy {
    /// Puts a Gateway (shard 0) or a ListenerSet together from its listeners.
    pub(super) fn compile(&mut self, shard: &Shard, dirty: &mut Dirty) {
        self.counters.shards += 1;
        let (tenant, number) = shard;
        let (kind, name) = place_of(tenant, *number);
        let Some(valid) = self.valid.get(tenant) else {
            return self.emit(tenant, kind, name, None, dirty);
        };
        let items: Vec<Arc<Listener>> =
            self.shards.get(shard).into_iter().flat_map(|held| held.values().flatten()).cloned().collect();
        let value = if *number == 0 {
            let last = self.shards.range(..=(tenant.clone(), usize::MAX)).next_back();
            let overflows = last.is_some_and(|((of, number), _)| of == tenant && *number > 0);
            let theirs = self.with_sets.get(tenant).is_some_and(|count| *count > 0);
            let keeper = |hostname: &Hostname| match valid.frame.own {
                true => self.hosts.get(tenant, hostname)?.keeper.clone(),
                false => self.keeper_of_fixed(tenant, hostname),
            };
            Some(valid.frame.gateway(items, overflows || theirs, &keeper))
        } else {
            (!items.is_empty()).then(|| valid.frame.overflow(&name, items))
        };
        self.emit(tenant, kind, name, value, dirty);
    }

    /// Wants an object, or not any more. One of somebody else under that name is left alone and told.
    pub(super) fn emit(
        &mut self,
        tenant: &ObjectName,
        kind: DerivedKind,
        name: impl Into<Arc<str>>,
        value: Option<Desired>,
        dirty: &mut Dirty,
    ) {
        let key = Derived { kind, name: ObjectName::new(tenant.namespace.clone(), name) };
        let foreign = self.is_foreign(tenant, &key);
        self.emit_as(tenant, key, value, foreign, dirty);
    }

    /// Whether an object is there under a derived name of a TenantGateway and belongs to somebody else.
    pub(super) fn is_foreign(&self, tenant: &ObjectName, key: &Derived) -> bool {
        self.existing.get(key).is_some_and(|there| {
            let given = self.given.get(tenant);
            there.owner.is_empty() || given.is_some_and(|given| there.owner != given.uid)
        })
    }

    /// The same, where it is known whether what is there is somebody else's.
    pub(super) fn emit_as(
        &mut self,
        tenant: &ObjectName,
        key: Derived,
        value: Option<Desired>,
        foreign: bool,
        dirty: &mut Dirty,
    ) {
        let blocked = foreign && value.is_some();
        if blocked != (!self.foreign.is_empty() && self.foreign.contains(tenant, &key)) {
            if blocked {
                self.foreign.insert(tenant.clone(), key.clone());
            } else {
                self.foreign.remove(tenant, &key);
            }
            dirty.readiness.insert(tenant.clone());
        }
        let value = value.filter(|_| !foreign);
        let before = match &value {
            Some(value) => self.desired.insert(key.clone(), value.clone()),
            None => self.desired.remove(&key),
        };
        if before != value {
            dirty.emitted.push((key, value));
        }
    }
}

pub(super) fn place_of(tenant: &ObjectName, number: usize) -> (DerivedKind, String) {
    match number {
        0 => (DerivedKind::Gateway, tenant.name.to_string()),
        number => (DerivedKind::ListenerSet, names::overflow(&tenant.name, number)),
    }
}
