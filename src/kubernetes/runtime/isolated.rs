//! Writes Gateways' own Envoys, and reports failures to the engine.

use super::super::lease::Term;
use super::KubernetesRuntime;
use crate::isolated::{IsolatedEnvoys, IsolatedEvent, WorkerEvent};
use gatewright_core::inputs::Kind;

impl KubernetesRuntime {
    /// Takes in an event of the watch of Gateways' own Envoys.
    pub fn see_isolated(&mut self, event: IsolatedEvent) {
        if let Some(isolated) = &mut self.isolated {
            isolated.see(event);
        }
    }

    /// Queues every Gateway for comparison of its own Envoys.
    pub(super) fn enqueue_isolated(&mut self) {
        if let Some(isolated) = &mut self.isolated {
            isolated.enqueue_all();
        }
    }

    /// Starts the queued writes.
    pub(super) fn write_isolated(&mut self, may_write: bool, term: Term) {
        // While Gateways and their parameters are not completely known, their own Envoys would seem
        // unwanted.
        let mut kinds = [Kind::Gateway, Kind::GatewayClass, Kind::GatewayParameters].into_iter();
        let are_known = kinds.all(|kind| self.view.is_current(kind));
        let Some(isolated) = &mut self.isolated else {
            return;
        };
        isolated.write(may_write && are_known);
        self.hear_of_isolated(term);
    }

    /// Takes in the outcome of the writes for the Envoys of a Gateway.
    pub(super) fn take_isolated(&mut self, event: WorkerEvent, term: Term) {
        if let Some(isolated) = &mut self.isolated {
            isolated.take_event(event);
        }
        self.hear_of_isolated(term);
    }

    /// Applies the reported problems of own Envoys, which appear in the statuses of their Gateways.
    fn hear_of_isolated(&mut self, term: Term) {
        let news = self
            .isolated
            .as_mut()
            .map(IsolatedEnvoys::take_news)
            .unwrap_or_default();
        if !news.is_empty() {
            self.apply(news, term);
        }
    }

    pub(super) async fn next_isolated(isolated: Option<&mut IsolatedEnvoys>) -> WorkerEvent {
        match isolated {
            Some(isolated) => isolated.next().await,
            None => std::future::pending().await,
        }
    }
}
