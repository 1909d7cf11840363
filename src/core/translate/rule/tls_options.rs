//! `tls.options` of a listener, keys under `gatewright.io/`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use gatewright_objects::model::{TlsParams, TlsVersion};
use gatewright_objects::wanted::INTERNAL_CA;

const DOMAIN: &str = "gatewright.io/";
/// The issuer of the certificate of a listener without certificateRefs.
pub const ISSUER: &str = "gatewright.io/issuer";
/// HTTP/3 beside TLS over TCP.
pub(crate) const HTTP3: &str = "gatewright.io/http3";
/// Resumption of TLS sessions by tickets.
pub(crate) const TICKETS: &str = "gatewright.io/session-tickets";
/// The issuer of self-signed certificates for clients without SNI.
pub const SELF_SIGNED: &str = "self-signed";

/// Options under our domain: name, values, meaning.
pub const OPTIONS: [(&str, &str, &str); 9] = [
    (
        "http3",
        "Enabled or Disabled",
        "Whether the host is served over HTTP/3 as well.",
    ),
    (
        "issuer",
        "name of an issuer",
        "Who issues the certificate of a listener without `certificateRefs`.",
    ),
    (
        "session-tickets",
        "Enabled or Disabled",
        "Whether clients that return resume their TLS sessions.",
    ),
    (
        "tls-alpn",
        "list of h2, http/1.1",
        "Protocols that are offered by ALPN, in order of preference.",
    ),
    (
        "tls-ciphers",
        "list",
        "Cipher suites of TLS 1.2, by BoringSSL's names.",
    ),
    (
        "tls-curves",
        "list",
        "Groups of the key exchange, in order of preference.",
    ),
    (
        "tls-max-version",
        "1.2 or 1.3",
        "The highest version of TLS.",
    ),
    (
        "tls-min-version",
        "1.2 or 1.3",
        "The lowest version of TLS.",
    ),
    (
        "tls-signature-algorithms",
        "list",
        "Signature algorithms, in order of preference.",
    ),
];

/// TLS settings of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Versions, cipher suites, groups and signature algorithms.
    pub params: Arc<TlsParams>,
    /// ALPN protocols in order of preference.
    pub alpn: Vec<String>,
}

impl TlsSettings {
    /// Shared settings, since nearly all listeners have the default ones. By default ALPN offers
    /// HTTP/2 and HTTP/1.1 for HTTP, and nothing for other protocols, whose support by backends is
    /// unknown.
    pub(crate) fn shared(
        params: TlsParams,
        alpn: Option<Vec<String>>,
        speaks_http: bool,
    ) -> Arc<Self> {
        static HTTP: LazyLock<Arc<TlsSettings>> = LazyLock::new(|| {
            let alpn = vec!["h2".to_owned(), "http/1.1".to_owned()];
            Arc::new(TlsSettings {
                params: Arc::default(),
                alpn,
            })
        });
        static OTHER: LazyLock<Arc<TlsSettings>> = LazyLock::new(Arc::default);
        let usual: &Arc<Self> = if speaks_http { &HTTP } else { &OTHER };
        match alpn {
            None if params == TlsParams::default() => usual.clone(),
            alpn => Arc::new(Self {
                params: Arc::new(params),
                alpn: alpn.unwrap_or_else(|| usual.alpn.clone()),
            }),
        }
    }
}

/// The options of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsOptions {
    pub(crate) params: TlsParams,
    /// ALPN protocols, if the option is set.
    pub(crate) alpn: Option<Vec<String>>,
    /// The issuer of the certificate.
    pub(crate) issuer: Option<String>,
    /// True if HTTP/3 is asked for.
    pub(crate) http3: bool,
    /// True if session tickets are asked for.
    pub(crate) tickets: bool,
}

/// Reads the options. Keys of other domains are ignored, as the specification requires; an unknown
/// key or value of ours is an error that says what is expected.
pub(crate) fn parse(options: &BTreeMap<String, String>) -> Result<TlsOptions, String> {
    let mut parsed = TlsOptions::default();
    for (key, value) in options {
        let Some(name) = key.strip_prefix(DOMAIN) else {
            continue;
        };
        match name {
            "tls-min-version" => parsed.params.min = Some(version(key, value)?),
            "tls-max-version" => parsed.params.max = Some(version(key, value)?),
            "tls-ciphers" => parsed.params.ciphers = list(key, value, CIPHERS)?,
            "tls-curves" => parsed.params.curves = list(key, value, CURVES)?,
            "tls-signature-algorithms" => {
                parsed.params.signature_algorithms = list(key, value, SIGNATURES)?
            }
            "tls-alpn" => parsed.alpn = Some(list(key, value, &["h2", "http/1.1"])?),
            "http3" => parsed.http3 = switch(key, value)?,
            "session-tickets" => parsed.tickets = switch(key, value)?,
            "issuer" => parsed.issuer = Some(issuer(key, value)?),
            _ => {
                let known: Vec<&str> = OPTIONS.iter().map(|(name, ..)| *name).collect();
                return Err(format!(
                    "tls.options: {key} is not known: expected one of {} under {DOMAIN}",
                    known.join(", ")
                ));
            }
        }
    }
    if let (Some(min), Some(max)) = (parsed.params.min, parsed.params.max)
        && min > max
    {
        return Err(format!(
            "tls.options: {DOMAIN}tls-min-version is higher than {DOMAIN}tls-max-version"
        ));
    }
    if parsed.http3 {
        suits_quic(&parsed.params)?;
    }
    Ok(parsed)
}

