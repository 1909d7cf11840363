//! Certificates that listeners serve.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::{Hostname, TlsParams};

/// A private key in PEM. Has no `Debug` that prints it, and is compared by value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PrivateKey(Arc<str>);

impl PrivateKey {
    /// Wraps a PEM text.
    pub fn new(pem: impl Into<Arc<str>>) -> Self {
        Self(pem.into())
    }

    /// The PEM text, for the one place that sends it to Envoy.
    pub fn expose(&self) -> &str {
        &self.0
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
    /// The leaf in PEM.
    pub leaf: Arc<str>,
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
    /// The leaf's serial number in lower-case hex.
    pub serial: Arc<str>,
}

impl Certificate {
    /// The chain in PEM, leaf first.
    pub fn chain(&self) -> String {
        [&*self.leaf, &*self.issuers].concat()
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
    /// Asked by a chain that always serves this one certificate: `sds/<frontend>/<hostname>`.
    Fixed(Arc<str>),
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretName::Sni(host) => f.write_str(host.as_str()),
            SecretName::Fixed(name) => write!(f, "sds/{name}"),
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
