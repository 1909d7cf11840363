//! Queues changes of manifests, with fair queueing: see [`gatewright_core::fair_queue`].

use std::time::Instant;

use anyhow::Result;

use super::runtime::StandaloneRuntime;

/// Waits until a batch of changes is due.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

impl StandaloneRuntime {
    /// Applies all queued changes.
    pub(super) fn take_all(&mut self) -> Result<()> {
        let changes = std::mem::take(&mut self.queue).into_changes();
        if changes.is_empty() {
            Ok(())
        } else {
            self.apply(changes)
        }
    }

    /// Applies the next batch of queued changes.
    pub(super) fn take_turn(&mut self) -> Result<()> {
        let batch = self.queue.take(self.live.reached(), Instant::now());
        if batch.changes.is_empty() {
            return Ok(());
        }
        let before = self.live.publication();
        self.apply(batch.changes)?;
        if self.live.publication() != before {
            self.queue
                .published(batch.namespaces, self.live.publication(), Instant::now());
        }
        Ok(())
    }
}
