//! What a replica tells Prometheus of a cluster.

use std::time::Instant;

use prometheus_client::collector::Collector;

use super::super::claims::Claims;
use super::super::lease::{Term, leads};
use super::super::metrics::MetricsSnapshot;
use super::KubernetesRuntime;
use crate::isolated::IsolatedEnvoys;

impl KubernetesRuntime {
    /// Lines for people on Envoys that have lacked for long what was published.
    pub fn late_views(&self) -> Vec<String> {
        self.live.late_views(self.started.elapsed())
    }

    /// The metrics and `others`, in the text format of Prometheus.
    pub fn metrics(&self, term: Term, others: Vec<Box<dyn Collector>>) -> String {
        let (tenants, troubles) = self.tenants.figures();
        let (services, service_troubles) = self.services.figures();
        let isolated = self.isolated.as_ref().map(IsolatedEnvoys::figures);
        let (isolated, isolated_troubles) = isolated.unwrap_or_default();
        let claims = self.ownership.claims.as_ref().map(Claims::figures);
        let issuance = &self.certificates.issuance;
        let figures = MetricsSnapshot {
            kinds: self.view.states().collect(),
            heard: self.heard.ages(Instant::now()).into_iter().map(|(kind, age)| (kind.as_str(), age)).collect(),
            statuses: self.statuses.writer.figures(),
            pending: self.statuses.writer.pending(),
            tenants,
            troubles,
            services,
            service_troubles,
            isolated,
            isolated_troubles,
            records: claims.unwrap_or_default().with(self.replicas.figures()),
            certificates: issuance.figures(),
            leads: leads(term),
        };
        let manager =
            issuance.manager().borrow().as_ref().map(|manager| Box::new(manager.figures()) as Box<dyn Collector>);
        let own = manager.into_iter().chain([Box::new(figures) as Box<dyn Collector>]);
        self.live.metrics(own.chain(others).collect(), self.started.elapsed())
    }
}
