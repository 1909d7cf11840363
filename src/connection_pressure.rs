//! Tells an Envoy how near its connections are to their limit: Envoy's overload manager reads that
//! from a file only.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::time::{sleep, timeout};

use gatewright_control::ask;
use gatewright_control::event::warn_of_file;
use gatewright_core::limits::Limits;
use gatewright_envoy::{ConnectionLimit, UdpSessions};

/// The interval at which connections are counted once they are many.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The interval at which few connections are counted. Envoy knows the limit itself; only what it
/// does before, near the limit, depends on the count.
const CALM_INTERVAL: Duration = Duration::from_secs(2);
/// The inverse of the part of the limit above which connections are many.
const MANY: u64 = 4;
/// The timeout of a count: Envoy's main thread may be busy.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The gauges that count connections, also those whose TLS handshake is in progress.
const GAUGES: &str = r"/stats?type=Gauges&filter=^listener\..*\.downstream_(pre_)?cx_active$";

/// The number of files that an Envoy may open that is started like this process, and raises its own
/// limit to the maximum, as Envoy does; `None` for any number.
pub(crate) fn files() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// The limit for such an Envoy beside these UDP sessions. The file of its pressure is in this
/// directory.
pub(crate) fn limit(sessions: UdpSessions, dir: &Path) -> ConnectionLimit {
    ConnectionLimit::within(files(), sessions, dir)
}

/// The same for an Envoy whose UDP sessions another program sets: the default, as far as files
/// suffice.
pub(crate) fn usual_limit(dir: &Path) -> ConnectionLimit {
    limit(
        UdpSessions::within(files(), Limits::default().udp_ports),
        dir,
    )
}

/// Writes the file for an Envoy without connections. It must exist before Envoy starts; on a full
/// disk that of an Envoy before it serves as well, until it is written again.
///
/// # Errors
/// When it does not exist and cannot be written.
pub(crate) fn reset(limit: &ConnectionLimit) -> std::io::Result<()> {
    match write(limit, &limit.pressure(0)) {
        Err(error)
            if limit
                .pressure_file
                .as_ref()
                .is_some_and(|file| file.exists()) =>
        {
            limit
                .pressure_file
                .iter()
                .for_each(|file| warn_of_file(file, &error));
            Ok(())
        }
        written => written,
    }
}

/// Keeps the file up to date. Ends only by being dropped.
pub(crate) async fn follow(admin: &Path, limit: &ConnectionLimit) -> Infallible {
    let Some(file) = &limit.pressure_file else {
        return std::future::pending().await;
    };
    let mut written = String::new();
    let mut is_failing = false;
    let mut pause = POLL_INTERVAL;
    loop {
        sleep(pause).await;
        // Without an answer Envoy starts, or its main thread is busy.
        let Ok(Ok(stats)) = timeout(TIMEOUT, ask(admin, GAUGES)).await else {
            continue;
        };
        let connections = count(&stats);
        pause = interval(connections, limit);
        let pressure = limit.pressure(connections);
        if pressure == written {
            continue;
        }
        match write(limit, &pressure) {
            Ok(()) => {
                written = pressure;
                is_failing = false;
            }
            // Told once for as long as it lasts.
            Err(error) if !is_failing => {
                warn_of_file(file, error);
                is_failing = true;
            }
            Err(_) => {}
        }
    }
}

/// Returns the time until the next count.
fn interval(connections: u64, limit: &ConnectionLimit) -> Duration {
    if connections < u64::from(limit.most) / MANY {
        CALM_INTERVAL
    } else {
        POLL_INTERVAL
    }
}

/// Envoy reads the file when another one is moved there.
fn write(limit: &ConnectionLimit, pressure: &str) -> std::io::Result<()> {
    let Some(file) = &limit.pressure_file else {
        return Ok(());
    };
    let new = file.with_extension("new");
    std::fs::write(&new, pressure)?;
    std::fs::rename(new, file)
}

/// The connections of all listeners but the admin interface; those of a single worker are counted
/// in its listener's.
fn count(stats: &str) -> u64 {
    let lines = stats.lines().filter_map(|line| line.split_once(": "));
    let counted = lines
        .filter(|(name, _)| !name.contains(".worker_") && !name.starts_with("listener.admin."));
    counted
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_connections_are_counted_less_often() {
        let limit = ConnectionLimit::of(1000);
        assert_eq!(interval(0, &limit), CALM_INTERVAL);
        assert_eq!(interval(249, &limit), CALM_INTERVAL);
        assert_eq!(interval(250, &limit), POLL_INTERVAL);
        assert_eq!(
            interval(0, &ConnectionLimit::of(3)),
            POLL_INTERVAL,
            "a few more are many"
        );
    }

    #[test]
    fn connections_are_counted_once_and_those_of_the_admin_interface_are_not() {
        let stats = "listener.admin.downstream_cx_active: 1\nlistener.admin.main_thread.downstream_cx_active: 1\n\
            listener.infra/edge_443.downstream_cx_active: 7\nlistener.infra/edge_443.downstream_pre_cx_active: 2\n\
            listener.infra/edge_443.worker_0.downstream_cx_active: 7\nnonsense\n";
        assert_eq!(count(stats), 9);
        assert_eq!(count(""), 0, "an Envoy without listeners");
    }
}
