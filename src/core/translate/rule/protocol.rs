//! The protocols of listeners, and which of them can share a port.

use serde::{Deserialize, Serialize};

use gatewright_objects::inputs::{RouteKind, RouteKinds};
use gatewright_objects::model::Transport;

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Plain HTTP.
    Http,
    /// HTTP over terminated TLS.
    Https,
    /// TCP over terminated TLS.
    TlsTerminate,
    /// TLS passed through.
    TlsPassthrough,
    /// TCP: all connections to the port.
    Tcp,
    /// UDP: all datagrams to the port.
    Udp,
}

impl Protocol {
    /// True if TLS is terminated, with a certificate of the listener.
    pub fn terminates(self) -> bool {
        matches!(self, Protocol::Https | Protocol::TlsTerminate)
    }

    /// The route kinds that may attach, of those that we read.
    pub fn route_kinds(self) -> RouteKinds {
        let kinds: &[RouteKind] = match self {
            Protocol::Http | Protocol::Https => &[RouteKind::Http, RouteKind::Grpc],
            Protocol::TlsTerminate | Protocol::TlsPassthrough => &[RouteKind::Tls],
            Protocol::Tcp => &[RouteKind::Tcp],
            Protocol::Udp => &[RouteKind::Udp],
        };
        kinds.iter().copied().collect()
    }

    /// The transport of the protocol.
    pub fn transport(self) -> Transport {
        match self {
            Protocol::Http
            | Protocol::Https
            | Protocol::TlsTerminate
            | Protocol::TlsPassthrough
            | Protocol::Tcp => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
        }
    }

    /// True if listeners on a port are distinguished by hostname. If not, one listener has the
    /// whole port.
    pub fn has_hostnames(self) -> bool {
        self.route_kinds().iter().all(RouteKind::has_hostnames)
    }
}

/// Protocols that can share a port. HTTPS and TLS are distinguished by hostname (Gateway API,
/// `Listener` distinctness).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Family {
    /// Plain HTTP.
    Http,
    /// TLS, terminated or passed through.
    Tls,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Family {
    /// True if listeners share a port by hostname. If not, one listener of one namespace has the
    /// whole port.
    pub(crate) fn has_hostnames(self) -> bool {
        match self {
            Family::Http | Family::Tls => true,
            Family::Tcp | Family::Udp => false,
        }
    }
}

impl Family {
    /// The protocol as written in listeners.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Family::Http => "HTTP",
            Family::Tls => "TLS",
            Family::Tcp => "TCP",
            Family::Udp => "UDP",
        }
    }
}

impl Protocol {
    /// The protocol as written in listeners.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Protocol::Https => "HTTPS",
            other => other.family().as_str(),
        }
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Protocol::Http => Family::Http,
            Protocol::Https | Protocol::TlsTerminate | Protocol::TlsPassthrough => Family::Tls,
            Protocol::Tcp => Family::Tcp,
            Protocol::Udp => Family::Udp,
        }
    }
}
