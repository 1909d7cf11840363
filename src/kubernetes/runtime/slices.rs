//! Holds back EndpointSlices until the pods that they name are known.

use tokio::time::{Instant, sleep_until};

use super::KubernetesRuntime;
use crate::ahead::Ahead;
use crate::lease::Term;
use gatewright_core::inputs::{Kind, Object, ObjectKey, Pod};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;

impl KubernetesRuntime {
    /// Returns the change that an object makes; `None` where it changes nothing, or is a slice that
    /// is held back.
    pub(super) fn in_step(&mut self, object: Object) -> Option<Change> {
        let store = self.live.engine().store();
        match object {
            // The status of a pod changes often, its addresses do not.
            Object::Pod(Pod(pod))
                if self.serving && store.pod(&pod.name) == Some(&pod) && !self.waits(&pod.name) =>
            {
                None
            }
            Object::EndpointSlice(slice)
                if self.serving && !store.is_home(&slice.meta.name.namespace) =>
            {
                let slice = self.ahead.take(
                    slice,
                    store,
                    self.view.is_current(Kind::Pod),
                    Instant::now(),
                )?;
                Some(Change::put(Object::EndpointSlice(slice)))
            }
            object => Some(Change::put(object)),
        }
    }

    fn waits(&self, pod: &ObjectName) -> bool {
        self.queued
            .queue
            .holds(&ObjectKey::new(Kind::Pod, pod.clone()))
    }

    /// Applies the slices that need not be held back any longer.
    pub(super) fn catch_up(&mut self, term: Term) {
        if self.ahead.next().is_none() {
            return;
        }
        let is_current = self.view.is_current(Kind::Pod);
        let ready = self
            .ahead
            .release(self.live.engine().store(), is_current, Instant::now());
        if !ready.is_empty() {
            self.apply(
                ready
                    .into_iter()
                    .map(|slice| Change::put(Object::EndpointSlice(slice)))
                    .collect(),
                term,
            );
        }
    }

    /// Waits until the deadline of a slice; for ever while pods are not completely known.
    pub(super) async fn until_one_is_late(ahead: &Ahead, is_current: bool) {
        match ahead.next().filter(|_| is_current) {
            Some(late) => sleep_until(late).await,
            None => std::future::pending().await,
        }
    }
}
