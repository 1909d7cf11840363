//! The statistics that Prometheus reads from an Envoy, and who reads them.

use std::net::SocketAddr;

/// The port for statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Its address.
    pub address: SocketAddr,
    /// The statistics that it shows, and to whom.
    pub shown: ShownStatistics,
}

/// The content of the port for statistics. Numbers about traffic name what tenants have, so that
/// only a reader with a password gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShownStatistics {
    /// Envoy as a whole, to everybody: memory, overload, and its configuration.
    Process,
    /// Requests by port and by namespace as well, to one reader.
    Traffic(StatisticsReader),
    /// Requests by cluster as well, a Service port each: their number grows with the Services.
    Services(StatisticsReader),
}

/// The reader of statistics, by HTTP's basic authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatisticsReader {
    /// The name, without a colon.
    pub name: String,
    /// The SHA-1 of the password, in base64: what Envoy compares with. Envoy never has the password
    /// itself.
    pub sha1: String,
}

/// Statistics of Envoy as a whole.
const PROCESS: &str = r"(server|overload|listener_manager|cluster_manager|main_thread|workers)\.";
/// Statistics by namespace, of the loggers of [`super::traffic`].
const NAMESPACES: &str = r"gatewright\.";
/// Statistics by port. Envoy writes the colon of a name as an underscore.
const PORTS: &str = r"http\.[^.]*_[0-9]*\.downstream_(rq_(total|active|time|[1-5]xx)|cx_(total|active|rx_bytes_total|tx_bytes_total))$|tcp\.[^.]*_[0-9]*\.downstream_cx_(total|rx_bytes_total|tx_bytes_total|no_route)$|udp\.[^.]*_[0-9]*/udp\.downstream_sess_(total|active)$";
/// Statistics by cluster. The names of those of passed-through hosts have dots, and are left out.
const CLUSTERS: &str = r"cluster\.[^.]*/[^.]*\.(upstream_rq_(total|active|time|timeout|pending_overflow|[1-5]xx)|upstream_cx_(active|connect_fail|overflow|rx_bytes_total|tx_bytes_total)|membership_(healthy|total))$";

impl ShownStatistics {
    /// The expression (RE2) that finds the names of the statistics.
    pub(super) fn filter(&self) -> String {
        let parts: &[&str] = match self {
            Self::Process => &[PROCESS],
            Self::Traffic(_) => &[PROCESS, NAMESPACES, PORTS],
            Self::Services(_) => &[PROCESS, NAMESPACES, PORTS, CLUSTERS],
        };
        format!("^({})", parts.join("|"))
    }

    /// The reader; `None` if it is everybody.
    pub(super) fn reader(&self) -> Option<&StatisticsReader> {
        match self {
            Self::Process => None,
            Self::Traffic(reader) | Self::Services(reader) => Some(reader),
        }
    }
}

impl StatisticsReader {
    /// The line of a file of users, as Apache's htpasswd writes it.
    pub(super) fn user(&self) -> String {
        let Self { name, sha1 } = self;
        format!("{name}:{{SHA}}{sha1}")
    }
}
