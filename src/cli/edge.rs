//! The edge: limits of connections, and the bootstrap, readiness and end of an Envoy.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::State;
use crate::envoy;

/// Limits of connections, of clients and to backends. A change of one at a restart ends connections, as Envoy makes its
/// filter chains or clusters anew.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits of connections")]
pub struct Edge {
    /// How long an HTTP connection of a client may have no request
    #[arg(long, value_name = "SECONDS", default_value_t = envoy::Edge::DEFAULT.idle_seconds, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub idle_timeout: u64,
    /// How long a TLS connection that is passed through may have no bytes
    #[arg(long, value_name = "SECONDS", default_value_t = envoy::Edge::DEFAULT.tcp_idle_seconds, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub tcp_idle_timeout: u64,
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
            max_connection_seconds: self.max_connection_age,
            backend_connections: self.backend_connections,
        }
    }
}

/// `bootstrap`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  gatewright bootstrap > bootstrap.json && envoy -c bootstrap.json
  gatewright bootstrap --xds gatewright-xds.gatewright-system.svc:18000 --tls-dir /tls \\
    --envoy-admin /run/admin.sock --memory-limit 2147483648 --file /run/bootstrap.json")]
pub struct Bootstrap {
    /// The Envoy's name in statuses and logs
    #[arg(long, default_value = "envoy")]
    pub node: String,
    /// Where its admin socket is to be [default: envoy-admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: Option<PathBuf>,
    /// The controller, for an Envoy in a cluster [default: the socket of `gatewright standalone`]
    #[arg(long, value_name = "HOST:PORT", requires_all = ["tls_dir", "envoy_admin", "file"])]
    pub xds: Option<String>,
    /// Directory with the Envoy's tls.crt, tls.key and ca.crt
    #[arg(long, value_name = "DIR", requires = "xds")]
    pub tls_dir: Option<PathBuf>,
    /// Where it says over HTTP that it is ready, at /ready, for a load balancer that asks so: once its first configuration has
    /// come, and until it drains. No Gateway can have that port, and who reaches it can use it up: in a pod `gatewright
    /// ready` is the better probe [default: nowhere]
    #[arg(long, value_name = "ADDRESS", requires = "xds")]
    pub ready: Option<SocketAddr>,
    /// What its container may use, in bytes: close below nine tenths of it on the heap it takes no more requests
    #[arg(long, value_name = "BYTES", requires = "xds", default_value_t = 4 << 30, value_parser = clap::value_parser!(u64).range(1 << 26..))]
    pub memory_limit: u64,
    /// Write it to this file, and xds-keys.json and xds-roots.json beside it, instead of printing it
    #[arg(long, value_name = "FILE", requires = "xds")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
}

/// `drain`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Runs until it is told to end (SIGTERM), as everything in a pod is that is deleted. Then:
  1. Envoy serves on as before for --serve seconds, while nodes and load balancers take the pod out.
  2. It is ready no more and asks its clients to connect elsewhere, until no connection is left, for at most --drain seconds.
  3. Envoy ends.
Envoy ends at once when it is told to itself: put that off for as long as both take (preStop: sleep), and let the pod have as
much time (terminationGracePeriodSeconds). deploy/envoy.yaml does.

Example:
  gatewright drain --envoy-admin /run/envoy/admin.sock --serve 15 --drain 25")]
pub struct Drain {
    /// Where Envoy's admin socket is
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: PathBuf,
    /// How long Envoy serves on as before
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub serve: u64,
    /// How long connections have to end after that; not less than Envoy's --drain-time-s
    #[arg(long, value_name = "SECONDS", default_value_t = 25, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub drain: u64,
}

/// `ready`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
For a readiness probe of kind exec, beside the Envoy in its pod: it listens nowhere, so nobody can use it up.

Example:
  gatewright ready --envoy-admin /run/envoy/admin.sock")]
pub struct Ready {
    /// Where Envoy's admin socket is
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: PathBuf,
    /// How long Envoy may take to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub patience: u64,
}
