//! The TenantGateways as given, those that can be carried out, and their readiness.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::derivations::Derivations;
use super::dirty::Dirty;
use crate::delta::{Derived, DerivedKind, Existing};
use crate::rule::names;
use crate::rule::render::{self, GatewayTemplate};
use crate::{Claimant, Mode, Readiness, Settings, Source, TenantGateway};
use gatewright_objects::model::{Hostname, ObjectName};
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::wanted::Issuer;

/// A TenantGateway that can be carried out.
#[derive(PartialEq)]
pub(crate) struct ResolvedTenant {
    pub(crate) object: TenantGateway,
    pub(crate) apex: Hostname,
    pub(crate) mode: Mode,
    pub(crate) source: Source,
    /// The issuer of its certificates; `None` if the user provides them.
    pub(crate) issuer: Option<Issuer>,
    pub(crate) template: GatewayTemplate,
}

/// All TenantGateways.
#[derive(Default)]
pub(crate) struct Tenants {
    given: BTreeMap<ObjectName, TenantGateway>,
    /// The keys of `given` by namespace, and by GatewayClass.
    in_namespace: MultiMap<Arc<str>, ObjectName>,
    by_class: MultiMap<String, ObjectName>,
    /// GatewayClasses that are ours.
    own_classes: BTreeSet<Arc<str>>,
    /// Those that can be carried out; one that cannot any more keeps its last valid state.
    resolved: BTreeMap<ObjectName, ResolvedTenant>,
    readiness: BTreeMap<ObjectName, Readiness>,
}

impl Tenants {
    /// Sets or removes a TenantGateway. Returns the former one.
    pub(crate) fn set(
        &mut self,
        name: &ObjectName,
        new: Option<TenantGateway>,
        settings: &Settings,
    ) -> Option<TenantGateway> {
        let class = |tenant: &TenantGateway| render::class(tenant, settings).to_owned();
        if new.is_some() {
            self.in_namespace
                .insert(name.namespace.clone(), name.clone());
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

    /// Sets whether a GatewayClass is ours. Returns whether that changed.
    pub(crate) fn set_class(&mut self, class: &Arc<str>, ours: bool) -> bool {
        if ours {
            self.own_classes.insert(class.clone())
        } else {
            self.own_classes.remove(class)
        }
    }

    /// True if a GatewayClass is ours.
    pub(crate) fn is_own_class(&self, class: &str) -> bool {
        self.own_classes.contains(class)
    }

    /// The TenantGateways of a GatewayClass.
    pub(crate) fn of_class(&self, class: &str) -> impl Iterator<Item = &ObjectName> {
        self.by_class.of(class)
    }

    /// A TenantGateway as given.
    pub(crate) fn given(&self, name: &ObjectName) -> Option<&TenantGateway> {
        self.given.get(name)
    }

    /// The names of all TenantGateways.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ObjectName> {
        self.given.keys()
    }

    /// The shared copy of a TenantGateway's name, to save memory.
    pub(crate) fn shared(&self, name: ObjectName) -> ObjectName {
        self.given
            .get_key_value(&name)
            .map_or(name, |(known, _)| known.clone())
    }

    /// The TenantGateways of a namespace, sorted.
    pub(crate) fn in_namespace<'a>(
        &'a self,
        namespace: &str,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.in_namespace.of(namespace)
    }

    /// A TenantGateway that can be carried out, or its last valid state.
    pub(crate) fn resolved(&self, name: &ObjectName) -> Option<&ResolvedTenant> {
        self.resolved.get(name)
    }

    /// All TenantGateways with a valid state.
    pub(crate) fn all_resolved(&self) -> impl Iterator<Item = &ResolvedTenant> {
        self.resolved.values()
    }

    /// Sets the valid state of a TenantGateway, or removes it.
    pub(crate) fn resolve(&mut self, name: &ObjectName, resolved: Option<ResolvedTenant>) {
        match resolved {
            Some(resolved) => {
                self.resolved.insert(name.clone(), resolved);
            }
            None => {
                self.resolved.remove(name);
            }
        }
    }

