//! TLS of connections to backends.

use std::fmt;
use std::sync::Arc;

use super::{Hostname, SecretName};

/// The transport of connections to a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BackendTransport {
    /// Plain text: the bytes are not encrypted.
    #[default]
    Plain,
    /// TLS with verification of the server.
    Tls(Arc<BackendTls>),
    /// Verification is required and impossible: every connection fails.
    Refused,
}

/// TLS settings of connections to a backend; there are none without verification.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendTls {
    /// The SNI (RFC 6066, 3).
    pub hostname: Hostname,
    /// The Subject Alternative Names, one of which the backend's certificate must have; never
    /// empty.
    pub names: Vec<SubjectAltName>,
    /// The CA certificates that must have signed it.
    pub roots: TrustedRoots,
    /// The client certificate that Envoy presents when the backend requests one.
    pub client: Option<SecretName>,
}

/// A Subject Alternative Name of a certificate (RFC 5280, 4.2.1.6).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubjectAltName {
    /// A DNS name.
    Dns(Hostname),
    /// A URI, of SPIFFE for example. Compared byte by byte.
    Uri(Arc<str>),
}

impl fmt::Display for SubjectAltName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubjectAltName::Dns(name) => write!(f, "{name}"),
            SubjectAltName::Uri(uri) => f.write_str(uri),
        }
    }
}

/// The source of trusted CA certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrustedRoots {
    /// Certificates in PEM.
    Bundle(Arc<str>),
    /// The path of a file that every Envoy has.
    File(Arc<str>),
}
