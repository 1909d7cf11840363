//! The Prometheus metrics of a replica, as a snapshot. No name of an object becomes a label.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use gatewright_control::metrics::gauge;

/// Counters of one kind of writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    /// The writes that were started, by action.
    pub(super) begun: BTreeMap<&'static str, u64>,
    /// The writes that failed, by class.
    pub(super) failed: BTreeMap<&'static str, u64>,
}

impl Writes {
    /// Returns the sum with other counters.
    pub(super) fn with(mut self, others: Self) -> Self {
        let Self { begun, failed } = others;
        for (all, more) in [(&mut self.begun, begun), (&mut self.failed, failed)] {
            for (label, count) in more {
                *all.entry(label).or_default() += count;
            }
        }
        self
    }
}

/// Returns the metrics of a replica with nothing counted: their names and descriptions.
pub fn described() -> Box<dyn Collector> {
    Box::new(MetricsSnapshot::default())
}

/// The metrics of the Kubernetes part.
#[derive(Clone, Debug, Default)]
pub(super) struct MetricsSnapshot {
    /// The watched kinds, with their states.
    pub(super) kinds: Vec<(&'static str, &'static str)>,
    /// The time since the last event, bookmark or answer of each watched kind.
    pub(super) heard: Vec<(&'static str, Duration)>,
    /// Writes of statuses.
    pub(super) statuses: Writes,
    /// The number of statuses that are queued or being written.
    pub(super) pending: usize,
    /// Writes of derived objects of TenantGateways.
    pub(super) tenants: Writes,
    /// The number of derived objects of TenantGateways that cannot be written.
    pub(super) troubles: usize,
    /// Writes of Services and slices of Gateways of the dedicated fleet.
    pub(super) services: Writes,
    /// The number of Gateways with a reported problem of their Service.
    pub(super) service_troubles: usize,
    /// Writes of Gateways' own Envoys.
    pub(super) isolated: Writes,
    /// The number of Gateways with a reported problem of their own Envoys.
    pub(super) isolated_troubles: usize,
    /// Writes of records: owners of hostnames and the like, and the acknowledgements of this
    /// replica's Envoys.
    pub(super) records: Writes,
    /// The number of hostnames and ports whose owner the API server refused to record.
    pub(super) unrecorded: usize,
    /// Writes of the certificate writer.
    pub(super) certificates: Writes,
    /// True if this replica holds the Lease and writes.
    pub(super) leads: bool,
    /// True if this replica gives Envoys the present configuration.
    pub(super) serves: bool,
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    ConstCounter::new(count).encode(encoder.encode_descriptor(
        name,
        help,
        None,
        MetricType::Counter,
    )?)
}

pub(crate) fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    counts: &BTreeMap<&'static str, u64>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, count) in counts {
        ConstCounter::new(*count).encode(family.encode_family(&[(label, *value)])?)?;
    }
    Ok(())
}

