//! Writes the Services of Gateways, and reports failures to the engine; writes the finalizers of
//! their classes.

use super::super::lease::Term;
use super::KubernetesRuntime;
use crate::expose::services;
use gatewright_core::inputs::Kind;

impl KubernetesRuntime {
    /// Starts the queued writes of Services.
    pub(super) fn write_services(&mut self, may_write: bool, term: Term) {
        // While Gateways are not completely known, a Service would seem unwanted, and a class
        // unused.
        let gateways =
            self.view.is_current(Kind::Gateway) && self.view.is_current(Kind::GatewayClass);
        let store = self.live.engine().store();
        let seen = self.objects.seen();
        self.services.write(store, seen, may_write && gateways);
        self.classes.write(store, seen, may_write && gateways);
        self.hear_of_services(term);
    }

    /// Takes in the outcome of the writes for the Service of a Gateway.
    pub(super) fn take_service(&mut self, event: services::WorkerEvent, term: Term) {
        self.services.take_event(event);
        self.hear_of_services(term);
    }

    /// Applies the reported problems of Services, which appear in the statuses of their Gateways.
    fn hear_of_services(&mut self, term: Term) {
        let news = self.services.take_news();
        if !news.is_empty() {
            self.apply(news, term);
        }
    }
}
