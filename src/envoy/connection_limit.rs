//! The limit of clients' connections to an Envoy, below its limit of open files (RLIMIT_NOFILE).
//!
//! An Envoy without a file for the next connection leaves it to time out, and reaches no backend
//! either. So there are never that many. As connections near their limit, idle ones are closed
//! soon, so that those of one client do not keep others out.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::udp_sessions::UdpSessions;

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
    /// The file from which Envoy reads how near they are to the limit; `None` if there are files
    /// enough, or nobody writes it.
    pub pressure_file: Option<PathBuf>,
}

impl ConnectionLimit {
    /// A limit of this many, without a pressure.
    pub fn of(most: u32) -> Self {
        Self {
            most,
            pressure_file: None,
        }
    }

    /// The limit of an Envoy that may open so many files (`None`: any number), beside its UDP
    /// sessions. A program beside it writes the pressure into the directory.
    pub fn within(files: Option<u64>, sessions: UdpSessions, dir: &Path) -> Self {
        let most = files.map_or(MOST, |files| {
            most_within(files.saturating_sub(sessions.files()))
        });
        Self {
            most,
            pressure_file: (most < MOST).then(|| dir.join("connection-pressure")),
        }
    }

    /// Checks that an Envoy has files for its UDP sessions, and for the least connections.
    ///
    /// # Errors
    /// With the numbers, and what to change.
    pub fn check_least(files: Option<u64>, sessions: UdpSessions) -> Result<(), String> {
        check(files, sessions, LEAST)
    }

    /// Checks that an Envoy has files for its UDP sessions, and for the most connections.
    ///
    /// # Errors
    /// With the numbers, and what to change.
    pub fn check_most(files: Option<u64>, sessions: UdpSessions) -> Result<(), String> {
        check(files, sessions, MOST)
    }

    /// The content of the file for a number of connections: between 0 and 1.
    pub fn pressure(&self, connections: u64) -> String {
        format!(
            "{:.2}",
            (connections as f64 / f64::from(self.most)).min(1.0)
        )
    }

    /// The monitors of the overload manager.
    pub(super) fn monitors(&self) -> Vec<Value> {
        let Self {
            most,
            pressure_file,
        } = self;
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
        self.pressure_file
            .as_ref()
            .map(|_| json!({ "name": MONITOR, "scaled": scaled }))
    }
}

fn check(files: Option<u64>, sessions: UdpSessions, connections: u32) -> Result<(), String> {
    let needed = OWN_FILES + sessions.files() + FILES * u64::from(connections);
    let Some(files) = files.filter(|files| *files < needed) else {
        return Ok(());
    };
    Err(format!(
        "the limit of open files is {files}, and {sessions} with {connections} connections need {needed}: raise it \
         (LimitNOFILE, ulimits), or lower --udp-sessions"
    ))
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
        fn most(files: Option<u64>) -> u32 {
            ConnectionLimit::within(files, UdpSessions::within(files, 16), Path::new("/run")).most
        }
        assert_eq!(
            most(Some(4096)),
            1408,
            "a quarter for UDP, and a file for each side"
        );
        assert_eq!(most(Some(100)), LEAST, "a limit that is too small");
        assert_eq!(most(Some(1 << 20)), MOST, "the usual limit of a container");
        assert_eq!(most(None), MOST, "no limit");
    }

    #[test]
    fn too_few_files_are_told_with_numbers() {
        let sessions = UdpSessions::within(Some(1024), 16);
        assert_eq!(
            ConnectionLimit::check_least(Some(1024), sessions),
            Ok(()),
            "a quarter for UDP"
        );
        assert_eq!(
            ConnectionLimit::check_most(Some(1 << 19), UdpSessions::DEFAULT),
            Ok(())
        );
        let told =
            ConnectionLimit::check_least(Some(65_536), UdpSessions::DEFAULT).expect_err("too few");
        assert!(
            told.contains("65536, and 65536 UDP sessions with 16 connections need 131360"),
            "{told}"
        );
    }

    #[test]
    fn only_an_envoy_with_few_files_reads_a_pressure() {
        let few = ConnectionLimit::within(Some(4096), UdpSessions::of(512), Path::new("/run"));
        let many = ConnectionLimit::within(Some(1 << 20), UdpSessions::DEFAULT, Path::new("/run"));
        assert_eq!(
            few.pressure_file.as_deref(),
            Some(Path::new("/run/connection-pressure"))
        );
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
        assert_eq!(
            limit.pressure(300),
            "1.00",
            "more than the limit, for a moment"
        );
    }
}