impl Collector for MetricsSnapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut encoder;
        let mut kinds = to.encode_descriptor(
            "kind",
            "Kinds that are watched, by state",
            None,
            MetricType::Gauge,
        )?;
        for (kind, state) in &self.kinds {
            ConstGauge::new(1_i64)
                .encode(kinds.encode_family(&[("kind", *kind), ("state", *state)])?)?;
        }
        let help = "For how long the API server has said nothing of a kind that is watched, bookmarks included";
        let mut heard = to.encode_descriptor("kind_age_seconds", help, None, MetricType::Gauge)?;
        for (kind, age) in &self.heard {
            ConstGauge::new(age.as_secs_f64()).encode(heard.encode_family(&[("kind", *kind)])?)?;
        }
        counter(
            to,
            "status_writes",
            "Statuses written",
            self.statuses.begun.values().sum(),
        )?;
        counters(
            to,
            "write_failures",
            "Writes that failed, by class",
            "class",
            &self.statuses.failed,
        )?;
        gauge(
            to,
            "writes_pending",
            "Statuses that wait or are being written",
            self.pending,
        )?;
        counters(
            to,
            "tenant_writes",
            "What was written for TenantGateways",
            "kind",
            &self.tenants.begun,
        )?;
        let help = "Writes for TenantGateways that failed, by class";
        counters(
            to,
            "tenant_write_failures",
            help,
            "class",
            &self.tenants.failed,
        )?;
        gauge(
            to,
            "tenant_troubles",
            "Objects of TenantGateways that cannot be written",
            self.troubles,
        )?;
        let help = "Services and slices of Gateways written, by what was done";
        counters(to, "service_writes", help, "action", &self.services.begun)?;
        let help = "Writes of Services and slices of Gateways that failed, by class";
        counters(
            to,
            "service_write_failures",
            help,
            "class",
            &self.services.failed,
        )?;
        let help = "Gateways whose Services cannot be made or changed as they are to be";
        gauge(to, "service_troubles", help, self.service_troubles)?;
        let help = "Objects of Gateways' own Envoys written, by what was done";
        counters(to, "isolated_writes", help, "action", &self.isolated.begun)?;
        let help = "Writes of objects of Gateways' own Envoys that failed, by class";
        counters(
            to,
            "isolated_write_failures",
            help,
            "class",
            &self.isolated.failed,
        )?;
        let help = "Gateways whose own Envoys cannot be made or changed as they are to be";
        gauge(to, "isolated_troubles", help, self.isolated_troubles)?;
        let help = "Records written: who owns what, and what Envoys of a replica acknowledged";
        counters(to, "record_writes", help, "record", &self.records.begun)?;
        let help = "Writes of records that failed, by class";
        counters(
            to,
            "record_write_failures",
            help,
            "class",
            &self.records.failed,
        )?;
        let help = "Hostnames and ports that are not served, since their owner cannot be recorded";
        gauge(to, "unrecorded_owners", help, self.unrecorded)?;
        let help = "Certificates put back or withdrawn, and notices of challenges and roots, by what was done";
        counters(
            to,
            "certificate_writes",
            help,
            "action",
            &self.certificates.begun,
        )?;
        let help = "Writes for certificates that failed, by class";
        counters(
            to,
            "certificate_write_failures",
            help,
            "class",
            &self.certificates.failed,
        )?;
        let help = "Whether this replica gives Envoys the present configuration";
        gauge(to, "serving", help, usize::from(self.serves))?;
        gauge(
            to,
            "leader",
            "Whether this replica writes",
            usize::from(self.leads),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_control::metrics::{Program, text};

    #[test]
    fn figures_are_told_beside_the_programs() {
        let tenants = Writes {
            begun: BTreeMap::from([("label", 4)]),
            failed: BTreeMap::from([("conflict", 5)]),
        };
        let snapshot = MetricsSnapshot {
            kinds: vec![("Gateway", "complete")],
            heard: vec![("Gateway", Duration::from_millis(500))],
            statuses: Writes {
                begun: BTreeMap::from([("status", 2)]),
                failed: BTreeMap::from([("refused", 3)]),
            },
            pending: 1,
            tenants,
            troubles: 6,
            services: Writes {
                begun: BTreeMap::from([("apply", 7)]),
                failed: BTreeMap::from([("refused", 8)]),
            },
            service_troubles: 9,
            isolated: Writes {
                begun: BTreeMap::from([("delete", 16)]),
                failed: BTreeMap::from([("refused", 17)]),
            },
            isolated_troubles: 18,
            records: Writes {
                begun: BTreeMap::from([("owners", 10)]),
                failed: BTreeMap::from([("gone", 11)]),
            }
            .with(Writes {
                begun: BTreeMap::from([("replica", 12)]),
                failed: BTreeMap::from([("gone", 13)]),
            }),
            unrecorded: 19,
            certificates: Writes {
                begun: BTreeMap::from([("publish", 14)]),
                failed: BTreeMap::from([("throttled", 15)]),
            },
            leads: true,
            serves: true,
        };
        let text = text(
            Program::default(),
            &xds::Cache::new(),
            vec![Box::new(snapshot)],
        );
        for line in [
            "# TYPE gatewright_kind gauge",
            "gatewright_kind{kind=\"Gateway\",state=\"complete\"} 1",
            "gatewright_kind_age_seconds{kind=\"Gateway\"} 0.5",
            "# HELP gatewright_status_writes Statuses written",
            "gatewright_status_writes_total 2",
            "gatewright_write_failures_total{class=\"refused\"} 3",
            "gatewright_writes_pending 1",
            "gatewright_tenant_writes_total{kind=\"label\"} 4",
            "gatewright_tenant_write_failures_total{class=\"conflict\"} 5",
            "gatewright_tenant_troubles 6",
            "gatewright_service_writes_total{action=\"apply\"} 7",
            "gatewright_service_write_failures_total{class=\"refused\"} 8",
            "gatewright_service_troubles 9",
            "gatewright_isolated_writes_total{action=\"delete\"} 16",
            "gatewright_isolated_write_failures_total{class=\"refused\"} 17",
            "gatewright_isolated_troubles 18",
            "gatewright_record_writes_total{record=\"owners\"} 10",
            "gatewright_record_write_failures_total{class=\"gone\"} 24",
            "gatewright_record_writes_total{record=\"replica\"} 12",
            "gatewright_unrecorded_owners 19",
            "gatewright_certificate_writes_total{action=\"publish\"} 14",
            "gatewright_certificate_write_failures_total{class=\"throttled\"} 15",
            "gatewright_leader 1",
            "gatewright_serving 1",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
