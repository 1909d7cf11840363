//! The command line: what can be said, and the help that teaches it. Nothing is done here.

mod bootstrap;
mod claims;
mod dedicated;
mod drain;
mod edge;
mod endpoints;
mod envoy_credentials;
mod envoy_identity;
mod envoy_process;
mod envoys;
mod gateway_api;
mod images;
mod isolated;
mod issuer_use;
mod log;
mod names;
mod offline;
mod ports;
mod running_program;
mod standalone;
mod watched;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use acme::DeniedNetworks;
use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;

pub use self::claims::{Claims, ClaimsVerb};
pub use self::envoys::{Envoys, EnvoysVerb};
pub use self::names::{Names, Unlabelled};
use gatewright_control::certificates::{
    Credential, DnsSettings, ExternalAccount, IssuerSettings, Network, Preflight, SettingsError, issuers_from,
};
use gatewright_core::limits::Limits;

pub use self::edge::{Edge, Ready};
pub use self::endpoints::Endpoints;
pub use bootstrap::Bootstrap;
pub use dedicated::{Dedicated, Seen};
pub use drain::Drain;
pub use envoy_credentials::{Credentials, EnvoyCredentials};
pub use envoy_identity::EnvoyIdentity;
pub use envoy_process::{EnvoyLifetime, EnvoyProcess};
pub use gateway_api::GatewayApi;
pub use images::Images;
pub use isolated::Isolated;
pub use issuer_use::{InternalCa, IssuerUse, IssuersFor};
pub use log::{Log, LogFormat};
pub use offline::{Lint, Translate};
pub use ports::{Keeping, MetricsAccess, Ports};
pub use running_program::RunningProgram;
pub use standalone::Standalone;
pub use watched::Watched;

/// From a tenant's hostname to the right Envoy, with the right certificate and a truthful status.
#[derive(Debug, Parser)]
#[command(name = "gatewright", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The controller name of GatewayClasses that are ours.
pub const CONTROLLER: &str = "gatewright.io/gateway-controller";

const EXAMPLES: &str = "\
Examples:
  gatewright standalone                   the built-in example, on 127.0.0.1
  gatewright standalone ./manifests       watch a directory and serve it
  gatewright translate ./manifests        what Envoy would get, with nothing running
  gatewright lint ./manifests             what would be refused or lost
  gatewright status                       every object's conditions
  gatewright explain https://shop.example.org:8443/cart

Exit status: 0 all is well, 1 something was found or failed, 2 the command line is wrong,
3 no running program answers.";

/// The verbs.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, once")]
pub enum Command {
    /// Serve a directory of Gateway API manifests with an Envoy; without one, a built-in example
    Standalone(Standalone),
    /// Serve the Gateways of a Kubernetes cluster with a fleet of Envoys
    Controller(Controller),
    /// Print what Envoy would get, and the statuses, with nothing running
    Translate(Translate),
    /// Find what would be refused or lost, with nothing running
    Lint(Lint),
    /// Print every object's conditions, as the running program would write them to Kubernetes
    Status(Status),
    /// Print every certificate: issuer, end, what happens next and when, the last error, what is left of limits
    Certs(Certs),
    /// Show who owns which hostname on shared addresses, and release one
    Claims(Claims),
    /// Show which Envoys are connected, and let one in no more
    Envoys(Envoys),
    /// Follow a URL through the running program, up to the first link that fails
    Explain(Explain),
    /// Print the bootstrap for an Envoy started elsewhere
    Bootstrap(Bootstrap),
    /// Beside an Envoy in a pod: get a certificate for the pod from the controller, and renew it
    EnvoyIdentity(EnvoyIdentity),
    /// Beside an Envoy in a pod: when the pod ends, have it serve on, then let its connections end, then end it
    Drain(Drain),
    /// Ask an Envoy whether it is ready: exit 0 once its first configuration has come and until it drains, else 1; or wait for
    /// a controller
    Ready(Ready),
    /// List the images that an installation in a cluster runs, by name, tag and digest
    Images(Images),
    /// Print a completion script for a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages, one for each command, into a directory
    Man {
        /// The directory, which is made where it is missing
        dir: PathBuf,
    },
    /// Print the version
    Version,
}

