//! Certificates being got.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::task::{AbortHandle, JoinSet};

use super::Keeper;
use crate::budget::Exempt;
use crate::failure::Failure;
use crate::issuer::CertificateId;
use crate::names::Names;
use crate::plan::{Order, Reason, Wanted};

/// A certificate being got: an [`Order`] that owns what it needs.
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

/// Jobs that go on, each in a task of its own: what the CA answers is taken up where it comes in. Dropping them ends them;
/// nothing is lost, since orders are taken up again.
///
/// Each takes a place, and a tenant has at most [`TENANT_SHARE`] places for each that is free: who wants many leaves room for others,
/// and whoever comes finds a place at once.
#[derive(Default)]
pub(super) struct Going {
    tasks: JoinSet<(CertificateId, Result<bool, Failure>)>,
    places: BTreeMap<CertificateId, (String, AbortHandle)>,
    tenants: BTreeMap<String, usize>,
}

/// Places of one tenant for each that is free.
const TENANT_SHARE: usize = 3;

impl Going {
    /// Takes the first job out of a queue whose tenant may have another one of so many places.
    pub(super) fn admit(&self, queue: &mut VecDeque<Job>, places: usize) -> Option<Job> {
        let free = places.checked_sub(self.tasks.len()).filter(|free| *free > 0)?;
        let may = |job: &Job| self.tenants.get(job.tenant()).copied().unwrap_or_default() < TENANT_SHARE * free;
        let place = queue.iter().position(may)?;
        queue.remove(place)
    }

    pub(super) fn begin(&mut self, keeper: &Arc<Keeper>, job: Job, now: Timestamp) {
        let (keeper, id, tenant) = (keeper.clone(), job.id.clone(), job.tenant().to_owned());
        let handle = self.tasks.spawn(async move { keeper.carry_out(job, now).await });
        *self.tenants.entry(tenant.clone()).or_default() += 1;
        self.places.insert(id, (tenant, handle));
    }

    /// Ends one that nobody wants any more, before its certificate is stored.
    pub(super) fn give_up(&mut self, id: &CertificateId) {
        if let Some(handle) = self.leave(id) {
            handle.abort();
        }
    }

    fn leave(&mut self, id: &CertificateId) -> Option<AbortHandle> {
        let (tenant, handle) = self.places.remove(id)?;
        if let Some(count) = self.tenants.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&tenant);
            }
        }
        Some(handle)
    }

    /// The next one that comes to an end; `None` when none goes on.
    pub(super) async fn next(&mut self) -> Option<(CertificateId, Result<bool, Failure>)> {
        loop {
            match self.tasks.join_next_with_id().await? {
                Ok((task, done)) => {
                    // A job of the same name may have been begun since this one was given up.
                    if self.places.get(&done.0).is_some_and(|(_, handle)| handle.id() == task) {
                        self.leave(&done.0);
                    }
                    return Some(done);
                }
                Err(error) if error.is_cancelled() => {}
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
    }

    /// Ends all of them, and waits for that.
    pub(super) async fn end(&mut self) {
        self.tasks.shutdown().await;
    }
}
