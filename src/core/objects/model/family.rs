//! The protocols that share a port.

use serde::{Deserialize, Serialize};

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
    pub fn has_hostnames(self) -> bool {
        match self {
            Family::Http | Family::Tls => true,
            Family::Tcp | Family::Udp => false,
        }
    }

    /// The protocol as written in listeners.
    pub fn as_str(self) -> &'static str {
        match self {
            Family::Http => "HTTP",
            Family::Tls => "TLS",
            Family::Tcp => "TCP",
            Family::Udp => "UDP",
        }
    }
}
