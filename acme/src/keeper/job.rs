//! Jobs: certificates that are being issued.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument;

use super::Keeper;
use crate::budget::Exempt;
use crate::failure::Failure;
use crate::issuer::CertificateId;
use crate::names::Names;
use crate::plan::{Order, Reason, Wanted};

/// A job: an [`Order`] that owns its data.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) id: CertificateId,
    pub(super) names: Names,
    pub(super) serves: Vec<Wanted>,
    pub(super) replaces: Option<String>,
    pub(super) exempt: Exempt,
    pub(super) reason: Reason,
}

impl Job {
    fn tenant(&self) -> &str {
        &self.serves[0].tenant
    }

    pub(super) fn of(order: &Order<'_>) -> Self {
        Self {
            id: order.id.clone(),
            names: order.names.clone(),
            serves: order.serves.iter().map(|w| (*w).clone()).collect(),
            replaces: order.replaces_id(),
            exempt: order.exempt,
            reason: order.reason,
        }
    }
}

/// The running jobs, one task each. Dropping them aborts them; nothing is lost, since orders are
/// resumed.
///
/// Each takes one slot. A tenant may have at most [`TENANT_SHARE`] times as many slots as are free:
/// a tenant with many jobs leaves room for others, and another tenant finds a slot at once.
#[derive(Default)]
pub(super) struct RunningJobs {
    tasks: JoinSet<(CertificateId, Result<bool, Failure>)>,
    slots: BTreeMap<CertificateId, (String, AbortHandle)>,
    tenants: BTreeMap<String, usize>,
}

/// Most slots of one tenant for each free slot.
const TENANT_SHARE: usize = 3;

impl RunningJobs {
    /// Takes the first job out of a queue whose tenant may have another slot; `slots` is their
    /// total number.
    pub(super) fn admit(&self, queue: &mut VecDeque<Job>, slots: usize) -> Option<Job> {
        let free = slots
            .checked_sub(self.tasks.len())
            .filter(|free| *free > 0)?;
        let at = queue.iter().position(|job| {
            self.tenants.get(job.tenant()).copied().unwrap_or_default() < TENANT_SHARE * free
        })?;
        queue.remove(at)
    }

    pub(super) fn start(&mut self, keeper: &Arc<Keeper>, job: Job, now: Timestamp) {
        let (keeper, id, tenant) = (keeper.clone(), job.id.clone(), job.tenant().to_owned());
        let work = async move { keeper.carry_out(job, now).await };
        // The report of a panic has the name of the span.
        let handle = self
            .tasks
            .spawn(work.instrument(tracing::error_span!("certificate")));
        *self.tenants.entry(tenant.clone()).or_default() += 1;
        self.slots.insert(id, (tenant, handle));
    }

    /// Aborts a job whose certificate is no longer wanted, before the certificate is stored.
    pub(super) fn cancel(&mut self, id: &CertificateId) {
        if let Some(handle) = self.release(id) {
            handle.abort();
        }
    }

    fn release(&mut self, id: &CertificateId) -> Option<AbortHandle> {
        let (tenant, handle) = self.slots.remove(id)?;
        if let Some(count) = self.tenants.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&tenant);
            }
        }
        Some(handle)
    }

    /// Waits for the next job to end; `None` if none runs.
    pub(super) async fn next(&mut self) -> Option<(CertificateId, Result<bool, Failure>)> {
        loop {
            match self.tasks.join_next_with_id().await? {
                Ok((task, done)) => {
                    // A job of the same name may have started since this one was aborted.
                    if self
                        .slots
                        .get(&done.0)
                        .is_some_and(|(_, handle)| handle.id() == task)
                    {
                        self.release(&done.0);
                    }
                    return Some(done);
                }
                Err(error) if error.is_cancelled() => {}
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
    }

    /// Aborts all jobs and waits for their end.
    pub(super) async fn end(&mut self) {
        self.tasks.shutdown().await;
    }
}
