//! The work list of one change, stage by stage, and the results of the stages.

use std::sync::Arc;

use super::claim::ClaimId;
use super::delta::{Delta, Derived, Existing, Patch};
use super::host::{HostId, Shard};
use super::work_list::{Todo, WorkList};
use super::{ClaimKey, Desired, Readiness, Verdict};
use crate::domain_order::ByDomain;
use crate::model::ObjectName;
use crate::ownership::{Ownable, OwnerRecord};
use crate::wanted::WantedCertificate;

/// The work list, and the results of the stages so far. Any stage marks the items that it affects
/// and adds results; only [`Tenancy::apply`](super::Tenancy::apply) removes items.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) namespaces: Todo<Arc<str>>,
    pub(super) tenants: Todo<ObjectName>,
    /// TenantGateways whose derived objects are reconciled.
    pub(super) reconciled: Todo<ObjectName>,
    pub(super) claims: WorkList<ClaimId>,
    pub(super) names: Todo<ByDomain>,
    pub(super) hosts: WorkList<HostId>,
    pub(super) shards: Todo<Shard>,
    pub(super) verdicts: WorkList<ClaimId>,
    pub(super) readiness: Todo<ObjectName>,
    existing: Vec<(Derived, Option<Existing>)>,
    delta: Delta,
    /// Objects of the delta, the latest last: there may be as many as hosts, so they are sorted
    /// once, at the end.
    objects: Vec<(Derived, Option<Desired>)>,
    verdicts_made: Vec<((ClaimKey, ObjectName), Option<Verdict>)>,
}

impl Dirty {
    /// Marks an observed object. It is compared once all TenantGateways are known.
    pub(super) fn observe(&mut self, key: Derived, existing: Option<Existing>) {
        self.existing.push((key, existing));
    }

    /// Removes and returns the observed objects.
    pub(super) fn take_existing(&mut self) -> Vec<(Derived, Option<Existing>)> {
        std::mem::take(&mut self.existing)
    }

    /// Adds a desired object to the results, or its removal.
    pub(super) fn emit(&mut self, key: Derived, object: Option<Desired>) {
        self.objects.push((key, object));
    }

    /// Adds a verdict on a claim to the results, or its removal.
    pub(super) fn report_verdict(
        &mut self,
        claim: (ClaimKey, ObjectName),
        verdict: Option<Verdict>,
    ) {
        self.verdicts_made.push((claim, verdict));
    }

    /// Adds the readiness of a TenantGateway to the results, or its removal.
    pub(super) fn report_readiness(&mut self, tenant: ObjectName, readiness: Option<Readiness>) {
        self.delta.tenants.insert(tenant, readiness);
    }

    /// Adds the wanted certificate of a Secret to the results, or its removal.
    pub(super) fn want_certificate(
        &mut self,
        secret: ObjectName,
        wanted: Option<WantedCertificate>,
    ) {
        self.delta.wants.insert(secret, wanted);
    }

    /// Adds the patch of a namespace's label and annotation to the results.
    pub(super) fn patch_namespace(&mut self, namespace: Arc<str>, patch: Patch) {
        self.delta.namespaces.insert(namespace, patch);
    }

    /// Adds the record of an item to the results, or its removal.
    pub(super) fn record(&mut self, what: Ownable, owner: Option<OwnerRecord>) {
        self.delta.records.insert(what, owner);
    }

    /// Marks the hostnames of items of the record.
    pub(super) fn touch_items<'a>(&mut self, items: impl IntoIterator<Item = &'a Ownable>) {
        let names = items.into_iter().filter_map(Ownable::hostname);
        self.names.extend(names.cloned().map(ByDomain));
    }

    /// Returns all results.
    pub(super) fn done(self) -> Delta {
        let objects = self.objects.into_iter().collect();
        let verdicts = self.verdicts_made.into_iter().collect();
        Delta {
            objects,
            verdicts,
            ..self.delta
        }
    }
}
