//! Certificates that listeners serve.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use x509_parser::prelude::{FromDer, X509Certificate};

use super::{FrontendId, Hostname, ObjectName, RootsName, TlsParams};

/// A private key. Has no `Debug` that prints it, and is compared by value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PrivateKey {
    form: KeyForm,
    der: Arc<[u8]>,
}

/// How a private key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyForm {
    /// PKCS #8 (RFC 5958).
    Pkcs8,
    /// An elliptic curve's own (RFC 5915).
    Sec1,
    /// RSA's own (RFC 8017).
    Pkcs1,
}

impl PrivateKey {
    /// Wraps the DER of a key.
    pub fn new(form: KeyForm, der: &[u8]) -> Self {
        Self { form, der: der.into() }
    }

    /// The PEM text, for the one place that sends it to Envoy.
    pub fn expose(&self) -> String {
        let label = match self.form {
            KeyForm::Pkcs8 => "PRIVATE KEY",
            KeyForm::Sec1 => "EC PRIVATE KEY",
            KeyForm::Pkcs1 => "RSA PRIVATE KEY",
        };
        encode_pem(label, &self.der)
    }
}

/// DER as PEM (RFC 7468), with a line feed at the end of each line.
pub(crate) fn encode_pem(label: &str, der: &[u8]) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(label, der), lines)
}

/// A certificate in DER, behind which nothing stands; or what is wrong with it.
pub(crate) fn x509(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err("something follows it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[private key]")
    }
}

/// A certificate chain with its key, checked: the key matches the leaf, and the chain parses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Certificate {
    /// The leaf in DER, three quarters of what its text takes.
    pub leaf: Arc<[u8]>,
    /// The rest of the chain in PEM, issuer by issuer; the same for many leaves.
    pub issuers: Arc<str>,
    /// The leaf's key.
    pub key: PrivateKey,
    /// DNS names the leaf is valid for, sorted.
    pub names: Vec<Hostname>,
    /// Start of the leaf's validity.
    pub not_before: SystemTime,
    /// End of the leaf's validity.
    pub not_after: SystemTime,
    /// The leaf's issuer, as text for people.
    pub issuer: Arc<str>,
}

impl Certificate {
    /// The leaf's serial number in lower-case hex; nothing where the leaf is no certificate. Read anew each time: it is
    /// asked for by people, and when a certificate is replaced.
    pub fn serial(&self) -> String {
        let leaf = X509Certificate::from_der(&self.leaf).ok();
        let bytes = leaf.map(|(_, leaf)| leaf.raw_serial().to_vec()).unwrap_or_default();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The chain in PEM, leaf first.
    pub fn chain(&self) -> String {
        encode_pem("CERTIFICATE", &self.leaf) + &self.issuers
    }
}

/// The name Envoy asks a certificate by.
///
/// Envoy hangs a handshake when one name is used both on demand and by a regular SDS subscription; the two kinds are
/// therefore disjoint by construction: a hostname never contains a slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SecretName {
    /// Asked by the lower-case SNI, through the `on_demand_secret` selector.
    Sni(Hostname),
    /// Asked by a chain of one frontend that always serves this one certificate: `sds/<frontend>/<hostname>`.
    Fixed(FrontendId, Arc<str>),
    /// Asked by clusters: what a Gateway shows to backends, `sds/client@<namespace>/<gateway>`. No frontend has an `@`.
    Client(ObjectName),
    /// Asked by chains that check certificates of clients: `sds/roots@<gateway>` or `sds/roots@<gateway>:<port>`. No frontend
    /// has an `@`.
    Roots(RootsName),
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretName::Sni(host) => f.write_str(host.as_str()),
            SecretName::Fixed(frontend, name) => write!(f, "sds/{frontend}/{name}"),
            SecretName::Client(gateway) => write!(f, "sds/client@{gateway}"),
            SecretName::Roots(name) => write!(f, "sds/roots@{name}"),
        }
    }
}

/// One SDS secret: a certificate under the name Envoy asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Secret {
    /// What Envoy asks for.
    pub name: SecretName,
    /// What it gets.
    pub certificate: Arc<Certificate>,
    /// TLS parameters that go with a certificate served by SNI; a fixed one has them in its chain.
    pub params: Arc<TlsParams>,
}
