//! The edge: limits of connections, and whether an Envoy is ready.

use std::path::PathBuf;

use clap::Args;

use gatewright_core::limits::Limits;
use gatewright_envoy as envoy;
use gatewright_envoy::UdpSessions;

/// Limits of connections, of clients and to backends. A changed limit closes connections at the
/// next start, because Envoy replaces its filter chains or clusters.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits of connections")]
pub struct Edge {
    /// Idle timeout of a client's HTTP connection without a request, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = envoy::Edge::DEFAULT.idle_seconds, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub idle_timeout: u64,
    /// Idle timeout of a TLS passthrough or TCP connection without bytes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = envoy::Edge::DEFAULT.tcp_idle_seconds, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub tcp_idle_timeout: u64,
    /// Idle timeout of a UDP session without datagrams, in seconds; a session is what one socket of
    /// a client sends
    #[arg(long, value_name = "SECONDS", default_value_t = envoy::Edge::DEFAULT.udp_idle_seconds, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub udp_idle_timeout: u64,
    /// Maximum number of UDP sessions of an Envoy. Each UDP port has an equal part of them, by
    /// --max-udp-ports, and drops datagrams of further clients [default: 65536; standalone: fewer
    /// where the limit of open files is small]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub udp_sessions: Option<u32>,
    /// Maximum age of a client's HTTP connection, in seconds; it is then closed gracefully, between
    /// two requests; 0 for no maximum
    #[arg(long, value_name = "SECONDS", default_value_t = envoy::Edge::DEFAULT.max_connection_seconds, value_parser = clap::value_parser!(u64).range(0..=604_800))]
    pub max_connection_age: u64,
    /// Maximum number of connections of an Envoy to one port of one Service, and of pending
    /// requests there; further requests are answered 503, further TCP connections are closed
    #[arg(long, value_name = "COUNT", default_value_t = envoy::Edge::DEFAULT.backend_connections, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub backend_connections: u32,
    /// Maximum number of host certificates in the memory of an Envoy, of 45 KB each: a larger one,
    /// with a chain of more than 3.5 KiB, counts for more. Beyond it, a certificate is fetched on
    /// demand and replaces those that were fetched longest ago
    #[arg(long, value_name = "COUNT", default_value_t = 5000, value_parser = parse_certificates)]
    pub envoy_certificates: usize,
}

fn parse_certificates(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (100..=1_000_000).contains(&count) => Ok(count),
        _ => Err(format!(
            "expected a number from 100 to 1000000, found {text:?}"
        )),
    }
}

impl Edge {
    /// The memory of an Envoy for certificates of hosts, in bytes.
    pub fn certificate_memory(&self) -> usize {
        self.envoy_certificates * xds::Limits::USUAL_SECRET_MEMORY
    }

    /// The part that is in Envoy's configuration.
    pub fn settings(&self, sessions: UdpSessions, limits: &Limits) -> envoy::Edge {
        envoy::Edge {
            idle_seconds: self.idle_timeout,
            tcp_idle_seconds: self.tcp_idle_timeout,
            udp_idle_seconds: self.udp_idle_timeout,
            udp_port_sessions: sessions.of_port(limits.max_udp_ports),
            max_connection_seconds: self.max_connection_age,
            backend_connections: self.backend_connections,
        }
    }
}

/// `ready`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
For an exec readiness probe in the pod of an Envoy: it opens no port, so clients cannot exhaust its connections. The probes of
a controller are repeated until it is ready or --patience has passed, as in `helm test`.

Examples:
  gatewright ready --envoy-admin /run/envoy/admin.sock
  gatewright ready --controller gatewright-metrics.gatewright-system.svc:8080 --patience 60")]
pub struct Ready {
    /// Path of Envoy's admin socket
    #[arg(long, value_name = "SOCKET", required_unless_present = "controller")]
    pub envoy_admin: Option<PathBuf>,
    /// Address of a controller's probes (its --probes), to check the controller instead of an Envoy
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "envoy_admin")]
    pub controller: Option<String>,
    /// Time limit for the answer of Envoy, or until the controller is ready, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub patience: u64,
}
