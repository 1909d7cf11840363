//! Settings of an ACME issuer, from the configuration, or an object of a tenant.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use acme::DeniedNetworks;
use acme::budget::{Limits, Rate};
use acme::engine::directory_url;
use axum::http::Uri;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroizing;

use super::issuer_names::unknown_issuer;
use gatewright_core::address_forms::canonical_network;
use gatewright_core::translate::{IssuerAllow, SELF_SIGNED};
use gatewright_core::wanted::INTERNAL_CA;

/// The maximum size of files with settings and credentials.
const LARGEST: u64 = 1 << 20;

/// The settings of an ACME issuer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssuerSettings {
    /// The directory: `letsencrypt`, `letsencrypt-staging`, or a URL.
    pub directory: String,
    /// The CA certificates, in PEM, that the directory's server is verified with, in place of the
    /// machine's.
    pub ca_bundle: Option<Credential>,
    /// The contacts of the account: `mailto:` addresses.
    #[serde(default)]
    pub contacts: Vec<String>,
    /// True if the CA's terms of service are agreed to.
    #[serde(default)]
    pub agree_to_terms: bool,
    /// The external account that ours is bound to (RFC 8555, 7.3.4).
    pub external_account: Option<ExternalAccount>,
    /// The required certificate profile of the CA.
    pub profile: Option<String>,
    /// The common name of the root or intermediate that the chain should lead to.
    pub preferred_chain: Option<String>,
    /// Uses DNS-01 in place of HTTP-01; needed for wildcards.
    pub dns: Option<DnsSettings>,
    /// Uses dns-persist-01 without a provider: the operator creates the record that binds a name to
    /// the account.
    #[serde(default)]
    pub dns_persist: bool,
    /// The effect of the pre-flight check
    #[serde(default)]
    pub preflight: Preflight,
    /// The port where HTTP-01 requests reach Envoy; 80 unless something in front maps it.
    pub http_port: Option<u16>,
    /// Uses TLS-ALPN-01 in place of HTTP-01; the port where validation connections reach Envoy: 443
    /// unless something in front maps it.
    pub tls_alpn_port: Option<u16>,
    /// The addresses that names should have in public DNS; empty skips the comparison.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// The DNS resolvers; empty uses those of the machine.
    #[serde(default)]
    pub resolvers: Vec<SocketAddr>,
    /// The rate limits of a CA whose limits are not known here: kept as a budget, so that names
    /// share certificates where they must.
    pub limits: Option<CaLimits>,
    /// The directory of trial orders after a first failure, for example `letsencrypt-staging`.
    pub trial: Option<String>,
    /// The issuers of the installation that are tried, in order, where this one fails.
    #[serde(default)]
    pub fallback: Vec<String>,
    /// The namespaces whose listeners may use the issuer, and for which hostnames; without a rule,
    /// issuersFor decides.
    #[serde(default)]
    pub allow: Vec<IssuerAllow>,
    /// Private networks in which authoritative name servers may be queried all the same.
    #[serde(default)]
    pub allowed_networks: Vec<Network>,
    /// The networks in which authoritative name servers are not queried; `None`: private networks
    /// except the allowed ones.
    #[serde(skip)]
    pub authorities: Option<DeniedNetworks>,
    /// The networks in which the directory is not contacted, where the author of the settings is
    /// not trusted with all addresses.
    #[serde(skip)]
    pub denied: DeniedNetworks,
}

/// The rate limits of a CA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CaLimits {
    /// The new orders of an account.
    pub orders: Option<CaLimit>,
    /// The certificates for a registered domain.
    pub certificates_per_domain: Option<CaLimit>,
}

/// A number within a number of hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaLimit {
    /// The number.
    pub count: NonZeroU32,
    /// The period in hours.
    pub hours: NonZeroU32,
}

