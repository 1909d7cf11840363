//! Intake of changes: updates the inputs, and marks what depends on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::delta::{Change, Derived, DerivedKind, Fact};
use super::super::rule::names;
use super::super::rule::provided_secret::secret_of;
use super::super::stage::observe::touch_certified;
use super::super::state::dirty::Dirty;
use super::super::{ClaimKey, Claimant, Namespace, TenantGateway};
use super::Tenancy;
use gatewright_objects::model::ObjectName;

impl Tenancy {
    /// Applies one change to the inputs and marks what depends on it.
    pub(super) fn take_in(&mut self, change: Change, dirty: &mut Dirty) {
        match change {
            Change::Secret(name, provided) => {
                if self.secrets.set(&name, provided) {
                    dirty.readiness.extend(self.secrets.users(&name).cloned());
                }
            }
            Change::Fact(Fact::Keyed(name, ours)) => self.take_key(name, ours, dirty),
            Change::Fact(Fact::Recorded(what, owner)) => self.records.take(what, owner, dirty),
            Change::Fact(Fact::Time(now)) => self.records.set_time(now, dirty),
            Change::Fact(Fact::ListenerSets(can)) => {
                self.settings.listener_sets = can;
                // Hosts that wait for room may get a place now.
                let waiting = self
                    .tenants
                    .names()
                    .flat_map(|tenant| self.places.waiting_for_room(tenant));
                dirty.hosts.extend(
                    waiting.filter_map(|host| self.hosts.find(&host.tenant, &host.hostname)),
                );
            }
            Change::Class(class, ours) => {
                if self.tenants.set_class(&class, ours) {
                    dirty.tenants.extend(self.tenants.of_class(&class).cloned());
                }
            }
            Change::TenantGateway(name, new) => self.take_tenant(name, new, dirty),
            Change::Namespace(name, new) => self.take_namespace(name, new, dirty),
            Change::Claimant(key, new) => self.take_claimant(&key, new, dirty),
            Change::Existing(key, new) => dirty.observe(key, new),
        }
    }

    fn take_tenant(&mut self, name: ObjectName, new: Option<TenantGateway>, dirty: &mut Dirty) {
        if self.tenants.given(&name) == new.as_ref() {
            return;
        }
        let now = new.as_ref().and_then(secret_of);
        let old = self.tenants.set(&name, new, &self.settings);
        self.secrets
            .refer(&name, old.as_ref().and_then(secret_of), now);
        dirty
            .tenants
            .extend(self.tenants.in_namespace(&name.namespace).cloned());
        dirty.tenants.insert(name);
    }

    fn take_namespace(&mut self, name: Arc<str>, new: Option<Namespace>, dirty: &mut Dirty) {
        if self.namespaces.get(&name) == new.as_ref() {
            return;
        }
        self.namespaces.set(&name, new);
        let none = BTreeMap::new();
        let labels = self
            .namespaces
            .get(&name)
            .map_or(&none, |space| &space.labels);
        self.records.allow(&name, labels, &self.settings, dirty);
        dirty
            .tenants
            .extend(self.tenants.in_namespace(&name).cloned());
        dirty.claims.extend(self.claims.within(&name));
        // Its apex is on the wildcard certificates of the TenantGateways that it inherits from.
        if let Some(gateway) = self.namespaces.gateway_of(&name) {
            dirty.tenants.extend(
                self.tenants
                    .in_namespace(&gateway)
                    .filter(|t| self.tenants.resolved(t).is_some_and(|v| !v.mode.per_host()))
                    .cloned(),
            );
        }
        dirty.namespaces.insert(name);
    }

    fn take_claimant(&mut self, key: &ClaimKey, new: Option<Claimant>, dirty: &mut Dirty) {
        let old = self.claims.claimant(key);
        if old == new.as_ref() {
            return;
        }
        if let Some(old) = old {
            self.records.touch(&old.hostnames, dirty);
        }
        let tenants = new.as_ref().map(Claimant::tenants).unwrap_or_default();
        let tenants = tenants
            .into_iter()
            .map(|tenant| self.tenants.shared(tenant))
            .collect();
        dirty.claims.extend(self.claims.set(key, new, tenants));
    }

    /// Sets whether the key in a Secret is ours: cert-manager's Certificate for it then has the
    /// parameters of that key, which prevents another issuance.
    fn take_key(&mut self, name: ObjectName, ours: bool, dirty: &mut Dirty) {
        if self.secrets.set_key(&name, ours) {
            dirty.tenants.extend(
                self.tenants
                    .in_namespace(&name.namespace)
                    .filter(|tenant| *name.name == *names::wildcard_certificate(&tenant.name))
                    .cloned(),
            );
            let certificate = Derived {
                kind: DerivedKind::Certificate,
                name,
            };
            touch_certified(&self.tenants, &self.places, &certificate, dirty);
        }
    }
}
