//! The command line: flags, commands and their help. Nothing is done here.

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
    Credential, DnsSettings, ExternalAccount, IssuerSettings, Network, Preflight, SettingsError,
    issuers_from,
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
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The controller name of GatewayClasses that are ours.
pub const CONTROLLER: &str = "gatewright.io/gateway-controller";

const EXAMPLES: &str = "\
Examples:
  gatewright standalone                   serve the built-in example on 127.0.0.1
  gatewright standalone ./manifests       watch and serve a directory of manifests
  gatewright translate ./manifests        print the Envoy resources, without a running program
  gatewright lint ./manifests             print problems: refused objects, lost hostnames
  gatewright status                       print the conditions of every object
  gatewright explain https://shop.example.org:8443/cart

Exit status: 0 success, 1 a problem was found or the command failed, 2 invalid command line,
3 no running program answers.";

/// The commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, once")]
pub enum Command {
    /// Serve a directory of Gateway API manifests with one Envoy; without a directory, a built-in
    /// example
    Standalone(Standalone),
    /// Serve the Gateways of a Kubernetes cluster with a fleet of Envoys
    Controller(Controller),
    /// Print the Envoy resources and the statuses that manifests result in; exit 1 if an object is
    /// refused, incomplete, or waits for a certificate; needs no running program
    Translate(Translate),
    /// Print the problems of manifests: refused objects, lost hostnames, unresolved references;
    /// needs no running program
    Lint(Lint),
    /// Print the conditions of every object, as the running program would write them to Kubernetes
    Status(Status),
    /// Print every certificate that an issuer issues: issuer, expiry, next step and its time, last
    /// error, and the rest of the CA's rate limits; `explain` shows the certificate of a listener's
    /// certificateRefs
    Certs(Certs),
    /// Print the owners of hostnames on shared addresses, or release a hostname
    Claims(Claims),
    /// Print the connected Envoys, or revoke the access of one
    Envoys(Envoys),
    /// Print the steps that a request for a URL takes, up to the first one that fails; exit 1 if
    /// one fails
    Explain(Explain),
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

/// Certificates from ACME CAs.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Certificates by ACME")]
pub struct Acme {
    /// ACME directory: letsencrypt, letsencrypt-staging, or a URL. The issuer is called `acme`
    #[arg(long, value_name = "URL")]
    pub acme_directory: Option<String>,
    /// CA certificates in PEM that are trusted for the connection to the ACME directory, instead of
    /// the system's
    #[arg(long, value_name = "FILE", requires = "acme_directory")]
    pub acme_ca_bundle: Option<PathBuf>,
    /// Contact of the ACME account, as mailto: URL; may be repeated
    #[arg(long = "acme-contact", value_name = "URL", requires = "acme_directory")]
    pub acme_contacts: Vec<String>,
    /// Agree to the CA's terms of service, which most CAs require for an account
    #[arg(long, requires = "acme_directory")]
    pub acme_agree_to_terms: bool,
    /// Key identifier of an external account (EAB)
    #[arg(long, value_name = "ID", requires_all = ["acme_directory", "acme_eab_key_file"])]
    pub acme_eab_key_id: Option<String>,
    /// File with the HMAC key of the external account (EAB)
    #[arg(long, value_name = "FILE", requires = "acme_eab_key_id")]
    pub acme_eab_key_file: Option<PathBuf>,
    /// File with the settings of a DNS provider; challenges are then DNS-01 instead of HTTP-01
    /// (docs/certificates.md)
    #[arg(long, value_name = "FILE", requires = "acme_directory")]
    pub acme_dns: Option<PathBuf>,
    /// Certificate profile of the CA [default: the CA's default]
    #[arg(long, value_name = "NAME", requires = "acme_directory")]
    pub acme_profile: Option<String>,
    /// Behaviour when the pre-flight check (self-check, DNS addresses, CAA) finds a problem
    #[arg(long, value_enum, default_value_t = Preflight::Warn)]
    pub acme_preflight: Preflight,
    /// Port of Envoy on which HTTP-01 requests arrive; other than 80 if a device in front of Envoy
    /// maps port 80 to it
    #[arg(long, value_name = "PORT", default_value_t = 80)]
    pub acme_http_port: u16,
    /// Challenges are TLS-ALPN-01 instead of HTTP-01. The value is the port of Envoy on which
    /// validation connections arrive; without a value, 443
    #[arg(
        long, value_name = "PORT", num_args = 0..=1, default_missing_value = "443", require_equals = true,
        requires = "acme_directory", conflicts_with = "acme_dns"
    )]
    pub acme_tls_alpn: Option<u16>,
    /// Address that hosts should have in public DNS, for the pre-flight check; may be repeated
    #[arg(long = "acme-address", value_name = "IP")]
    pub acme_addresses: Vec<IpAddr>,
    /// DNS resolver [default: the machine's resolvers]; may be repeated
    #[arg(long = "acme-resolver", value_name = "IP:PORT")]
    pub acme_resolvers: Vec<SocketAddr>,
    /// Private network in which authoritative name servers may be queried; may be repeated. Without
    /// it, private addresses are not queried
    #[arg(long = "acme-allowed-network", value_name = "CIDR")]
    pub acme_allowed_networks: Vec<IpNet>,
    /// ACME directory for trial orders, such as letsencrypt-staging: after a failure a host must
    /// succeed there before the next order at the real CA
    #[arg(long, value_name = "URL", requires = "acme_directory")]
    pub acme_trial: Option<String>,
    /// Listening address of a responder for HTTP-01 challenges, for other data planes [default:
    /// none, only Envoy answers]
    #[arg(long, value_name = "IP:PORT")]
    pub acme_responder: Option<SocketAddr>,
    /// File with further issuers by name (docs/certificates.md)
    #[arg(long, value_name = "FILE")]
    pub issuers: Option<PathBuf>,
}

