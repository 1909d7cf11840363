//! The edge: limits of connections, and whether an Envoy is ready.

use std::path::PathBuf;

use clap::Args;

use gatewright_envoy as envoy;

/// Limits of connections, of clients and to backends. A change of one at a restart ends connections, as Envoy makes its
/// filter chains or clusters anew.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits of connections")]
pub struct Edge {
    /// How long an HTTP connection of a client may have no request
    #[arg(long, value_name = "SECONDS", default_value_t = envoy::Edge::DEFAULT.idle_seconds, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub idle_timeout: u64,
    /// How long a TLS or TCP connection that is passed through may have no bytes
    #[arg(long, value_name = "SECONDS", default_value_t = envoy::Edge::DEFAULT.tcp_idle_seconds, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub tcp_idle_timeout: u64,
    /// How long a UDP session may have no datagrams: what a client sends by one socket
    #[arg(long, value_name = "SECONDS", default_value_t = envoy::Edge::DEFAULT.udp_idle_seconds, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub udp_idle_timeout: u64,
    /// How many UDP sessions an Envoy has at one port; datagrams of more clients are dropped
    #[arg(long, value_name = "COUNT", default_value_t = envoy::Edge::DEFAULT.udp_sessions, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub udp_sessions: u32,
    /// After how long an HTTP connection of a client is ended in order, between two requests; 0 for never
    #[arg(long, value_name = "SECONDS", default_value_t = envoy::Edge::DEFAULT.max_connection_seconds, value_parser = clap::value_parser!(u64).range(0..=604_800))]
    pub max_connection_age: u64,
    /// How many connections an Envoy has to one port of one Service, and how many requests are under way there; more are
    /// answered 503
    #[arg(long, value_name = "COUNT", default_value_t = envoy::Edge::DEFAULT.backend_connections, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub backend_connections: u32,
    /// How many certificates of hosts an Envoy holds at a time, about 31 KB each; another is fetched when it is asked for
    /// and takes the place of the one fetched longest ago
    #[arg(long, value_name = "COUNT", default_value_t = 5000, value_parser = parse_certificates)]
    pub envoy_certificates: usize,
}

fn parse_certificates(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (100..=1_000_000).contains(&count) => Ok(count),
        _ => Err(format!("expected a number from 100 to 1000000, found {text:?}")),
    }
}

impl Edge {
    /// What of it is in Envoy's configuration.
    pub fn settings(&self) -> envoy::Edge {
        envoy::Edge {
            idle_seconds: self.idle_timeout,
            tcp_idle_seconds: self.tcp_idle_timeout,
            udp_idle_seconds: self.udp_idle_timeout,
            udp_sessions: self.udp_sessions,
            max_connection_seconds: self.max_connection_age,
            backend_connections: self.backend_connections,
        }
    }
}

/// `ready`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
For a readiness probe of kind exec, beside the Envoy in its pod: it listens nowhere, so nobody can use it up. A controller is
asked again until it is ready, as `helm test` does.

Examples:
  gatewright ready --envoy-admin /run/envoy/admin.sock
  gatewright ready --controller gatewright-metrics.gatewright-system.svc:8080 --patience 60")]
pub struct Ready {
    /// Where Envoy's admin socket is
    #[arg(long, value_name = "SOCKET", required_unless_present = "controller")]
    pub envoy_admin: Option<PathBuf>,
    /// Where a controller has its probes, in place of an Envoy
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "envoy_admin")]
    pub controller: Option<String>,
    /// How long Envoy may take to answer, or the controller to be ready
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub patience: u64,
}
