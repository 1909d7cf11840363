//! Certificates being got.

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
#[derive(Default)]
pub(super) struct Going(JoinSet<(CertificateId, Result<bool, Failure>)>);

impl Going {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn begin(&mut self, keeper: &Arc<Keeper>, job: Job, now: Timestamp) -> AbortHandle {
        let keeper = keeper.clone();
        self.0.spawn(async move { keeper.carry_out(job, now).await })
    }

    /// The next one that comes to an end; `None` when none goes on.
    pub(super) async fn next(&mut self) -> Option<(CertificateId, Result<bool, Failure>)> {
        loop {
            match self.0.join_next().await? {
                Ok(done) => return Some(done),
                // Nobody wanted it any more.
                Err(error) if error.is_cancelled() => {}
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
    }

    /// Ends all of them, and waits for that.
    pub(super) async fn end(&mut self) {
        self.0.shutdown().await;
    }
}