/// The settings of TenantGateways.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tenants")]
pub struct Tenants {
    /// Port of plain HTTP of the Gateways of TenantGateways
    #[arg(long, value_name = "PORT", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..))]
    pub tenant_http_port: u16,
    /// Port of TLS of the Gateways of TenantGateways
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    pub tenant_https_port: u16,
    /// Order of precedence between the claimants of a hostname of TenantGateways [default:
    /// first-come at Gateways of our classes, smallest beside another data plane]
    #[arg(long, value_enum)]
    pub hostname_claims: Option<HostnameClaims>,
    /// Duration, in hours, for which a released hostname stays reserved for its previous namespace,
    /// where the record of ownership decides; 0 frees it at once
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub hostname_hold: u16,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub names: Names,
}

/// The order of precedence between the claimants of a hostname.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostnameClaims {
    /// At all Gateways: first namespaces cozy-*, then the smallest namespace/name
    Smallest,
    /// At all Gateways: the first claimant, as recorded in the private directory or in ConfigMaps
    /// of the controller
    FirstCome,
}

/// The source of the certificates of TenantGateways that name no issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CertificateSource {
    /// cert-manager, through its Issuers and Certificates
    CertManager,
    /// This program, by ACME; it writes the same Secrets
    Own,
    /// This program, by its internal CA, without any external CA
    InternalCa,
}

/// The ACME directories that TenantGateways may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TenantDirectories {
    /// Those of Let's Encrypt, of --acme-directory and of --issuers
    Known,
    /// Any: the controller connects to the directory that a tenant names, unless
    /// --tenant-denied-networks contains its address
    Any,
}

/// `controller`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright controller --bind 0.0.0.0             in a pod, as in deploy/
  gatewright controller --kubeconfig ~/.kube/config --address 127.0.0.1")]
