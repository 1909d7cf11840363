//! Files and directories that cannot be read: their last good content is served, or nothing of them
//! is known.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::document::Problem;

/// A file or directory that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The path.
    pub path: PathBuf,
    /// What is served of it.
    pub served: Served,
    /// Why a newer content is not served: the file, the line and the error.
    pub why: Option<Problem>,
}

/// What is served of a file or directory that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The content of this time.
    AsAt(SystemTime),
    /// What could be read: an AccessPolicy may be missing. At a start the program is not ready.
    Unguarded {
        /// True if it was so at the start.
        at_start: bool,
    },
}

impl Stale {
    /// True if the program is not ready with it.
    pub fn is_unready(&self) -> bool {
        self.served == (Served::Unguarded { at_start: true })
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.served {
            Served::AsAt(at) => {
                let at = Timestamp::try_from(at).unwrap_or_default();
                let at = at.strftime("%Y-%m-%dT%H:%M:%SZ");
                write!(f, "{path} is served as it was at {at}")?;
            }
            Served::Unguarded { .. } => {
                write!(f, "{path}: an AccessPolicy in it may be without effect")?;
            }
        }
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
        let ages = stale.iter().filter_map(|stale| match stale.served {
            Served::AsAt(at) => Some(now.duration_since(at).unwrap_or_default().as_secs()),
            Served::Unguarded { .. } => None,
        });
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
        let help = "Files and directories that cannot be read, and are served as they were or without what cannot be read";
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
