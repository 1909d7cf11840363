//! Queries of the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::delta::{Derived, DerivedKind};
use super::super::explain::Explaining;
use super::super::rule::names;
use super::super::stage::observe::tenant_of;
use super::super::stage::status::Statuses;
use super::super::{
    ClaimKey, Desired, OwnershipExplanation, ParentState, Patch, Readiness, TenantStatus, Verdict,
};
use super::{Counters, Tenancy};
use gatewright_objects::inputs::ParentRef;
use gatewright_objects::model::{Hostname, ObjectName};
use gatewright_objects::ownership::Ledger;
use gatewright_objects::wanted::WantedCertificate;

impl Tenancy {
    /// The amount of work done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// All desired objects.
    pub fn objects(&self) -> &BTreeMap<Derived, Desired> {
        self.derivations.all()
    }

    /// All certificates for us to issue, by Secret.
    pub fn wants(&self) -> &BTreeMap<ObjectName, WantedCertificate> {
        self.derivations.wanted()
    }

    /// All TenantGateways, valid or not.
    pub fn tenants(&self) -> impl Iterator<Item = &ObjectName> {
        self.tenants.names()
    }

    /// The last known `metadata.generation` of a TenantGateway.
    pub fn generation(&self, tenant: &ObjectName) -> Option<i64> {
        self.tenants.given(tenant).map(|given| given.generation)
    }

    /// The readiness of a TenantGateway.
    pub fn readiness(&self, tenant: &ObjectName) -> Option<&Readiness> {
        self.tenants.readiness(tenant)
    }

    /// The status of a TenantGateway. `look` returns the state of one of its objects by that
    /// object's status, if it has one.
    pub fn status(
        &self,
        tenant: &ObjectName,
        look: &dyn Fn(&Derived) -> Option<Arc<ParentState>>,
    ) -> Option<TenantStatus> {
        let Self {
            tenants,
            places,
            derivations,
            ..
        } = self;
        Statuses {
            tenants,
            places,
            derivations,
        }
        .status(tenant, look)
    }

    /// Explanations of a hostname, one for each TenantGateway whose apex it is below, the deepest
    /// apex first.
    pub fn explain(&self, host: &Hostname) -> Vec<OwnershipExplanation> {
        let Self {
            tenants,
            hosts,
            claims,
            ..
        } = self;
        Explaining {
            tenants,
            hosts,
            claimants: claims,
        }
        .explain(host)
    }

    /// The owner of a hostname of a TenantGateway.
    pub fn owner(&self, tenant: &ObjectName, hostname: &Hostname) -> Option<ClaimKey> {
        self.hosts
            .owner(tenant, hostname)
            .map(|priority| priority.rank.key())
    }

    /// The claimants that refer to a TenantGateway as parent, in no order.
    pub fn claimants_of(&self, tenant: &ObjectName) -> impl Iterator<Item = &ClaimKey> {
        self.claims.claimants_of(tenant)
    }

    /// The parentRefs by which a claimant refers to a TenantGateway.
    pub fn parents(&self, claim: &ClaimKey, tenant: &ObjectName) -> Vec<&ParentRef> {
        self.claims
            .claimant(claim)
            .into_iter()
            .flat_map(|claimant| claimant.naming(tenant))
            .collect()
    }

    /// All verdicts, by claimant.
    pub fn verdicts(&self) -> impl Iterator<Item = (&ClaimKey, &ObjectName, &Verdict)> {
        let verdicts = self.claims.iter().filter_map(|claim| {
            let (key, tenant) = claim.names();
            Some((key, tenant, claim.verdict()?))
        });
        let mut verdicts: Vec<_> = verdicts.collect();
        verdicts.sort_by_key(|(claim, tenant, _)| (*claim, *tenant));
        verdicts.into_iter()
    }

    /// The verdicts on one claimant, for each TenantGateway that it refers to, in no order.
    pub fn verdicts_of(&self, claim: &ClaimKey) -> impl Iterator<Item = (&ObjectName, &Verdict)> {
        self.claims.verdicts_of(claim)
    }

    /// The verdict on a claimant under a TenantGateway.
    pub fn verdict(&self, claim: &ClaimKey, tenant: &ObjectName) -> Option<&Verdict> {
        self.claims.verdict(claim, tenant)
    }