pub struct Controller {
    /// Path of the kubeconfig for the API server [default: the pod's service account, else that of
    /// kubectl]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the controller: of its Lease, of the Secrets for xDS, and of the Services of
    /// Envoys
    #[arg(long, env = "POD_NAMESPACE", default_value = "gatewright-system")]
    pub namespace: String,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub watched: Watched,
    /// Name of this replica in the Lease; must be unique [default: gatewright- and the process ID]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// UID of this replica's pod, the owner of the replica's records: they are garbage-collected
    /// with the pod [default: records have no owner]
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,
    /// Duration of the lease, in seconds: another replica takes over this long after the last
    /// renewal
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=600))]
    pub lease_seconds: u64,
    /// Address of the shared fleet, for the status of Gateways; may be repeated [default: the
    /// addresses of the Service --envoys]
    #[arg(long = "address", value_name = "IP")]
    pub addresses: Vec<IpAddr>,
    /// Listening address of Envoys; may be repeated [default: those of the Gateway]
    #[arg(long, value_name = "IP")]
    pub bind: Vec<IpAddr>,
    /// Name of the Service of the shared fleet's Envoys, in the controller's namespace
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
    /// Do not reconcile TenantGateways, because another controller does
    #[arg(long)]
    pub leave_tenant_gateways: bool,
    /// Source of the certificates of TenantGateways without the annotation gatewright.io/issuer
    #[arg(long, value_enum, default_value_t = CertificateSource::CertManager)]
    pub certificates: CertificateSource,
    /// ACME directories that TenantGateways may name in the annotation gatewright.io/acme-directory
    #[arg(long, value_enum, default_value_t = TenantDirectories::Known)]
    pub tenant_acme_directories: TenantDirectories,
    /// Networks to which the controller does not connect on a tenant's request: ACME directories
    /// (--tenant-acme-directories any), name servers of rfc2136, authoritative servers of tenants'
    /// zones. A given list replaces the default. Add the networks of pods and Services if they are
    /// public addresses
    #[arg(long, value_name = "CIDR", value_delimiter = ',', default_values_t = DeniedNetworks::private_networks())]
    pub tenant_denied_networks: Vec<IpNet>,
    /// Exceptions from --tenant-denied-networks, for example the network of your own CA or name
    /// servers
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub tenant_allowed_networks: Vec<IpNet>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub endpoints: Endpoints,
    /// Listening address of the responder for HTTP-01 challenges of Gateways of other data planes;
    /// the Service gatewright-challenges routes to it [default: none]
    #[arg(long, value_name = "ADDRESS")]
    pub challenges: Option<SocketAddr>,
    /// Order of precedence between the claimants of a hostname of TenantGateways [default:
    /// first-come at Gateways of our classes, smallest beside another data plane]
    #[arg(long, value_enum)]
    pub hostname_claims: Option<HostnameClaims>,
    /// Duration, in hours, for which a released hostname stays reserved for its previous namespace,
    /// where the record of ownership decides; 0 frees it at once
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub hostname_hold: u16,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub names: Names,
    /// GatewayClass of the Gateways of TenantGateways without gatewayClassName
    #[arg(long, value_name = "NAME", default_value = "cilium")]
    pub gateway_class: String,
    /// controllerName of the GatewayClasses of this installation; a second installation in the
    /// cluster needs another one
    #[arg(long, value_name = "DOMAIN/PATH", default_value = CONTROLLER)]
    pub controller_name: String,
    /// Namespace of cert-manager, whose HTTPRoutes for challenges may attach to port 80 of
    /// TenantGateways
    #[arg(long, value_name = "NAMESPACE", default_value = "cozy-cert-manager")]
    pub cert_manager_namespace: String,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub gateway_api: GatewayApi,
    /// Listening address of the xDS server for Envoys
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:18000")]
    pub xds: SocketAddr,
    /// Duration of each step of a rotation of the xDS CA, in seconds; it must be long enough for
    /// every Envoy to get the CA certificates of the step before (docs/envoy-credentials.md)
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(5..=604_800))]
    pub xds_ca_overlap: u64,
    /// Listening address of /livez, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub probes: SocketAddr,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub ports: Ports,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub keeping: Keeping,
    /// Path of this program's admin socket [default: none]
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,
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
  gatewright certs --watch                   follow orders and renewals
  gatewright certs check shop.example.org    check for problems, without an order
  gatewright certs renew shop.example.org    order a new certificate now
