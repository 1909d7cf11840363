//! The work list of one change, stage by stage, and the results of the stages.

use std::sync::Arc;

use super::work_list::{Todo, WorkList};
use crate::delta::{Delta, Derived, Existing, Patch};
use crate::rule::claim::ClaimId;
use crate::rule::host::{HostId, Shard};
use crate::{ClaimKey, Desired, Readiness, Verdict};
use gatewright_objects::domain_order::ByDomain;
use gatewright_objects::model::ObjectName;
use gatewright_objects::ownership::{Ownable, OwnerRecord};
use gatewright_objects::wanted::WantedCertificate;

/// The work list, and the results of the stages so far. Any stage marks the items that it affects
/// and adds results; only [`Tenancy::apply`](crate::Tenancy::apply) removes items.
#[derive(Default)]
pub(crate) struct Dirty {
    pub(crate) namespaces: Todo<Arc<str>>,
    pub(crate) tenants: Todo<ObjectName>,
    /// TenantGateways whose derived objects are reconciled.
    pub(crate) reconciled: Todo<ObjectName>,
    pub(crate) claims: WorkList<ClaimId>,
    pub(crate) names: Todo<ByDomain>,
    pub(crate) hosts: WorkList<HostId>,
    pub(crate) shards: Todo<Shard>,
    pub(crate) verdicts: WorkList<ClaimId>,
    pub(crate) readiness: Todo<ObjectName>,
    existing: Vec<(Derived, Option<Existing>)>,
    delta: Delta,
    /// Objects of the delta, the latest last: there may be as many as hosts, so they are sorted
    /// once, at the end.
    objects: Vec<(Derived, Option<Desired>)>,
    verdicts_made: Vec<((ClaimKey, ObjectName), Option<Verdict>)>,
}

impl Dirty {
    /// Marks an observed object. It is compared once all TenantGateways are known.
    pub(crate) fn observe(&mut self, key: Derived, existing: Option<Existing>) {
        self.existing.push((key, existing));
    }

    /// Removes and returns the observed objects.
    pub(crate) fn take_existing(&mut self) -> Vec<(Derived, Option<Existing>)> {
        std::mem::take(&mut self.existing)
    }

    /// Adds a desired object to the results, or its removal.
    pub(crate) fn emit(&mut self, key: Derived, object: Option<Desired>) {
        self.objects.push((key, object));
    }

    /// Adds a verdict on a claim to the results, or its removal.
    pub(crate) fn report_verdict(
        &mut self,
        claim: (ClaimKey, ObjectName),
        verdict: Option<Verdict>,
    ) {
        self.verdicts_made.push((claim, verdict));
    }

    /// Adds the readiness of a TenantGateway to the results, or its removal.
    pub(crate) fn report_readiness(&mut self, tenant: ObjectName, readiness: Option<Readiness>) {
        self.delta.tenants.insert(tenant, readiness);
    }

    /// Adds the wanted certificate of a Secret to the results, or its removal.
    pub(crate) fn want_certificate(
        &mut self,
        secret: ObjectName,
        wanted: Option<WantedCertificate>,
    ) {
        self.delta.wants.insert(secret, wanted);
    }

    /// Adds the patch of a namespace's label and annotation to the results.
    pub(crate) fn patch_namespace(&mut self, namespace: Arc<str>, patch: Patch) {
        self.delta.namespaces.insert(namespace, patch);
    }

    /// Adds the record of an item to the results, or its removal.
    pub(crate) fn record(&mut self, what: Ownable, owner: Option<OwnerRecord>) {
        self.delta.records.insert(what, owner);
    }

    /// Marks the hostnames of items of the record.
    pub(crate) fn touch_items<'a>(&mut self, items: impl IntoIterator<Item = &'a Ownable>) {
        let names = items.into_iter().filter_map(Ownable::hostname);
        self.names.extend(names.cloned().map(ByDomain));
    }

    /// Returns all results.
    pub(crate) fn done(self) -> Delta {
        let objects = self.objects.into_iter().collect();
        let verdicts = self.verdicts_made.into_iter().collect();
        Delta {
            objects,
            verdicts,
            ..self.delta
        }
    }
}
