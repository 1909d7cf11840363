//! Backends of routes: Services, their ports, and their endpoints.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{
    BackendSettings, BackendTransport, FrontendId, Hostname, ObjectName, RetryBudget, Transport,
    Zone,
};

/// The application protocol of a backend, from `appProtocol` of the Service port (GEP-1911).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AppProtocol {
    /// HTTP/1.1; also carries WebSocket upgrades.
    #[default]
    Http1,
    /// HTTP/2 without TLS (`kubernetes.io/h2c`).
    H2c,
    /// The key sets of an identity provider over HTTP/1.1, which are judged before Envoy reads
    /// them; never what a Service says.
    KeySets,
    /// The same over HTTP/2 without TLS.
    KeySetsH2c,
    /// The token endpoint of an identity provider over HTTP/1.1, which strangers can have asked, at
    /// a rate; never what a Service says.
    Logins,
    /// The same over HTTP/2 without TLS.
    LoginsH2c,
    /// OTLP over gRPC, to a collector, whose batches have a time limit; never what a Service says.
    Otlp,
    /// Bytes as the client sent them, encrypted by the client or not: the target of a TLSRoute or
    /// TCPRoute.
    Tcp,
    /// Bytes of a terminated TLS connection, which a policy may encrypt again: the target of a
    /// TLSRoute in mode `Terminate`.
    Terminated,
    /// Datagrams: the target of a UDPRoute.
    Udp,
}

impl AppProtocol {
    /// The protocol by which a backend that speaks this one is asked for key sets.
    pub fn of_key_sets(self) -> Self {
        match self {
            Self::H2c => Self::KeySetsH2c,
            _ => Self::KeySets,
        }
    }

    /// The protocol by which a backend that speaks this one is asked whether a login holds.
    pub fn of_logins(self) -> Self {
        match self {
            Self::H2c => Self::LoginsH2c,
            _ => Self::Logins,
        }
    }

    /// True if it is HTTP/2, also without TLS.
    pub fn is_http2(self) -> bool {
        matches!(
            self,
            Self::H2c | Self::KeySetsH2c | Self::LoginsH2c | Self::Otlp
        )
    }
}

/// A Service and one of its port numbers. All clusters of one Service port have the same endpoints.
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
    /// A TCP port.
    pub fn tcp(service: ObjectName, port: u16) -> Self {
        Self {
            service,
            port,
            transport: Transport::Tcp,
        }
    }

    /// A value that sorts before all ports of a Service.
    pub fn first(service: ObjectName) -> Self {
        Self::tcp(service, 0)
    }
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}{}",
            self.service,
            self.port,
            self.transport.suffix()
        )
    }
}

/// A backend shared by every route that refers to it: one Envoy cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId {
    /// Service and port.
    pub port: ServicePort,
    /// The application protocol.
    pub protocol: AppProtocol,
    /// The Gateway whose client certificate the backend gets; `None` if no Gateway has one for it,
    /// or if it is reached without TLS.
    pub client: Option<ObjectName>,
}

impl BackendId {
    /// The backend that gets no client certificate.
    pub fn new(port: ServicePort, protocol: AppProtocol) -> Self {
        Self {
            port,
            protocol,
            client: None,
        }
    }
}

/// Printed as the cluster's name: `default/web:80`, `default/web:80/h2c`, `default/web:443/tcp`,
/// `default/web:443@infra/edge`.
impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            AppProtocol::Http1 | AppProtocol::Udp => write!(f, "{}", self.port)?,
            AppProtocol::H2c => write!(f, "{}/h2c", self.port)?,
            AppProtocol::KeySets => write!(f, "{}/keys", self.port)?,
            AppProtocol::KeySetsH2c => write!(f, "{}/keys-h2c", self.port)?,
            AppProtocol::Logins => write!(f, "{}/logins", self.port)?,
            AppProtocol::LoginsH2c => write!(f, "{}/logins-h2c", self.port)?,
            AppProtocol::Otlp => write!(f, "{}/otlp", self.port)?,
            AppProtocol::Tcp => write!(f, "{}/tcp", self.port)?,
            AppProtocol::Terminated => write!(f, "{}/terminated", self.port)?,
        }
        match &self.client {
            Some(gateway) => write!(f, "@{gateway}"),
            None => Ok(()),
        }
    }
}

