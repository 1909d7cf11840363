//! How an issuer is set up: read from the command line, a file, or an object of a tenant.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use acme::DeniedNetworks;
use acme::budget::{Limits, Rate};
use ipnet::IpNet;
use serde::Deserialize;
use zeroize::Zeroizing;

use gatewright_core::translate::{IssuerAllow, SELF_SIGNED};
use gatewright_core::wanted::INTERNAL_CA;

/// Settings and credentials are small.
const LARGEST: u64 = 1 << 20;

/// An ACME issuer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssuerSettings {
    /// `letsencrypt`, `letsencrypt-staging`, or the URL of a directory.
    pub directory: String,
    /// Roots to trust for the directory, in PEM, in place of the machine's.
    pub ca_bundle: Option<Credential>,
    /// `mailto:` addresses.
    #[serde(default)]
    pub contacts: Vec<String>,
    /// Whether the CA's terms of service are agreed to.
    #[serde(default)]
    pub agree_to_terms: bool,
    /// The account elsewhere that ours belongs to (RFC 8555, 7.3.4).
    pub external_account: Option<ExternalAccount>,
    /// A profile of the CA that is required.
    pub profile: Option<String>,
    /// Common name of the root or intermediate that the chain should lead to.
    pub preferred_chain: Option<String>,
    /// DNS-01 in place of HTTP-01; needed for wildcards.
    pub dns: Option<DnsSettings>,
    /// dns-persist-01 without a provider: the record that binds a name to our account is yours to create.
    #[serde(default)]
    pub dns_persist: bool,
    /// What looking before an order may do.
    #[serde(default)]
    pub preflight: Preflight,
    /// The port where HTTP-01 questions reach Envoy; 80 unless something in front maps it.
    pub http_port: Option<u16>,
    /// TLS-ALPN-01 in place of HTTP-01; the port where its connections reach Envoy: 443 unless something in front maps it.
    pub tls_alpn_port: Option<u16>,
    /// Addresses that names should have in public DNS; none: they are not compared.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Where DNS is asked; none: the machine's resolvers.
    #[serde(default)]
    pub resolvers: Vec<SocketAddr>,
    /// What a CA allows whose limits are not known here: kept as a budget, so that names share certificates where they must.
    pub limits: Option<CaLimits>,
    /// A directory for trials after a first failure, `letsencrypt-staging` for instance.
    pub trial: Option<String>,
    /// Issuers of the installation that are asked, in order, where this one cannot help.
    #[serde(default)]
    pub fallback: Vec<String>,
    /// Which namespaces' listeners may ask it for which hostnames; without a rule, --issuers-for decides.
    #[serde(default)]
    pub allow: Vec<IssuerAllow>,
    /// Private networks where authoritative name servers may be asked all the same.
    #[serde(default)]
    pub allowed_networks: Vec<Network>,
    /// Where authoritative name servers are not asked; none: in private networks but for those allowed.
    #[serde(skip)]
    pub authorities: Option<DeniedNetworks>,
    /// Where the directory is not reached, if whoever named it is not trusted with all addresses.
    #[serde(skip)]
    pub denied: DeniedNetworks,
}

/// What a CA allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CaLimits {
    /// New orders of an account.
    pub orders: Option<CaLimit>,
    /// Certificates for a registered domain.
    pub certificates_per_domain: Option<CaLimit>,
}

/// So many in so many hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaLimit {
    /// How many.
    pub count: NonZeroU32,
    /// In how many hours.
    pub hours: NonZeroU32,
}

impl CaLimits {
    /// The limits known of a directory, with these in their place.
    pub fn over(&self, known: Limits) -> Limits {
        let rate = |limit: CaLimit| Rate::hours(limit.count.get(), i64::from(limit.hours.get()));
        let Self { orders, certificates_per_domain } = *self;
        let (orders, domain) = (orders.map(rate), certificates_per_domain.map(rate));
        Limits { orders: orders.or(known.orders), domain: domain.or(known.domain), ..known }
    }
}

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Network(pub IpNet);

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("{text:?}: expected a network, as 10.0.0.0/8"))
    }
}

/// What a finding of the pre-flight does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Preflight {
    /// It stops the order
    Strict,
    /// It is told, and the order placed
    #[default]
    Warn,
    /// Nobody looks
    Skip,
}

