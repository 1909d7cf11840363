//! The protocols of listeners, and which of them can share a port.

use gatewright_objects::inputs::{RouteKind, RouteKinds};
use gatewright_objects::model::{Family, Transport};

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

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Http => "HTTP",
            Protocol::Https => "HTTPS",
            Protocol::TlsTerminate => "TLS",
            Protocol::TlsPassthrough => "TLS passthrough",
            Protocol::Tcp => Transport::Tcp.as_str(),
            Protocol::Udp => Transport::Udp.as_str(),
        }
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
