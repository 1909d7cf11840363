//! Queries of Envoys' admin sockets.

use std::path::Path;
use std::time::Duration;

use gatewright_control::{ask, tell};
use tokio::time::timeout;

use super::plan::Info;

/// The timeout of a query. Envoy's main thread may be busy with a large configuration.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the server information of the Envoy behind this socket.
pub(super) async fn info(admin: &Path) -> Option<Info> {
    let text = timeout(TIMEOUT, ask(admin, "/server_info"))
        .await
        .ok()?
        .ok()?;
    serde_json::from_str(&text).ok()
}

/// Makes connections end after their request in progress. Returns whether Envoy accepted it.
pub(super) async fn end_connections(admin: &Path) -> bool {
    is_accepted(admin, "/healthcheck/fail").await
}

/// Makes Envoy open its log files anew. Returns whether it accepted that.
pub(super) async fn reopen_logs(admin: &Path) -> bool {
    is_accepted(admin, "/reopen_logs").await
}

/// Sends a command. Returns whether Envoy accepted it in time.
async fn is_accepted(admin: &Path, command: &str) -> bool {
    timeout(TIMEOUT, tell(admin, command))
        .await
        .is_ok_and(|answer| answer.is_ok())
}

/// Makes Envoy accept no more connections.
pub(super) async fn stop_listening(admin: &Path) {
    // An Envoy that does not answer is ended all the same.
    is_accepted(admin, "/drain_listeners").await;
}

/// Returns the number of requests, and of connections of other protocols, in progress; `None`
/// without an answer.
pub(super) async fn under_way(admin: &Path) -> Option<u64> {
    let filter = "/stats?filter=^(http|tcp)\\..*\\.downstream_(rq|cx)_active$";
    let text = timeout(TIMEOUT, ask(admin, filter)).await.ok()?.ok()?;
    Some(count(&text))
}

fn count(stats: &str) -> u64 {
    let counted = |name: &str| match name.split_once('.') {
        Some(("http", rest)) => {
            !rest.starts_with("admin.") && rest.ends_with(".downstream_rq_active")
        }
        Some(("tcp", rest)) => rest.ends_with(".downstream_cx_active"),
        _ => false,
    };
    let lines = stats.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter(|(name, _)| counted(name))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_tunnels_count_and_idle_connections_do_not() {
        let stats = "http.a/edge:443.downstream_cx_active: 7\nhttp.a/edge:443.downstream_rq_active: 2\n\
            http.admin.downstream_rq_active: 1\ntcp.a/edge:443.downstream_cx_active: 3\nnonsense\n";
        assert_eq!(count(stats), 5);
        assert_eq!(count(""), 0);
    }
}