/// Credentials of an account elsewhere.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExternalAccount {
    /// The key's id.
    pub key_id: String,
    /// The HMAC key in base64url.
    pub key_file: Credential,
}

/// Who writes TXT records: exactly one of the providers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are the providers'")]
pub struct DnsSettings {
    pub cloudflare: Option<Token>,
    pub digitalocean: Option<Token>,
    pub route53: Option<Route53>,
    pub rfc2136: Option<Rfc2136>,
    pub webhook: Option<Webhook>,
    pub exec: Option<Exec>,
    /// Prefer dns-account-01 where the CA offers it.
    #[serde(default)]
    pub account_label: bool,
    /// Prefer dns-persist-01 where the CA offers it: a record that stays; one that is missing is written.
    #[serde(default)]
    pub persist: bool,
    /// For how many days such a record binds; without it, for ever.
    pub persist_days: Option<u32>,
    /// Seconds that a record may need to be seen everywhere; 120 unless set.
    pub propagation_seconds: Option<u64>,
    /// Do not ask authoritative servers whether a record can be seen.
    #[serde(default)]
    pub skip_propagation_check: bool,
    /// The port of authoritative servers, 53.
    pub authority_port: Option<u16>,
}

/// A provider that wants a token.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Token {
    pub token_file: Credential,
    pub endpoint: Option<String>,
    pub ca_bundle: Option<Credential>,
}

/// Route 53; without keys those of the environment, as the AWS SDKs find them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are AWS's")]
pub struct Route53 {
    pub access_key_id: Option<String>,
    pub secret_access_key_file: Option<Credential>,
    pub region: Option<String>,
    pub hosted_zone_id: Option<String>,
    pub endpoint: Option<String>,
    pub ca_bundle: Option<Credential>,
}

/// A name server that takes updates (RFC 2136) signed with TSIG.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Rfc2136 {
    pub nameserver: String,
    pub key_name: String,
    pub algorithm: Option<String>,
    pub key_file: Credential,
    pub zone: Option<String>,
    /// Where the server is not reached.
    #[serde(skip)]
    pub denied: DeniedNetworks,
}

/// A service of the operator's that writes records.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Webhook {
    pub url: String,
    pub token_file: Credential,
    pub ca_bundle: Option<Credential>,
}

/// A program of the operator's that writes records.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Exec {
    pub program: PathBuf,
    #[serde(default)]
    pub args: Vec<String>,
}

/// A text that settings refer to: in a file, or given.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(from = "PathBuf")]
pub enum Credential {
    /// In this file, read when the issuer is opened.
    File(PathBuf),
    /// This.
    Given(Zeroizing<String>),
    /// It should be somewhere and is not; the text says where.
    Missing(String),
}

impl From<PathBuf> for Credential {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "File({})", path.display()),
            Self::Given(_) => f.write_str("Given(..)"),
            Self::Missing(text) => write!(f, "Missing({text})"),
        }
    }
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file.
    #[error("{field}: {}: {problem}", path.display())]
    File {
        /// Which setting names it.
        field: String,
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A credential that is not where it should be.
    #[error("{0}")]
    Missing(String),
    /// A value.
    #[error("{field}: {problem}")]
    Value {
        /// Which setting.
        field: String,
        /// What is wrong, and what is expected.
        problem: String,
    },
}

impl SettingsError {
    pub(super) fn value(field: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self::Value { field: field.into(), problem: problem.to_string() }
    }
}

impl Credential {
    fn path(&self) -> Option<&PathBuf> {
        if let Self::File(path) = self { Some(path) } else { None }
    }

    /// The text, without white space around it.
    ///
    /// # Errors
    /// When it cannot be read, or is empty.
    pub fn read(&self, field: &str) -> Result<Zeroizing<String>, SettingsError> {
        let text = match self {
            Self::Given(text) => text.clone(),
            Self::Missing(text) => return Err(SettingsError::Missing(text.clone())),
            Self::File(path) => read(path, field)?,
        };
        if text.trim().is_empty() {
            return Err(self.wrong(field, "it is empty".to_owned()));
        }
        Ok(text)
    }

