//! The statistics that an Envoy keeps, those that Prometheus reads from it, and who reads them.

use std::net::SocketAddr;

use serde_json::{Value, json};

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
    /// Envoy as a whole, to everybody: memory, overload, its configuration, and what collectors did
    /// not take.
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
/// Lines of access logs that collectors took and that were lost, of all loggers together.
const LOG_LINES: &str = r"access_logs\.open_telemetry_access_log\.logs_(dropped|written)$";
/// Batches of lines and of spans that collectors did not take, of all clusters that
/// [`super::otlp`] names so, and spans that were sent or found no room.
const BATCHES: &str = r"cluster\.otlp\.upstream_rq_(5xx|max_duration_reached)$|tracing\.opentelemetry\.spans_(dropped|sent)$";
/// Statistics by namespace, of the loggers of [`super::traffic`].
const NAMESPACES: &str = r"gatewright\.";
/// Statistics by port. Envoy writes the colon of a name as an underscore.
const PORTS: &str = r"http\.[^.]*_[0-9]*\.downstream_(rq_(total|active|time|[1-5]xx)|cx_(total|active|rx_bytes_total|tx_bytes_total))$|tcp\.[^.]*_[0-9]*\.downstream_cx_(total|rx_bytes_total|tx_bytes_total|no_route)$|udp\.[^.]*_[0-9]*/udp\.downstream_sess_(total|active)$";
/// Statistics by cluster. The names of those of passed-through hosts have dots, and are left out.
const CLUSTERS: &str = r"cluster\.[^.]*/[^.]*\.(upstream_rq_(total|active|time|timeout|(pending|active)_overflow|[1-5]xx)|upstream_cx_(active|connect_fail|overflow|rx_bytes_total|tx_bytes_total)|membership_(healthy|total))$";

/// The times of requests by cluster: a histogram, which Envoy has once more for each worker.
const CLUSTER_TIMES: &str = "upstream_rq_time";

/// Statistics of a cluster that nobody reads. Envoy would have 121 for a plain one, and a scrape
/// walks all that exist. Those that remain are the ones of [`CLUSTERS`], and what explains errors
/// of a backend to an operator: time-outs, resets, retries, health checks, ejections, and TLS.
const UNREAD_OF_CLUSTERS: [&str; 14] = [
    // Of the resource, and of its load balancing.
    r"(assignment|update)_\w+|version(_text)?|init_fetch_timeout|warming_state|max_host_weight",
    r"membership_(change|degraded|excluded)|lb_(local|recalculate|subsets|zone)_\w+",
    r"circuit_breakers\.\w+\.\w+|(ring_hash|maglev)_lb\.\w+|default\.total_match_count",
    r"bind_errors|original_dst_host_invalid|retry_or_shadow_abandoned",
    // Of connections.
    r"upstream_cx_(close_notify|connect_(attempts_exceeded|ms|with_0_rtt)|destroy\w*|http[123]_total)",
    r"upstream_cx_(idle_timeout|length_ms|max_\w+|pool_overflow|preconnect_skipped|protocol_error)",
    r"upstream_cx_[rt]x_bytes_buffered|upstream_(flow_control|http3|queue)_\w+|http[123]\.\w+",
    r"client_ssl_socket_factory\.\w+|ssl\.(ciphers|curves|sigalgs|versions)\..*",
    r"ssl\.(no_certificate|ocsp_\w+|session_reused|was_key_usage_invalid)",
    r"outlier_detection\.ejections_(consecutive|detected|enforced_[cfls]|overflow|success)\w*",
    // Of requests.
    r"(canary|external|internal)\.\w+|upstream_internal_redirect_\w+",
    r"upstream_rq_([0-9]+|0rtt|cancelled|completed|maintenance_mode|per_cx)",
    r"upstream_rq_(pending_(active|failure_eject|total)|per_try_idle_timeout|rx_reset_no_error)",
    r"upstream_rq_(retry_(backoff_\w+|limit_exceeded|success)|tx_reset)",
];

/// Further ones of clusters other than those of collectors, whose name has no slash.
const UNREAD_OF_SERVICES: &str = r"cluster\..*/.*\.upstream_rq_max_duration_reached";

