//! The program's metrics: one registry, in the text format that Prometheus reads.
//!
//! No name of a host, object or node becomes a label. Names of namespaces do, for the quotas of the
//! twenty that have used most of theirs.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use gatewright_core::cost::{Cost, Dimension};
use gatewright_core::translate::{CertificateEnds, Counters, QuotaUse};

/// The number of Envoys with a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    /// The name of the view.
    pub view: String,
    /// The number of connected Envoys.
    pub all: usize,
    /// The number of those that have not acknowledged the last change.
    pub behind: usize,
    /// The number of those that are waited for no longer, since others have overtaken them.
    pub left_behind: usize,
    /// The time for which one that is connected to this replica has lacked a publication.
    pub age: Duration,
}

/// The name and help of a metric, and the function that reads its value.
type OfView = (&'static str, &'static str, fn(&Connected) -> usize);

/// The name and help of a metric, and the function that reads its value.
type OfQuota = (&'static str, &'static str, fn(&QuotaUse) -> Cost);

/// The metrics of the program, as a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The number of changes of objects that were taken in.
    pub changes: u64,
    /// The counters of the engine's work.
    pub work: Counters,
    /// The connected Envoys, by view.
    pub connected: Vec<Connected>,
    /// The number of resources that an Envoy rejected.
    pub quarantined: usize,
    /// The number of objects with a good status.
    pub good: usize,
    /// The number of objects with another status.
    pub bad: usize,
    /// The ends of the certificates in use.
    pub ends: CertificateEnds,
    /// What namespaces take of their quotas.
    pub quotas: Vec<QuotaUse>,
    /// The number of tasks of the runtime that have not ended.
    pub tasks: usize,
}

/// The number of namespaces whose quotas are told.
const NAMESPACES: usize = 20;

/// Returns all metrics as text: those of the program, and those of the xDS server under
/// `gatewright_xds_`.
pub fn text(program: Program, cache: &xds::Cache, others: Vec<Box<dyn Collector>>) -> String {
    let mut registry = Registry::with_prefix("gatewright");
    others
        .into_iter()
        .for_each(|other| registry.register_collector(other));
    registry.register_collector(Box::new(program));
    registry.register_collector(Box::new(xds::Metrics::new(cache.clone())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("a String takes every write");
    text
}

/// Encodes a gauge without labels.
pub fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: usize,
) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)
}

impl Collector for Program {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Program {
            changes,
            work,
            ref connected,
            quarantined,
            good,
            bad,
            ends,
            ref quotas,
            tasks,
        } = *self;
        let mut info =
            encoder.encode_descriptor("build_info", "The program", None, MetricType::Gauge)?;
        ConstGauge::new(1_i64)
            .encode(info.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?)?;
        let taken = encoder.encode_descriptor(
            "changes",
            "Changes of objects taken in",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(changes).encode(taken)?;

        let Counters {
            parents,
            owned,
            claims,
            attachments,
            policies,
            routes,
            units,
            tables,
            frontends,
            statuses,
        } = work;
        let mut family = encoder.encode_descriptor(
            "work",
            "What the engine did again",
            None,
            MetricType::Counter,
        )?;
        for (stage, count) in [
            ("parents", parents),
            ("owned", owned),
            ("claims", claims),
            ("attachments", attachments),
            ("policies", policies),
            ("routes", routes),
            ("units", units),
            ("tables", tables),
            ("frontends", frontends),
            ("statuses", statuses),
        ] {
            ConstCounter::new(count as u64).encode(family.encode_family(&[("stage", stage)])?)?;
        }

        let behind_help = "Envoys that have not acknowledged the last change";
        let all = connected.iter().map(|of| of.all).sum();
        gauge(
            &mut encoder,
            "xds_connected_proxies",
            "Envoys that are connected",
            all,
        )?;
        let behind = connected.iter().map(|of| of.behind).sum();
        gauge(&mut encoder, "xds_proxies_behind", behind_help, behind)?;
        let age = "For how long one of them, at this replica, has lacked what was published";
        let overtaken =
            "Those of them that are waited for no longer, since others have overtaken them";
        let by_view: [OfView; 4] = [
            (
                "xds_view_connected_proxies",
                "Envoys that are connected, by what they see",
                |of| of.all,
            ),
            (
                "xds_view_proxies_behind",
                "Those of them that have not acknowledged the last change",
                |of| of.behind,
            ),
            ("xds_view_proxies_left_behind", overtaken, |of| {
                of.left_behind
            }),
            ("xds_view_age_seconds", age, |of| {
                usize::try_from(of.age.as_secs()).unwrap_or(usize::MAX)
            }),
        ];
        for (name, help, count) in by_view {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for of in connected {
                let value = ConstGauge::new(i64::try_from(count(of)).unwrap_or(i64::MAX));
                value.encode(family.encode_family(&[("view", of.view.as_str())])?)?;
            }
        }
        gauge(
            &mut encoder,
            "quarantined_resources",
            "Resources an Envoy refused",
            quarantined,
        )?;
        let mut objects = encoder.encode_descriptor(
            "objects",
            "Objects with a status",
            None,
            MetricType::Gauge,
        )?;
        for (is, count) in [("true", good), ("false", bad)] {
            let value = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            value.encode(objects.encode_family(&[("good", is)])?)?;
        }
        let help = "Tasks of the runtime that have not ended";
        gauge(&mut encoder, "tasks", help, tasks)?;
        let CertificateEnds { next, soon, ended } = ends;
        let help =
            "Certificates in use that end within a week and in the last sixth of their lifetime";
        gauge(&mut encoder, "certificates_ending", help, soon)?;
        gauge(
            &mut encoder,
            "certificates_ended",
            "Certificates in use that have ended",
            ended,
        )?;
        if let Some(end) = next.and_then(|end| end.duration_since(UNIX_EPOCH).ok()) {
            let help = "When the next of the certificates in use ends";
            let gauge = encoder.encode_descriptor(
                "certificates_next_end_timestamp_seconds",
                help,
                None,
                MetricType::Gauge,
            )?;
            ConstGauge::new(i64::try_from(end.as_secs()).unwrap_or(i64::MAX)).encode(gauge)?;
        }
        encode_quotas(&mut encoder, quotas)
    }
}

