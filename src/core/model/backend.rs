//! Where requests go: Services, their ports, and the addresses behind them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{FrontendId, Hostname, ObjectName};

/// How to speak to a backend. From `appProtocol` of the Service port (GEP-1911).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AppProtocol {
    /// HTTP/1.1; also carries WebSocket upgrades.
    #[default]
    Http1,
    /// HTTP/2 without TLS (`kubernetes.io/h2c`).
    H2c,
    /// Bytes: the target of a TLSRoute.
    Tcp,
}

/// A Service and one of its port numbers. All clusters of one have the same endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServicePort {
    /// The Service.
    pub service: ObjectName,
    /// The Service's port number, as routes name it.
    pub port: u16,
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.service, self.port)
    }
}

/// A backend shared by every route that refers to it: one Envoy cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId {
    /// Service and port.
    pub port: ServicePort,
    /// How to speak to it.
    pub protocol: AppProtocol,
}

/// Printed as the cluster's name: `default/web:80`, `default/web:80/h2c`, `default/web:443/tcp`.
impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            AppProtocol::Http1 => write!(f, "{}", self.port),
            AppProtocol::H2c => write!(f, "{}/h2c", self.port),
            AppProtocol::Tcp => write!(f, "{}/tcp", self.port),
        }
    }
}

/// Identifies an Envoy cluster; printed as its name, which is that of its endpoints as well.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterId {
    /// [`Cluster::Backend`]
    Backend(BackendId),
    /// [`Cluster::Sni`]
    Sni(FrontendId, Hostname),
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterId::Backend(id) => write!(f, "{id}"),
            ClusterId::Sni(frontend, hostname) => write!(f, "{frontend}|{}", hostname.as_str()),
        }
    }
}

/// One Envoy cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cluster {
    /// Shared by all routes that refer to this backend.
    Backend(BackendId),
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
}

impl Cluster {
    /// The name by which routes and chains refer to it.
    pub fn name(&self) -> String {
        self.id().to_string()
    }

    /// What identifies it.
    pub fn id(&self) -> ClusterId {
        match self {
            Cluster::Backend(id) => ClusterId::Backend(id.clone()),
            Cluster::Sni { frontend, hostname, .. } => ClusterId::Sni(frontend.clone(), hostname.clone()),
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
    /// Sorted, without duplicates. Shared by all clusters of one Service port.
    pub addresses: Arc<[SocketAddr]>,
}