/// A backend with the transport of its connections: the input of its Envoy cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Backend {
    /// Service port, protocol and client certificate.
    pub id: BackendId,
    /// The transport of its connections.
    pub transport: BackendTransport,
    /// How many retries it is sent, where a policy says so.
    pub retries: Option<RetryBudget>,
    /// How its endpoints are chosen, checked and limited, where a policy says so.
    pub settings: Option<Arc<BackendSettings>>,
}

impl From<BackendId> for Backend {
    /// Without policies.
    fn from(id: BackendId) -> Self {
        Self {
            id,
            transport: BackendTransport::Plain,
            retries: None,
            settings: None,
        }
    }
}

/// Identifies an Envoy cluster; printed as its name, which is also the name of its EDS resource.
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
    /// The target of TLS connections on a frontend by SNI: named `<frontend>|<hostname>`. Its
    /// endpoints are those of the Service port.
    Sni {
        /// The frontend.
        frontend: FrontendId,
        /// The exact SNI.
        hostname: Hostname,
        /// The Service port; `None` refuses the connection (a cluster without endpoints).
        port: Option<ServicePort>,
        /// How its endpoints are chosen, checked and limited, where a policy says so.
        settings: Option<Arc<BackendSettings>>,
    },
    /// The target of all datagrams of a frontend: named `<frontend>|`. Its endpoints are those of
    /// several Service ports with their weights, since Envoy's UDP proxy has a single cluster.
    Udp {
        /// The frontend.
        frontend: FrontendId,
        /// How its endpoints are chosen, checked and limited, where policies say so.
        settings: Option<DatagramSettings>,
    },
}

/// What datagrams have of the policies of their backends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatagramSettings {
    /// The Service, or the first of several: the host of checks by HTTP.
    pub service: ObjectName,
    /// Its settings, without those that mean nothing for datagrams.
    pub settings: Arc<BackendSettings>,
}

impl Cluster {
    /// The name by which routes and chains refer to it.
    pub fn name(&self) -> String {
        self.id().to_string()
    }

    /// The identifier of the cluster.
    pub fn id(&self) -> ClusterId {
        match self {
            Cluster::Backend(backend) => ClusterId::Backend(backend.id.clone()),
            Cluster::Sni {
                frontend, hostname, ..
            } => ClusterId::Sni(frontend.clone(), hostname.clone()),
            Cluster::Udp { frontend, .. } => ClusterId::Udp(frontend.clone()),
        }
    }
}

/// The ready addresses behind one cluster: one EDS resource, named as the cluster.
///
/// Each cluster has an assignment of its own, even if several have the same Service port: Envoy
/// holds a new cluster back until an assignment comes, and requests none under a name that it has
/// subscribed to already (<https://github.com/envoyproxy/envoy/issues/47302>).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// The cluster.
    pub cluster: ClusterId,
    /// The addresses.
    pub addresses: Addresses,
}

/// The addresses of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// Those of one Service port: sorted, without duplicates. Shared by all clusters of the port.
    Alike(Arc<[SocketAddr]>),
    /// Those of one Service port by zone, for Envoys that prefer their own. Shared as well.
    Zoned(Arc<[ZoneEndpoints]>),
    /// Those of several Service ports, each port once.
    Weighted(Vec<WeightedEndpoints>),
}

/// The endpoints of a Service port in a zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZoneEndpoints {
    /// The zone; `None` for endpoints without one. Each is there once, in order.
    pub zone: Option<Zone>,
    /// Sorted, without duplicates, never empty.
    pub addresses: Vec<SocketAddr>,
}

/// The share of a UDP frontend's datagrams that one Service port gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightedEndpoints {
    /// The Service port; `None` for datagrams that are discarded, so that no other port gets more
    /// than its share.
    pub port: Option<ServicePort>,
    /// Its weight, never 0.
    pub weight: u32,
    /// Sorted, without duplicates; empty if `port` is `None`, and only then.
    pub addresses: Arc<[SocketAddr]>,
}
