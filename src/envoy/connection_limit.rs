//! The limit of clients' connections to an Envoy, below its limit of open files (RLIMIT_NOFILE).
//!
//! An Envoy without a file for the next connection leaves it to time out, and reaches no backend either. So there are
//! never that many. As connections near their limit, idle ones are closed soon, so that those of one client do not keep
//! others out.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The most connections, whatever the limit of files.
const MOST: u32 = 50_000;
/// The least, so that a limit of files that is too small for Envoy itself is Envoy's own error.
const LEAST: u32 = 16;
/// The files that Envoy needs besides: listeners, its workers, its log, the connection to us.
const OWN_FILES: u64 = 256;
/// The files that a connection needs: its own and that of one to a backend.
const FILES: u64 = 2;

/// The name of Envoy's resource monitor that reads the pressure from a file.
const MONITOR: &str = "envoy.resource_monitors.injected_resource";

/// The limit of clients' connections over all listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// The most connections.
    pub most: u32,
    /// The file from which Envoy reads how near they are to the limit; `None` if there are files enough, or nobody
    /// writes it.
    pub pressure_file: Option<PathBuf>,
}

impl ConnectionLimit {
    /// A limit of this many, without a pressure.
    pub fn of(most: u32) -> Self {
        Self { most, pressure_file: None }
    }

    /// The limit of an Envoy that may open so many files (`None`: any number). A program beside it writes the pressure
    /// into the directory.
    pub fn within(files: Option<u64>, dir: &Path) -> Self {
        let most = files.map_or(MOST, most_within);
        Self { most, pressure_file: (most < MOST).then(|| dir.join("connection-pressure")) }
    }

    /// The content of the file for a number of connections: between 0 and 1.
    pub fn pressure(&self, connections: u64) -> String {
        format!("{:.2}", (connections as f64 / f64::from(self.most)).min(1.0))
    }

    /// The monitors of the overload manager.
    pub(super) fn monitors(&self) -> Vec<Value> {
        let Self { most, pressure_file } = self;
        let limit = json!({ "name": "envoy.resource_monitors.global_downstream_max_connections", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
            "max_active_downstream_connections": most.to_string(),
        } });
        let pressure = pressure_file.iter().map(|file| {
            json!({ "name": MONITOR, "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.resource_monitors.injected_resource.v3.InjectedResourceConfig",
                "filename": file,
            } })
        });
        std::iter::once(limit).chain(pressure).collect()
    }

    /// The trigger by which timeouts become shorter: at half of the connections it begins.
    pub(super) fn trigger(&self) -> Option<Value> {
        let scaled = json!({ "scaling_threshold": 0.5, "saturation_threshold": 0.8 });
        self.pressure_file.as_ref().map(|_| json!({ "name": MONITOR, "scaled": scaled }))
    }
}

fn most_within(files: u64) -> u32 {
    let most = files.saturating_sub(OWN_FILES) / FILES;
    u32::try_from(most).unwrap_or(MOST).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_fewer_than_files_and_never_more_than_the_maximum() {
        let most = |files| ConnectionLimit::within(files, Path::new("/run")).most;
        assert_eq!(most(Some(4096)), 1920, "a file for each side");
        assert_eq!(most(Some(100)), LEAST, "a limit that is too small");
        assert_eq!(most(Some(1 << 20)), MOST, "the usual limit of a container");
        assert_eq!(most(None), MOST, "no limit");
    }

    #[test]
    fn only_an_envoy_with_few_files_reads_a_pressure() {
        let few = ConnectionLimit::within(Some(4096), Path::new("/run"));
        let many = ConnectionLimit::within(Some(1 << 20), Path::new("/run"));
        assert_eq!(few.pressure_file.as_deref(), Some(Path::new("/run/connection-pressure")));
        assert_eq!(few.monitors().len(), 2, "the limit and the pressure");
        assert!(few.trigger().is_some(), "timeouts become shorter");
        assert_eq!(many, ConnectionLimit::of(MOST));
        assert_eq!(many.monitors().len(), 1, "the limit alone");
    }

    #[test]
    fn the_pressure_is_the_used_part_of_the_limit() {
        let limit = ConnectionLimit::of(200);
        assert_eq!(limit.pressure(0), "0.00");
        assert_eq!(limit.pressure(101), "0.51");
        assert_eq!(limit.pressure(300), "1.00", "more than the limit, for a moment");
    }
}
