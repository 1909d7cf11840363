//! The port where a CA connects to Envoys to validate a host.

use super::settings::{IssuerSettings, Preflight};

/// The port of Envoys where challenges of an issuer arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengePort {
    /// For HTTP-01.
    Http(u16),
    /// For TLS-ALPN-01.
    Tls(u16),
}

impl ChallengePort {
    /// The port of an issuer; `None` if names are validated by DNS.
    pub fn of(settings: &IssuerSettings) -> Option<Self> {
        match settings.tls_alpn_port {
            _ if settings.is_validated_by_dns() => None,
            Some(port) => Some(Self::Tls(port)),
            None => Some(Self::Http(settings.http01_port())),
        }
    }

    /// The same, if it is to be checked before an order.
    pub fn checked(settings: &IssuerSettings) -> Option<Self> {
        Self::of(settings).filter(|_| settings.preflight != Preflight::Skip)
    }
}
