//! How the Gateways of a class are reached, and whose the frontends are.

use std::sync::{Arc, LazyLock};

use crate::inputs::{
    AllowedHostnames, EscapedSlashes, Gateway, IsolatedParameters, PortProtocol, RouteHostnames, ServiceParameters,
};
use crate::model::ObjectName;

/// How the Gateways of a class are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fleet {
    /// At addresses of their own: where two want one port of one address, the older keeps it.
    Own,
    /// All at the same addresses, and on the same ports: hostnames decide.
    Shared,
    /// Each by a Service that leads to ports of its own.
    Dedicated,
    /// Each by a Service that leads to Envoys of its own.
    Isolated,
}

impl Fleet {
    /// Whether each Gateway is reached by a Service that is its alone.
    pub fn has_services(self) -> bool {
        match self {
            Fleet::Own | Fleet::Shared => false,
            Fleet::Dedicated | Fleet::Isolated => true,
        }
    }
}

/// The owner of the frontends that all Gateways of the shared fleet have in common. A name without a namespace is no
/// Gateway's.
pub(super) static SHARED: LazyLock<ObjectName> = LazyLock::new(|| ObjectName::new("", "shared"));

/// Precedence of a Gateway among those that share frontends: the older, then the first by name.
pub type Precedence = Arc<(i64, ObjectName)>;

/// How one Gateway is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayExposure {
    /// By which kind of fleet.
    pub fleet: Fleet,
    /// By what Service, where by one.
    pub service: ServiceParameters,
    /// The treatment of requests with escaped slashes.
    pub escaped_slashes: EscapedSlashes,
    /// Whether routes of several namespaces may share a hostname; where nothing says so, at listeners for one hostname.
    pub route_hostnames: Option<RouteHostnames>,
    /// Which namespaces may have which hostnames there; all may have all without.
    pub allowed_hostnames: Option<Arc<[AllowedHostnames]>>,
    /// The protocols of ports of the shared fleet.
    pub ports: Option<Arc<[PortProtocol]>>,
    /// Its own Envoys, where it has some.
    pub isolated: IsolatedParameters,
}

impl GatewayExposure {
    /// The owner of a Gateway's frontends, and its precedence there.
    pub(super) fn place(&self, gateway: &Gateway) -> (ObjectName, Option<Precedence>) {
        let name = gateway.meta.name.clone();
        match self.fleet {
            Fleet::Own | Fleet::Dedicated | Fleet::Isolated => (name, None),
            Fleet::Shared => (SHARED.clone(), Some(Arc::new((gateway.meta.created, name)))),
        }
    }
}

/// The owner of the frontends that Gateways of the shared fleet have in common.
pub(super) fn shared() -> &'static ObjectName {
    &SHARED
}

/// Whether frontends are those that Gateways share.
pub(super) fn is_shared(place: &ObjectName) -> bool {
    *place == *SHARED
}