    /// Certificates to trust, in PEM.
    ///
    /// # Errors
    /// When they cannot be read, or are none.
    pub fn read_bundle(&self, field: &str) -> Result<String, SettingsError> {
        let text = self.read(field)?.to_string();
        let fix = "put the CA's root certificates there, each from BEGIN CERTIFICATE to END CERTIFICATE";
        acme::client::Roots::check(&text).map_err(|problem| self.wrong(field, format!("{problem}; {fix}")))?;
        Ok(text)
    }

    fn wrong(&self, field: &str, problem: String) -> SettingsError {
        let field = field.to_owned();
        match self.path().cloned() {
            Some(path) => SettingsError::File { field, path, problem },
            None => SettingsError::Value { field, problem },
        }
    }
}

fn read(path: &Path, field: &str) -> Result<Zeroizing<String>, SettingsError> {
    let failed = |problem: String| SettingsError::File { field: field.to_owned(), path: path.to_path_buf(), problem };
    let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if size > LARGEST {
        return Err(failed("larger than 1 MiB".to_owned()));
    }
    std::fs::read_to_string(path).map(Zeroizing::new).map_err(|error| failed(error.to_string()))
}

impl DnsSettings {
    /// Settings in a YAML file.
    ///
    /// # Errors
    /// When it cannot be read, or is not what is expected.
    pub fn load(path: &Path, field: &str) -> Result<Self, SettingsError> {
        let settings: Self = yaml(path, field)?;
        settings.check(field)?;
        Ok(settings)
    }

    fn check(&self, field: &str) -> Result<(), SettingsError> {
        if self.persist_days == Some(0) || self.persist_days.is_some() && !self.persist {
            return Err(SettingsError::value(format!("{field}.persistDays"), "expected days, beside persist: true"));
        }
        let Self { cloudflare, digitalocean, route53, rfc2136, webhook, exec, .. } = self;
        let given = [
            cloudflare.is_some(),
            digitalocean.is_some(),
            route53.is_some(),
            rfc2136.is_some(),
            webhook.is_some(),
            exec.is_some(),
        ];
        match given.iter().filter(|given| **given).count() {
            1 => Ok(()),
            n => Err(SettingsError::value(
                field,
                format!("{n} providers: expected one of cloudflare, digitalocean, route53, rfc2136, webhook, exec"),
            )),
        }
    }
}

impl IssuerSettings {
    /// The files that are read when the issuer is opened.
    pub fn files(&self) -> Vec<&PathBuf> {
        let Self { ca_bundle, external_account, dns, .. } = self;
        let mut all: Vec<&Credential> = ca_bundle.iter().collect();
        all.extend(external_account.iter().map(|external| &external.key_file));
        if let Some(DnsSettings { cloudflare, digitalocean, route53, rfc2136, webhook, .. }) = dns {
            for token in cloudflare.iter().chain(digitalocean) {
                all.push(&token.token_file);
                all.extend(&token.ca_bundle);
            }
            all.extend(route53.iter().flat_map(|of| of.secret_access_key_file.iter().chain(&of.ca_bundle)));
            all.extend(rfc2136.iter().map(|of| &of.key_file));
            if let Some(hook) = webhook {
                all.push(&hook.token_file);
                all.extend(&hook.ca_bundle);
            }
        }
        all.into_iter().filter_map(Credential::path).collect()
    }

    /// Where authoritative name servers are not asked.
    pub(super) fn denied_authorities(&self) -> DeniedNetworks {
        let usual = || DeniedNetworks::private().allowing(self.allowed_networks.iter().map(|network| network.0));
        self.authorities.clone().unwrap_or_else(usual)
    }