impl CaLimits {
    /// Returns the known limits of a directory, overridden by these.
    pub fn over(&self, known: Limits) -> Limits {
        let rate = |limit: CaLimit| Rate::hours(limit.count.get(), i64::from(limit.hours.get()));
        let Self {
            orders,
            certificates_per_domain,
        } = *self;
        let (orders, domain) = (orders.map(rate), certificates_per_domain.map(rate));
        Limits {
            orders: orders.or(known.orders),
            domain: domain.or(known.domain),
            ..known
        }
    }
}

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Network(pub IpNet);

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.0.to_string()
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
            .map(|network| Self(canonical_network(network)))
            .map_err(|_| format!("{text:?}: expected a network, as 10.0.0.0/8"))
    }
}

/// The effect of a finding of the pre-flight check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Preflight {
    /// A problem prevents the order
    Strict,
    /// A problem is reported, and the order is placed
    #[default]
    Warn,
    /// Nothing is checked
    Skip,
}

/// The credentials of an external account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExternalAccount {
    /// The key identifier.
    pub key_id: String,
    /// The HMAC key in base64url.
    pub key_file: Credential,
}

/// The DNS provider that writes TXT records, exactly one, and its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are the providers'")]
pub struct DnsSettings {
    pub cloudflare: Option<Token>,
    pub digitalocean: Option<Token>,
    pub route53: Option<Route53>,
    pub rfc2136: Option<Rfc2136>,
    pub webhook: Option<Webhook>,
    pub exec: Option<Exec>,
    /// Prefers dns-account-01 where the CA offers it.
    #[serde(default)]
    pub account_label: bool,
    /// Prefers dns-persist-01 where the CA offers it: a permanent record, which is written if it is
    /// missing.
    #[serde(default)]
    pub persist: bool,
    /// The number of days for which such a record is valid; without it, for ever.
    pub persist_days: Option<u32>,
    /// The maximum propagation time of a record in seconds; 120 unless set.
    pub propagation_seconds: Option<u64>,
    /// Skips the query of authoritative servers for the record.
    #[serde(default)]
    pub skip_propagation_check: bool,
    /// The port of authoritative servers; 53 unless set.
    pub authority_port: Option<u16>,
}

/// A provider with a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Token {
    pub token_file: Credential,
    pub endpoint: Option<String>,
    pub ca_bundle: Option<Credential>,
}

/// Route 53; without keys, the credentials of the environment are used, as by the AWS SDKs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// A name server with dynamic updates (RFC 2136) signed with TSIG.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Rfc2136 {
    pub nameserver: String,
    pub key_name: String,
    pub algorithm: Option<String>,
    pub key_file: Credential,
    pub zone: Option<String>,
    /// The networks in which the server is not contacted.
    #[serde(skip)]
    pub denied: DeniedNetworks,
}

/// A web service of the operator that writes records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Webhook {
    pub url: String,
    pub token_file: Credential,
    pub ca_bundle: Option<Credential>,
}

/// A program of the operator that writes records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Exec {
    pub program: PathBuf,
    #[serde(default)]
    pub args: Vec<String>,
}

/// A text that settings refer to: in a file, or given directly.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(from = "PathBuf")]
#[schemars(with = "PathBuf")]
pub enum Credential {
    /// The text of this file, read when the issuer is opened.
    File(PathBuf),
    /// The text itself.
    Given(Zeroizing<String>),
    /// A text that is missing; the message says where it is expected.
    Missing(String),
}

impl From<PathBuf> for Credential {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl Serialize for Credential {
    /// Only the path of a file is written, never a text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(path) => path.serialize(serializer),
            Self::Given(_) | Self::Missing(_) => serializer.serialize_none(),
        }
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

/// The reason for which settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file cannot be used.
    #[error("{field}: {}: {problem}", path.display())]
    File {
        /// The setting that names the file.
        field: String,
        /// The path of the file.
        path: PathBuf,
        /// The description of the error.
        problem: String,
    },
    /// A credential is missing; the message says where it is expected.
    #[error("{0}")]
    Missing(String),
    /// A value is invalid.
    #[error("{field}: {problem}")]
    Value {
        /// The setting.
        field: String,
        /// The description of the error, and what is expected.
        problem: String,
    },
}

impl SettingsError {
    pub(super) fn value(field: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self::Value {
            field: field.into(),
            problem: problem.to_string(),
        }
    }
}

