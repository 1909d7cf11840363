//! The command line: what can be said, and the help that teaches it. Nothing is done here.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// From a tenant's hostname to the right Envoy, with the right certificate and a truthful status.
#[derive(Debug, Parser)]
#[command(name = "gatewright", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gatewright standalone                   the built-in example, on 127.0.0.1
  gatewright standalone ./manifests       watch a directory and serve it
  gatewright translate ./manifests        what Envoy would get, with nothing running
  gatewright lint ./manifests             what would be refused or lost
  gatewright status                       every object's conditions
  gatewright explain https://shop.example.org:8443/cart

Exit status: 0 all is well, 1 something was found or failed, 2 the command line is wrong.";

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory of Gateway API manifests with an Envoy; without one, a built-in example
    Standalone(Standalone),
    /// Print what Envoy would get, and the statuses, with nothing running
    Translate(Translate),
    /// Find what would be refused or lost, with nothing running
    Lint(Lint),
    /// Print every object's conditions, as the running program would write them to Kubernetes
    Status(Status),
    /// Follow a URL through the running program, up to the first link that fails
    Explain(Explain),
    /// Print the bootstrap for an Envoy started elsewhere
    Bootstrap(Bootstrap),
    /// Print a completion script for a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the version
    Version,
}

/// Where the running program keeps its sockets and keys.
#[derive(Clone, Debug, Args)]
pub struct State {
    /// Private directory (mode 0700) for sockets, keys and logs
    /// [default: $XDG_STATE_HOME/gatewright/standalone, else ~/.local/state/gatewright/standalone]
    #[arg(long, value_name = "DIR", env = "GATEWRIGHT_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

/// How TenantGateways are carried out.
#[derive(Clone, Debug, Args)]
pub struct Tenants {
    /// Port of plain HTTP on the Gateways of TenantGateways
    #[arg(long, value_name = "PORT", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..))]
    pub tenant_http_port: u16,
    /// Port of TLS on the Gateways of TenantGateways
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    pub tenant_https_port: u16,
    /// Who of several claimants of a hostname has it
    #[arg(long, value_enum, default_value_t = HostnameClaims::Smallest)]
    pub hostname_claims: HostnameClaims,
}

/// Who of several claimants of a hostname has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostnameClaims {
    /// cozy-* namespaces first, then the smallest namespace/name
    Smallest,
    /// The namespace that claimed it first, as recorded in the private directory
    FirstCome,
}

/// `standalone`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright standalone --once            try the built-in example: exit 0 when every page came
  gatewright standalone ./manifests --envoy /usr/local/bin/envoy
  gatewright standalone ./manifests --no-envoy    for Envoys started with `gatewright bootstrap`")]
pub struct Standalone {
    /// The directory to watch; without it the built-in example is served
    pub dir: Option<PathBuf>,
    /// Check that everything is served, print the table, and exit 0 or 1
    #[arg(long)]
    pub once: bool,
    /// The Envoy to run [default: `envoy` on PATH, else the one that `make demo` installed]
    #[arg(long, value_name = "PATH", conflicts_with = "no_envoy")]
    pub envoy: Option<PathBuf>,
    /// Start no Envoy
    #[arg(long)]
    pub no_envoy: bool,
    /// Address for Gateways without spec.addresses; may be repeated
    #[arg(long = "address", value_name = "IP", default_value = "127.0.0.1")]
    pub addresses: Vec<IpAddr>,
    /// Where this program's admin socket is [default: admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,
    /// Where Envoy's admin socket is [default: envoy-admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: Option<PathBuf>,
    /// Take manifests that others may write, and links out of the directory
    #[arg(long)]
    pub allow_unsafe_manifests: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub tenants: Tenants,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
}

/// `translate`
#[derive(Clone, Debug, Args)]
pub struct Translate {
    /// A file, a directory, or `-` for standard input
    pub path: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Document::Yaml)]
    pub output: Document,
    /// Address for Gateways without spec.addresses; may be repeated
    #[arg(long = "address", value_name = "IP", default_value = "127.0.0.1")]
    pub addresses: Vec<IpAddr>,
    /// Take manifests that others may write, and links out of the directory
    #[arg(long)]
    pub allow_unsafe_manifests: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub tenants: Tenants,
}

/// `lint`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Found are hostnames that routes would not get (conflicts, out of the apex, wildcards that cannot be issued, names
that collide, limits), what is wrong with TenantGateways, and references that do not resolve or need a ReferenceGrant.

Example:
  kubectl get gateways,httproutes,tenantgateways,namespaces -A -o yaml | gatewright lint -

Exit status: 0 nothing was found, 1 something was, 2 the command line is wrong.")]
pub struct Lint {
    /// A file, a directory, or `-` for standard input
    pub path: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Say what would not fit without ListenerSets
    #[arg(long)]
    pub no_listener_sets: bool,
    /// Take manifests that others may write, and links out of the directory
    #[arg(long)]
    pub allow_unsafe_manifests: bool,
}

/// `status`
#[derive(Clone, Debug, Args)]
pub struct Status {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// The running program's admin socket [default: admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
}

/// `explain`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  gatewright explain https://shop.example.org:8443/cart")]
pub struct Explain {
    /// http:// or https://, host, and if need be port and path
    pub url: String,
    /// The request's method
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// The running program's admin socket [default: admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
}

/// `bootstrap`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  gatewright bootstrap > bootstrap.json && envoy -c bootstrap.json")]
pub struct Bootstrap {
    /// The Envoy's name in statuses and logs
    #[arg(long, default_value = "envoy")]
    pub node: String,
    /// Where its admin socket is to be [default: envoy-admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
}

/// How a document is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Document {
    /// YAML
    Yaml,
    /// JSON
    Json,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// YAML
    Yaml,
    /// JSON
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["gatewright", "standalone", "--envoy", "x", "--no-envoy"]).is_err());
        assert!(Cli::try_parse_from(["gatewright", "translate", "-", "-o", "json"]).is_ok());
    }
}
