//! Takes in the outcomes of writes.

use std::time::{Duration, Instant};

use kube::core::DynamicObject;

use super::task::Task;
use super::{GAP, LONGEST_GAP, Tenants};
use crate::live_object::LiveObject;
use crate::watch::observed::newer;
use crate::write::failure::Failure;
use gatewright_core::tenancy::{Derived, Tenancy};

/// The outcome of a write.
pub struct WriteOutcome {
    pub(super) task: Task,
    pub(super) outcome: Result<Option<Box<DynamicObject>>, Failure>,
    pub(super) took: Duration,
}

impl Tenants {
    /// Takes in the outcome of a write.
    pub fn take_outcome(&mut self, outcome: WriteOutcome, tenancy: &Tenancy) {
        let WriteOutcome {
            task,
            outcome,
            took,
        } = outcome;
        if self.large_running.remove(&task) {
            for task in std::mem::take(&mut self.large_waiting) {
                self.want(task);
            }
        }
        if let Task::Object(derived) = &task
            && let Some(next) = self.next_write.get_mut(derived)
        {
            *next = (*next).max(Instant::now() + (took * 2).min(LONGEST_GAP).saturating_sub(GAP));
        }
        let is_deleted = matches!(&task, Task::Object(derived) if self.deleted.remove(derived));
        if let Task::Status(_) = &task {
            self.recorder.written(&task.key(), outcome.is_ok());
        }
        match outcome {
            Ok(object) => {
                self.worker.done(&task);
                if let (Task::Object(derived), Some(object), false) = (&task, object, is_deleted) {
                    self.take_answer(derived, &object);
                }
                if let Some(over) = self.heal(&task, tenancy, Instant::now()) {
                    self.worker.want(task.clone(), over);
                }
                if let Task::Status(tenant) = &task {
                    self.transient_since.remove(tenant);
                }
            }
            Err(failure) => self.take_failure(&task, &failure, tenancy),
        }
    }

    fn take_failure(&mut self, task: &Task, failure: &Failure, tenancy: &Tenancy) {
        self.conflict_backoff.failed(task);
        self.worker.failed(task, failure, Instant::now());
        let reason = match failure {
            Failure::Contested(_) => "ContestedByAnotherWriter",
            Failure::Refused(_) | Failure::Forbidden(_) => "ReconcileError",
            Failure::Conflict | Failure::Throttled(_) | Failure::Gone | Failure::Unavailable(_) => {
                return;
            }
        };
        self.trouble(task, (reason, format!("{task}: {failure}")), tenancy);
    }

    /// Takes in a derived object as a write left it, if the watch has not delivered a newer
    /// version.
    fn take_answer(&mut self, derived: &Derived, object: &DynamicObject) {
        let held = Box::new(LiveObject::new(object).0);
        let old = self.held.get(derived);
        if old.is_none_or(|old| newer(&held.version, &old.version)) {
            self.held.insert(derived.clone(), held);
            // The next comparison replaces the fields by their digest.
            self.want(Task::Object(derived.clone()));
        }
    }
}
