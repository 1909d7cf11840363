//! The store: the objects seen so far, and indexes from referenced objects to the objects that
//! refer to them.

mod answers;
mod default_gateways;
mod external_names;
mod granted;
mod indexes;
mod indexing;
mod policies;
mod reserved;
mod tables;
mod trust_bundles;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::channel::Channel;
use crate::definitions::Definitions;
use crate::external_name::{ExternalNames, NameResolution};
use crate::inputs::{
    EndpointSlice, Gateway, GatewayClass, Kind, Located, MadeService, MadeSlice, Object, ObjectKey,
    ParentKey, Pod, Policy, Route, RouteKey, RouteKind, SetKey, SetKind,
};
use crate::interner::Interner;
use crate::model::{HostnameGrant, ObjectName, ServicePort, xbackend_of};
use crate::namespaces::Namespaces;

use self::indexes::Indexes;
use self::tables::Tables;

pub use self::granted::RouteGrants;
pub use self::reserved::{Holder, Reserved};

/// The objects, by kind and name.
#[derive(Default)]
pub struct Store {
    interner: Interner,
    tables: Tables,
    pods: BTreeMap<ObjectName, Pod>,
    /// The listeners that tenancy withholds, by ListenerSets, which may not exist yet.
    withheld: BTreeMap<SetKey, BTreeSet<Arc<str>>>,
    /// The grants of tenancy, by routes, which may not exist yet.
    granted: BTreeMap<RouteKey, RouteGrants>,
    /// The addresses of the names of Services of type ExternalName.
    resolved: BTreeMap<ObjectName, NameResolution>,
    /// True if the API server serves ClusterTrustBundles.
    has_trust_bundles: bool,

    indexes: Indexes,
    /// Routes that want default Gateways.
    defaulted: BTreeSet<RouteKey>,
    /// Gateways at which tenancy has a say, which may not be there yet.
    governed: BTreeSet<ObjectName>,
    /// Addresses that tenants' endpoints may not have, with their holders.
    reserved: Reserved,
    /// The watched namespaces.
    watched: Namespaces,
    /// Which names may be resolved.
    names: ExternalNames,
    /// Which fields are served.
    channel: Channel,
    /// The definitions of the Gateway API.
    definitions: Definitions,
}

impl Store {
    /// A store for a cluster; `home` is the installation's namespace, `watched` are the watched
    /// ones.
    pub fn in_cluster(home: Option<Arc<str>>, watched: Namespaces, channel: Channel) -> Self {
        // Corrected as soon as the discovery of the API server has answered.
        let has_trust_bundles = channel == Channel::Experimental;
        let definitions = Definitions::unknown();
        Self {
            reserved: Reserved::new(home),
            watched,
            has_trust_bundles,
            channel,
            definitions,
            ..Self::default()
        }
    }

    /// An addition to messages about an object that is not found, or not granted: whether its
    /// namespace is not watched.
    pub fn unwatched(&self, name: &ObjectName) -> String {
        self.watched.note(&name.namespace)
    }

    /// True if a namespace is the installation's own.
    pub fn is_home(&self, namespace: &str) -> bool {
        self.reserved.is_home(namespace)
    }

    /// The channel of the Gateway API whose kinds and fields are served.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// The indexes from referenced objects to the objects that refer to them.
    pub fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    /// Addresses that endpoints of tenants may not have.
    pub fn reserved(&self) -> &Reserved {
        &self.reserved
    }

    /// Replaces parts of an object, before it is stored, by copies that other objects share.
    pub fn share(&mut self, object: &mut Object) {
        self.interner.object(object);
    }

    /// The definitions of the Gateway API.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// Sets the definitions of the Gateway API. Returns whether that changed them.
    pub fn set_definitions(&mut self, new: Definitions) -> bool {
        let is_changed = self.definitions != new;
        self.definitions = new;
        is_changed
    }

    /// The labels of a namespace; empty for an unknown one.
    pub fn labels(&self, namespace: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.tables
            .namespaces
            .get(namespace)
            .map_or(&NONE, |namespace| &namespace.labels)
    }