impl Command {
    /// How the log looks: programs that run for long have a choice.
    pub fn log_format(&self) -> LogFormat {
        match self {
            Self::Standalone(options) => options.log.log_format,
            Self::Controller(options) => options.log.log_format,
            _ => LogFormat::Text,
        }
    }
}

/// Where the running program keeps its sockets and keys.
#[derive(Clone, Debug, Args)]
pub struct State {
    /// Private directory (mode 0700) for sockets, keys and logs
    /// [default: $XDG_STATE_HOME/gatewright/standalone, else ~/.local/state/gatewright/standalone]
    #[arg(long, value_name = "DIR", env = "GATEWRIGHT_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

/// Certificates from ACME CAs.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Certificates by ACME")]
pub struct Acme {
    /// letsencrypt, letsencrypt-staging, or the URL of a directory: listeners name this issuer `acme`
    #[arg(long, value_name = "URL")]
    pub acme_directory: Option<String>,
    /// Roots to trust for the directory, in PEM, in place of the machine's
    #[arg(long, value_name = "FILE", requires = "acme_directory")]
    pub acme_ca_bundle: Option<PathBuf>,
    /// mailto: address for the CA; may be repeated
    #[arg(long = "acme-contact", value_name = "URL", requires = "acme_directory")]
    pub acme_contacts: Vec<String>,
    /// You agree to the CA's terms of service
    #[arg(long, requires = "acme_directory")]
    pub acme_agree_to_terms: bool,
    /// Key id of an external account
    #[arg(long, value_name = "ID", requires_all = ["acme_directory", "acme_eab_key_file"])]
    pub acme_eab_key_id: Option<String>,
    /// File with the HMAC key of the external account
    #[arg(long, value_name = "FILE", requires = "acme_eab_key_id")]
    pub acme_eab_key_file: Option<PathBuf>,
    /// File that says who writes TXT records: DNS-01 in place of HTTP-01 (docs/certificates.md)
    #[arg(long, value_name = "FILE", requires = "acme_directory")]
    pub acme_dns: Option<PathBuf>,
    /// A profile of the CA
    #[arg(long, value_name = "NAME", requires = "acme_directory")]
    pub acme_profile: Option<String>,
    /// What it does when something is in the way of an order
    #[arg(long, value_enum, default_value_t = Preflight::Warn)]
    pub acme_preflight: Preflight,
    /// Port where HTTP-01 questions reach Envoy
    #[arg(long, value_name = "PORT", default_value_t = 80)]
    pub acme_http_port: u16,
    /// TLS-ALPN-01 in place of HTTP-01, and the port where its connections reach Envoy (443)
    #[arg(
        long, value_name = "PORT", num_args = 0..=1, default_missing_value = "443", require_equals = true,
        requires = "acme_directory", conflicts_with = "acme_dns"
    )]
    pub acme_tls_alpn: Option<u16>,
    /// Address that hosts should have in public DNS; may be repeated
    #[arg(long = "acme-address", value_name = "IP")]
    pub acme_addresses: Vec<IpAddr>,
    /// Where DNS is asked [default: the machine's resolvers]; may be repeated
    #[arg(long = "acme-resolver", value_name = "IP:PORT")]
    pub acme_resolvers: Vec<SocketAddr>,
    /// Private network where authoritative name servers may be asked all the same; may be repeated
    #[arg(long = "acme-allowed-network", value_name = "CIDR")]
    pub acme_allowed_networks: Vec<IpNet>,
    /// Directory for a trial after a first failure
    #[arg(long, value_name = "URL", requires = "acme_directory")]
    pub acme_trial: Option<String>,
    /// Answer HTTP-01 here as well, for data planes that are not ours
    #[arg(long, value_name = "IP:PORT")]
    pub acme_responder: Option<SocketAddr>,
    /// File with further issuers, by name
    #[arg(long, value_name = "FILE")]
    pub issuers: Option<PathBuf>,
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
    /// For how many hours a hostname stays reserved for the namespace that had it and gave it up, where the record decides
    /// between namespaces; 0: it is free at once
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub hostname_hold: u16,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub names: Names,
}

