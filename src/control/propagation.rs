//! The time from the arrival of a change to its acknowledgement by all Envoys that it concerns, as
//! a histogram for each kind of change.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;

use crate::history::ChangeKind;

/// The upper bounds of the buckets, in seconds: a change of one host takes milliseconds, one of ten
/// thousand seconds.
const BOUNDS: [f64; 13] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// The histograms, in the order of [`ChangeKind::ALL`]. Clones count together.
#[derive(Clone, Debug)]
pub struct Propagation([Histogram; ChangeKind::ALL.len()]);

impl Default for Propagation {
    fn default() -> Self {
        Self(ChangeKind::ALL.map(|_| Histogram::new(BOUNDS)))
    }
}

impl Propagation {
    /// Counts a change that all Envoys have acknowledged.
    pub(crate) fn observe(&self, kind: ChangeKind, took: Duration) {
        let of_kind = ChangeKind::ALL.iter().position(|other| *other == kind);
        if let Some(histogram) = of_kind.and_then(|at| self.0.get(at)) {
            histogram.observe(took.as_secs_f64());
        }
    }
}

impl Collector for Propagation {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time from the arrival of a change to its acknowledgement by all Envoys that it concerns, by kind of change";
        let mut family =
            encoder.encode_descriptor("propagation_seconds", help, None, MetricType::Histogram)?;
        for (kind, histogram) in ChangeKind::ALL.iter().zip(&self.0) {
            histogram.encode(family.encode_family(&[("kind", kind.as_str())])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Program, text};

    #[test]
    fn each_kind_of_change_has_a_histogram() {
        let propagation = Propagation::default();
        propagation.observe(ChangeKind::Route, Duration::from_millis(38));
        propagation.observe(ChangeKind::Route, Duration::from_secs(3));
        let all = vec![Box::new(propagation) as Box<dyn Collector>];
        let text = text(Program::default(), &xds::Cache::new(), all);
        for line in [
            "gatewright_propagation_seconds_count{kind=\"route\"} 2",
            "gatewright_propagation_seconds_bucket{le=\"0.05\",kind=\"route\"} 1",
            "gatewright_propagation_seconds_bucket{le=\"5.0\",kind=\"route\"} 2",
            "gatewright_propagation_seconds_count{kind=\"gateway\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
