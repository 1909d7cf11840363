//! Collects the metrics of a replica for Prometheus.

use std::time::Instant;

use prometheus_client::collector::Collector;

use super::super::claims::Claims;
use super::super::lease::{Term, leads};
use super::super::metrics::MetricsSnapshot;
use super::KubernetesRuntime;
use crate::isolated::IsolatedEnvoys;

impl KubernetesRuntime {
    /// Returns messages about views whose Envoys have not acknowledged the last publication for
    /// long.
    pub fn late_views(&self) -> Vec<String> {
        self.live.late_views(self.started.elapsed())
    }

    /// Returns the metrics and `others`, in the text format of Prometheus.
    pub fn metrics(&self, term: Term, others: Vec<Box<dyn Collector>>) -> String {
        let (tenants, troubles) = self.tenants.metrics();
        let (services, service_troubles) = self.services.metrics();
        let isolated = self.isolated.as_ref().map(IsolatedEnvoys::metrics);
        let (isolated, isolated_troubles) = isolated.unwrap_or_default();
        let unrecorded = self
            .ownership
            .claims
            .as_ref()
            .map(Claims::refused)
            .unwrap_or_default();
        let claims = self.ownership.claims.as_ref().map(Claims::metrics);
        let issuance = &self.certificates.issuance;
        let snapshot = MetricsSnapshot {
            kinds: self.view.states().collect(),
            heard: self
                .heard
                .ages(Instant::now())
                .into_iter()
                .map(|(kind, age)| (kind.as_str(), age))
                .collect(),
            statuses: self.statuses.writer.metrics().with(self.classes.metrics()),
            pending: self.statuses.writer.pending(),
            tenants,
            troubles,
            services,
            service_troubles,
            isolated,
            isolated_troubles,
            records: claims.unwrap_or_default().with(self.replicas.metrics()),
            unrecorded,
            certificates: issuance.metrics(),
            leads: leads(term),
            serves: self.serving && self.awaited_owners().is_none(),
        };
        let manager = issuance
            .manager()
            .manager()
            .map(|manager| Box::new(manager.metrics()) as Box<dyn Collector>);
        let own = manager
            .into_iter()
            .chain([Box::new(snapshot) as Box<dyn Collector>]);
        self.live
            .metrics(own.chain(others).collect(), self.started.elapsed())
    }
}
