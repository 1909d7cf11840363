//! Derived objects that do not depend on claims: redirect, Issuer, the wildcard certificate and its
//! child apexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::evaluate::touch_all;
use super::placement::Placement;
use super::solver::Solvers;
use crate::delta::DerivedKind;
use crate::rule::claim::within;
use crate::rule::host::Host;
use crate::rule::names;
use crate::rule::render;
use crate::state::children::{CHILDREN, ChildApexes};
use crate::state::claims::Claims;
use crate::state::derivations::Derivations;
use crate::state::dirty::Dirty;
use crate::state::namespaces::Namespaces;
use crate::state::provided_secrets::ProvidedSecrets;
use crate::state::tenants::Tenants;
use crate::{Desired, Settings, Source};
use gatewright_objects::model::{Hostname, ObjectName};
use gatewright_objects::wanted::{Issuer, WantedCertificate};

/// The states that the stage reads and writes.
pub(crate) struct CarryingOut<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) tenants: &'a Tenants,
    pub(crate) namespaces: &'a Namespaces,
    pub(crate) claims: &'a Claims,
    pub(crate) secrets: &'a ProvidedSecrets,
    pub(crate) children: &'a mut ChildApexes,
    pub(crate) placement: Placement<'a>,
    pub(crate) derivations: &'a mut Derivations,
}