impl Credential {
    pub(super) fn path(&self) -> Option<&PathBuf> {
        if let Self::File(path) = self {
            Some(path)
        } else {
            None
        }
    }

    /// Returns the text, without white space around it.
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

    /// Returns CA certificates, in PEM.
    ///
    /// # Errors
    /// When they cannot be read, or there are none.
    pub fn read_bundle(&self, field: &str) -> Result<String, SettingsError> {
        let text = self.read(field)?.to_string();
        let fix =
            "put the CA's root certificates there, each from BEGIN CERTIFICATE to END CERTIFICATE";
        acme::client::Roots::check(&text)
            .map_err(|problem| self.wrong(field, format!("{problem}; {fix}")))?;
        Ok(text)
    }

    pub(super) fn wrong(&self, field: &str, problem: String) -> SettingsError {
        let field = field.to_owned();
        match self.path().cloned() {
            Some(path) => SettingsError::File {
                field,
                path,
                problem,
            },
            None => SettingsError::Value { field, problem },
        }
    }
}

fn read(path: &Path, field: &str) -> Result<Zeroizing<String>, SettingsError> {
    read_file(path)
        .map(Zeroizing::new)
        .map_err(|problem| SettingsError::File {
            field: field.to_owned(),
            path: path.to_path_buf(),
            problem,
        })
}

/// Reads a file with settings or a credential, of at most 1 MiB.
///
/// # Errors
/// When it cannot be read, or is larger.
pub fn read_file(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path)
        .map_err(|error| error.to_string())?
        .len();
    if size > LARGEST {
        return Err("larger than 1 MiB".to_owned());
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

impl DnsSettings {
    fn check(&self, field: &str) -> Result<(), SettingsError> {
        if self.persist_days == Some(0) || self.persist_days.is_some() && !self.persist {
            return Err(SettingsError::value(
                format!("{field}.persistDays"),
                "expected days, beside persist: true",
            ));
        }
        let Self {
            cloudflare,
            digitalocean,
            route53,
            rfc2136,
            webhook,
            exec,
            ..
        } = self;
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
                format!(
                    "{n} providers: expected one of cloudflare, digitalocean, route53, rfc2136, webhook, exec"
                ),
            )),
        }
    }
}

impl IssuerSettings {
    /// True if names are validated by DNS, without a connection to Envoys.
    pub(super) fn is_validated_by_dns(&self) -> bool {
        self.dns.is_some() || self.dns_persist
    }

    /// The port where HTTP-01 challenges reach Envoys.
    pub(super) fn http01_port(&self) -> u16 {
        self.http_port.unwrap_or(80)
    }

    /// Returns the files that are read when the issuer is opened.
    pub fn files(&self) -> Vec<&PathBuf> {
        let Self {
            ca_bundle,
            external_account,
            dns,
            ..
        } = self;
        let mut all: Vec<&Credential> = ca_bundle.iter().collect();
        all.extend(external_account.iter().map(|external| &external.key_file));
        if let Some(DnsSettings {
            cloudflare,
            digitalocean,
            route53,
            rfc2136,
            webhook,
            ..
        }) = dns
        {
            for token in cloudflare.iter().chain(digitalocean) {
                all.push(&token.token_file);
                all.extend(&token.ca_bundle);
            }
            all.extend(
                route53
                    .iter()
                    .flat_map(|of| of.secret_access_key_file.iter().chain(&of.ca_bundle)),
            );
            all.extend(rfc2136.iter().map(|of| &of.key_file));
            if let Some(hook) = webhook {
                all.push(&hook.token_file);
                all.extend(&hook.ca_bundle);
            }
        }
        all.into_iter().filter_map(Credential::path).collect()
    }

    /// Returns the networks in which authoritative name servers are not queried.
    pub(super) fn denied_authorities(&self) -> DeniedNetworks {
        self.authorities.clone().unwrap_or_else(|| {
            DeniedNetworks::private()
                .allowing(self.allowed_networks.iter().map(|network| network.0))
        })
    }

