//! Metrics, for a `prometheus-client` registry. Labels are kinds, never names, so their number is fixed.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::counters::ACK_SECONDS;
use crate::{Cache, Kind, KindCounts};

/// Shows a cache's counts in a registry: `registry.register_collector(Box::new(Metrics::new(cache)))`.
pub struct Metrics(Cache);

impl Metrics {
    /// The metrics of `cache`.
    pub fn new(cache: Cache) -> Metrics {
        Metrics(cache)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics { .. }")
    }
}

/// Name, help, and where its value is.
type Counter = (&'static str, &'static str, fn(&KindCounts) -> u64);

const COUNTERS: [Counter; 7] = [
    ("xds_push", "Responses sent", |k| k.responses),
    ("xds_push_resources", "Resources sent", |k| k.sent),
    ("xds_push_removals", "Removed names sent", |k| k.removed),
    ("xds_push_bytes", "Bytes of resources sent", |k| k.bytes),
    ("xds_ack", "Responses acknowledged", |k| k.acks),
    ("xds_nack", "Responses refused", |k| k.nacks),
    ("xds_evicted", "On-demand resources taken back", |k| k.evicted),
];

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.0.counts();
        for (name, help, value) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for kind in Kind::ALL {
                let labels = [("type", kind.label())];
                ConstCounter::new(value(counts.of(kind))).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "xds_ack_latency_seconds",
            "From a response to its answer",
            None,
            MetricType::Histogram,
        )?;
        for kind in Kind::ALL {
            let of = counts.of(kind);
            let buckets: Vec<(f64, u64)> =
                ACK_SECONDS.iter().copied().chain([f64::MAX]).zip(of.answered_within).collect();
            let labels = [("type", kind.label())];
            family.encode_family(&labels)?.encode_histogram::<[(&str, &str); 0]>(
                of.answer_micros as f64 / 1e6,
                of.acks + of.nacks,
                &buckets,
                None,
            )?;
        }
        let (mut nodes, mut quarantined) = (0, 0);
        for view in self.0.debug() {
            nodes += view.streams.len();
            quarantined += view.streams.iter().map(|s| s.refused.len()).sum::<usize>();
        }
        for (name, help, value) in [
            ("xds_connected_streams", "Streams of connected clients", nodes),
            ("xds_quarantined_resources", "Resources held back from a client that refuses them", quarantined),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_shows_every_metric_for_every_kind() {
        let mut registry = prometheus_client::registry::Registry::default();
        let cache = Cache::new();
        cache.counters().responded(Kind::Secret, 2, 1, 300);
        cache.counters().answered(Kind::Secret, std::time::Duration::from_millis(3), true);
        registry.register_collector(Box::new(Metrics::new(cache)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes every write");
        for line in [
            "xds_push_total{type=\"sds\"} 1",
            "xds_push_bytes_total{type=\"sds\"} 300",
            "xds_nack_total{type=\"sds\"} 1",
            "xds_nack_total{type=\"cds\"} 0",
            "xds_ack_latency_seconds_count{type=\"sds\"} 1",
            "xds_connected_streams 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
    }
}
