//! The work list of one change, stage by stage, and the results of the stages.

use std::sync::Arc;

use super::claim::ClaimId;
use super::delta::{Delta, Derived, Existing, Patch};
use super::host::{HostId, Name, Shard};
use super::work_list::{Todo, WorkList};
use super::{ClaimKey, Desired, Readiness, Record, Verdict};
use crate::model::{Hostname, ObjectName};
use crate::wanted::WantedCertificate;

/// The work list, and the results of the stages so far. Any stage marks what it touches and hands out results; only
/// [`Tenancy::apply`](super::Tenancy::apply) takes out of it.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) namespaces: Todo<Arc<str>>,
    pub(super) tenants: Todo<ObjectName>,
    /// TenantGateways whose derived objects are reconciled.
    pub(super) checked: Todo<ObjectName>,
    pub(super) claims: WorkList<ClaimId>,
    pub(super) names: Todo<Name>,
    pub(super) hosts: WorkList<HostId>,
    pub(super) shards: Todo<Shard>,
    pub(super) verdicts: WorkList<ClaimId>,
    pub(super) readiness: Todo<ObjectName>,
    existing: Vec<(Derived, Option<Existing>)>,
    delta: Delta,
    /// Objects of the delta, the latest last: there may be as many as hosts, so they are sorted once, at the end.
    objects: Vec<(Derived, Option<Desired>)>,
    verdicts_made: Vec<((ClaimKey, ObjectName), Option<Verdict>)>,
}

impl Dirty {
    /// Marks an observed object. It is compared once all TenantGateways are known.
    pub(super) fn observe(&mut self, key: Derived, existing: Option<Existing>) {
        self.existing.push((key, existing));
    }

    /// Takes out the observed objects.
    pub(super) fn take_existing(&mut self) -> Vec<(Derived, Option<Existing>)> {
        std::mem::take(&mut self.existing)
    }

    /// Hands out a desired object, or takes it back.
    pub(super) fn hand_out(&mut self, key: Derived, object: Option<Desired>) {
        self.objects.push((key, object));
    }

    /// Hands out a verdict on a claim, or takes it back.
    pub(super) fn tell(&mut self, claim: (ClaimKey, ObjectName), verdict: Option<Verdict>) {
        self.verdicts_made.push((claim, verdict));
    }

    /// Hands out the readiness of a TenantGateway, or takes it back.
    pub(super) fn tell_readiness(&mut self, tenant: ObjectName, readiness: Option<Readiness>) {
        self.delta.tenants.insert(tenant, readiness);
    }

    /// Says which certificate a Secret is to have.
    pub(super) fn want_certificate(&mut self, secret: ObjectName, wanted: Option<WantedCertificate>) {
        self.delta.wants.insert(secret, wanted);
    }

    /// Says how the label and annotation of a namespace are to be changed.
    pub(super) fn patch_namespace(&mut self, namespace: Arc<str>, patch: Patch) {
        self.delta.namespaces.insert(namespace, patch);
    }

    /// Says what is to be recorded about the owner of a hostname.
    pub(super) fn record(&mut self, hostname: Hostname, record: Option<Record>) {
        self.delta.records.insert(hostname, record);
    }

    /// Returns all results.
    pub(super) fn done(self) -> Delta {
        let (objects, verdicts) = (self.objects.into_iter().collect(), self.verdicts_made.into_iter().collect());
        Delta { objects, verdicts, ..self.delta }
    }
}