impl CarryingOut<'_> {
    /// Updates the objects of a TenantGateway that do not depend on claims.
    pub(crate) fn carry_out(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        if self.tenants.given(name).is_some() && self.tenants.is_frozen(name) {
            return;
        }
        dirty.readiness.insert(name.clone());
        dirty
            .shards
            .extend(self.placement.places.shards_of(name).cloned());
        dirty.shards.insert((name.clone(), 0));
        self.update_child_apexes(name, dirty);
        self.update_apex_homes(name, dirty);
        self.placement.make_room(name, dirty);
        self.emit_fixed_objects(name, dirty);
    }

    /// Updates redirect, Issuer and wildcard certificate.
    fn emit_fixed_objects(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        let secret = names::wildcard_certificate(&name.name);
        let key = self
            .secrets
            .key_in(ObjectName::new(name.namespace.clone(), secret.as_str()));
        let mut redirect = None;
        let mut issuer = None;
        let mut certificate = None;
        let mut want = None;
        if let Some(valid) = self.tenants.resolved(name) {
            let owner = &valid.template.owner;
            let plain = valid.template.plain();
            redirect = Some(Desired::redirect(owner, plain));
            let ours = valid.source != Source::CertManager;
            let from = valid.issuer.as_ref();
            if let Some(Issuer::Acme(acme)) = from.filter(|_| !ours) {
                issuer = Some(Desired::issuer(owner, plain, acme));
            }
            if let Some(from) = from.filter(|_| !valid.mode.per_host()) {
                let children: BTreeSet<&str> = self
                    .children
                    .of(name)
                    .filter_map(|h| h.hostname.as_str().strip_prefix("*."))
                    .collect();
                let wanted = render::wildcard_names(&valid.object, children.into_iter());
                if ours {
                    want = Some(want_for(name, &secret, &wanted, from.clone()));
                } else {
                    certificate = Some(Desired::wildcard(owner, &secret, wanted, key));
                }
            }
        }
        for (kind, own, value) in [
            (
                DerivedKind::HttpRoute,
                names::redirect(&name.name),
                redirect,
            ),
            (DerivedKind::Issuer, names::issuer(&name.name), issuer),
            (DerivedKind::Certificate, secret.clone(), certificate),
        ] {
            self.derivations
                .emit(self.tenants, name, (kind, own), value, dirty);
        }
        self.derivations
            .want(ObjectName::new(name.namespace.clone(), secret), want, dirty);
        let solvers = Solvers {
            settings: self.settings,
            tenants: self.tenants,
            derivations: &mut *self.derivations,
        };
        solvers.solve(name, dirty);
    }

    /// Computes the child apexes of a TenantGateway in wildcard mode.
    fn update_child_apexes(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        let there: BTreeSet<Host> = self.children.of(name).cloned().collect();
        let mut wanted = BTreeSet::new();
        if let Some(valid) = self.tenants.resolved(name).filter(|v| !v.mode.per_host()) {
            for child in self
                .namespaces
                .children(&name.namespace)
                .filter(|ns| **ns != name.namespace)
            {
                let host = self.namespaces.host_label(child);
                let wildcard = host.and_then(|host| Hostname::parse(&format!("*.{host}")).ok());
                wanted.extend(
                    wildcard
                        .filter(|w| {
                            within(w, valid.apex.as_str())
                                && w.as_str()[2..] != *valid.apex.as_str()
                        })
                        .map(|wildcard| Host::new(name, &wildcard)),
                );
            }
        }
        // A child apex with a listener stays on the certificate; after a restart the existing
        // objects show which have one.
        let (mut wanted, mut beyond): (BTreeSet<Host>, BTreeSet<Host>) =
            wanted.into_iter().partition(|host| {
                self.placement
                    .hosts
                    .get(name, &host.hostname)
                    .is_some_and(|held| held.shard().is_some())
            });
        while wanted.len() > CHILDREN {
            beyond.extend(wanted.pop_last());
        }
        while wanted.len() < CHILDREN
            && let Some(next) = beyond.pop_first()
        {
            wanted.insert(next);
        }
        if there != wanted && (self.children.beyond(name).next().is_some() || !beyond.is_empty()) {
            // Other child apexes may get or lose room on the certificate.
            touch_all(self.claims, self.placement.hosts, name, dirty);
        }
        for host in there.symmetric_difference(&wanted) {
            dirty
                .hosts
                .insert(self.placement.hosts.hold(&host.tenant, &host.hostname));
        }
        self.children.set(name, wanted, beyond);
    }

    /// Computes the namespace of each child apex of a TenantGateway in wildcard mode; of several
    /// namespaces the first.
    fn update_apex_homes(&mut self, tenant: &ObjectName, dirty: &mut Dirty) {
        let mut wanted: BTreeMap<Host, Arc<str>> = BTreeMap::new();
        if self.tenants.has_other_data_plane(tenant) {
            for child in self.namespaces.children(&tenant.namespace) {
                let apex = self.namespaces.host_label(child);
                let Some(wildcard) =
                    apex.and_then(|apex| Hostname::parse(&format!("*.{apex}")).ok())
                else {
                    continue;
                };
                let host = Host::new(tenant, &wildcard);
                if self.children.contains(&host)
                    && wanted.get(&host).is_none_or(|first| child < first)
                {
                    wanted.insert(host, child.clone());
                }
            }
        }
        let there = self.children.homes_of(tenant);
        let there: BTreeMap<Host, Arc<str>> = there
            .map(|(host, home)| (host.clone(), home.clone()))
            .collect();
        for host in there.keys().filter(|host| !wanted.contains_key(*host)) {
            self.children.set_home(host.clone(), None);
            dirty
                .hosts
                .insert(self.placement.hosts.hold(&host.tenant, &host.hostname));
        }
        for (host, home) in wanted
            .into_iter()
            .filter(|(host, home)| there.get(host) != Some(home))
        {
            dirty
                .hosts
                .insert(self.placement.hosts.hold(&host.tenant, &host.hostname));
            self.children.set_home(host, Some(home));
        }
    }
}

fn want_for(
    tenant: &ObjectName,
    secret: &str,
    names: &[String],
    issuer: Issuer,
) -> WantedCertificate {
    let names = names
        .iter()
        .filter_map(|name| Hostname::parse(name).ok())
        .collect();
    WantedCertificate {
        secret: ObjectName::new(tenant.namespace.clone(), secret),
        names,
        issuer,
    }
}