/// Checks that settings hold for QUIC as well, which has TLS 1.3 and of which Envoy sets neither
/// groups nor signature algorithms.
fn suits_quic(params: &TlsParams) -> Result<(), String> {
    let unsuited = if params.max == Some(TlsVersion::V1_2) {
        "tls-max-version 1.2"
    } else if !params.curves.is_empty() {
        "tls-curves"
    } else if !params.signature_algorithms.is_empty() {
        "tls-signature-algorithms"
    } else {
        return Ok(());
    };
    Err(format!(
        "tls.options: {HTTP3} cannot be with {DOMAIN}{unsuited}, which QUIC does not follow: remove one of them"
    ))
}

fn switch(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "Enabled" => Ok(true),
        "Disabled" => Ok(false),
        _ => Err(format!(
            "tls.options {key}: {value:?} is not known: expected Enabled or Disabled"
        )),
    }
}

/// Reads the name of an issuer. Whether it exists is known to the certificate manager alone.
fn issuer(key: &str, value: &str) -> Result<String, String> {
    if !(1..=63).contains(&value.len())
        || !value
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    {
        return Err(format!(
            "tls.options {key}: {value:?} names no issuer: expected {INTERNAL_CA}, acme, or another name"
        ));
    }
    Ok(value.to_owned())
}

fn version(key: &str, value: &str) -> Result<TlsVersion, String> {
    match value {
        "1.2" => Ok(TlsVersion::V1_2),
        "1.3" => Ok(TlsVersion::V1_3),
        _ => Err(format!(
            "tls.options {key}: {value:?} is not supported: expected 1.2 or 1.3"
        )),
    }
}

fn list(key: &str, value: &str, known: &[&str]) -> Result<Vec<String>, String> {
    let items: Vec<String> = value
        .split(',')
        .map(|item| item.trim().to_owned())
        .collect();
    if let Some(item) = items.iter().find(|item| !known.contains(&item.as_str())) {
        return Err(format!(
            "tls.options {key}: {item:?} is not known: expected {}",
            known.join(", ")
        ));
    }
    // Envoy refuses a Listener with a duplicate curve or signature algorithm.
    match items
        .iter()
        .enumerate()
        .find(|(index, item)| items[..*index].contains(item))
    {
        Some((_, item)) => Err(format!("tls.options {key}: {item:?} stands twice")),
        None => Ok(items),
    }
}

/// The values that lists may have, by option.
pub const VALUES: [(&str, &[&str]); 3] = [
    ("tls-ciphers", CIPHERS),
    ("tls-curves", CURVES),
    ("tls-signature-algorithms", SIGNATURES),
];

/// BoringSSL's names of TLS 1.2 cipher suites that Envoy accepts (docs of
/// `TlsParameters.cipher_suites`).
const CIPHERS: &[&str] = &[
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
];

const CURVES: &[&str] = &["X25519MLKEM768", "X25519", "P-256", "P-384", "P-521"];

const SIGNATURES: &[&str] = &[
    "ecdsa_secp256r1_sha256",
    "ecdsa_secp384r1_sha384",
    "ecdsa_secp521r1_sha512",
    "ed25519",
    "rsa_pss_rsae_sha256",
    "rsa_pss_rsae_sha384",
    "rsa_pss_rsae_sha512",
    "rsa_pkcs1_sha256",
    "rsa_pkcs1_sha384",
    "rsa_pkcs1_sha512",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&str, &str)]) -> Result<TlsOptions, String> {
        parse(
            &pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn options_of_other_domains_are_ignored_and_unknown_ones_of_ours_refused() {
        assert_eq!(check(&[("example.com/x", "y")]), Ok(TlsOptions::default()));
        assert!(
            check(&[("gatewright.io/x", "y")]).is_err_and(|text| text.contains("tls-min-version"))
        );
    }

    #[test]
    fn values_are_checked() {
        let options = check(&[
            ("gatewright.io/tls-min-version", "1.3"),
            ("gatewright.io/tls-curves", "X25519, P-256"),
        ]);
        let params = options.expect("valid").params;
        assert_eq!(
            params.min,
            Some(TlsVersion::V1_3),
            "the least version is read"
        );
        assert_eq!(params.curves.len(), 2, "both curves are read");
        assert!(check(&[("gatewright.io/tls-min-version", "1.1")]).is_err());
        assert!(check(&[("gatewright.io/tls-ciphers", "RC4")]).is_err());
        assert!(
            check(&[("gatewright.io/tls-curves", "X25519,P-256,X25519")])
                .is_err_and(|text| text.contains("twice"))
        );
        assert!(
            check(&[
                ("gatewright.io/tls-min-version", "1.3"),
                ("gatewright.io/tls-max-version", "1.2")
            ])
            .is_err()
        );
    }
}