Exit status: 0 success; 1 a host has no certificate, or a problem was found; 3 no running program answers.")]
pub struct Certs {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: Option<CertsVerb>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
    /// Print again after every change, until interrupted
    #[arg(long)]
    pub watch: bool,
}

/// The subcommands of `certs`.
#[derive(Clone, Debug, Subcommand)]
pub enum CertsVerb {
    /// Order a new certificate for a host now, even if the held one is valid
    Renew {
        /// Hostname
        host: String,
    },
    /// Check for problems that would prevent a certificate for a host, without an order; exit 0 if
    /// there are none
    Check {
        /// Hostname
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
Example:
  gatewright explain https://shop.example.org:8443/cart")]
pub struct Explain {
    /// URL with http:// or https:// and a host, optionally with port and path
    pub url: String,
    /// HTTP method of the request
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// Protocol to which the request asks to upgrade the connection (header Upgrade)
    #[arg(long, value_name = "PROTOCOL")]
    pub upgrade: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
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
    /// YAML
    Yaml,
    /// JSON
    Json,
}

impl Acme {
    /// The ACME issuers that the command line and its files describe.
    ///
    /// # Errors
    /// When a setting is invalid; the error names the option or the setting.
    pub fn issuers(&self) -> Result<BTreeMap<String, IssuerSettings>, SettingsError> {
        let mut issuers = match &self.issuers {
            Some(path) => issuers_from(path)?,
            None => BTreeMap::new(),
        };
        let Some(directory) = &self.acme_directory else {
            return Ok(issuers);
        };
        let external = self
            .acme_eab_key_id
            .clone()
            .zip(self.acme_eab_key_file.clone());
        let settings = IssuerSettings {
            directory: directory.clone(),
            ca_bundle: self.acme_ca_bundle.clone().map(Credential::File),
            contacts: self.acme_contacts.clone(),
            agree_to_terms: self.acme_agree_to_terms,
            external_account: external.map(|(key_id, file)| ExternalAccount {
                key_id,
                key_file: Credential::File(file),
            }),
            profile: self.acme_profile.clone(),
            dns: self
                .acme_dns
                .as_deref()
                .map(|path| DnsSettings::load(path, "--acme-dns"))
                .transpose()?,
            preflight: self.acme_preflight,
            http_port: Some(self.acme_http_port),
            tls_alpn_port: self.acme_tls_alpn,
            addresses: self.acme_addresses.clone(),
            resolvers: self.acme_resolvers.clone(),
            trial: self.acme_trial.clone(),
            allowed_networks: self
                .acme_allowed_networks
                .iter()
                .copied()
                .map(Network)
                .collect(),
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
        assert!(
            Cli::try_parse_from(["gatewright", "standalone", "--envoy", "x", "--no-envoy"])
                .is_err()
        );
        assert!(Cli::try_parse_from(["gatewright", "translate", "-", "-o", "json"]).is_ok());
    }

    /// The heading of a flattened struct applies to every option after it that has none of its own.
    #[test]
    fn options_are_under_their_own_headings() {
        let own: [(&str, &[&str]); 6] = [
            ("Limits of a namespace", &["max_"]),
            ("Certificates by ACME", &["acme_", "issuers"]),
            ("Rules for issuers", &["issuer_allow", "issuers_for"]),
            ("Internal CA", &["internal_ca_"]),
            ("Log", &["log_format"]),
            (
                "Tenants",
                &[
                    "tenant_",
                    "hostname_",
                    "unlabelled_namespaces",
                    "reserved_hostnames",
                ],
            ),
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