    /// The patch of a namespace's label.
    pub fn patch(&self, namespace: &Arc<str>) -> Option<&Patch> {
        self.namespaces.patch(namespace)
    }

    /// All namespaces with a patch of their label or annotation.
    pub fn patches(&self) -> impl Iterator<Item = (&Arc<str>, &Patch)> {
        self.namespaces.patches()
    }

    /// The TenantGateways that attach a namespace; the first one owns its label.
    pub fn attaching(&self, namespace: &Arc<str>) -> impl Iterator<Item = &ObjectName> {
        self.namespaces.expecting(namespace)
    }

    /// Namespaces whose label names a namespace without a TenantGateway, with that namespace.
    pub fn dangling(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.namespaces
            .members()
            .filter(|(_, gateway)| self.tenants.in_namespace(gateway).next().is_none())
    }

    /// True if a TenantGateway has a Gateway that we made: now, or in an earlier run while it could
    /// be carried out.
    pub fn governs(&self, tenant: &ObjectName) -> bool {
        self.is_made(
            tenant,
            &Derived {
                kind: DerivedKind::Gateway,
                name: tenant.clone(),
            },
        )
    }

    /// True if we made an object for a TenantGateway, now or in an earlier run.
    pub fn is_made(&self, tenant: &ObjectName, derived: &Derived) -> bool {
        let there = || self.derivations.existing(derived);
        let found = || there().is_some_and(|there| self.tenants.has(there, tenant));
        self.derivations.desired(derived).is_some() || self.tenants.is_unmanaged(tenant) && found()
    }

    /// True if a TenantGateway's Gateway has a class that we serve: `Accepted` is then among the
    /// conditions of the Gateway's own controller.
    pub fn is_own(&self, tenant: &ObjectName) -> bool {
        self.tenants.is_own(tenant)
    }

    /// True if the TenantGateway of an object, whose controlling owner has this UID, is carried
    /// out: if it is not desired then, it is to be deleted, rather than undecided.
    pub fn decides(&self, derived: &Derived, uid: &str) -> bool {
        let decided = |name: &ObjectName| {
            let frozen = self
                .tenants
                .readiness(name)
                .is_none_or(|readiness| readiness.frozen);
            !frozen && self.tenants.resolved(name).is_some()
        };
        if let Some((namespace, _)) = names::challenges_of(&derived.name.name) {
            let here = self
                .settings
                .solver
                .as_ref()
                .is_some_and(|to| to.namespace == derived.name.namespace);
            let of = self.namespaces.get(namespace).filter(|_| here);
            let there = of.is_some_and(|there| !uid.is_empty() && there.uid == uid);
            // It belongs to the Namespace, and is to be deleted when the TenantGateway is.
            return there && self.tenant_of(derived).is_none_or(decided);
        }
        self.tenants
            .in_namespace(&derived.name.namespace)
            .find(|name| self.tenants.is_uid_of(uid, name))
            .is_some_and(decided)
    }

    /// The TenantGateway that an object with a derived name would belong to.
    pub fn tenant_of(&self, derived: &Derived) -> Option<&ObjectName> {
        tenant_of(&self.tenants, derived)
    }

    /// True if a TenantGateway refers to a Secret.
    pub fn refers_to(&self, secret: &ObjectName) -> bool {
        self.secrets.refers_to(secret)
    }

    /// The TenantGateways at which a host may be claimed and whose challenges a route forwards to
    /// us.
    pub fn solved(&self, host: &Hostname) -> Vec<&ObjectName> {
        self.hosts
            .named(host)
            .map(|id| &self.hosts[id].host().tenant)
            .filter(|tenant| {
                self.tenants
                    .resolved(tenant)
                    .is_some_and(|valid| valid.template.solving.is_some())
            })
            .collect()
    }

    /// The record of hostnames among tenants, and its proposals.
    pub fn ledger(&self) -> &Ledger {
        self.records.ledger()
    }

    /// The namespace whose Gateway a namespace may attach to.
    #[cfg(test)]
    pub(in super::super) fn gateway_of(&self, namespace: &str) -> Option<Arc<str>> {
        self.namespaces.gateway_of(namespace)
    }

    /// All hosts.
    #[cfg(test)]
    pub(in super::super) fn hosts(&self) -> &super::super::state::hosts::Hosts {
        &self.hosts
    }
}
