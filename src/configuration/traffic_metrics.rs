//! Counts of requests, and the port where Prometheus reads them.

use std::net::SocketAddr;
use std::path::PathBuf;

use garde::Validate;
use gatewright_envoy as envoy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::{ReaderError, port};

/// The counts of Envoys for each namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TrafficMetrics {
    /// Nothing
    #[default]
    Off,
    /// Requests by class of the status, bytes in both directions, and times of requests: at most 27
    /// series for each namespace that gets requests, and 4096 namespaces (docs/traffic-metrics.md)
    Namespaces,
}

impl TrafficMetrics {
    /// True if virtual hosts need the names of their owners.
    pub fn need_owners(self) -> bool {
        self == Self::Namespaces
    }
}

impl From<TrafficMetrics> for envoy::TrafficMetrics {
    fn from(metrics: TrafficMetrics) -> Self {
        match metrics {
            TrafficMetrics::Off => Self::Off,
            TrafficMetrics::Namespaces => Self::Namespaces,
        }
    }
}

/// The port of Envoy's statistics in standalone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct StatisticsPort {
    /// Address and port, of the loopback interface: the port has no TLS. No Gateway can have it
    #[garde(custom(is_loopback))]
    pub address: SocketAddr,
    /// Directory with the files username and password, of at least 20 characters, of the only
    /// reader, who gets the statistics of ports and namespaces as well. Without it everybody on the
    /// machine gets those of Envoy as a whole
    #[serde(default)]
    pub credentials: Option<PathBuf>,
    /// Whether that reader gets the statistics of each Service port as well: some 30 series for
    /// each that gets requests
    #[serde(default)]
    pub services: bool,
}

impl StatisticsPort {
    /// Reads the credentials.
    ///
    /// # Errors
    /// When they cannot be read or used.
    pub fn read(&self) -> Result<envoy::Statistics, ReaderError> {
        let Self {
            address,
            credentials,
            services,
        } = self;
        port(*address, credentials.as_deref(), *services)
    }
}

fn is_loopback(address: &SocketAddr, (): &()) -> garde::Result {
    if address.ip().is_loopback() {
        Ok(())
    } else {
        Err(garde::Error::new(
            "expected an address of the loopback interface, for example 127.0.0.1:19001",
        ))
    }
}