/// Who of several claimants of a hostname has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostnameClaims {
    /// cozy-* namespaces first, then the smallest namespace/name
    Smallest,
    /// The namespace that claimed it first, as recorded: in the private directory, or in ConfigMaps of the controller
    FirstCome,
}

/// Who issues the certificates of TenantGateways that do not say it themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CertificateSource {
    /// cert-manager, by its Issuers and Certificates
    CertManager,
    /// This program, by ACME, into the same Secrets
    Own,
    /// This program, by its internal CA: nobody outside is asked
    InternalCa,
}

/// Which ACME directories TenantGateways may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TenantDirectories {
    /// Let's Encrypt's, and those of --acme-directory and --issuers
    Known,
    /// Any: the controller connects to whatever a tenant names, but for --tenant-denied-networks
    Any,
}

/// `controller`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright controller --bind 0.0.0.0             in a pod, as deploy/ has it
  gatewright controller --kubeconfig ~/.kube/config --address 127.0.0.1")]
pub struct Controller {
    /// How to reach the API server [default: the pod's service account, else as kubectl]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the lease and of the keys between Envoys and this program
    #[arg(long, env = "POD_NAMESPACE", default_value = "gatewright-system")]
    pub namespace: String,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub watched: Watched,
    /// This replica's name in the lease
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// The UID of this replica's pod: what it records goes with it [default: it stays]
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,
    /// How long a replica that is not heard of keeps the lease
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=600))]
    pub lease_seconds: u64,
    /// Address at which the shared fleet is reached; may be repeated. Without it, where the Service of --envoys is
    #[arg(long = "address", value_name = "IP")]
    pub addresses: Vec<IpAddr>,
    /// Address on which Envoys listen; may be repeated [default: those of the Gateway]
    #[arg(long, value_name = "IP")]
    pub bind: Vec<IpAddr>,
    /// The Service in the same namespace that has the Envoys of the shared fleet behind it
    #[arg(long, value_name = "NAME", default_value = "gatewright-envoy")]
    pub envoys: String,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub dedicated: Dedicated,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub isolated: Isolated,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub credentials: EnvoyCredentials,
    /// Leave TenantGateways to another controller
    #[arg(long)]
    pub leave_tenant_gateways: bool,
    /// Who issues the certificates of TenantGateways without the annotation gatewright.io/issuer
    #[arg(long, value_enum, default_value_t = CertificateSource::CertManager)]
    pub certificates: CertificateSource,
    /// Which ACME directories TenantGateways may name by gatewright.io/acme-directory
    #[arg(long, value_enum, default_value_t = TenantDirectories::Known)]
    pub tenant_acme_directories: TenantDirectories,
    /// Networks that nothing is sent to because a tenant names it: directories of --tenant-acme-directories any, name servers
    /// of rfc2136, and those of tenants' zones. Add those of pods and Services where they are public; what is given takes the
    /// place of the default
    #[arg(long, value_name = "CIDR", value_delimiter = ',', default_values_t = DeniedNetworks::private_networks())]
    pub tenant_denied_networks: Vec<IpNet>,
    /// Networks that tenants may name although --tenant-denied-networks has them: where a CA or name servers of yours are
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub tenant_allowed_networks: Vec<IpNet>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub endpoints: Endpoints,
    /// Where HTTP-01 questions are answered for Gateways that somebody else serves; the Service gatewright-challenges leads
    /// here [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    pub challenges: Option<SocketAddr>,
    /// Who of several claimants of a hostname has it
    #[arg(long, value_enum, default_value_t = HostnameClaims::Smallest)]
    pub hostname_claims: HostnameClaims,
    /// For how many hours a hostname stays reserved for the namespace that had it and gave it up, where the record decides
    /// between namespaces; 0: it is free at once
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub hostname_hold: u16,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub names: Names,
    /// The class of Gateways whose TenantGateway has an empty gatewayClassName
    #[arg(long, value_name = "NAME", default_value = "cilium")]
    pub gateway_class: String,
    /// The controllerName of the GatewayClasses that are ours: a second installation in one cluster needs one of its own
    #[arg(long, value_name = "DOMAIN/PATH", default_value = CONTROLLER)]
    pub controller_name: String,
    /// The namespace of cert-manager: its challenge routes may attach to port 80 of TenantGateways
    #[arg(long, value_name = "NAMESPACE", default_value = "cozy-cert-manager")]
    pub cert_manager_namespace: String,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub gateway_api: GatewayApi,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub limits: Limits,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub acme: Acme,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub issuer_use: IssuerUse,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub internal_ca: InternalCa,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub edge: Edge,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub log: Log,
    /// Where Envoys find this program
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:18000")]
    pub xds: SocketAddr,
    /// How long each step takes in which the CA of the Envoys' connection is replaced: what was written before must have
    /// reached every Envoy (docs/kubernetes.md)
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(5..=604_800))]
    pub xds_ca_overlap: u64,
    /// Where /livez, /readyz and /metrics are
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub probes: SocketAddr,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub ports: Ports,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub keeping: Keeping,
    /// Where this program's admin socket is [default: none]
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,
}

