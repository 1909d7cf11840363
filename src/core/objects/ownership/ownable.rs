//! The items that a namespace can own.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::cost;
use crate::model::{Hostname, Transport, TransportPort};

/// A hostname, port, socket or name of a secret that a namespace can own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ownable {
    /// A hostname on the addresses of the shared fleet, on all ports.
    Hostname(Hostname),
    /// The protocol of a port of the shared fleet; for a protocol without hostnames the whole port.
    Port(TransportPort),
    /// A port of an address, if Gateways have addresses of their own.
    Socket(IpAddr, TransportPort),
    /// The name of the secret for a hostname, among frontends of several namespaces at the same
    /// Envoys.
    Secret(Hostname),
    /// A hostname among the namespaces that another one admits to its listeners, by routes or
    /// ListenerSets, on all ports.
    Admitted(Arc<ListenersOf>, Hostname),
    /// A hostname among the tenants of TenantGateways, which tenancy decides.
    Tenant(Hostname),
}

/// The listeners of one namespace at the same addresses, to which it admits other namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenersOf {
    /// The namespace of the Gateway or ListenerSet.
    pub namespace: Arc<str>,
    /// The place: `shared` for the shared fleet, `own` for all Gateways with addresses of their own
    /// in standalone, else the Gateway of the dedicated fleet.
    pub place: Arc<str>,
}

impl Ownable {
    /// The hostname, if it is one.
    pub fn hostname(&self) -> Option<&Hostname> {
        match self {
            Ownable::Hostname(name) | Ownable::Admitted(_, name) | Ownable::Tenant(name) => {
                Some(name)
            }
            Ownable::Port(_) | Ownable::Socket(..) | Ownable::Secret(_) => None,
        }
    }

    /// The bytes that the entry of a namespace takes in the record, by the cost model; 0 of what is
    /// limited by other numbers.
    pub fn record_bytes(&self, namespace: &str) -> u64 {
        match self {
            Ownable::Hostname(name) => cost::of_owner(name, namespace, None),
            Ownable::Admitted(at, name) => {
                cost::of_owner(name, namespace, Some([&at.namespace, &at.place]))
            }
            Ownable::Tenant(name) => cost::of_tenant(name, namespace),
            Ownable::Port(_) | Ownable::Socket(..) | Ownable::Secret(_) => 0,
        }
    }

    /// Another hostname among the same namespaces.
    pub fn with(&self, name: Hostname) -> Option<Ownable> {
        Some(match self {
            Ownable::Hostname(_) => Ownable::Hostname(name),
            Ownable::Admitted(at, _) => Ownable::Admitted(at.clone(), name),
            Ownable::Tenant(_) => Ownable::Tenant(name),
            Ownable::Port(_) | Ownable::Socket(..) | Ownable::Secret(_) => return None,
        })
    }

    /// True if it is a hostname among the same namespaces as another one.
    pub fn is_beside(&self, other: &Ownable) -> bool {
        match (self, other) {
            (Ownable::Hostname(_), Ownable::Hostname(_))
            | (Ownable::Tenant(_), Ownable::Tenant(_)) => true,
            (Ownable::Admitted(at, _), Ownable::Admitted(other, _)) => at == other,
            _ => false,
        }
    }

    /// True if its hostname is below that of another item, a wildcard or the catch-all.
    pub fn is_below(&self, wide: &Ownable) -> bool {
        let names = wide.hostname().zip(self.hostname());
        names.is_some_and(|(wide, name)| name != wide && wide.covers(name))
    }

    /// Parses the name that people use: a hostname, `*` for the catch-all, a port (`53/udp` for
    /// UDP), or an address and a port.
    ///
    /// # Errors
    /// When the text is none of these.
    pub fn named(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Ownable::Hostname(Hostname::any()));
        }
        let (number, transport) = match text.strip_suffix("/udp") {
            Some(number) => (number, Transport::Udp),
            None => (text, Transport::Tcp),
        };
        if let Ok(socket) = number.parse::<SocketAddr>() {
            return Ok(Ownable::Socket(
                socket.ip(),
                TransportPort {
                    number: socket.port(),
                    transport,
                },
            ));
        }
        if let Ok(number) = number.parse::<u16>() {
            return Ok(Ownable::Port(TransportPort { number, transport }));
        }
        Hostname::parse(text)
            .map(Ownable::Hostname)
            .map_err(|error| {
                format!("{error}; expected a hostname, *, a port, or an address and a port")
            })
    }
}

impl std::fmt::Display for Ownable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ownable::Hostname(name) => write!(f, "hostname {name}"),
            Ownable::Port(port) => write!(f, "port {port}"),
            Ownable::Socket(ip, port) => write!(f, "port {port} of {ip}"),
            Ownable::Secret(name) => write!(f, "secret {name}"),
            Ownable::Admitted(at, name) => write!(f, "hostname {name} at {at}"),
            Ownable::Tenant(name) => write!(f, "hostname {name} among tenants"),
        }
    }
}

impl std::fmt::Display for ListenersOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.place {
            "shared" => write!(f, "listeners of {} in the shared fleet", self.namespace),
            "own" => write!(f, "listeners of {}", self.namespace),
            gateway => write!(f, "listeners of {} at gateway {gateway}", self.namespace),
        }
    }
}
