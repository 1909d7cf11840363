//! Counts the responses to certificate requests of Envoys, for Prometheus.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// The label of each outcome, and its status code.
const OUTCOMES: [(&str, StatusCode); 6] = [
    ("issued", StatusCode::OK),
    ("unauthenticated", StatusCode::UNAUTHORIZED),
    ("forbidden", StatusCode::FORBIDDEN),
    ("invalid", StatusCode::BAD_REQUEST),
    ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
    ("throttled", StatusCode::TOO_MANY_REQUESTS),
];

/// The number of responses by outcome. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<[AtomicU64; OUTCOMES.len()]>);

impl Answers {
    /// Counts a response with this status code.
    pub(crate) fn note(&self, code: StatusCode) {
        if let Some(at) = OUTCOMES.iter().position(|(_, outcome)| *outcome == code) {
            self.0[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Collector for Answers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Answers to Envoys that asked for a certificate of their own, by outcome";
        let mut family = encoder.encode_descriptor(
            "envoy_certificate_answers",
            help,
            None,
            MetricType::Counter,
        )?;
        for ((outcome, _), count) in OUTCOMES.iter().zip(&*self.0) {
            let count = ConstCounter::new(count.load(Ordering::Relaxed));
            count.encode(family.encode_family(&[("outcome", *outcome)])?)?;
        }
        Ok(())
    }
}