/// `status`
#[derive(Clone, Debug, Args)]
pub struct Status {
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
}

/// `certs`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright certs --watch                   follow what is being got
  gatewright certs check shop.example.org    what is in the way, without an order
  gatewright certs renew shop.example.org    a new certificate now
Exit status: 0 all is well; 1 a host has no certificate, or something is in the way; 3 no running program answers.")]
pub struct Certs {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: Option<CertsVerb>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
    /// Print again whenever something changed, until interrupted
    #[arg(long)]
    pub watch: bool,
}

/// What can be done about certificates.
#[derive(Clone, Debug, Subcommand)]
pub enum CertsVerb {
    /// Get a new certificate for a host now, whatever is held
    Renew {
        /// The host
        host: String,
    },
    /// Look what is in the way of a certificate for a host; exit 0 when nothing is
    Check {
        /// The host
        host: String,
    },
    /// Give an issuer's account a new key; orders wait until every Envoy answers with it
    ChangeKey {
        /// The issuer
        #[arg(default_value = "acme")]
        issuer: String,
    },
    /// Make another account for an issuer, where the CA has closed the old one or its key is lost; the old one is set aside,
    /// and CAA records and records of dns-persist-01 that name it no longer hold
    NewAccount {
        /// The issuer
        #[arg(default_value = "acme")]
        issuer: String,
    },
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
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
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

impl Acme {
    /// The ACME issuers that the command line and its files describe.
    ///
    /// # Errors
    /// When one makes no sense; it names the option or the setting.
    pub fn issuers(&self) -> Result<BTreeMap<String, IssuerSettings>, SettingsError> {
        let mut issuers = match &self.issuers {
            Some(path) => issuers_from(path)?,
            None => BTreeMap::new(),
        };
        let Some(directory) = &self.acme_directory else { return Ok(issuers) };
        let external = self.acme_eab_key_id.clone().zip(self.acme_eab_key_file.clone());
        let settings = IssuerSettings {
            directory: directory.clone(),
            ca_bundle: self.acme_ca_bundle.clone().map(Credential::File),
            contacts: self.acme_contacts.clone(),
            agree_to_terms: self.acme_agree_to_terms,
            external_account: external
                .map(|(key_id, file)| ExternalAccount { key_id, key_file: Credential::File(file) }),
            profile: self.acme_profile.clone(),
            dns: self.acme_dns.as_deref().map(|path| DnsSettings::load(path, "--acme-dns")).transpose()?,
            preflight: self.acme_preflight,
            http_port: Some(self.acme_http_port),
            tls_alpn_port: self.acme_tls_alpn,
            addresses: self.acme_addresses.clone(),
            resolvers: self.acme_resolvers.clone(),
            trial: self.acme_trial.clone(),
            allowed_networks: self.acme_allowed_networks.iter().copied().map(Network).collect(),
            ..IssuerSettings::default()
        };
        settings.check("--acme-")?;
        if issuers.insert("acme".to_owned(), settings).is_some() {
            return Err(SettingsError::Value {
                field: "--acme-directory".to_owned(),
                problem: "the file of --issuers has an issuer called acme as well".to_owned(),
            });
        }
        Ok(issuers)
    }
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
