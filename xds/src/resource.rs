//! Resources and their types.

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, ScopedRouteConfiguration};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use prost::{Message, Name};
use sha2::{Digest, Sha256};

/// The types served, in the order in which additions are sent ("Eventual consistency considerations").
#[allow(missing_docs, reason = "the names are the types'")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResourceType {
    Cluster,
    Endpoints,
    Secret,
    Scope,
    Routes,
    Listener,
}

impl ResourceType {
    /// All types, in order of addition.
    pub const ALL: [ResourceType; 6] = [
        ResourceType::Cluster,
        ResourceType::Endpoints,
        ResourceType::Secret,
        ResourceType::Scope,
        ResourceType::Routes,
        ResourceType::Listener,
    ];

    /// The type URL.
    pub fn url(self) -> &'static str {
        match self {
            ResourceType::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            ResourceType::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            ResourceType::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            ResourceType::Scope => "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
            ResourceType::Routes => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            ResourceType::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
        }
    }

    /// The type with a URL, if it is served.
    pub fn of(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.url() == url)
    }

    /// Whether a subscription without names means all resources ("Wildcard subscriptions": only LDS and CDS by the
    /// protocol; Envoy subscribes to SRDS in the same way).
    pub(crate) fn has_wildcard(self) -> bool {
        matches!(self, ResourceType::Cluster | ResourceType::Scope | ResourceType::Listener)
    }

    /// Whether two encodings are of equal messages.
    fn same(self, a: &[u8], b: &[u8]) -> bool {
        fn equal<M: Message + Default + PartialEq>(a: &[u8], b: &[u8]) -> bool {
            matches!((M::decode(a), M::decode(b)), (Ok(a), Ok(b)) if a == b)
        }
        match self {
            ResourceType::Cluster => equal::<Cluster>(a, b),
            ResourceType::Endpoints => equal::<ClusterLoadAssignment>(a, b),
            ResourceType::Secret => equal::<Secret>(a, b),
            ResourceType::Scope => equal::<ScopedRouteConfiguration>(a, b),
            ResourceType::Routes => equal::<RouteConfiguration>(a, b),
            ResourceType::Listener => equal::<Listener>(a, b),
        }
    }
}

/// An encoded resource. Its body is shared by all streams; it has no `Debug` that shows it, since it may be a key.
#[derive(Clone)]
pub struct Resource {
    /// Its type.
    pub kind: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// A hash of its body: the same after a restart, so that a client that holds it is sent nothing.
    pub version: Arc<str>,
    /// The encoded message.
    pub body: Bytes,
}

impl Resource {
    /// Encodes a message.
    ///
    /// # Panics
    /// When the message is of no type that is served, which is a mistake of the caller's.
    pub fn new<M: Message + Name>(name: impl Into<Arc<str>>, message: &M) -> Self {
        let kind = ResourceType::of(&M::type_url()).expect("only types that are served are published");
        let body = Bytes::from(message.encode_to_vec());
        let hash = Sha256::digest(&body);
        let version: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { kind, name: name.into(), version: version.into(), body }
    }

    /// Whether both say the same. Protobuf maps encode in any order, so bytes that differ are compared as messages.
    pub(crate) fn says_the_same(&self, other: &Resource) -> bool {
        self.version == other.version || self.kind.same(&self.body, &other.body)
    }
}
