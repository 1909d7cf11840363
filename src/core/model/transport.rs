//! The transport protocol of a port.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What carries the bytes: TCP and UDP have ports of their own, so that one number may be used for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Transport {
    /// Connections.
    #[default]
    Tcp,
    /// Datagrams.
    Udp,
}

impl Transport {
    /// As Kubernetes writes it (`ServicePort.protocol`).
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        }
    }

    /// The transport of a `protocol` as Kubernetes writes it, which is TCP where nothing is written; `None` for another.
    pub fn of(protocol: Option<&str>) -> Option<Self> {
        match protocol {
            None | Some("TCP") => Some(Transport::Tcp),
            Some("UDP") => Some(Transport::Udp),
            Some(_) => None,
        }
    }

    /// What names of ports end in: nothing for TCP, `/udp` for UDP.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Transport::Tcp => "",
            Transport::Udp => "/udp",
        }
    }

    /// Whether the transport is TCP, which is left out of names.
    pub(crate) fn is_tcp(&self) -> bool {
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
    /// What carries the bytes.
    pub transport: Transport,
}

impl TransportPort {
    /// A port of TCP.
    pub fn tcp(number: u16) -> Self {
        Self { number, transport: Transport::Tcp }
    }
}

impl fmt::Display for TransportPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, self.transport.suffix())
    }
}
