//! The command line: flags, commands and their help. Nothing is done here.

mod backup;
mod bootstrap;
mod claims;
mod cluster;
mod config;
mod configured;
mod controller;
mod convert;
mod crds;
mod drain;
mod envoy;
mod envoy_identity;
mod envoy_process;
mod envoys;
mod history;
mod host;
mod images;
mod init;
mod keeping;
mod kinds;
mod log;
mod logs;
mod offline;
mod plan;
mod plugin;
mod ready;
mod running_program;
mod serve;
mod site;
mod standalone;
mod status;
mod support_bundle;
mod ui;
mod user_cluster;
mod written_manifests;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::version::version;

pub use backup::{Backup, Restore};
pub use bootstrap::Bootstrap;
pub use claims::{Claims, ClaimsVerb};
pub use cluster::{Asking, Cluster};
pub use config::{Config, ConfigVerb};
pub use configured::Configured;
pub use controller::Controller;
pub use convert::{Convert, Report};
pub use crds::{Crds, CrdsVerb};
pub use drain::Drain;
pub use envoy::{Envoy, EnvoyVerb};
pub use envoy_identity::EnvoyIdentity;
pub use envoy_process::{EnvoyLifetime, EnvoyProcess};
pub use envoys::{Envoys, EnvoysVerb};
pub use history::History;
pub use images::Images;
pub use init::Init;
pub use keeping::Keeping;
pub use kinds::{Kinds, KindsVerb};
pub use log::{Log, LogFormat};
pub use logs::{LinesFormat, Logs};
pub use offline::{Lint, Translate};
pub use plan::Plan;
pub use ready::Ready;
pub use running_program::RunningProgram;
pub use serve::Serve;
pub use site::{Backend, Place, Site};
pub use standalone::Standalone;
pub use status::Status;
pub use support_bundle::SupportBundle;
pub use ui::Ui;
pub use user_cluster::UserCluster;
pub use written_manifests::WrittenManifests;

/// From a tenant's hostname to the right Envoy, with the right certificate and a truthful status.
#[derive(Debug, Parser)]
#[command(name = "gatewright", version = version(), arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gatewright serve shop.example.org=3000 --email you@example.org
  gatewright standalone                   serve the built-in example on 127.0.0.1
  gatewright standalone ./manifests       watch and serve a directory of manifests
  gatewright translate ./manifests        print the Envoy resources, without a running program
  gatewright lint ./manifests             print problems: refused objects, lost hostnames
  gatewright plan --site ./manifests -f new.yaml   print what new.yaml would change
  gatewright status                       print what is wrong, and counts of all objects
  gatewright explain https://shop.example.org:8443/cart
  gatewright ui --open                    the same and more in a browser

Exit status: 0 success, 1 a problem was found or the command failed, 2 invalid command line,
3 no running program answers.";

