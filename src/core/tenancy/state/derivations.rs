//! Derived objects: the desired ones, the existing ones, and which of the latter are not ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dirty::Dirty;
use super::tenants::Tenants;
use crate::delta::{Derived, DerivedKind, Existing};
use crate::{Desired, TenantGateway};
use gatewright_objects::model::ObjectName;
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::wanted::WantedCertificate;

/// Desired and existing objects.
#[derive(Default)]
pub(crate) struct Derivations {
    existing: BTreeMap<Derived, Existing>,
    desired: BTreeMap<Derived, Desired>,
    /// Derived names, by TenantGateway, that an object which is not ours has, so that none of ours
    /// is desired.
    foreign: MultiMap<ObjectName, Derived>,
    wanted: BTreeMap<ObjectName, WantedCertificate>,
}

impl Derivations {
    /// The existing object with a derived name.
    pub(crate) fn existing(&self, key: &Derived) -> Option<&Existing> {
        self.existing.get(key)
    }

    /// Sets the existing object with a derived name.
    pub(crate) fn observe(&mut self, key: Derived, new: Option<Existing>) {
        match new {
            Some(new) => {
                self.existing.insert(key, new);
            }
            None => {
                self.existing.remove(&key);
            }
        }
    }

    /// A desired object.
    pub(crate) fn desired(&self, key: &Derived) -> Option<&Desired> {
        self.desired.get(key)
    }

    /// All desired objects.
    pub(crate) fn all(&self) -> &BTreeMap<Derived, Desired> {
        &self.desired
    }

    /// All certificates for us to issue, by Secret.
    pub(crate) fn wanted(&self) -> &BTreeMap<ObjectName, WantedCertificate> {
        &self.wanted
    }

    /// True if a derived object is blocked by one that is not ours under the same name.
    pub(crate) fn is_blocked(&self, tenant: &ObjectName, key: &Derived) -> bool {
        !self.foreign.is_empty() && self.foreign.contains(tenant, key)
    }

    /// True if any derived object is blocked.
    pub(crate) fn any_blocked(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// The blocked objects of a TenantGateway.
    pub(crate) fn blocked(&self, tenant: &ObjectName) -> impl Iterator<Item = &Derived> {
        self.foreign.of(tenant)
    }

    /// True if the existing object under a derived name of a TenantGateway is not ours.
    pub(crate) fn is_foreign(&self, given: Option<&TenantGateway>, key: &Derived) -> bool {
        let there = self.existing.get(key);
        there.is_some_and(|there| {
            !there.is_orphan
                && (there.owner.is_empty() || given.is_some_and(|given| there.owner != given.uid))
        })
    }

    /// Sets or removes a desired object. An existing one under that name that is not ours is left
    /// alone and reported.
    pub(crate) fn emit(
        &mut self,
        tenants: &Tenants,
        tenant: &ObjectName,
        (kind, name): (DerivedKind, impl Into<Arc<str>>),
        value: Option<Desired>,
        dirty: &mut Dirty,
    ) {
        let key = Derived {
            kind,
            name: ObjectName::new(tenant.namespace.clone(), name),
        };
        let foreign = self.is_foreign(tenants.given(tenant), &key);
        self.emit_as(tenant, key, value, foreign, dirty);
    }

    /// Like [`Self::emit`], if it is known whether the existing object is not ours.
    pub(crate) fn emit_as(
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
            dirty.emit(key, value);
        }
    }

    /// Sets or removes a wanted certificate.
    pub(crate) fn want(
        &mut self,
        secret: ObjectName,
        want: Option<WantedCertificate>,
        dirty: &mut Dirty,
    ) {
        if self.wanted.get(&secret) == want.as_ref() {
            return;
        }
        dirty.want_certificate(secret.clone(), want.clone());
        match want {
            Some(want) => {
                self.wanted.insert(secret, want);
            }
            None => {
                self.wanted.remove(&secret);
            }
        }
    }
}
