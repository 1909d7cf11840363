//! Metrics, for a `prometheus-client` registry. Labels are kinds, never names, so their number is
//! fixed.

use std::collections::BTreeSet;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::counters::{ACK_SECONDS, CODES, Closed};
use crate::{Cache, Kind, KindCounts};

/// A collector of a cache's counts: `registry.register_collector(Box::new(Metrics::new(cache)))`.
pub struct Metrics(Cache);

impl Metrics {
    /// Makes the collector of `cache`.
    pub fn new(cache: Cache) -> Metrics {
        Metrics(cache)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics { .. }")
    }
}

/// Name, help text, and accessor of a counter.
type Counter = (&'static str, &'static str, fn(&KindCounts) -> u64);

const COUNTERS: [Counter; 7] = [
    ("xds_push", "Responses sent", |k| k.responses),
    ("xds_push_resources", "Resources sent", |k| k.sent),
    ("xds_push_removals", "Removed names sent", |k| k.removed),
    ("xds_push_bytes", "Bytes of resources sent", |k| k.bytes),
    ("xds_ack", "Responses acknowledged", |k| k.acks),
    ("xds_nack", "Responses refused", |k| k.nacks),
    ("xds_evicted", "On-demand resources taken back", |k| {
        k.evicted
    }),
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
            let buckets: Vec<(f64, u64)> = ACK_SECONDS
                .iter()
                .copied()
                .chain([f64::MAX])
                .zip(of.answered_within)
                .collect();
            let labels = [("type", kind.label())];
            family
                .encode_family(&labels)?
                .encode_histogram::<[(&str, &str); 0]>(
                    of.answer_micros as f64 / 1e6,
                    of.acks + of.nacks,
                    &buckets,
                    None,
                )?;
        }
        for (name, help, by_code) in [
            (
                "xds_refused_rpc",
                "RPCs that were not let in",
                counts.refused,
            ),
            (
                "xds_ended_streams",
                "Streams that were let in and ended, but for broken connections",
                counts.ended,
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (code, value) in CODES.into_iter().zip(by_code) {
                ConstCounter::new(value).encode(family.encode_family(&[("code", code)])?)?;
            }
        }
        let name = "xds_closed_connections";
        let help = "Connections without a stream that were closed";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (reason, value) in Closed::ALL.into_iter().zip(counts.closed) {
            ConstCounter::new(value)
                .encode(family.encode_family(&[("reason", reason.label())])?)?;
        }
        let now = Now::read(&self.0);
        for (name, help, value) in [
            (
                "xds_connected_clients",
                "Nodes that are connected",
                now.nodes,
            ),
            (
                "xds_connected_streams",
                "Streams of connected clients",
                now.streams,
            ),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(gauge(value)).encode(metric)?;
        }
        type Count = fn(&PerKind) -> usize;
        let per_kind: [(&str, &str, Count); 5] = [
            ("xds_resources", "Published resources of all views", |k| {
                k.resources
            }),
            (
                "xds_subscriptions",
                "Streams that subscribe to the type",
                |k| k.subscriptions,
            ),
            ("xds_subscribed_names", "Names they subscribe to", |k| {
                k.names
            }),
            (
                "xds_unanswered",
                "Responses no client has answered yet",
                |k| k.unanswered,
            ),
            (
                "xds_quarantined_resources",
                "Resources held back from a client that refuses them",
                |k| k.quarantined,
            ),
        ];
        for (name, help, value) in per_kind {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for kind in Kind::ALL {
                let labels = [("type", kind.label())];
                ConstGauge::new(gauge(value(&now.kinds[kind as usize])))
                    .encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn gauge(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Current numbers of one kind, for gauges.
#[derive(Default)]
struct PerKind {
    resources: usize,
    subscriptions: usize,
    names: usize,
    unanswered: usize,
    quarantined: usize,
}

/// Current numbers, for gauges.
#[derive(Default)]
struct Now {
    nodes: usize,
    streams: usize,
    kinds: [PerKind; Kind::COUNT],
}

impl Now {
    fn read(cache: &Cache) -> Now {
        let at = |label: &str| {
            Kind::ALL
                .into_iter()
                .position(|k| k.label() == label)
                .expect("a label of a kind")
        };
        let mut now = Now::default();
        for view in cache.debug() {
            for (label, count) in view.resources {
                now.kinds[at(label)].resources += count;
            }
            let nodes: BTreeSet<_> = view
                .streams
                .iter()
                .map(|s| (&s.node, &s.identity))
                .collect();
            now.nodes += nodes.len();
            now.streams += view.streams.len();
            for stream in &view.streams {
                for sub in &stream.subscriptions {
                    let of = &mut now.kinds[at(sub.kind)];
                    of.subscriptions += 1;
                    of.names += sub.names;
                    of.unanswered += sub.in_flight;
                }
                for refused in &stream.refused {
                    now.kinds[at(refused.kind)].quarantined += 1;
                }
            }
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_shows_every_metric_for_every_kind() {
        let mut registry = prometheus_client::registry::Registry::default();
        let cache = Cache::new();
        let secret =
            envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret::default();
        let upserts = vec![crate::Resource::new("host", &secret)];
        cache.publish(
            &crate::View::new("a"),
            crate::Update {
                upserts,
                removals: vec![],
            },
        );
        cache.counters().refused(tonic::Code::Unauthenticated);
        cache.counters().responded(Kind::Secret, 2, 1, 300);
        cache
            .counters()
            .answered(Kind::Secret, std::time::Duration::from_millis(3), true);
        registry.register_collector(Box::new(Metrics::new(cache)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)
            .expect("a String takes every write");
        for line in [
            "xds_push_total{type=\"sds\"} 1",
            "xds_push_bytes_total{type=\"sds\"} 300",
            "xds_nack_total{type=\"sds\"} 1",
            "xds_nack_total{type=\"cds\"} 0",
            "xds_ack_latency_seconds_count{type=\"sds\"} 1",
            "xds_connected_streams 0",
            "xds_resources{type=\"sds\"} 1",
            "xds_subscriptions{type=\"vhds\"} 0",
            "xds_refused_rpc_total{code=\"UNAUTHENTICATED\"} 1",
            "xds_ended_streams_total{code=\"DEADLINE_EXCEEDED\"} 0",
            "xds_closed_connections_total{reason=\"evicted\"} 0",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
