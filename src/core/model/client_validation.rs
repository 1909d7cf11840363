//! How the certificates of clients are checked where TLS ends.

use std::fmt;
use std::sync::Arc;

use super::ObjectName;

/// Validation of clients' certificates where TLS is terminated (Gateway API, `FrontendTLSValidation`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientValidation {
    /// Whether clients whose certificate is not valid are let in.
    pub mode: ValidationMode,
    /// What a client's certificate is checked against. The certificates may change without the chain.
    pub roots: RootsName,
}

/// Mode of validation: whether clients without a valid certificate are let in (Gateway API, `FrontendValidationModeType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValidationMode {
    /// The handshake fails.
    #[default]
    AllowValidOnly,
    /// They are let in all the same, and nobody behind the listener is told.
    AllowInsecureFallback,
}

/// Identifies the CA certificates that certificates of clients are checked against; printed as `infra/edge` or
/// `infra/edge:8443`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RootsName {
    /// The Gateway.
    pub gateway: ObjectName,
    /// The port that has its own; `None` for all others.
    pub port: Option<u16>,
}

impl fmt::Display for RootsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.gateway),
            None => write!(f, "{}", self.gateway),
        }
    }
}

/// One SDS secret: the CA certificates that certificates of clients are checked against.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientRoots {
    /// Which.
    pub name: RootsName,
    /// The certificates in PEM, none of them twice; never empty.
    pub certificates: Arc<str>,
}