/// The commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, once")]
pub enum Command {
    /// Serve hostnames with certificates in front of applications, without any manifest
    Serve(Serve),
    /// Serve a directory of Gateway API manifests with one Envoy; without a directory, a built-in
    /// example
    Standalone(Standalone),
    /// Write a first directory of manifests, with comments
    Init(Init),
    /// Serve the Gateways of a Kubernetes cluster with a fleet of Envoys
    Controller(Controller),
    /// Print the Envoy resources and the statuses that manifests result in; exit 1 if an object is
    /// refused, incomplete, or waits for a certificate; needs no running program
    Translate(Translate),
    /// Print the problems of manifests: refused objects, lost hostnames, unresolved references;
    /// needs no running program
    Lint(Lint),
    /// Convert Ingresses and their annotations into objects of the Gateway API and policies, and
    /// print what becomes of each setting
    Convert(Convert),
    /// Print what a change of manifests does before it is made: hostnames that appear, end or
    /// change hands, certificates, quotas; exit 2 if something that is served is lost
    Plan(Plan),
    /// Print, check or explain the configuration of an installation; needs no running program
    Config(Config),
    /// Write the CustomResourceDefinitions of this version to a cluster, or print them
    Crds(Crds),
    /// Print the kinds that manifests may have, what their fields mean, or their JSON schemas
    Kinds(Kinds),
    /// Print the conditions of objects, as the running program would write them to Kubernetes: what
    /// is wrong first, then counts by kind and cause; exit 1 while something is wrong
    Status(Status),
    /// Print every certificate that an issuer issues: issuer, expiry, next step and its time, last
    /// error, and the rest of the CA's rate limits; `explain` shows the certificate of a listener's
    /// certificateRefs
    Certs(Certs),
    /// Print what changed: when, by whom, the hostnames that it touched, and how long each Envoy
    /// took
    History(History),
    /// Print the owners of hostnames on shared addresses, or release a hostname
    Claims(Claims),
    /// Print the connected Envoys, or revoke the access of one
    Envoys(Envoys),
    /// Print statistics, clusters or configuration of an Envoy, or take it out of service
    Envoy(Envoy),
    /// Print the steps that a request for a URL takes, up to the first one that fails; exit 1 if
    /// one fails
    Explain(Explain),
    /// Serve a page on this machine: hosts with what is wrong first, the steps of a request,
    /// certificates, owners, policies and Envoys, as they change
    Ui(Ui),
    /// Print the access log of the Envoy that standalone starts, or of all Envoys of a cluster,
    /// with the reason why no backend answered a request
    Logs(Logs),
    /// Write one archive with the configuration, statuses, history, metrics, logs and Envoy's
    /// state, without secrets, for whoever helps; `explain` and `status` read it
    SupportBundle(SupportBundle),
    /// Write what an installation of a cluster needs to go on in another one: owners of hostnames,
    /// accounts, CAs and certificates
    Backup(Backup),
    /// Restore a backup in a cluster, before its controller starts
    Restore(Restore),
    /// Print the bootstrap of an Envoy that this program does not start
    Bootstrap(Bootstrap),
    /// Request the xDS client certificate of a pod from the controller, and renew it; runs beside
    /// Envoy in the pod
    EnvoyIdentity(EnvoyIdentity),
    /// Drain Envoy when its pod is deleted: keep serving, then close connections gracefully, then
    /// end Envoy; runs beside Envoy in the pod
    Drain(Drain),
    /// Check the readiness of an Envoy: exit 0 from its first configuration until it drains, else
    /// 1; or wait until a controller is ready
    Ready(Ready),
    /// Print the container images of an installation in a cluster, with tag and digest
    Images(Images),
    /// Print the completion script of a shell
    Completion {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory, one for each command
    Man {
        /// Directory for the pages; it is created if it is missing
        dir: PathBuf,
    },
    /// Print the version
    Version,
}

impl Command {
    /// The format of the log, which long-running commands can set.
    pub fn log_format(&self) -> LogFormat {
        match self {
            Self::Serve(options) => options.log.log_format,
            Self::Standalone(options) => options.log.log_format,
            Self::Controller(options) => options.log.log_format,
            _ => LogFormat::Text,
        }
    }
}

/// The private directory of the program.
#[derive(Clone, Debug, Args)]
pub struct State {
    /// Private directory (mode 0700) for sockets, keys and logs
    /// [default: $XDG_STATE_HOME/gatewright/standalone, else ~/.local/state/gatewright/standalone]
    #[arg(long, value_name = "DIR", env = "GATEWRIGHT_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

/// `certs`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright certs --watch                   follow orders and renewals
  gatewright certs check shop.example.org    check for problems, without an order
  gatewright certs renew shop.example.org    order a new certificate now
  gatewright certs --context prod -n team-a  the certificates of a namespace of a cluster
Exit status: 0 success; 1 a host has no certificate, or a problem was found; 3 no running program answers.")]
pub struct Certs {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: Option<CertsVerb>,
    /// Your namespace in the cluster: the answer is about it [default: that of the context]
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
    /// Print again after every change, until interrupted
    #[arg(long)]
    pub watch: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub asking: Asking,
}

/// The subcommands of `certs`.
#[derive(Clone, Debug, Subcommand)]
pub enum CertsVerb {
    /// Order a new certificate for a host now, even if the held one is valid
    Renew {
        /// Hostname, also with a port or in a URL
        #[arg(value_parser = host::host_or_other)]
        host: String,
    },
    /// Check for problems that would prevent a certificate for a host, without an order; exit 0 if
    /// there are none
    Check {
        /// Hostname, also with a port or in a URL
        #[arg(value_parser = host::host_or_other)]
        host: String,
    },
    /// Replace the key of an issuer's ACME account; orders wait until every Envoy answers
    /// challenges with the new key
    ChangeKey {
        /// Name of the issuer
        #[arg(default_value = "acme")]
        issuer: String,
    },
    /// Create a new ACME account for an issuer, because the CA has closed the old one or its key is
    /// lost. The old account is kept aside; CAA records and records of dns-persist-01 that name it
    /// become invalid
    NewAccount {
        /// Name of the issuer
        #[arg(default_value = "acme")]
        issuer: String,
    },
}

/// `explain`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright explain https://shop.example.org:8443/cart
  gatewright explain https://shop.example.org/cart --header 'Cookie: canary=1' --client 192.0.2.7
  gatewright explain --context prod -n team-a https://shop.example.org/cart
  gatewright explain --context prod -n team-a https://shop.example.org/cart --with new.yaml

With --context or --kubeconfig the answer is from what the user of the kubeconfig may read. What that user may not read
is marked by ?, with what the statuses of other objects say of it.

Exit status: 0 every step holds, with --with once the files are applied; 1 one fails, or is not known; 3 no running program \
answers.")]
pub struct Explain {
    /// URL, optionally with port, path and query; without http:// or https:// it is asked by TLS,
    /// except at port 80. A port without HTTP is tls://, tcp:// or udp:// with host and port
    #[arg(value_parser = host::url)]
    pub url: String,
    /// HTTP method of the request
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// Header of the request; repeat it for each. With one given, the request has no others, and
    /// conditions on headers, credentials and limits are judged by them
    #[arg(long = "header", short = 'H', value_name = "NAME:VALUE")]
    pub headers: Vec<String>,
    /// Address of the client, as backends get it: lists of addresses are judged by it
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<IpAddr>,
    /// Protocol to which the request asks to upgrade the connection (header Upgrade)
    #[arg(long, value_name = "PROTOCOL")]
    pub upgrade: Option<String>,
    /// File or directory of manifests, or `-`: print the steps in the cluster, and what they are
    /// once it is applied; may be repeated
    #[arg(long, value_name = "PATH")]
    pub with: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub user: UserCluster,
}

/// The output format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Document {
    /// YAML
    Yaml,
    /// JSON
    Json,
}

/// The output format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Table for people
    Table,
    /// The same table, with everything in it
    Wide,
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
        assert!(
            Cli::try_parse_from(["gatewright", "standalone", "--envoy", "x", "--no-envoy"])
                .is_err()
        );
        assert!(Cli::try_parse_from(["gatewright", "translate", "-", "-o", "json"]).is_ok());
    }

    /// The heading of a flattened struct applies to every option after it that has none of its own.
    #[test]
    fn options_are_under_their_own_headings() {
        let own: [(&str, &[&str]); 3] = [
            (
                "Cluster",
                &[
                    "context",
                    "kubeconfig",
                    "installation",
                    "namespace",
                    "all_namespaces",
                ],
            ),
            ("Configuration", &["config", "set"]),
            ("Log", &["log_format"]),
        ];
        let command = Cli::command();
        for (sub, option) in command
            .get_subcommands()
            .flat_map(|sub| sub.get_arguments().map(move |arg| (sub, arg)))
        {
            let id = option.get_id().as_str();
            let heading = option.get_help_heading();
            let known = own.iter().find(|(of, _)| Some(*of) == heading);
            let is_own = known
                .is_none_or(|(_, prefixes)| prefixes.iter().any(|prefix| id.starts_with(prefix)));
            assert!(
                is_own,
                "{} --help has {id} under {heading:?}",
                sub.get_name()
            );
        }
    }
}
