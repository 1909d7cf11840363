//! The record of ownership: the namespace that owns a hostname, the protocol of a port, or a
//! socket, where several could.
//!
//! The namespace is the unit of trust. Within one, the precedence of the Gateway API holds; between
//! namespaces the record decides: the first claimant owns an item for as long as it claims it, and
//! for a while after. Claims that arrive together are decided by creation time, then by name.
//!
//! The result depends on the record and the claims, never on the order of events, so that every
//! replica with both has the same result.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::gateway_exposure::shared;
use super::protocol::Family;
use crate::key::{ListenerId, RouteKey};
use gatewright_objects::cost;
use gatewright_objects::model::{FrontendId, Hostname, ObjectName, Transport, TransportPort};

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

/// The owner of an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRecord {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The start: milliseconds since the epoch, or one more than the latest earlier record.
    pub since: u64,
    /// The protocol, of a port.
    pub protocol: Option<Family>,
    /// When the namespace released it, in seconds since the epoch: it is still reserved for that
    /// namespace.
    pub released: Option<u64>,
}

impl OwnerRecord {
    /// True if it owns a whole port, whose protocol has no hostnames.
    pub(crate) fn has_whole_port(&self) -> bool {
        self.protocol
            .is_some_and(|protocol| !protocol.has_hostnames())
    }
}

/// The writer of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// The caller: decisions hold at once, and are returned to be written before they are
    /// published.
    ThisProcess,
    /// Another process, for all replicas: decisions are proposals, and hold once the record has
    /// them.
    OtherProcess,
}

/// One line of the record, as written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    /// The hostname of the secret whose name is owned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// The listeners that the owner is admitted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listeners: Option<At>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// The transport of the port; omitted for TCP.
    #[serde(default, skip_serializing_if = "Transport::is_tcp")]
    transport: Transport,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol: Option<Family>,
    /// `None` if nobody owns it any more.
    namespace: Option<Arc<str>>,
    #[serde(default)]
    since: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    released: Option<u64>,
}

/// [`ListenersOf`] as written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    namespace: Arc<str>,
    place: Arc<str>,
}

impl Ownable {
    /// The hostname, if it is one.
    pub fn hostname(&self) -> Option<&Hostname> {
        match self {
            Ownable::Hostname(name) | Ownable::Admitted(_, name) => Some(name),
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
            Ownable::Port(_) | Ownable::Socket(..) | Ownable::Secret(_) => 0,
        }
    }

    /// Another hostname among the same namespaces.
    pub(crate) fn with(&self, name: Hostname) -> Option<Ownable> {
        Some(match self {
            Ownable::Hostname(_) => Ownable::Hostname(name),
            Ownable::Admitted(at, _) => Ownable::Admitted(at.clone(), name),
            Ownable::Port(_) | Ownable::Socket(..) | Ownable::Secret(_) => return None,
        })
    }

    /// True if it is a hostname among the same namespaces as another one.
    pub(crate) fn is_beside(&self, other: &Ownable) -> bool {
        match (self, other) {
            (Ownable::Hostname(_), Ownable::Hostname(_)) => true,
            (Ownable::Admitted(at, _), Ownable::Admitted(other, _)) => at == other,
            _ => false,
        }
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

    /// Formats a line of the record.
    pub fn line(&self, owner: Option<&OwnerRecord>) -> String {
        let mut listeners = None;
        let mut address = None;
        let mut port = None;
        match self {
            Ownable::Hostname(_) | Ownable::Secret(_) => {}
            Ownable::Port(of) => port = Some(*of),
            Ownable::Socket(ip, of) => (address, port) = (Some(*ip), Some(*of)),
            Ownable::Admitted(at, _) => {
                listeners = Some(At {
                    namespace: at.namespace.clone(),
                    place: at.place.clone(),
                });
            }
        }
        let line = Line {
            hostname: self.hostname().map(ToString::to_string),
            secret: match self {
                Ownable::Secret(name) => Some(name.to_string()),
                _ => None,
            },
            listeners,
            address,
            port: port.map(|port: TransportPort| port.number),
            transport: port.map(|port| port.transport).unwrap_or_default(),
            protocol: owner.and_then(|owner| owner.protocol),
            namespace: owner.map(|owner| owner.namespace.clone()),
            since: owner.map_or(0, |owner| owner.since),
            released: owner.and_then(|owner| owner.released),
        };
        serde_json::to_string(&line).expect("strings and numbers")
    }

    /// Parses a line of the record.
    ///
    /// # Errors
    /// When it is malformed; the text says why.
    pub fn parse(line: &str) -> Result<(Self, Option<OwnerRecord>), String> {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if let (Some(name), None) = (&line.secret, &line.hostname) {
            let what = Ownable::Secret(Hostname::parse(name).map_err(|error| error.to_string())?);
            let Line {
                protocol,
                since,
                released,
                ..
            } = line;
            return Ok((
                what,
                line.namespace.map(|namespace| OwnerRecord {
                    namespace,
                    since,
                    protocol,
                    released,
                }),
            ));
        }
        let name = match line.hostname.as_deref() {
            Some("*") => Some(Hostname::any()),
            Some(name) => Some(Hostname::parse(name).map_err(|error| error.to_string())?),
            None => None,
        };
        let port = line.port.map(|number| TransportPort {
            number,
            transport: line.transport,
        });
        let what = match (name, line.listeners, line.address, port) {
            (Some(name), None, None, None) => Ownable::Hostname(name),
            (Some(name), Some(At { namespace, place }), None, None) => {
                Ownable::Admitted(Arc::new(ListenersOf { namespace, place }), name)
            }
            (None, None, None, Some(port)) => Ownable::Port(port),
            (None, None, Some(ip), Some(port)) => Ownable::Socket(ip, port),
            _ => return Err("expected a hostname, a port, or an address and a port".to_owned()),
        };
        let Line {
            protocol,
            since,
            released,
            ..
        } = line;
        Ok((
            what,
            line.namespace.map(|namespace| OwnerRecord {
                namespace,
                since,
                protocol,
                released,
            }),
        ))
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

/// A claimant, ordered by precedence among claims that arrive together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claimant {
    /// The creation time of the claiming object.
    pub(crate) created: i64,
    /// Its namespace.
    pub(crate) namespace: Arc<str>,
    /// The namespace of the Gateway that admitted the claimant and would serve it.
    pub(crate) through: Arc<str>,
    /// The claiming object.
    pub(crate) by: By,
    /// The protocol of the claim.
    pub(crate) protocol: Family,
}

/// The object that makes a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    Listener(ListenerId),
    Frontend(FrontendId),
    Route(ListenerId, RouteKey),
}

/// The protocol family of a well-known port of the shared fleet, which no claim changes.
pub(crate) fn well_known(port: TransportPort) -> Option<Family> {
    match (port.number, port.transport) {
        (80, Transport::Tcp) => Some(Family::Http),
        (443, Transport::Tcp) => Some(Family::Tls),
        _ => None,
    }
}

/// The frontend of a port of the shared fleet.
pub(crate) fn shared_frontend(port: TransportPort) -> FrontendId {
    let TransportPort { number, transport } = port;
    FrontendId {
        gateway: ObjectName::clone(shared()),
        port: number,
        transport,
        isolated: false,
    }
}