    /// The namespace whose Gateway serves a namespace, if the platform says so.
    pub fn gateway_of_platform(&self, namespace: &str) -> Option<&str> {
        self.tables.namespaces.get(namespace)?.gateway_of_platform()
    }

    /// The UID of a namespace, if it has one.
    pub fn uid(&self, namespace: &str) -> Option<&str> {
        self.tables
            .namespaces
            .get(namespace)
            .map(|namespace| &*namespace.uid)
            .filter(|uid| !uid.is_empty())
    }

    /// All GatewayClasses.
    pub fn classes(&self) -> impl Iterator<Item = &GatewayClass> {
        self.tables.classes.values().map(Arc::as_ref)
    }

    /// True if a Gateway has this class.
    pub fn has_gateways(&self, class: &str) -> bool {
        self.indexes.gateways_by_class(class).next().is_some()
    }

    /// A GatewayClass by name.
    pub fn class(&self, name: &str) -> Option<&Arc<GatewayClass>> {
        self.tables.classes.get(&ObjectName::new("", name))
    }

    /// All Gateways, of any class.
    pub fn gateways(&self) -> impl Iterator<Item = &Arc<Gateway>> {
        self.tables.gateways.values()
    }

    /// A running pod, by name.
    pub fn pod(&self, name: &ObjectName) -> Option<&Located> {
        self.pods.get(name).map(|Pod(located)| located)
    }

    /// True if an endpoint of a slice has an address of the pod that its `targetRef` names.
    pub fn is_of_its_pod(&self, slice: &EndpointSlice, address: IpAddr) -> bool {
        let namespace = &slice.meta.name.namespace;
        let mut pods = slice
            .pods_at(address)
            .map(|pod| ObjectName::new(namespace.clone(), pod.clone()));
        pods.any(|pod| self.pod(&pod).is_some_and(|pod| pod.has(address)))
    }

    /// The EndpointSlices of a Service, by name.
    pub fn slices(&self, service: &ObjectName) -> impl Iterator<Item = &Arc<EndpointSlice>> {
        self.indexes
            .slices_by_service
            .of(service)
            .filter_map(|name| self.tables.slices.get(name))
    }

    /// The Service that an EndpointSlice belongs to.
    pub fn service_of_slice(&self, slice: &ObjectName) -> Option<ObjectName> {
        self.tables.slices.get(slice)?.service.clone()
    }

    /// True if an object of `kind` in namespace `from` may refer to the object `to` of kind
    /// `to_kind`: always within one namespace, else by a ReferenceGrant in the target's.
    pub fn permits(&self, kind: Kind, from: &str, to_kind: Kind, to: &ObjectName) -> bool {
        *from == *to.namespace
            || of_namespace(&self.tables.grants, &to.namespace)
                .any(|(_, grant)| grant.permits(kind, from, to_kind, &to.name))
    }

    /// The same for a Service, or for the XBackend that is served as one.
    pub fn permits_backend(&self, kind: Kind, from: &str, service: &ObjectName) -> bool {
        match xbackend_of(service) {
            Some(xbackend) => self.permits(kind, from, Kind::XBackend, &xbackend),
            None => self.permits(kind, from, Kind::Service, service),
        }
    }

    /// The routes of a namespace.
    pub fn routes_in(&self, namespace: &Arc<str>) -> Vec<RouteKey> {
        RouteKind::ALL
            .into_iter()
            .flat_map(|kind| {
                let start = RouteKey {
                    kind,
                    name: ObjectName::new(namespace.clone(), ""),
                };
                self.tables
                    .routes
                    .range(start..)
                    .map(|(key, _)| key)
                    .take_while(move |key| key.kind == kind && key.name.namespace == *namespace)
            })
            .cloned()
            .collect()
    }

    /// The ListenerSets that refer to a Gateway, by name.
    pub fn sets_of(&self, gateway: &ObjectName) -> impl Iterator<Item = &SetKey> {
        self.indexes.sets_by_gateway.of(gateway)
    }

