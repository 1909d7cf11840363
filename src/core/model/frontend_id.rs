//! The identifier of a frontend.

use std::fmt;

use super::{ObjectName, Transport, TransportPort};

/// A port of a Gateway, printed as `namespace/gateway:port`, with the suffix `/udp` for UDP; or a
/// port that many Gateways share, `shared:port`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrontendId {
    /// The Gateway; for a shared port a name without a namespace, which no Gateway has.
    pub gateway: ObjectName,
    /// The port of the listener in the API.
    pub port: u16,
    /// The transport of the port.
    pub transport: Transport,
    /// True if the Gateway's own Envoys serve it. While a Gateway changes its fleet, both of its
    /// frontends exist.
    pub isolated: bool,
}

impl FrontendId {
    /// A TCP port, on Envoys that serve many Gateways.
    pub fn tcp(gateway: ObjectName, port: u16) -> Self {
        Self {
            gateway,
            port,
            transport: Transport::Tcp,
            isolated: false,
        }
    }

    /// The port with its transport.
    pub fn transport_port(&self) -> TransportPort {
        TransportPort {
            number: self.port,
            transport: self.transport,
        }
    }

    /// A value that sorts before all ports of a Gateway.
    pub(crate) fn first(gateway: ObjectName) -> Self {
        Self::tcp(gateway, 0)
    }
}

impl fmt::Display for FrontendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}{}",
            self.gateway,
            self.port,
            self.transport.suffix()
        )
    }
}

impl fmt::Debug for FrontendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
