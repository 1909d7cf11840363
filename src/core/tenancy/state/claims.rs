//! Claimants, and their claims on TenantGateways.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use slab::Slab;
use smallvec::SmallVec;

use super::dirty::Dirty;
use super::groups::{Groups, Map};
use crate::rule::claim::ClaimId;
use crate::rule::host::HostId;
use crate::{ClaimKey, Claimant, Verdict};
use gatewright_objects::model::{Hostname, ObjectName, Reason};

/// A reason why a claim is refused, as a condition's reason and message.
pub(crate) type Finding = (Reason, String);

/// A claim: the hostnames that a claimant claims of one TenantGateway.
pub(crate) struct Claim {
    key: ClaimKey,
    tenant: ObjectName,
    /// False once the parentRef is removed; the claim stays until cleanup.
    named: bool,
    /// The hostnames that the claimant is entitled to claim.
    bids: SmallVec<[HostId; 2]>,
    /// Findings about the other hostnames.
    refused: Vec<Finding>,
    /// The reported verdict.
    verdict: Option<Verdict>,
}

impl Claim {
    /// The claimant, and the TenantGateway.
    pub(crate) fn names(&self) -> (&ClaimKey, &ObjectName) {
        (&self.key, &self.tenant)
    }

    /// The hostnames that the claimant is entitled to claim.
    pub(crate) fn bids(&self) -> &[HostId] {
        &self.bids
    }

    /// Findings about the other hostnames.
    pub(crate) fn refused(&self) -> &[Finding] {
        &self.refused
    }

    /// Sets the bids, and returns the former ones; `refused` are findings about other hostnames.
    pub(crate) fn ask(
        &mut self,
        bids: SmallVec<[HostId; 2]>,
        refused: Vec<Finding>,
    ) -> SmallVec<[HostId; 2]> {
        self.refused = refused;
        std::mem::replace(&mut self.bids, bids)
    }

    /// The reported verdict.
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Sets the verdict, and reports it if it changed.
    pub(crate) fn judge(&mut self, verdict: Option<Verdict>, dirty: &mut Dirty) {
        if self.verdict != verdict {
            dirty.report_verdict((self.key.clone(), self.tenant.clone()), verdict.clone());
            self.verdict = verdict;
        }
    }
}

/// A claimant, `None` once it is deleted, and its claims until their cleanup.
#[derive(Default)]
struct Claiming {
    claimant: Option<Claimant>,
    claims: SmallVec<[ClaimId; 2]>,
}

/// All claimants and claims.
#[derive(Default)]
pub(crate) struct Claims {
    all: Slab<Claim>,
    by_key: Map<ClaimKey, Claiming>,
    by_tenant: Groups<ObjectName, ClaimId>,
    by_namespace: Groups<Arc<str>, ClaimId>,
}

impl Index<ClaimId> for Claims {
    type Output = Claim;

    fn index(&self, id: ClaimId) -> &Claim {
        &self.all[id.0]
    }
}

impl IndexMut<ClaimId> for Claims {
    fn index_mut(&mut self, id: ClaimId) -> &mut Claim {
        &mut self.all[id.0]
    }
}

impl Claims {
    pub(crate) fn claimant(&self, key: &ClaimKey) -> Option<&Claimant> {
        self.by_key.get(key)?.claimant.as_ref()
    }

    /// The claimant of a claim that is not withdrawn.
    pub(crate) fn claiming(&self, id: ClaimId) -> Option<&Claimant> {
        let claim = &self[id];
        self.claimant(&claim.key).filter(|_| claim.named)
    }

