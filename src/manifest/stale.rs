//! Files and directories that cannot be read, and whose last good content is served.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::document::Problem;

/// A file or directory whose last good content is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The path.
    pub path: PathBuf,
    /// The time of the content.
    pub at: SystemTime,
    /// Why a newer content is not served: the file, the line and the error.
    pub why: Option<Problem>,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Timestamp::try_from(self.at).unwrap_or_default();
        write!(
            f,
            "{} is served as it was at {}",
            self.path.display(),
            at.strftime("%Y-%m-%dT%H:%M:%SZ")
        )?;
        self.why.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

/// The metrics about them.
#[derive(Debug)]
pub struct ManifestMetrics {
    count: usize,
    /// The age of the oldest content, in seconds.
    age: u64,
}

impl ManifestMetrics {
    /// Computes the metrics at this time.
    pub fn new(stale: &[Stale], now: SystemTime) -> Self {
        let ages = stale
            .iter()
            .map(|stale| now.duration_since(stale.at).unwrap_or_default().as_secs());
        Self {
            count: stale.len(),
            age: ages.max().unwrap_or_default(),
        }
    }
}

impl Collector for ManifestMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauge = |name: &str, help: &str, value: i64| {
            ConstGauge::new(value).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Gauge,
            )?)
        };
        let help =
            "Files and directories that are served as they were, because they cannot be read";
        gauge(
            "manifests_stale",
            help,
            i64::try_from(self.count).unwrap_or(i64::MAX),
        )?;
        let help = "Age of the oldest of these";
        gauge(
            "manifests_stale_age_seconds",
            help,
            i64::try_from(self.age).unwrap_or(i64::MAX),
        )
    }
}
