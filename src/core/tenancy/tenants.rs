//! The TenantGateways that were given, what is made of those that can be carried out, and how ready each is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::delta::{Derived, DerivedKind};
use super::derivations::Derivations;
use super::dirty::Dirty;
use super::render::{self, GatewayTemplate};
use super::{Claimant, Mode, Readiness, Settings, Source, TenantGateway, names};
use crate::model::{Hostname, ObjectName};
use crate::multimap::MultiMap;
use crate::wanted::Issuer;

/// A TenantGateway that can be carried out.
#[derive(PartialEq)]
pub(super) struct ResolvedTenant {
    pub(super) object: TenantGateway,
    pub(super) apex: Hostname,
    pub(super) mode: Mode,
    pub(super) source: Source,
    /// The issuer of its certificates, if not somebody brings them.
    pub(super) issuer: Option<Issuer>,
    pub(super) frame: GatewayTemplate,
}

/// All TenantGateways.
#[derive(Default)]
pub(super) struct Tenants {
    given: BTreeMap<ObjectName, TenantGateway>,
    /// The same by namespace, and by GatewayClass.
    in_namespace: MultiMap<Arc<str>, ObjectName>,
    by_class: MultiMap<String, ObjectName>,
    /// GatewayClasses that are ours.
    own_classes: BTreeSet<Arc<str>>,
    /// Those that can be carried out; one that cannot any more stays as it last could.
    resolved: BTreeMap<ObjectName, ResolvedTenant>,
    readiness: BTreeMap<ObjectName, Readiness>,
}

impl Tenants {
    /// Takes in a TenantGateway. Returns the one before.
    pub(super) fn set(
        &mut self,
        name: &ObjectName,
        new: Option<TenantGateway>,
        settings: &Settings,
    ) -> Option<TenantGateway> {
        let class = |tenant: &TenantGateway| render::class(tenant, settings).to_owned();
        if new.is_some() {
            self.in_namespace.insert(name.namespace.clone(), name.clone());
        } else {
            self.in_namespace.remove(&name.namespace, name);
        }
        let now = new.as_ref().map(class);
        let old = match new {
            Some(new) => self.given.insert(name.clone(), new),
            None => self.given.remove(name),
        };
        if let Some(old) = &old {
            self.by_class.remove(&class(old), name);
        }
        if let Some(now) = now {
            self.by_class.insert(now, name.clone());
        }
        old
    }

    /// Takes in whether a GatewayClass is ours. Whether that is new.
    pub(super) fn set_class(&mut self, class: &Arc<str>, ours: bool) -> bool {
        if ours { self.own_classes.insert(class.clone()) } else { self.own_classes.remove(class) }
    }

    /// Whether a GatewayClass is ours.
    pub(super) fn is_own_class(&self, class: &str) -> bool {
        self.own_classes.contains(class)
    }

    /// The TenantGateways of a GatewayClass.
    pub(super) fn of_class(&self, class: &str) -> impl Iterator<Item = &ObjectName> {
        self.by_class.of(class)
    }

    /// A TenantGateway as it is given.
    pub(super) fn given(&self, name: &ObjectName) -> Option<&TenantGateway> {
        self.given.get(name)
    }

    /// All that are given.
    pub(super) fn names(&self) -> impl Iterator<Item = &ObjectName> {
        self.given.keys()
    }

    /// A name as those share it who name the same TenantGateway.
    pub(super) fn shared(&self, name: ObjectName) -> ObjectName {
        self.given.get_key_value(&name).map_or(name, |(known, _)| known.clone())
    }

    /// The TenantGateways of a namespace, sorted.
    pub(super) fn in_namespace<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.in_namespace.of(namespace)
    }

    /// A TenantGateway that can be carried out, or could when it was last checked with success.
    pub(super) fn resolved(&self, name: &ObjectName) -> Option<&ResolvedTenant> {
        self.resolved.get(name)
    }

    /// All of these.
    pub(super) fn all_resolved(&self) -> impl Iterator<Item = &ResolvedTenant> {
        self.resolved.values()
    }

    /// Sets how a TenantGateway is carried out, or that it is gone.
    pub(super) fn resolve(&mut self, name: &ObjectName, resolved: Option<ResolvedTenant>) {
        match resolved {
            Some(resolved) => drop(self.resolved.insert(name.clone(), resolved)),
            None => drop(self.resolved.remove(name)),
        }
    }

    /// How ready a TenantGateway is.
    pub(super) fn readiness(&self, name: &ObjectName) -> Option<&Readiness> {
        self.readiness.get(name)
    }

    /// Sets how ready a TenantGateway is, and tells it if that is new.
    pub(super) fn set_readiness(&mut self, name: &ObjectName, new: Option<Readiness>, dirty: &mut Dirty) {
        if self.readiness.get(name) == new.as_ref() {
            return;
        }
        dirty.tell_readiness(name.clone(), new.clone());
        match new {
            Some(new) => drop(self.readiness.insert(name.clone(), new)),
            None => drop(self.readiness.remove(name)),
        }
    }

    /// Forgets why a TenantGateway could not be carried out; how ready it is now is told later.
    pub(super) fn resume(&mut self, name: &ObjectName) {
        self.readiness.remove(name);
    }

    /// Whether a controlling owner's UID is that of a TenantGateway as it is given now.
    pub(super) fn is_uid_of(&self, uid: &str, name: &ObjectName) -> bool {
        !uid.is_empty() && self.given.get(name).is_some_and(|given| given.uid == uid)
    }

    /// Whether a TenantGateway was found not to be fit to be carried out when it was last checked.
    pub(super) fn is_stopped(&self, name: &ObjectName) -> bool {
        self.readiness.get(name).is_some_and(|readiness| readiness.frozen)
    }

    /// Whether a TenantGateway cannot be carried out and never could since we began: what stands of it stays as it was
    /// found, and nothing comes to it.
    pub(super) fn is_as_found(&self, name: &ObjectName) -> bool {
        !self.resolved.contains_key(name) && self.given.contains_key(name)
    }

    /// Whether a TenantGateway's Gateway is carried out and somebody else's to serve.
    pub(super) fn is_beside(&self, name: &ObjectName) -> bool {
        self.resolved.get(name).is_some_and(|resolved| !resolved.frame.own)
    }

    /// Whether a TenantGateway's Gateway is of a class that we serve.
    pub(super) fn is_own(&self, name: &ObjectName) -> bool {
        self.resolved.get(name).is_some_and(|resolved| resolved.frame.own)
    }

    /// Whether a claimant's route reaches a listener outside of the Gateway.
    pub(super) fn reaches(&self, claimant: &Claimant, tenant: &ObjectName, shard: usize) -> Result<(), ObjectName> {
        let set = ObjectName::new(tenant.namespace.clone(), names::overflow(&tenant.name, shard));
        if shard == 0 || self.is_own(tenant) || claimant.names_set(&set) { Ok(()) } else { Err(set) }
    }

    /// Which of several TenantGateways of a namespace is carried out: the one that has its Gateway, else the oldest.
    pub(super) fn first_in(&self, namespace: &str, derivations: &Derivations) -> Option<&ObjectName> {
        let lives = |name: &ObjectName| {
            let there = derivations.existing(&Derived { kind: DerivedKind::Gateway, name: name.clone() });
            there.is_some_and(|there| self.is_uid_of(&there.owner, name))
        };
        let created = |name: &ObjectName| self.given.get(name).map_or(i64::MAX, |given| given.created);
        let all = self.in_namespace.of(namespace);
        all.min_by_key(|name| (!lives(name), created(name), !self.resolved.contains_key(*name), *name))
    }
}