    /// The Gateways of a namespace.
    pub fn gateways_in(&self, namespace: &Arc<str>) -> Vec<ObjectName> {
        of_namespace(&self.tables.gateways, namespace)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The ListenerSets of a namespace.
    pub fn sets_in(&self, namespace: &Arc<str>) -> Vec<SetKey> {
        let first = SetKey {
            name: ObjectName::new(namespace.clone(), ""),
            kind: SetKind::Stable,
        };
        let sets = self.tables.listener_sets.range(first..).map(|(key, _)| key);
        sets.take_while(|key| key.name.namespace == *namespace)
            .cloned()
            .collect()
    }
}

/// The data of a replaced or deleted object that its dependents need.
#[derive(Default)]
pub struct Replaced {
    /// The Service that an EndpointSlice belonged to.
    pub service: Option<ObjectName>,
    /// The ports recorded in a Service of ours.
    pub made_service: Option<Box<MadeService>>,
    /// The Gateway of an EndpointSlice of ours.
    pub made: Option<Box<MadeSlice>>,
    /// Addresses that begin or cease to be reserved.
    pub addresses: Vec<IpAddr>,
    /// A policy.
    pub policy: Option<Arc<Policy>>,
}

fn of_namespace<'a, V>(
    map: &'a BTreeMap<ObjectName, V>,
    namespace: &Arc<str>,
) -> impl Iterator<Item = (&'a ObjectName, &'a V)> {
    let namespace = namespace.clone();
    map.range(ObjectName::new(namespace.clone(), "")..)
        .take_while(move |(name, _)| name.namespace == namespace)
}

/// The parent that a parentRef of a route in `namespace` refers to.
pub fn parent_key(parent: &crate::inputs::ParentRef, namespace: &Arc<str>) -> Option<ParentKey> {
    let (kind, name) = parent.target(namespace)?;
    ParentKey::of(&ObjectKey::new(kind, name))
}

/// The parents whose listeners a parentRef to `parent` may reach.
pub fn reached(parent: &ParentKey, grant: Option<&HostnameGrant>) -> Vec<ParentKey> {
    match (parent, grant) {
        (ParentKey::Gateway(_), Some(grant)) => {
            let own = grant.on_gateway.then(|| parent.clone());
            own.into_iter()
                .chain(
                    grant
                        .sets
                        .iter()
                        .cloned()
                        .map(SetKey::stable)
                        .map(ParentKey::ListenerSet),
                )
                .collect()
        }
        _ => vec![parent.clone()],
    }
}

/// The Service ports that a route's backends, mirrors and authorization servers refer to.
pub fn target_ports(route: &Route) -> impl Iterator<Item = ServicePort> {
    let transport = route.kind.transport();
    route.rules.iter().flat_map(move |rule| {
        let filters = rule.filters.as_ref().ok().and_then(Option::as_deref);
        let mirrors = filters
            .map(|filters| filters.mirrors.as_slice())
            .unwrap_or_default();
        let auth = filters.and_then(|filters| filters.auth.as_ref());
        let backends = rule.backends.iter().map(|b| (&b.target, b.port));
        backends
            .chain(mirrors.iter().map(|(target, port, _)| (target, *port)))
            .chain(auth.map(|auth| (&auth.server, auth.port)))
            .filter_map(move |(target, port)| ServicePort::referred(&target.name, port, transport))
    })
}

/// The DirectResponses that rules of a route refer to.
pub fn responses(route: &Route) -> impl Iterator<Item = &ObjectName> {
    let filters = route
        .rules
        .iter()
        .filter_map(|rule| rule.filters.as_ref().ok()?.as_deref());
    filters.filter_map(|filters| filters.direct_response.as_ref())
}

/// The objects that a route's backends, mirrors and authorization servers refer to.
pub fn targets(route: &Route) -> impl Iterator<Item = &ObjectName> {
    route.rules.iter().flat_map(|rule| {
        let filters = rule.filters.as_ref().ok().and_then(Option::as_deref);
        let mirrors = filters
            .map(|filters| filters.mirrors.as_slice())
            .unwrap_or_default();
        let auth = filters
            .and_then(|filters| filters.auth.as_ref())
            .map(|auth| &auth.server.name);
        let backends = rule.backends.iter().map(|b| &b.target.name);
        backends
            .chain(mirrors.iter().map(|(target, ..)| &target.name))
            .chain(auth)
    })
}
