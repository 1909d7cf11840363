//! The protocols of listeners, and which of them can share a port.

use serde::{Deserialize, Serialize};

use crate::inputs::{RouteKind, RouteKinds};
use crate::model::Transport;

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS that ends here.
    Https,
    /// TLS that ends here, bytes beyond.
    TlsTerminate,
    /// TLS that is passed through.
    TlsPassthrough,
    /// TCP: whatever comes to the port.
    Tcp,
    /// UDP: the same.
    Udp,
}

impl Protocol {
    /// Whether a certificate is served.
    pub fn terminates(self) -> bool {
        matches!(self, Protocol::Https | Protocol::TlsTerminate)
    }

    /// The route kinds that attach to it, of those we read.
    pub fn route_kinds(self) -> RouteKinds {
        let kinds: &[RouteKind] = match self {
            Protocol::Http | Protocol::Https => &[RouteKind::Http, RouteKind::Grpc],
            Protocol::TlsTerminate | Protocol::TlsPassthrough => &[RouteKind::Tls],
            Protocol::Tcp => &[RouteKind::Tcp],
            Protocol::Udp => &[RouteKind::Udp],
        };
        kinds.iter().copied().collect()
    }

    /// The transport that carries it.
    pub fn transport(self) -> Transport {
        match self {
            Protocol::Http | Protocol::Https | Protocol::TlsTerminate | Protocol::TlsPassthrough | Protocol::Tcp => {
                Transport::Tcp
            }
            Protocol::Udp => Transport::Udp,
        }
    }

    /// Whether hostnames tell its listeners apart. Others have the whole port.
    pub fn has_hostnames(self) -> bool {
        self.route_kinds().iter().all(RouteKind::has_hostnames)
    }
}

/// Protocols that can share a port. HTTPS and TLS are told apart by hostname (Gateway API, `Listener` distinctness).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Family {
    /// Plain HTTP.
    Http,
    /// TLS, whether it ends here or is passed through.
    Tls,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Family {
    /// Whether hostnames divide a port. Another one is had whole, by one listener of one namespace.
    pub(super) fn has_hostnames(self) -> bool {
        match self {
            Family::Http | Family::Tls => true,
            Family::Tcp | Family::Udp => false,
        }
    }
}

impl Protocol {
    pub(super) fn family(self) -> Family {
        match self {
            Protocol::Http => Family::Http,
            Protocol::Https | Protocol::TlsTerminate | Protocol::TlsPassthrough => Family::Tls,
            Protocol::Tcp => Family::Tcp,
            Protocol::Udp => Family::Udp,
        }
    }
}
