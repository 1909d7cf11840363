//! Where requests go: Services, their ports, and the addresses behind them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{BackendTransport, FrontendId, Hostname, ObjectName, RetryBudget, Transport};

/// How to speak to a backend. From `appProtocol` of the Service port (GEP-1911).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AppProtocol {
    /// HTTP/1.1; also carries WebSocket upgrades.
    #[default]
    Http1,
    /// HTTP/2 without TLS (`kubernetes.io/h2c`).
    H2c,
    /// Bytes as they came, with TLS of the client's own or without: the target of a TLSRoute or TCPRoute.
    Tcp,
    /// Bytes out of TLS that ended here, where a policy says how they go on: the target of a TLSRoute in mode `Terminate`.
    Terminated,
    /// Datagrams: the target of a UDPRoute.
    Udp,
}

/// A Service and one of its port numbers. All clusters of one have the same endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServicePort {
    /// The Service.
    pub service: ObjectName,
    /// The Service's port number, as routes name it.
    pub port: u16,
    /// The transport of the port: a Service may have TCP and UDP under one number.
    pub transport: Transport,
}

impl ServicePort {
    /// A port of TCP.
    pub fn tcp(service: ObjectName, port: u16) -> Self {
        Self { service, port, transport: Transport::Tcp }
    }

    /// A value that sorts before all ports of a Service.
    pub(crate) fn first(service: ObjectName) -> Self {
        Self::tcp(service, 0)
    }
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}", self.service, self.port, self.transport.suffix())
    }
}

/// A backend shared by every route that refers to it: one Envoy cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId {
    /// Service and port.
    pub port: ServicePort,
    /// How to speak to it.
    pub protocol: AppProtocol,
    /// The Gateway whose certificate it is shown; `None` where no Gateway has one for it, or it is not spoken to over TLS.
    pub client: Option<ObjectName>,
}

impl BackendId {
    /// The one to which no certificate is shown.
    pub fn new(port: ServicePort, protocol: AppProtocol) -> Self {
        Self { port, protocol, client: None }
    }
}

/// Printed as the cluster's name: `default/web:80`, `default/web:80/h2c`, `default/web:443/tcp`,
/// `default/web:443@infra/edge`.
impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            AppProtocol::Http1 | AppProtocol::Udp => write!(f, "{}", self.port)?,
            AppProtocol::H2c => write!(f, "{}/h2c", self.port)?,
            AppProtocol::Tcp => write!(f, "{}/tcp", self.port)?,
            AppProtocol::Terminated => write!(f, "{}/terminated", self.port)?,
        }
        match &self.client {
            Some(gateway) => write!(f, "@{gateway}"),
            None => Ok(()),
        }
    }
}

/// What a backend's cluster is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Backend {
    /// Which one, and how to speak to it.
    pub id: BackendId,
    /// What its connections go through.
    pub transport: BackendTransport,
    /// How many retries it is sent, where a policy says so.
    pub retries: Option<RetryBudget>,
}

impl From<BackendId> for Backend {
    /// Without policies.
    fn from(id: BackendId) -> Self {
        Self { id, transport: BackendTransport::Plain, retries: None }
    }
}

/// Identifies an Envoy cluster; printed as its name, which is that of its endpoints as well.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterId {
    /// [`Cluster::Backend`]
    Backend(BackendId),
    /// [`Cluster::Sni`]
    Sni(FrontendId, Hostname),
    /// [`Cluster::Udp`]
    Udp(FrontendId),
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterId::Backend(id) => write!(f, "{id}"),
            ClusterId::Sni(frontend, hostname) => write!(f, "{frontend}|{}", hostname.as_str()),
            ClusterId::Udp(frontend) => write!(f, "{frontend}|"),
        }
    }
}

/// One Envoy cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cluster {
    /// Shared by all routes that refer to this backend.
    Backend(Backend),
    /// Chosen by the SNI of a TLS connection on a frontend: named `<frontend>|<hostname>`. Endpoints are those of
    /// the Service port.
    Sni {
        /// The frontend.
        frontend: FrontendId,
        /// The exact SNI.
        hostname: Hostname,
        /// Whose endpoints; `None` refuses the connection (a cluster without endpoints).
        port: Option<ServicePort>,
    },
    /// Where the datagrams of a frontend go: named `<frontend>|`. Its endpoints are those of several Service ports with
    /// their weights, since Envoy's UDP proxy goes to one cluster.
    Udp(FrontendId),
}

impl Cluster {
    /// The name by which routes and chains refer to it.
    pub fn name(&self) -> String {
        self.id().to_string()
    }

    /// What identifies it.
    pub fn id(&self) -> ClusterId {
        match self {
            Cluster::Backend(backend) => ClusterId::Backend(backend.id.clone()),
            Cluster::Sni { frontend, hostname, .. } => ClusterId::Sni(frontend.clone(), hostname.clone()),
            Cluster::Udp(frontend) => ClusterId::Udp(frontend.clone()),
        }
    }
}

/// The ready addresses behind one cluster: one EDS resource, named as the cluster.
///
/// Clusters of one Service port have an assignment each: Envoy holds a new cluster back until an assignment comes, and
/// asks for none of a name that it has subscribed to already (<https://github.com/envoyproxy/envoy/issues/47302>).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// Whose.
    pub cluster: ClusterId,
    /// The addresses.
    pub addresses: Addresses,
}

/// Addresses behind one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// Of one Service port: sorted, without duplicates. Shared by all clusters of it.
    Alike(Arc<[SocketAddr]>),
    /// Of several, by Service port, each once.
    Weighted(Vec<Share>),
}

/// The part of a UDP frontend's datagrams that goes to one Service port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// The Service port; `None` for what is discarded, so that no other gets more than its part.
    pub port: Option<ServicePort>,
    /// Its part of all, never 0.
    pub weight: u32,
    /// Sorted, without duplicates; none where it is discarded, and only there.
    pub addresses: Arc<[SocketAddr]>,
}