    /// Refuses what can be seen to be wrong without asking anybody.
    ///
    /// # Errors
    /// When something is; it names the setting.
    pub fn check(&self, field: &str) -> Result<(), SettingsError> {
        let is_url = |text: &str| text.starts_with("https://") || text.starts_with("http://");
        for (name, directory) in [("directory", Some(&self.directory)), ("trial", self.trial.as_ref())] {
            let Some(directory) = directory else { continue };
            if !is_url(directory) && !matches!(directory.as_str(), "letsencrypt" | "letsencrypt-staging") {
                let text = format!("{directory:?}: expected letsencrypt, letsencrypt-staging, or an https:// URL");
                return Err(SettingsError::value(format!("{field}{name}"), text));
            }
        }
        for contact in &self.contacts {
            if !contact.strip_prefix("mailto:").is_some_and(|address| address.contains('@')) {
                let text = format!("{contact:?}: expected mailto:NAME@DOMAIN");
                return Err(SettingsError::value(format!("{field}contact"), text));
            }
        }
        if self.tls_alpn_port.is_some() && (self.dns.is_some() || self.dns_persist) {
            let text = "names are proven by DNS already: leave one of the two out";
            return Err(SettingsError::value(format!("{field}tlsAlpnPort"), text));
        }
        match &self.dns {
            Some(dns) => dns.check(&format!("{field}dns")),
            None => Ok(()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuersFile {
    issuers: BTreeMap<String, IssuerSettings>,
}

/// Reads a file of issuers: `issuers: {NAME: {directory: …}}`.
///
/// # Errors
/// When it cannot be read, or is not what is expected.
pub fn issuers_from(path: &Path) -> Result<BTreeMap<String, IssuerSettings>, SettingsError> {
    let file: IssuersFile = yaml(path, "--issuers")?;
    for (name, settings) in &file.issuers {
        let fits = !name.is_empty()
            && name.len() <= 63
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !fits || [INTERNAL_CA, SELF_SIGNED].contains(&name.as_str()) {
            let text = format!(
                "{name:?}: expected lower-case letters, digits and dashes, and not {INTERNAL_CA} or {SELF_SIGNED}"
            );
            return Err(SettingsError::value("--issuers", text));
        }
        settings.check(&format!("--issuers: issuers.{name}."))?;
    }
    Ok(file.issuers)
}

fn yaml<T: serde::de::DeserializeOwned>(path: &Path, field: &str) -> Result<T, SettingsError> {
    let text = read(path, field)?;
    serde_yaml_ng::from_str(&text).map_err(|error| SettingsError::File {
        field: field.to_owned(),
        path: path.to_path_buf(),
        problem: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        file
    }

    #[test]
    fn issuers_are_read_and_their_secrets_are_not_shown() {
        let text = "issuers:\n  le:\n    directory: letsencrypt\n    agreeToTerms: true\n    \
                    dns: {cloudflare: {tokenFile: /run/token}}\n    fallback: [internal-ca]\n";
        let issuers = issuers_from(file(text).path()).expect("they are fine");
        let le = &issuers["le"];
        assert_eq!((le.directory.as_str(), le.preflight), ("letsencrypt", Preflight::Warn));
        let given = Credential::Given(Zeroizing::new("s3cret".to_owned()));
        assert!(!format!("{given:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("issuers: {le: {directory: lets}}", "issuers.le.directory: \"lets\": expected letsencrypt"),
            ("issuers: {le: {directory: letsencrypt, contacts: [me]}}", "issuers.le.contact: \"me\": expected mailto:"),
            ("issuers: {le: {directory: letsencrypt, dns: {}}}", "issuers.le.dns: 0 providers"),
            ("issuers: {le: {directory: letsencrypt, dnz: {}}}", "unknown field `dnz`"),
            (
                "issuers: {le: {directory: letsencrypt, allow: [{namespaces: [A], hostnames: [\"*\"]}]}}",
                "namespace \"A\"",
            ),
            ("issuers: {le: {directory: letsencrypt, allow: [{namespaces: [a], hostnames: []}]}}", "at least one"),
            ("issuers: {internal-ca: {directory: letsencrypt}}", "and not internal-ca"),
        ] {
            let error = issuers_from(file(text).path()).expect_err(text).to_string();
            assert!(error.contains(word), "{error}");
        }
        let error = Credential::File("/nowhere/token".into()).read("dns.cloudflare.tokenFile").expect_err("no file");
        assert!(error.to_string().starts_with("dns.cloudflare.tokenFile: /nowhere/token: "), "{error}");
        for (text, problem) in [("", "it is empty"), ("no roots", "expected certificates in PEM, found none; put ")] {
            let file = file(text);
            let error = Credential::File(file.path().into()).read_bundle("caBundle").expect_err(text).to_string();
            assert!(error.starts_with(&format!("caBundle: {}: {problem}", file.path().display())), "{error}");
        }
    }
}