    /// Sets or removes a claimant with the TenantGateways that it refers to. Returns the affected
    /// claims.
    pub(crate) fn set(
        &mut self,
        key: &ClaimKey,
        claimant: Option<Claimant>,
        tenants: Vec<ObjectName>,
    ) -> Vec<ClaimId> {
        let claiming = self.by_key.entry(key.clone()).or_default();
        claiming.claimant = claimant;
        for id in &claiming.claims {
            let claim = &mut self.all[id.0];
            if claim.named && !tenants.contains(&claim.tenant) {
                self.by_tenant.remove(claim.tenant.clone(), id);
                self.by_namespace.remove(key.name.namespace.clone(), id);
                claim.named = false;
            }
        }
        for tenant in tenants {
            let there = claiming
                .claims
                .iter()
                .copied()
                .find(|id| self.all[id.0].tenant == tenant);
            let id = there.unwrap_or_else(|| {
                let bids = SmallVec::new();
                let refused = Vec::new();
                let claim = Claim {
                    key: key.clone(),
                    tenant: tenant.clone(),
                    named: false,
                    bids,
                    refused,
                    verdict: None,
                };
                let id = ClaimId(self.all.insert(claim));
                claiming.claims.push(id);
                id
            });
            let claim = &mut self.all[id.0];
            if !claim.named {
                self.by_tenant.insert(tenant, id);
                self.by_namespace.insert(key.name.namespace.clone(), id);
                claim.named = true;
            }
        }
        let touched = claiming.claims.to_vec();
        if touched.is_empty() && claiming.claimant.is_none() {
            self.by_key.remove(key);
        }
        touched
    }

    /// Removes a withdrawn claim that has neither bids nor a verdict.
    pub(crate) fn release(&mut self, id: ClaimId) {
        let claim = &self[id];
        if claim.named || claim.verdict.is_some() || !claim.bids.is_empty() {
            return;
        }
        let key = self.all.remove(id.0).key;
        if let Some(claiming) = self.by_key.get_mut(&key) {
            claiming.claims.retain(|held| *held != id);
            if claiming.claims.is_empty() && claiming.claimant.is_none() {
                self.by_key.remove(&key);
            }
        }
    }

    /// The claims of a claimant.
    pub(crate) fn of(&self, key: &ClaimKey) -> impl Iterator<Item = ClaimId> + use<'_> {
        self.by_key
            .get(key)
            .into_iter()
            .flat_map(|claiming| claiming.claims.iter().copied())
    }

    /// The claims on a TenantGateway, in no order.
    pub(crate) fn on(&self, tenant: &ObjectName) -> impl Iterator<Item = ClaimId> + use<'_> {
        self.by_tenant.of(tenant).copied()
    }

    /// The claims of a namespace's objects, in no order.
    pub(crate) fn within(&self, namespace: &Arc<str>) -> impl Iterator<Item = ClaimId> + use<'_> {
        self.by_namespace.of(namespace).copied()
    }

    /// True if a namespace still claims a name, at a TenantGateway for which `is_unmanaged` holds.
    pub(crate) fn asks(
        &self,
        namespace: &Arc<str>,
        hostname: &Hostname,
        is_unmanaged: impl Fn(&ObjectName) -> bool,
    ) -> bool {
        self.within(namespace)
            .any(|id| is_unmanaged(&self[id].tenant) && self.names(id, hostname))
    }

    /// The claimants that refer to a TenantGateway, in no order.
    pub(crate) fn claimants_of(&self, tenant: &ObjectName) -> impl Iterator<Item = &ClaimKey> {
        self.on(tenant).map(|id| &self[id].key)
    }

    /// The verdicts on one claimant, for each TenantGateway that it refers to, in no order.
    pub(crate) fn verdicts_of(
        &self,
        claim: &ClaimKey,
    ) -> impl Iterator<Item = (&ObjectName, &Verdict)> {
        let claims = self.of(claim).map(|id| &self[id]);
        claims.filter_map(|claim| Some((&claim.tenant, claim.verdict.as_ref()?)))
    }

    /// The verdict on a claimant under a TenantGateway.
    pub(crate) fn verdict(&self, claim: &ClaimKey, tenant: &ObjectName) -> Option<&Verdict> {
        self.verdicts_of(claim)
            .find(|(of, _)| *of == tenant)
            .map(|(_, verdict)| verdict)
    }

    /// All claims, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.all.iter().map(|(_, claim)| claim)
    }

    fn names(&self, id: ClaimId, hostname: &Hostname) -> bool {
        let claimant = self.claiming(id);
        claimant.is_some_and(|claimant| {
            claimant
                .hostnames
                .iter()
                .flatten()
                .any(|name| name == hostname)
        })
    }
}
