//! Writes Services for Gateways, and tells the engine how that went.

use super::super::lease::Term;
use super::KubernetesRuntime;
use crate::expose::services;
use gatewright_core::inputs::Kind;

impl KubernetesRuntime {
    /// Begins the writes of Services whose turn has come.
    pub(super) fn write_services(&mut self, may_write: bool, term: Term) {
        // Nobody has a Service any more while it is not known who has a Gateway.
        let gateways = self.view.is_whole(Kind::Gateway) && self.view.is_whole(Kind::GatewayClass);
        self.services.write(self.live.engine().store(), self.objects.seen(), may_write && gateways);
        self.hear_of_services(term);
    }

    /// Takes in how work for the Service of a Gateway ended.
    pub(super) fn take_service(&mut self, ended: services::Ended, term: Term) {
        self.services.take_ended(ended);
        self.hear_of_services(term);
    }

    /// What is in the way of Services stands in the statuses of their Gateways.
    fn hear_of_services(&mut self, term: Term) {
        let news = self.services.take_news();
        if !news.is_empty() {
            self.apply(news, term);
        }
    }
}