/// The matchers of statistics that Envoy does not keep, since they exist once per hostname,
/// certificate or cluster: with thousands of hosts they take most of Envoy's memory and of its idle
/// CPU, and are too many to read.
pub(super) fn excluded(shown: Option<&ShownStatistics>) -> Value {
    json!([
        { "contains": ".rds." },
        { "prefix": "sds." },
        { "contains": ".ssl.certificate." },
        { "safe_regex": { "regex": unread_of_clusters(shown) } },
    ])
}

/// The expression (RE2) for whole names of statistics.
fn unread_of_clusters(shown: Option<&ShownStatistics>) -> String {
    let times = match shown {
        Some(ShownStatistics::Services(_)) => None,
        Some(ShownStatistics::Process | ShownStatistics::Traffic(_)) | None => Some(CLUSTER_TIMES),
    };
    let names: Vec<&str> = UNREAD_OF_CLUSTERS.into_iter().chain(times).collect();
    format!(r"cluster\..*\.({})|{UNREAD_OF_SERVICES}", names.join("|"))
}

impl ShownStatistics {
    /// The expression (RE2) that finds the names of the statistics.
    pub(super) fn filter(&self) -> String {
        let parts: &[&str] = match self {
            Self::Process => &[PROCESS, LOG_LINES, BATCHES],
            Self::Traffic(_) => &[PROCESS, LOG_LINES, BATCHES, NAMESPACES, PORTS],
            Self::Services(_) => &[PROCESS, LOG_LINES, BATCHES, NAMESPACES, PORTS, CLUSTERS],
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

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    fn services() -> ShownStatistics {
        ShownStatistics::Services(StatisticsReader {
            name: "prometheus".to_owned(),
            sha1: String::new(),
        })
    }

    fn matches(shown: Option<&ShownStatistics>, name: &str) -> bool {
        let whole = format!("^({})$", unread_of_clusters(shown));
        Regex::new(&whole).expect("an expression").is_match(name)
    }

    #[test]
    fn what_prometheus_reads_is_kept() {
        for name in [
            "upstream_rq_total",
            "upstream_rq_active",
            "upstream_rq_time",
            "upstream_rq_timeout",
            "upstream_rq_pending_overflow",
            "upstream_rq_active_overflow",
            "upstream_rq_5xx",
            "upstream_cx_active",
            "upstream_cx_connect_fail",
            "upstream_cx_overflow",
            "upstream_cx_rx_bytes_total",
            "upstream_cx_tx_bytes_total",
            "membership_healthy",
            "membership_total",
        ] {
            let name = format!("cluster.blue/web_80.{name}");
            let filter = Regex::new(&services().filter()).expect("an expression");
            assert!(filter.is_match(&name), "{name} is read");
            assert!(!matches(Some(&services()), &name), "{name} is kept");
        }
    }

    #[test]
    fn times_of_clusters_are_kept_for_a_reader_of_them() {
        let times = "cluster.blue/web_80.upstream_rq_time";
        assert!(matches(None, times), "nobody reads them");
        assert!(
            matches(Some(&ShownStatistics::Process), times),
            "only Envoy as a whole is read"
        );
        assert!(!matches(Some(&services()), times), "somebody reads them");
    }

    #[test]
    fn what_collectors_did_not_take_is_kept_and_read_by_everybody() {
        for name in [
            "cluster.otlp.upstream_rq_5xx",
            "cluster.otlp.upstream_rq_max_duration_reached",
            "tracing.opentelemetry.spans_dropped",
            "tracing.opentelemetry.spans_sent",
        ] {
            let filter = Regex::new(&ShownStatistics::Process.filter()).expect("an expression");
            assert!(filter.is_match(name), "{name} is read");
            assert!(!matches(None, name), "{name} is kept");
        }
        let other = "cluster.blue/web_80.upstream_rq_max_duration_reached";
        assert!(matches(None, other), "nobody reads it");
    }

    #[test]
    fn only_statistics_of_clusters_are_left_out_whatever_hosts_are_called() {
        for name in [
            "http.blue/edge_443.downstream_rq_time",
            "cluster_manager.cds.update_success",
            "listener_manager.lds.version",
            "cluster.external.http2.version.example.org.upstream_cx_total",
        ] {
            assert!(!matches(None, name), "{name}");
        }
        for name in [
            "cluster.a.example.org.upstream_cx_length_ms",
            "cluster.blue/web_80.upstream_rq_503",
            "cluster.blue/web_80.ssl.ciphers.TLS_AES_128_GCM_SHA256",
        ] {
            assert!(matches(None, name), "{name}");
        }
    }
}
