//! `gatewright bootstrap`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::State;

/// `bootstrap`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  gatewright bootstrap > bootstrap.json && envoy -c bootstrap.json
  gatewright bootstrap --xds gatewright-xds.gatewright-system.svc:18000 --tls-dir /tls \\
    --envoy-admin /run/admin.sock --memory-limit 2147483648 --file /run/bootstrap.json")]
pub struct Bootstrap {
    /// Name of the Envoy (node id) in statuses and logs
    #[arg(long, default_value = "envoy")]
    pub node: String,
    /// Zone of the Envoy: where a Service has trafficDistribution, the endpoints of this zone are
    /// preferred [default: the one that `gatewright envoy-identity` wrote into --tls-dir; without one
    /// endpoints of all zones are used]
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
    /// Path of Envoy's admin socket [default: envoy-admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: Option<PathBuf>,
    /// Address of the controller's xDS server, for an Envoy in a cluster [default: the socket of
    /// `gatewright standalone`]
    #[arg(long, value_name = "HOST:PORT", requires_all = ["tls_dir", "envoy_admin", "file"])]
    pub xds: Option<String>,
    /// Directory with tls.crt and tls.key, the Envoy's client certificate for xDS, and ca.crt
    #[arg(long, value_name = "DIR", requires = "xds")]
    pub tls_dir: Option<PathBuf>,
    /// Listening address of Envoy's HTTP readiness check at /ready, for load balancers: ready from
    /// the first configuration until Envoy drains. Gateways cannot use its port. Its clients can
    /// exhaust its connections: in a pod prefer `gatewright ready` [default: none]
    #[arg(long, value_name = "ADDRESS", requires = "xds")]
    pub ready: Option<SocketAddr>,
    /// Listening address of Envoy's statistics for Prometheus at /stats/prometheus, with TLS by the
    /// certificate of --tls-dir: those of Envoy as a whole, none of a host or Service. Gateways
    /// cannot use its port [default: none]
    #[arg(long, value_name = "ADDRESS", requires = "xds")]
    pub stats: Option<SocketAddr>,
    /// Directory with username and password, as in a Secret of type kubernetes.io/basic-auth, of
    /// the only reader of statistics, who gets those of ports and namespaces as well
    /// (docs/traffic-metrics.md)
    #[arg(long, value_name = "DIR", requires = "stats")]
    pub stats_credentials: Option<PathBuf>,
    /// Give that reader the statistics of each Service port as well: some 30 series for each that
    /// gets requests
    #[arg(long, requires = "stats_credentials")]
    pub stats_services: bool,
    /// Memory limit of Envoy's container, in bytes. The heap limit is 90% of it; just below that
    /// limit Envoy refuses new connections and requests
    #[arg(long, value_name = "BYTES", requires = "xds", default_value_t = 4 << 30, value_parser = clap::value_parser!(u64).range(1 << 26..))]
    pub memory_limit: u64,
    /// Path of a file for the bootstrap, instead of standard output; xds-keys.json and
    /// xds-roots.json are written beside it
    #[arg(long, value_name = "FILE", requires = "xds")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
}