    /// Returns why the CA will create no account, if its terms are known and not agreed to.
    pub fn unagreed(&self) -> Option<String> {
        let mut directories = std::iter::once(&self.directory).chain(&self.trial);
        let known = directories.find(|directory| {
            let host = directory_url(directory).parse::<Uri>();
            host.is_ok_and(|url| {
                let host = url.host().unwrap_or_default();
                host.ends_with(".letsencrypt.org")
            })
        });
        known.filter(|_| !self.agree_to_terms).map(|directory| {
            format!(
                "{directory} creates an account only for those who agree to its terms of service \
                 (https://letsencrypt.org/repository/): set it to true"
            )
        })
    }

    /// Checks what can be checked without a request.
    ///
    /// # Errors
    /// When a setting is invalid; the error names it.
    pub fn check(&self, field: &str) -> Result<(), SettingsError> {
        let is_url = |text: &str| text.starts_with("https://") || text.starts_with("http://");
        for (name, directory) in [
            ("directory", Some(&self.directory)),
            ("trial", self.trial.as_ref()),
        ] {
            let Some(directory) = directory else { continue };
            if !is_url(directory)
                && !matches!(directory.as_str(), "letsencrypt" | "letsencrypt-staging")
            {
                let text = format!(
                    "{directory:?}: expected letsencrypt, letsencrypt-staging, or an https:// URL"
                );
                return Err(SettingsError::value(format!("{field}{name}"), text));
            }
            let uri = directory.parse::<Uri>();
            let has_host = uri.is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()));
            if is_url(directory) && !has_host {
                let text = format!("{directory:?}: expected a URL with a host");
                return Err(SettingsError::value(format!("{field}{name}"), text));
            }
        }
        for contact in &self.contacts {
            if !contact
                .strip_prefix("mailto:")
                .is_some_and(|address| address.contains('@'))
            {
                let text = format!("{contact:?}: expected mailto:NAME@DOMAIN");
                return Err(SettingsError::value(format!("{field}contacts"), text));
            }
        }
        if self.tls_alpn_port.is_some() && self.is_validated_by_dns() {
            let text = "TLS-ALPN-01 and DNS challenges exclude each other: remove one of them";
            return Err(SettingsError::value(format!("{field}tlsAlpnPort"), text));
        }
        match &self.dns {
            Some(dns) => dns.check(&format!("{field}dns")),
            None => Ok(()),
        }
    }
}

/// Checks the issuers of an installation.
///
/// # Errors
/// When a name or a setting is invalid; the error names it, as `issuers.NAME.FIELD`.
pub fn check_issuers(issuers: &BTreeMap<String, IssuerSettings>) -> Result<(), SettingsError> {
    for (name, settings) in issuers {
        let fits = !name.is_empty()
            && name.len() <= 63
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let field = format!("issuers.{name}");
        if !fits || [INTERNAL_CA, SELF_SIGNED].contains(&name.as_str()) {
            let text = format!(
                "expected lower-case letters, digits and dashes, and not {INTERNAL_CA} or {SELF_SIGNED}"
            );
            return Err(SettingsError::value(field, text));
        }
        settings.check(&format!("{field}."))?;
        check_fallback(name, &settings.fallback, issuers)?;
    }
    Ok(())
}