    /// The readiness of a TenantGateway.
    pub(crate) fn readiness(&self, name: &ObjectName) -> Option<&Readiness> {
        self.readiness.get(name)
    }

    /// Sets the readiness of a TenantGateway, and reports it if it changed.
    pub(crate) fn set_readiness(
        &mut self,
        name: &ObjectName,
        new: Option<Readiness>,
        dirty: &mut Dirty,
    ) {
        if self.readiness.get(name) == new.as_ref() {
            return;
        }
        dirty.report_readiness(name.clone(), new.clone());
        match new {
            Some(new) => {
                self.readiness.insert(name.clone(), new);
            }
            None => {
                self.readiness.remove(name);
            }
        }
    }

    /// Removes the reason why a TenantGateway could not be carried out; its readiness is computed
    /// later.
    pub(crate) fn resume(&mut self, name: &ObjectName) {
        self.readiness.remove(name);
    }

    /// True if a UID is that of the present TenantGateway with this name.
    pub(crate) fn is_uid_of(&self, uid: &str, name: &ObjectName) -> bool {
        !uid.is_empty() && self.given.get(name).is_some_and(|given| given.uid == uid)
    }

    /// True if an existing object with a derived name is of a TenantGateway, or may have been.
    pub(crate) fn has(&self, there: &Existing, name: &ObjectName) -> bool {
        there.is_orphan || self.is_uid_of(&there.owner, name)
    }

    /// True if a TenantGateway could not be carried out at its last evaluation.
    pub(crate) fn is_frozen(&self, name: &ObjectName) -> bool {
        self.readiness
            .get(name)
            .is_some_and(|readiness| readiness.frozen)
    }

    /// True if a TenantGateway could never be carried out since the program started: its existing
    /// objects stay as they are, and it gets no new hostnames.
    pub(crate) fn is_unmanaged(&self, name: &ObjectName) -> bool {
        !self.resolved.contains_key(name) && self.given.contains_key(name)
    }

    /// True if a TenantGateway is carried out and another data plane serves its Gateway.
    pub(crate) fn has_other_data_plane(&self, name: &ObjectName) -> bool {
        self.resolved
            .get(name)
            .is_some_and(|resolved| !resolved.template.own)
    }

    /// True if a TenantGateway's Gateway has a class that we serve.
    pub(crate) fn is_own(&self, name: &ObjectName) -> bool {
        self.resolved
            .get(name)
            .is_some_and(|resolved| resolved.template.own)
    }

    /// Returns whether a claimant's route attaches to the listeners of a shard; if not, the
    /// ListenerSet that it must name.
    pub(crate) fn reaches(
        &self,
        claimant: &Claimant,
        tenant: &ObjectName,
        shard: usize,
    ) -> Result<(), ObjectName> {
        let set = ObjectName::new(
            tenant.namespace.clone(),
            names::overflow(&tenant.name, shard),
        );
        if shard == 0 || self.is_own(tenant) || claimant.names_set(&set) {
            Ok(())
        } else {
            Err(set)
        }
    }

    /// The TenantGateway of a namespace that is carried out, of several: the one with an existing
    /// Gateway, else the oldest.
    pub(crate) fn first_in(
        &self,
        namespace: &str,
        derivations: &Derivations,
    ) -> Option<&ObjectName> {
        let all = self.in_namespace.of(namespace);
        all.min_by_key(|name| {
            (
                !self.lives(name, derivations),
                self.given.get(name).map_or(i64::MAX, |given| given.created),
                !self.resolved.contains_key(*name),
                *name,
            )
        })
    }

    fn lives(&self, name: &ObjectName, derivations: &Derivations) -> bool {
        let there = derivations.existing(&Derived {
            kind: DerivedKind::Gateway,
            name: name.clone(),
        });
        there.is_some_and(|there| self.has(there, name))
    }
}
