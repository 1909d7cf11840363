//! What the engine hears of the Services that are written for Gateways.

use super::super::lease::Term;
use super::super::services;
use super::Cluster;

impl Cluster {
    /// Takes in how work for the Service of a Gateway ended.
    pub(super) fn take_service(&mut self, ended: services::Ended, term: Term) {
        self.services.take_ended(ended);
        self.hear_of_services(term);
    }

    /// What is in the way of Services stands in the statuses of their Gateways.
    pub(super) fn hear_of_services(&mut self, term: Term) {
        let news = self.services.take_news();
        if !news.is_empty() {
            self.apply(news, term);
        }
    }
}