/// Checks that the fallbacks of an issuer are others.
fn check_fallback(
    name: &str,
    fallback: &[String],
    issuers: &BTreeMap<String, IssuerSettings>,
) -> Result<(), SettingsError> {
    for (index, other) in fallback.iter().enumerate() {
        let field = format!("issuers.{name}.fallback[{index}]");
        if other == name {
            let text = format!("{other:?} is the issuer itself: name another one");
            return Err(SettingsError::value(field, text));
        }
        if fallback[..index].contains(other) {
            let text = format!("{other:?} is named twice");
            return Err(SettingsError::value(field, text));
        }
        if other != INTERNAL_CA && !issuers.contains_key(other) {
            let known = issuers.keys().filter(|known| *known != name);
            let text = unknown_issuer(other, known.map(String::as_str));
            return Err(SettingsError::value(field, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuers_of(text: &str) -> Result<BTreeMap<String, IssuerSettings>, String> {
        let issuers = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
        check_issuers(&issuers).map_err(|error| error.to_string())?;
        Ok(issuers)
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        file
    }

    #[test]
    fn issuers_are_read_and_their_secrets_are_not_shown() {
        let text = "le:\n  directory: letsencrypt\n  agreeToTerms: true\n  \
                    dns: {cloudflare: {tokenFile: /run/token}}\n  fallback: [internal-ca]\n";
        let issuers = issuers_of(text).expect("they are fine");
        let le = &issuers["le"];
        assert_eq!(
            le.directory.as_str(),
            "letsencrypt",
            "the name of the directory is read"
        );
        assert_eq!(le.preflight, Preflight::Warn, "a failed preflight warns");
        let given = Credential::Given(Zeroizing::new("s3cret".to_owned()));
        assert!(!format!("{given:?}").contains("s3cret"));
    }

    #[test]
    fn terms_that_are_known_and_not_agreed_to_are_told() {
        let staging = "https://acme-staging-v02.api.letsencrypt.org/directory";
        for (directory, trial, is_known) in [
            ("letsencrypt", None, true),
            (staging, None, true),
            ("https://ca.example.org/directory", None, false),
            (
                "https://ca.example.org/directory",
                Some("letsencrypt-staging"),
                true,
            ),
        ] {
            let mut settings = IssuerSettings {
                directory: directory.to_owned(),
                trial: trial.map(str::to_owned),
                ..IssuerSettings::default()
            };
            assert_eq!(settings.unagreed().is_some(), is_known, "{directory}");
            settings.agree_to_terms = true;
            assert_eq!(settings.unagreed(), None, "{directory}");
        }
    }

    #[test]
    fn an_invalid_setting_is_named() {
        for (text, word) in [
            (
                "{le: {directory: 'https:///directory'}}",
                "issuers.le.directory: \"https:///directory\": expected a URL with a host",
            ),
            (
                "{le: {directory: letsencrypt, fallback: [zz]}, b: {directory: letsencrypt}}",
                "issuers.le.fallback[0]: no issuer is called \"zz\": there are b, internal-ca",
            ),
            (
                "{le: {directory: letsencrypt, fallback: [internal-ca, le]}}",
                "issuers.le.fallback[1]: \"le\" is the issuer itself: name another one",
            ),
            (
                "{le: {directory: letsencrypt, fallback: [internal-ca, internal-ca]}}",
                "issuers.le.fallback[1]: \"internal-ca\" is named twice",
            ),
            (
                "{le: {directory: lets}}",
                "issuers.le.directory: \"lets\": expected letsencrypt",
            ),
            (
                "{le: {directory: letsencrypt, contacts: [me]}}",
                "issuers.le.contacts: \"me\": expected mailto:",
            ),
            (
                "{le: {directory: letsencrypt, dns: {}}}",
                "issuers.le.dns: 0 providers",
            ),
            (
                "{le: {directory: letsencrypt, dnz: {}}}",
                "unknown field `dnz`",
            ),
            (
                "{le: {directory: letsencrypt, allow: [{namespaces: [A], hostnames: [\"*\"]}]}}",
                "namespace \"A\"",
            ),
            (
                "{le: {directory: letsencrypt, allow: [{namespaces: [a], hostnames: []}]}}",
                "at least one",
            ),
            (
                "{internal-ca: {directory: letsencrypt}}",
                "and not internal-ca",
            ),
        ] {
            let error = issuers_of(text).expect_err(text);
            assert!(error.contains(word), "{error}");
        }
        let error = Credential::File("/nowhere/token".into())
            .read("dns.cloudflare.tokenFile")
            .expect_err("no file");
        assert!(
            error
                .to_string()
                .starts_with("dns.cloudflare.tokenFile: /nowhere/token: "),
            "{error}"
        );
        for (text, problem) in [
            ("", "it is empty"),
            (
                "no roots",
                "expected certificates in PEM: no certificate in PEM in it; put ",
            ),
        ] {
            let file = file(text);
            let error = Credential::File(file.path().into())
                .read_bundle("caBundle")
                .expect_err(text)
                .to_string();
            assert!(
                error.starts_with(&format!("caBundle: {}: {problem}", file.path().display())),
                "{error}"
            );
        }
    }
}
