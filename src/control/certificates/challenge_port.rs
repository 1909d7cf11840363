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
    /// The port of an issuer; `None` if names are validated by DNS, or nothing is to be checked.
    pub fn of(settings: &IssuerSettings) -> Option<Self> {
        let by_dns = settings.dns.is_some() || settings.dns_persist;
        match settings.tls_alpn_port {
            _ if by_dns || settings.preflight == Preflight::Skip => None,
            Some(port) => Some(Self::Tls(port)),
            None => Some(Self::Http(settings.http_port.unwrap_or(80))),
        }
    }
}
