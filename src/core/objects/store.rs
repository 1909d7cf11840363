//! The store: the objects seen so far, and indexes from referenced objects to the objects that
//! refer to them.

mod answers;
mod attached;
mod default_gateways;
mod external_names;
mod granted;
mod indexes;
mod indexing;
mod policies;
mod reserved;
mod telemetry;
mod trust_bundles;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::channel::Channel;
use crate::definitions::Definitions;
use crate::external_name::{ExternalNames, NameResolution};
use crate::inputs::{
    AttachedPolicy, ClusterTrustBundle, ConfigMap, DirectResponse, EndpointSlice, Gateway,
    GatewayClass, GatewayParameters, Kind, ListenerSet, Located, MadeService, MadeSlice, Namespace,
    Object, ObjectKey, ParentKey, Policy, ReferenceGrant, Route, RouteKey, RouteKind, Secret,
    Service, SetKey, SetKind, TelemetryPolicy,
};
use crate::interner::Interner;
use crate::model::{HostnameGrant, ObjectName, ServicePort, xbackend_of};
use crate::namespaces::Namespaces;

use self::indexes::Indexes;
use self::telemetry::traced;

pub use self::granted::RouteGrants;
pub use self::reserved::{Holder, Reserved};

/// The objects, by kind and name.
#[derive(Default)]
pub struct Store {
    interner: Interner,
    namespaces: BTreeMap<Arc<str>, Arc<Namespace>>,
    classes: BTreeMap<ObjectName, Arc<GatewayClass>>,
    gateways: BTreeMap<ObjectName, Arc<Gateway>>,
    listener_sets: BTreeMap<SetKey, Arc<ListenerSet>>,
    /// The listeners that tenancy withholds, by ListenerSets, which may not exist yet.
    withheld: BTreeMap<SetKey, BTreeSet<Arc<str>>>,
    routes: BTreeMap<RouteKey, Arc<Route>>,
    /// The grants of tenancy, by routes, which may not exist yet.
    granted: BTreeMap<RouteKey, RouteGrants>,
    grants: BTreeMap<ObjectName, Arc<ReferenceGrant>>,
    services: BTreeMap<ObjectName, Arc<Service>>,
    /// The addresses of the names of Services of type ExternalName.
    resolved: BTreeMap<ObjectName, NameResolution>,
    slices: BTreeMap<ObjectName, Arc<EndpointSlice>>,
    secrets: BTreeMap<ObjectName, Arc<Secret>>,
    config_maps: BTreeMap<ObjectName, Arc<ConfigMap>>,
    trust_bundles: BTreeMap<ObjectName, Arc<ClusterTrustBundle>>,
    /// True if the API server serves ClusterTrustBundles.
    has_trust_bundles: bool,
    policies: BTreeMap<ObjectKey, Arc<Policy>>,
    telemetry: BTreeMap<ObjectName, Arc<TelemetryPolicy>>,
    attached: BTreeMap<ObjectKey, Arc<AttachedPolicy>>,
    responses: BTreeMap<ObjectName, Arc<DirectResponse>>,
    parameters: BTreeMap<ObjectName, Arc<GatewayParameters>>,
    pods: BTreeMap<ObjectName, Located>,

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

macro_rules! replace {
    ($map:expr, $key:expr, $object:expr) => {{
        let key = $key;
        let object = Arc::new($object);
        match $map.insert(key, object.clone()) {
            Some(old) if old == object => return None,
            old => (old, object),
        }
    }};
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

    /// Stores an object. Returns `None` if it is equal to the stored one, else the replaced data.
    pub fn put(&mut self, object: Object) -> Option<Replaced> {
        let replaced = match object {
            Object::Namespace(o) => {
                replace!(self.namespaces, o.name.clone(), o);
                Replaced::default()
            }
            Object::GatewayClass(o) => {
                let (old, new) = replace!(self.classes, o.meta.name.clone(), o);
                self.index_class(old.as_deref(), Some(&new));
                Replaced::default()
            }
            Object::Gateway(o) => {
                let (old, new) = replace!(self.gateways, o.meta.name.clone(), o);
                self.index_gateway(old.as_deref(), Some(&new));
                Replaced::default()
            }
            Object::ListenerSet(o) => {
                let (old, new) = replace!(self.listener_sets, o.key(), o);
                self.index_listener_set(old.as_deref(), Some(&new));
                Replaced::default()
            }
            Object::Route(o) => {
                let key = RouteKey {
                    kind: o.kind,
                    name: o.meta.name.clone(),
                };
                let (old, new) = replace!(self.routes, key.clone(), o);
                self.index_route(&key, old.as_deref(), Some(&new));
                Replaced::default()
            }
            Object::ReferenceGrant(o) => {
                replace!(self.grants, o.meta.name.clone(), o);
                Replaced::default()
            }
            Object::Service(o) => {
                let (old, new) = replace!(self.services, o.meta.name.clone(), o);
                let addresses = self.reserved.service(old.as_deref(), Some(&new));
                Replaced {
                    made_service: old.and_then(|old| old.made.clone()),
                    addresses,
                    ..Replaced::default()
                }
            }
            Object::EndpointSlice(o) => {
                let (old, new) = replace!(self.slices, o.meta.name.clone(), o);
                self.index_slice(old.as_deref(), Some(&new));
                let addresses = self.reserved.slice(old.as_deref(), Some(&new));
                let (service, made) = old
                    .map(|old| (old.service.clone(), old.made.clone()))
                    .unwrap_or_default();
                Replaced {
                    service,
                    made,
                    addresses,
                    ..Replaced::default()
                }
            }
            Object::Secret(o) => {
                replace!(self.secrets, o.name.clone(), o);
                Replaced::default()
            }
            Object::ConfigMap(o) => {
                replace!(self.config_maps, o.name.clone(), o);
                Replaced::default()
            }
            Object::ClusterTrustBundle(o) => {
                replace!(self.trust_bundles, o.name.clone(), o);
                Replaced::default()
            }
            Object::Policy(o) => {
                let (old, new) = replace!(self.policies, o.key(), o);
                self.index_policy(old.as_deref(), Some(&new));
                self.remove_attached(&new.key());
                Replaced {
                    policy: old,
                    ..Replaced::default()
                }
            }
            Object::TelemetryPolicy(o) => {
                let (old, new) = replace!(self.telemetry, o.meta.name.clone(), o);
                self.index_telemetry(old.as_deref(), Some(&new));
                Replaced {
                    traced: traced(old.as_deref()),
                    ..Replaced::default()
                }
            }
            Object::AttachedPolicy(o) => {
                let (old, new) = replace!(self.attached, o.key(), o);
                self.index_attached(old.as_deref(), Some(&new));
                Replaced {
                    policy: self.remove_policy(&new.key()),
                    ..Replaced::default()
                }
            }
            Object::DirectResponse(o) => {
                let (old, new) = replace!(self.responses, o.meta.name.clone(), o);
                self.index_response(old.as_deref(), Some(&new));
                Replaced::default()
            }
            Object::GatewayParameters(o) => {
                let (old, new) = replace!(self.parameters, o.meta.name.clone(), o);
                self.index_parameters(old.as_deref(), Some(&new));
                Replaced::default()
            }
            Object::Pod(o) => {
                let old = self.pods.insert(o.name.clone(), o.clone());
                let addresses = moved(old.as_ref(), Some(&o));
                Replaced {
                    addresses: Some(addresses).filter(|moved| !moved.is_empty())?,
                    ..Replaced::default()
                }
            }
            Object::Node(o) => {
                let addresses = self.reserved.node(&o.name, &o.addresses);
                Replaced {
                    addresses: Some(addresses).filter(|moved| !moved.is_empty())?,
                    ..Replaced::default()
                }
            }
            // It is an input of tenancy alone.
            Object::TenantGateway(_) => return None,
        };
        Some(replaced)
    }

    /// True if an equal object is stored, so that to put it changes nothing. Nodes and
    /// TenantGateways are not stored.
    pub fn holds(&self, object: &Object) -> bool {
        fn is<T: PartialEq>(stored: Option<&Arc<T>>, object: &T) -> bool {
            stored.is_some_and(|stored| **stored == *object)
        }
        match object {
            Object::Namespace(o) => is(self.namespaces.get(&o.name), o),
            Object::GatewayClass(o) => is(self.classes.get(&o.meta.name), o),
            Object::Gateway(o) => is(self.gateways.get(&o.meta.name), o),
            Object::ListenerSet(o) => is(self.listener_sets.get(&o.key()), o),
            Object::Route(o) => {
                let key = RouteKey {
                    kind: o.kind,
                    name: o.meta.name.clone(),
                };
                is(self.routes.get(&key), o)
            }
            Object::ReferenceGrant(o) => is(self.grants.get(&o.meta.name), o),
            Object::Policy(o) => is(self.policies.get(&o.key()), o),
            Object::TelemetryPolicy(o) => is(self.telemetry.get(&o.meta.name), o),
            Object::AttachedPolicy(o) => is(self.attached.get(&o.key()), o),
            Object::DirectResponse(o) => is(self.responses.get(&o.meta.name), o),
            Object::GatewayParameters(o) => is(self.parameters.get(&o.meta.name), o),
            Object::Service(o) => is(self.services.get(&o.meta.name), o),
            Object::EndpointSlice(o) => is(self.slices.get(&o.meta.name), o),
            Object::Secret(o) => is(self.secrets.get(&o.name), o),
            Object::ConfigMap(o) => is(self.config_maps.get(&o.name), o),
            Object::ClusterTrustBundle(o) => is(self.trust_bundles.get(&o.name), o),
            Object::Pod(o) => self.pods.get(&o.name) == Some(o),
            Object::Node(_) | Object::TenantGateway(_) => false,
        }
    }

    /// Removes an object. Returns `None` if there was none.
    pub fn delete(&mut self, key: &ObjectKey) -> Option<Replaced> {
        let name = &key.name;
        Some(match key.kind {
            Kind::Namespace => {
                self.namespaces.remove(&name.name)?;
                Replaced::default()
            }
            Kind::GatewayClass => {
                let old = self.classes.remove(name)?;
                self.index_class(Some(&old), None);
                Replaced::default()
            }
            Kind::Gateway => {
                let old = self.gateways.remove(name)?;
                self.index_gateway(Some(&old), None);
                Replaced::default()
            }
            Kind::ListenerSet | Kind::XListenerSet => {
                let old = self.listener_sets.remove(&SetKey::of(key)?)?;
                self.index_listener_set(Some(&old), None);
                Replaced::default()
            }
            Kind::HTTPRoute
            | Kind::GRPCRoute
            | Kind::TLSRoute
            | Kind::TCPRoute
            | Kind::UDPRoute => {
                let key = RouteKey::of(key)?;
                let old = self.routes.remove(&key)?;
                self.index_route(&key, Some(&old), None);
                Replaced::default()
            }
            Kind::ReferenceGrant => {
                self.grants.remove(name)?;
                Replaced::default()
            }
            Kind::Service => {
                let old = self.services.remove(name)?;
                let addresses = self.reserved.service(Some(&old), None);
                Replaced {
                    made_service: old.made.clone(),
                    addresses,
                    ..Replaced::default()
                }
            }
            Kind::EndpointSlice => {
                let old = self.slices.remove(name)?;
                self.index_slice(Some(&old), None);
                let addresses = self.reserved.slice(Some(&old), None);
                Replaced {
                    service: old.service.clone(),
                    made: old.made.clone(),
                    addresses,
                    ..Replaced::default()
                }
            }
            Kind::Secret => {
                self.secrets.remove(name)?;
                Replaced::default()
            }
            Kind::ConfigMap => {
                self.config_maps.remove(name)?;
                Replaced::default()
            }
            Kind::ClusterTrustBundle => {
                self.trust_bundles.remove(name)?;
                Replaced::default()
            }
            Kind::BackendTLSPolicy
            | Kind::XBackend
            | Kind::XBackendTrafficPolicy
            | Kind::TrafficPolicy => {
                let policy = self.remove_policy(key);
                if self.remove_attached(key).is_none() && policy.is_none() {
                    return None;
                }
                Replaced {
                    policy,
                    ..Replaced::default()
                }
            }
            Kind::XTelemetryPolicy => {
                let old = self.telemetry.remove(name)?;
                self.index_telemetry(Some(&old), None);
                Replaced {
                    traced: traced(Some(&old)),
                    ..Replaced::default()
                }
            }
            Kind::AccessPolicy => {
                self.remove_attached(key)?;
                Replaced::default()
            }
            Kind::DirectResponse => {
                let old = self.responses.remove(name)?;
                self.index_response(Some(&old), None);
                Replaced::default()
            }
            Kind::GatewayParameters => {
                let old = self.parameters.remove(name)?;
                self.index_parameters(Some(&old), None);
                Replaced::default()
            }
            Kind::Pod => {
                let old = self.pods.remove(name)?;
                Replaced {
                    addresses: moved(Some(&old), None),
                    ..Replaced::default()
                }
            }
            Kind::Node => Replaced {
                addresses: self.reserved.node(name, &[]),
                ..Replaced::default()
            },
            Kind::TenantGateway | Kind::Issuer | Kind::Certificate => return None,
        })
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
        self.namespaces
            .get(namespace)
            .map_or(&NONE, |namespace| &namespace.labels)
    }

    /// The namespace whose Gateway serves a namespace, if the platform says so.
    pub fn gateway_of_platform(&self, namespace: &str) -> Option<&str> {
        self.namespaces.get(namespace)?.gateway_of_platform()
    }

    /// The UID of a namespace, if it has one.
    pub fn uid(&self, namespace: &str) -> Option<&str> {
        self.namespaces
            .get(namespace)
            .map(|namespace| &*namespace.uid)
            .filter(|uid| !uid.is_empty())
    }

    /// All GatewayClasses.
    pub fn classes(&self) -> impl Iterator<Item = &GatewayClass> {
        self.classes.values().map(Arc::as_ref)
    }

    /// True if a Gateway has this class.
    pub fn has_gateways(&self, class: &str) -> bool {
        self.indexes.gateways_by_class(class).next().is_some()
    }

    /// A GatewayClass by name.
    pub fn class(&self, name: &str) -> Option<&Arc<GatewayClass>> {
        self.classes.get(&ObjectName::new("", name))
    }

    /// A Gateway by name.
    pub fn gateway(&self, name: &ObjectName) -> Option<&Arc<Gateway>> {
        self.gateways.get(name)
    }

    /// All Gateways, of any class.
    pub fn gateways(&self) -> impl Iterator<Item = &Arc<Gateway>> {
        self.gateways.values()
    }

    /// GatewayParameters by name.
    pub fn parameters(&self, name: &ObjectName) -> Option<&Arc<GatewayParameters>> {
        self.parameters.get(name)
    }

    /// A ListenerSet by kind and name.
    pub fn listener_set(&self, key: &SetKey) -> Option<&Arc<ListenerSet>> {
        self.listener_sets.get(key)
    }

    /// A route by kind and name.
    pub fn route(&self, key: &RouteKey) -> Option<&Arc<Route>> {
        self.routes.get(key)
    }

    /// A Service by name.
    pub fn service(&self, name: &ObjectName) -> Option<&Arc<Service>> {
        self.services.get(name)
    }

    /// A ConfigMap by name.
    pub fn config_map(&self, name: &ObjectName) -> Option<&Arc<ConfigMap>> {
        self.config_maps.get(name)
    }

    /// A Secret by name.
    pub fn secret(&self, name: &ObjectName) -> Option<&Arc<Secret>> {
        self.secrets.get(name)
    }

    /// An EndpointSlice by name.
    pub fn slice(&self, name: &ObjectName) -> Option<&Arc<EndpointSlice>> {
        self.slices.get(name)
    }

    /// A running pod, by name.
    pub fn pod(&self, name: &ObjectName) -> Option<&Located> {
        self.pods.get(name)
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
            .filter_map(|name| self.slices.get(name))
    }

    /// The Service that an EndpointSlice belongs to.
    pub fn service_of_slice(&self, slice: &ObjectName) -> Option<ObjectName> {
        self.slices.get(slice)?.service.clone()
    }

    /// True if an object of `kind` in namespace `from` may refer to the object `to` of kind
    /// `to_kind`: always within one namespace, else by a ReferenceGrant in the target's.
    pub fn permits(&self, kind: Kind, from: &str, to_kind: Kind, to: &ObjectName) -> bool {
        *from == *to.namespace
            || of_namespace(&self.grants, &to.namespace)
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
                self.routes
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
        of_namespace(&self.gateways, namespace)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The ListenerSets of a namespace.
    pub fn sets_in(&self, namespace: &Arc<str>) -> Vec<SetKey> {
        let first = SetKey {
            name: ObjectName::new(namespace.clone(), ""),
            kind: SetKind::Stable,
        };
        let sets = self.listener_sets.range(first..).map(|(key, _)| key);
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
    /// The Gateways that an XTelemetryPolicy was about.
    pub traced: BTreeSet<ObjectName>,
}

/// The addresses that a pod gained or lost.
fn moved(old: Option<&Located>, new: Option<&Located>) -> Vec<IpAddr> {
    all(old).symmetric_difference(&all(new)).copied().collect()
}

fn all(pod: Option<&Located>) -> BTreeSet<IpAddr> {
    pod.into_iter()
        .flat_map(|pod| pod.addresses.to_vec())
        .collect::<BTreeSet<_>>()
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
