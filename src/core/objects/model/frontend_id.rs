//! The identifier of a frontend.

use std::fmt;

use twox_hash::XxHash64;

use super::{Hostname, ObjectName, Transport, TransportPort};

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

    /// True if it is a port that many Gateways share.
    pub fn is_shared(&self) -> bool {
        self.gateway.namespace.is_empty()
    }

    /// The same port number over a transport.
    pub fn over(&self, transport: Transport) -> Self {
        Self {
            transport,
            ..self.clone()
        }
    }

    /// The port with its transport.
    pub fn transport_port(&self) -> TransportPort {
        TransportPort {
            number: self.port,
            transport: self.transport,
        }
    }

    /// The key of a scope, `<frontend>|<rest>` without a colon in the frontend: Envoy cuts keys off
    /// at the first colon, so that the port of a request's host is not part of them.
    pub fn scope_key(&self, rest: &dyn fmt::Display) -> String {
        format!("{}|{rest}", self.key())
    }

    /// The part of a scope's key that says its frontend: unique among frontends, whose names have
    /// one colon each, and a slash where they have a namespace.
    pub fn key(&self) -> String {
        self.to_string().replace(':', "/")
    }

    /// The hash by which Envoy finds the scope of a hostname. Envoy hashes it once more, with 64
    /// zero bits before it, which maps different hashes to different ones
    /// (<https://github.com/envoyproxy/envoy/blob/v1.40.0/source/common/router/scoped_config_impl.h>).
    pub fn scope_hash(&self, hostname: &Hostname) -> u64 {
        XxHash64::oneshot(0, self.scope_key(hostname).as_bytes())
    }

    /// A value that sorts before all ports of a Gateway.
    pub fn first(gateway: ObjectName) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_key_by_the_algorithm_of_envoy() {
        let id = FrontendId::tcp(ObjectName::new("infra", "edge"), 443);
        let host = Hostname::parse("a.example.org").expect("a hostname");
        assert_eq!(id.scope_key(&host), "infra/edge/443|a.example.org");
        // `xxhsum -H64` of the key.
        assert_eq!(id.scope_hash(&host), 0x421b_a063_0410_14c9);
    }
}
