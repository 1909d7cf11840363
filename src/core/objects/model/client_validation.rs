//! Validation of client certificates where TLS is terminated.

use std::fmt;
use std::sync::Arc;

use super::ObjectName;

/// Validation of client certificates where TLS is terminated (Gateway API,
/// `FrontendTLSValidation`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientValidation {
    /// Decides whether clients without a valid certificate are accepted.
    pub mode: ValidationMode,
    /// The CA certificates that must have signed a client's certificate. They may change without
    /// the chain.
    pub roots: RootsName,
}

/// Mode of validation: whether clients without a valid certificate are accepted (Gateway API,
/// `FrontendValidationModeType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValidationMode {
    /// They are not accepted: the handshake fails.
    #[default]
    AllowValidOnly,
    /// They are accepted all the same, and backends are not told.
    AllowInsecureFallback,
}

/// The name of client roots: the CA certificates that client certificates are validated against;
/// printed as `infra/edge` or `infra/edge:8443`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RootsName {
    /// The Gateway.
    pub gateway: ObjectName,
    /// The port that has client roots of its own; `None` for all other ports.
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

/// One SDS secret: the CA certificates that client certificates are validated against.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientRoots {
    /// The name.
    pub name: RootsName,
    /// The certificates in PEM, without duplicates; never empty.
    pub certificates: Arc<str>,
}
