//! What a replica tells Prometheus of a cluster.

use prometheus_client::collector::Collector;

use super::super::figures::Figures;
use super::super::lease::{Term, leads};
use super::Cluster;

impl Cluster {
    /// The metrics, in the text format of Prometheus.
    pub fn metrics(&self, term: Term) -> String {
        let (tenants, troubles) = self.tenants.figures();
        let (services, service_troubles) = self.services.figures();
        let figures = Figures {
            kinds: self.view.states().collect(),
            statuses: (self.writes, self.failures.clone()),
            pending: self.writer.pending(),
            tenants,
            troubles,
            services,
            service_troubles,
            leads: leads(term),
        };
        let desk = self.issuance.desk().borrow().as_ref().map(|desk| Box::new(desk.figures()) as Box<dyn Collector>);
        self.live.metrics(desk.into_iter().chain([Box::new(figures) as Box<dyn Collector>]).collect())
    }
}
