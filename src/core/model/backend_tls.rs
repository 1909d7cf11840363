//! How a backend is spoken to over TLS.

use std::fmt;
use std::sync::Arc;

use super::{Hostname, SecretName};

/// What connections to a backend go through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BackendTransport {
    /// Nothing: the bytes go as they are.
    #[default]
    Plain,
    /// TLS, whose server is verified.
    Tls(Arc<BackendTls>),
    /// The backend is to be verified, and that cannot be done: every connection fails.
    Refused,
}

/// The TLS of connections to a backend: there is none without verification.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendTls {
    /// The SNI (RFC 6066, 3).
    pub hostname: Hostname,
    /// The backend's certificate must be for one of these; never empty.
    pub names: Vec<SubjectAltName>,
    /// Whose signature it needs.
    pub roots: TrustedRoots,
    /// The certificate that the client shows when it is asked for one.
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

/// Where roots of trust come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrustedRoots {
    /// These certificates, in PEM.
    Bundle(Arc<str>),
    /// A file beside each Envoy.
    File(Arc<str>),
}
