//! Derived objects: which are desired, which are there already, and which of those are somebody else's.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::delta::{Derived, DerivedKind, Existing};
use super::dirty::Dirty;
use super::tenants::Tenants;
use super::{Desired, TenantGateway};
use crate::model::ObjectName;
use crate::multimap::MultiMap;
use crate::wanted::WantedCertificate;

/// Desired objects, and existing ones.
#[derive(Default)]
pub(super) struct Derivations {
    existing: BTreeMap<Derived, Existing>,
    desired: BTreeMap<Derived, Desired>,
    /// Objects that would be desired, but for one of somebody else under the same name, by TenantGateway.
    foreign: MultiMap<ObjectName, Derived>,
    wanted: BTreeMap<ObjectName, WantedCertificate>,
}

impl Derivations {
    /// The object under a derived name.
    pub(super) fn existing(&self, key: &Derived) -> Option<&Existing> {
        self.existing.get(key)
    }

    /// Takes in what is there under a derived name.
    pub(super) fn observe(&mut self, key: Derived, new: Option<Existing>) {
        match new {
            Some(new) => drop(self.existing.insert(key, new)),
            None => drop(self.existing.remove(&key)),
        }
    }

    /// A desired object.
    pub(super) fn desired(&self, key: &Derived) -> Option<&Desired> {
        self.desired.get(key)
    }

    /// All desired objects.
    pub(super) fn all(&self) -> &BTreeMap<Derived, Desired> {
        &self.desired
    }

    /// Every certificate that we are to get, by Secret.
    pub(super) fn wanted(&self) -> &BTreeMap<ObjectName, WantedCertificate> {
        &self.wanted
    }

    /// Whether an object that would be desired is kept off by one of somebody else.
    pub(super) fn is_blocked(&self, tenant: &ObjectName, key: &Derived) -> bool {
        !self.foreign.is_empty() && self.foreign.contains(tenant, key)
    }

    /// Whether that is so of any object.
    pub(super) fn any_blocked(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// The objects of a TenantGateway that are kept off so.
    pub(super) fn blocked(&self, tenant: &ObjectName) -> impl Iterator<Item = &Derived> {
        self.foreign.of(tenant)
    }

    /// Whether an object is there under a derived name of a TenantGateway and belongs to somebody else.
    pub(super) fn is_foreign(&self, given: Option<&TenantGateway>, key: &Derived) -> bool {
        let there = self.existing.get(key);
        there.is_some_and(|there| there.owner.is_empty() || given.is_some_and(|given| there.owner != given.uid))
    }

    /// Wants an object, or not any more. One of somebody else under that name is left alone and told.
    pub(super) fn emit(
        &mut self,
        tenants: &Tenants,
        tenant: &ObjectName,
        (kind, name): (DerivedKind, impl Into<Arc<str>>),
        value: Option<Desired>,
        dirty: &mut Dirty,
    ) {
        let key = Derived { kind, name: ObjectName::new(tenant.namespace.clone(), name) };
        let foreign = self.is_foreign(tenants.given(tenant), &key);
        self.emit_as(tenant, key, value, foreign, dirty);
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
        if blocked != self.is_blocked(tenant, &key) {
            self.foreign.set(tenant, &key, blocked);
            dirty.readiness.insert(tenant.clone());
        }
        let value = value.filter(|_| !foreign);
        let before = match &value {
            Some(value) => self.desired.insert(key.clone(), value.clone()),
            None => self.desired.remove(&key),
        };
        if before != value {
            dirty.hand_out(key, value);
        }
    }

    /// Wants a certificate, or not any more.
    pub(super) fn want(&mut self, secret: ObjectName, want: Option<WantedCertificate>, dirty: &mut Dirty) {
        if self.wanted.get(&secret) == want.as_ref() {
            return;
        }
        dirty.want_certificate(secret.clone(), want.clone());
        match want {
            Some(want) => drop(self.wanted.insert(secret, want)),
            None => drop(self.wanted.remove(&secret)),
        }
    }
}
