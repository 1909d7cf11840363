//! The exposure of Gateways to clients, and the owner of their frontends.

use std::sync::{Arc, LazyLock};

use gatewright_objects::inputs::{
    AllowedHostnames, ClassPolicies, ClientAddresses, EscapedSlashes, Gateway, IsolatedParameters,
    PathParameters, PlainHttp, PortProtocol, RouteHostnames, ServiceParameters,
};
use gatewright_objects::model::{AccessLog, IdentityHeaders, ObjectName};

/// The kind of fleet that serves the Gateways of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fleet {
    /// Each Gateway has addresses of its own: of two that request one port of one address, the
    /// older gets it.
    Own,
    /// All Gateways have the same addresses and ports: hostnames decide.
    Shared,
    /// Each Gateway has a Service, which leads to Envoy ports of its own.
    Dedicated,
    /// Each Gateway has a Service, which leads to Envoys of its own.
    Isolated,
}

impl Fleet {
    /// True if each Gateway has a Service of its own.
    pub fn has_services(self) -> bool {
        match self {
            Fleet::Own | Fleet::Shared => false,
            Fleet::Dedicated | Fleet::Isolated => true,
        }
    }
}

/// What policies may ask of the Gateways of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyAllowance {
    /// The parameters of the class.
    pub parameters: ObjectName,
    /// What they say.
    pub policies: ClassPolicies,
}

/// The owner of the frontends that all Gateways of the shared fleet have in common. No Gateway has
/// a name without a namespace.
pub(crate) static SHARED: LazyLock<ObjectName> = LazyLock::new(|| ObjectName::new("", "shared"));

/// Precedence of a Gateway among those that share frontends: the oldest first, then by name.
pub type GatewayPrecedence = Arc<(i64, ObjectName)>;

/// The exposure of one Gateway: fleet, Service, and the settings of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayExposure {
    /// The kind of fleet.
    pub fleet: Fleet,
    /// The Service, for fleets with one.
    pub service: ServiceParameters,
    /// The access log of its own frontends; of the shared fleet's, what its class asks for.
    pub access_log: Option<Arc<AccessLog>>,
    /// The handling of requests with escaped slashes.
    pub escaped_slashes: EscapedSlashes,
    /// The handling of requests with parameters in their path.
    pub path_parameters: PathParameters,
    /// What becomes of headers by which clients say who they are.
    pub identity_headers: IdentityHeaders,
    /// The treatment of requests on plain HTTP for hosts that HTTPS serves too; if `None`, they are
    /// served, and statuses say so.
    pub plain_http: Option<PlainHttp>,
    /// Decides whether routes of several namespaces may share a hostname; if `None`, at listeners
    /// for one exact hostname alone.
    pub route_hostnames: Option<RouteHostnames>,
    /// The hostnames that each namespace may have; if `None`, every namespace may have any.
    pub allowed_hostnames: Option<Arc<[AllowedHostnames]>>,
    /// What policies may ask of it; if `None`, everything.
    pub policies: Option<Arc<PolicyAllowance>>,
    /// The protocols of ports of the shared fleet.
    pub ports: Option<Arc<[PortProtocol]>>,
    /// Whose word is taken for the address of a client, at ports that are its own.
    pub clients: ClientAddresses,
    /// The parameters of its own Envoys, for fleet Isolated.
    pub isolated: IsolatedParameters,
}

impl GatewayExposure {
    /// The owner of a Gateway's frontends, and its precedence there.
    pub(crate) fn frontend_owner(
        &self,
        gateway: &Gateway,
    ) -> (ObjectName, Option<GatewayPrecedence>) {
        let name = gateway.meta.name.clone();
        match self.fleet {
            Fleet::Own | Fleet::Dedicated | Fleet::Isolated => (name, None),
            Fleet::Shared => (SHARED.clone(), Some(Arc::new((gateway.meta.created, name)))),
        }
    }
}

/// The owner of the frontends that Gateways of the shared fleet have in common.
pub(crate) fn shared() -> &'static ObjectName {
    &SHARED
}

/// True if the owner of frontends is the shared fleet.
pub(crate) fn is_shared(owner: &ObjectName) -> bool {
    *owner == *SHARED
}
