//! The transport protocol of a port.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The transport protocol: TCP and UDP have separate port numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Transport {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// The name in Kubernetes (`ServicePort.protocol`).
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        }
    }

    /// Parses a Kubernetes `protocol`, whose default is TCP; `None` for a protocol other than TCP
    /// and UDP.
    pub fn of(protocol: Option<&str>) -> Option<Self> {
        match protocol {
            None | Some("TCP") => Some(Transport::Tcp),
            Some("UDP") => Some(Transport::Udp),
            Some(_) => None,
        }
    }

    /// The suffix of port names: empty for TCP, `/udp` for UDP.
    pub fn suffix(self) -> &'static str {
        match self {
            Transport::Tcp => "",
            Transport::Udp => "/udp",
        }
    }

    /// True if the transport is TCP, which names omit.
    pub fn is_tcp(&self) -> bool {
        *self == Transport::Tcp
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A port of one transport. Printed as `443` for TCP, `443/udp` for UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransportPort {
    /// Its number.
    pub number: u16,
    /// Its transport.
    pub transport: Transport,
}

impl TransportPort {
    /// A TCP port.
    pub fn tcp(number: u16) -> Self {
        Self {
            number,
            transport: Transport::Tcp,
        }
    }
}

impl fmt::Display for TransportPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, self.transport.suffix())
    }
}