/// Encodes the use of quotas of the namespaces that have used most of theirs.
fn encode_quotas(encoder: &mut DescriptorEncoder<'_>, uses: &[QuotaUse]) -> fmt::Result {
    let mut fullest: Vec<&QuotaUse> = uses.iter().collect();
    fullest.sort_by_key(|of| (std::cmp::Reverse(of.fullness()), of.namespace.clone()));
    fullest.truncate(NAMESPACES);
    let used =
        "What the namespaces that have used most of their quotas take of them, by the cost model";
    let amounts: [OfQuota; 2] = [
        ("namespace_quota_used", used, |of| of.used),
        ("namespace_quota", "What these namespaces may have", |of| {
            of.allowed
        }),
    ];
    for (name, help, amount) in amounts {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (of, dimension) in fullest
            .iter()
            .flat_map(|of| Dimension::ALL.map(|dimension| (of, dimension)))
        {
            let value =
                ConstGauge::new(i64::try_from(amount(of).of(dimension)).unwrap_or(i64::MAX));
            value.encode(
                family
                    .encode_family(&[("namespace", &*of.namespace), ("quota", dimension.name())])?,
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_has_the_program_the_engine_and_the_xds_server() {
        let work = Counters {
            units: 7,
            ..Default::default()
        };
        fn view(view: &str, all: usize) -> Connected {
            Connected {
                left_behind: 0,
                view: view.to_owned(),
                all,
                behind: all / 2,
                age: Duration::from_secs(7 * all as u64),
            }
        }
        let connected = vec![view("shared", 2), view("dedicated", 0)];
        let next = Some(UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        let ends = CertificateEnds {
            next,
            soon: 2,
            ended: 1,
        };
        fn used(namespace: usize) -> QuotaUse {
            QuotaUse {
                namespace: format!("n{namespace}").into(),
                used: Cost {
                    clusters: namespace as u64,
                    ..Cost::default()
                },
                allowed: Cost {
                    clusters: 100,
                    ..Cost::default()
                },
            }
        }
        let quotas = (0..=NAMESPACES).map(used).collect();
        let program = Program {
            changes: 3,
            work,
            connected,
            good: 5,
            bad: 1,
            ends,
            quotas,
            tasks: 40,
            ..Default::default()
        };
        let text = text(program, &xds::Cache::new(), Vec::new());
        for line in [
            "gatewright_changes_total 3",
            "gatewright_work_total{stage=\"units\"} 7",
            "gatewright_xds_connected_proxies 2",
            "gatewright_xds_view_connected_proxies{view=\"dedicated\"} 0",
            "gatewright_xds_view_proxies_behind{view=\"shared\"} 1",
            "gatewright_xds_view_age_seconds{view=\"shared\"} 14",
            "gatewright_objects{good=\"true\"} 5",
            "gatewright_objects{good=\"false\"} 1",
            "gatewright_certificates_next_end_timestamp_seconds 1800000000",
            "gatewright_certificates_ending 2",
            "gatewright_certificates_ended 1",
            "gatewright_tasks 40",
            "gatewright_namespace_quota_used{namespace=\"n20\",quota=\"clusters\"} 20",
            "gatewright_namespace_quota{namespace=\"n1\",quota=\"clusters\"} 100",
            "gatewright_xds_nack_total{type=\"sds\"} 0",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in\n{text}"
            );
        }
        assert!(
            !text.contains("namespace=\"n0\""),
            "of 21 namespaces the one that has used least is not told"
        );
        assert!(text.ends_with("# EOF\n"));
        let mut types: Vec<_> = text.lines().filter(|l| l.starts_with("# TYPE ")).collect();
        let all = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), all, "a metric is there twice");
    }
}
