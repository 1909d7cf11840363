//! Objects in place of those that may not be read, such that what refers to them is judged by
//! itself: Gateways that admit every route, certificates for every name, Services with the ports
//! that are asked for. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use gatewright_core::inputs::{Kind, Object, ObjectKey, Route, RouteKind, Secret};
use gatewright_core::model::{Certificate, Hostname, ObjectName, PrivateKey};
use gatewright_core::store::target_ports;
use gatewright_core::translate::Question;

/// The name of GatewayClasses and Secrets that nobody wrote.
const NAME: &str = "you-may-not-read-it";
/// The first port of listeners of which the port is not known. No person has Gateways there.
const PORTS: u16 = 64_000;
/// An address for documentation (RFC 5737), of endpoints.
const NOWHERE: &str = "192.0.2.1";
/// Another one, of the shared fleet.
pub(super) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// The end of certificates: the year 9999.
const NEVER: Duration = Duration::from_secs(253_370_764_800);

/// The stand-ins, and where requests arrive at those of Gateways.
#[derive(Default)]
pub(super) struct StandIns {
    /// The objects.
    pub(super) objects: Vec<Object>,
    /// The listeners of Gateways and ListenerSets.
    pub(super) places: Vec<Place>,
}

/// A listener of a stand-in, for the routes that name it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The Gateway or ListenerSet.
    pub(super) parent: ObjectKey,
    /// The listener that routes name; `None` where they name none.
    pub(super) section: Option<String>,
    /// Its port here.
    pub(super) port: u16,
    /// The port that routes say it has.
    pub(super) said_port: Option<u16>,
    /// The routes that name it.
    pub(super) routes: Vec<ObjectKey>,
}

impl StandIns {
    /// Makes stand-ins for the unread objects that others refer to, of which there may be several
    /// versions. Listeners are such that a request like `question` can be answered there; without
    /// one, by HTTPS.
    pub(super) fn new<'a, V: IntoIterator<Item = &'a Object>>(
        versions: impl Fn(&ObjectKey) -> V,
        unread: &BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
        controller: &str,
        question: Option<&Question>,
    ) -> Self {
        let is_plain = question.is_some_and(|question| !question.tls);
        let mut stand_ins = Self::default();
        for (target, referrers) in unread {
            let referring = referrers
                .iter()
                .flat_map(|key| versions(key).into_iter().map(move |object| (key, object)));
            let routes = referring.filter_map(|(key, object)| match object {
                Object::Route(route) => Some((key, route)),
                _ => None,
            });
            let routes: Vec<(&ObjectKey, &Route)> = routes.collect();
            match target.kind {
                Kind::GatewayClass => stand_ins.put(class(&target.name.name, controller)),
                Kind::Gateway | Kind::ListenerSet | Kind::XListenerSet => {
                    stand_ins.add_parent(target, &routes, is_plain);
                }
                Kind::Service => stand_ins.add_service(&target.name, &routes),
                Kind::Secret => stand_ins.objects.push(certificate(target.name.clone())),
                _ => {}
            }
        }
        if !stand_ins.places.is_empty() || stand_ins.has_gateway() {
            stand_ins.put(class(NAME, controller));
        }
        stand_ins
    }

    fn has_gateway(&self) -> bool {
        self.objects
            .iter()
            .any(|object| matches!(object, Object::Gateway(_)))
    }

    /// Adds an object as JSON.
    fn put(&mut self, object: Value) {
        let object = Object::parse_admitted(object).expect("what is written here can be read");
        self.objects.push(object);
    }

    /// Adds a Gateway or ListenerSet with a listener for each that routes name.
    fn add_parent(&mut self, parent: &ObjectKey, routes: &[(&ObjectKey, &Route)], is_plain: bool) {
        let first = self.places.len();
        for (key, route) in routes {
            let refs = route.parents.iter().filter(|reference| {
                let target = reference.target(&route.meta.name.namespace);
                target == Some((parent.kind, parent.name.clone()))
            });
            for reference in refs {
                self.add_route(first, parent, key, (&reference.section, reference.port));
            }
        }
        let places = &self.places[first..];
        let listeners = places.iter().map(|place| listener(place, is_plain));
        let listeners: Vec<Value> = listeners.collect();
        let namespace = &parent.name.namespace;
        let metadata = json!({"namespace": namespace, "name": parent.name.name});
        if places.is_empty() || !is_plain {
            let secret = ObjectName::new(namespace.clone(), NAME);
            self.objects.push(certificate(secret));
        }
        if parent.kind == Kind::Gateway {
            let spec = json!({"gatewayClassName": NAME, "listeners": listeners,
                "allowedListeners": {"namespaces": {"from": "All"}}});
            self.put(
                json!({"apiVersion": parent.kind.api_version(), "kind": parent.kind.as_str(),
                "metadata": metadata, "spec": spec}),
            );
            return;
        }
        let of_set = ObjectName::new(namespace.clone(), NAME);
        self.put(
            json!({"apiVersion": parent.kind.api_version(), "kind": parent.kind.as_str(),
            "metadata": metadata, "spec": {"parentRef": {"name": NAME}, "listeners": listeners}}),
        );
        self.add_parent(&ObjectKey::new(Kind::Gateway, of_set), &[], is_plain);
    }

    /// Notes that a route names a listener of the parent whose places begin at `first`.
    fn add_route(
        &mut self,
        first: usize,
        parent: &ObjectKey,
        route: &ObjectKey,
        (section, port): (&Option<String>, Option<u16>),
    ) {
        let known = self.places[first..]
            .iter_mut()
            .find(|place| place.section == *section && place.said_port == port);
        if let Some(place) = known {
            if !place.routes.contains(route) {
                place.routes.push(route.clone());
            }
            return;
        }
        let free = PORTS + u16::try_from(self.places.len() % 1000).expect("less than a thousand");
        self.places.push(Place {
            parent: parent.clone(),
            section: section.clone(),
            port: port.unwrap_or(free),
            said_port: port,
            routes: vec![route.clone()],
        });
    }

    /// Adds a Service with the ports that routes refer to, an endpoint, and the grants.
    fn add_service(&mut self, service: &ObjectName, routes: &[(&ObjectKey, &Route)]) {
        let ports: BTreeSet<(u16, String)> = routes
            .iter()
            .flat_map(|(_, route)| target_ports(route))
            .filter(|port| port.service == *service)
            .map(|port| (port.port, port.transport.to_string()))
            .collect();
        let ports = ports.iter().map(|(port, protocol)| {
            json!({"name": format!("p{port}-{}", protocol.to_lowercase()), "port": port, "protocol": protocol})
        });
        let ports: Vec<Value> = ports.collect();
        let namespace = &service.namespace;
        let name = &service.name;
        let metadata = json!({"namespace": namespace, "name": name});
        self.put(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"clusterIP": NOWHERE, "ports": ports}}),
        );
        let slice = json!({"namespace": namespace, "name": format!("{name}-{NAME}"),
            "labels": {"kubernetes.io/service-name": name}});
        self.put(
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": slice, "addressType": "IPv4", "ports": ports,
            "endpoints": [{"addresses": [NOWHERE], "conditions": {"ready": true}}]}),
        );
        let from: Vec<Value> = routes
            .iter()
            .map(|(key, _)| {
                json!({"group": key.kind.group(), "kind": key.kind.as_str(), "namespace": key.name.namespace})
            })
            .collect();
        let grant = json!({"namespace": namespace, "name": format!("{name}-{NAME}")});
        self.put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ReferenceGrant",
            "metadata": grant, "spec": {"from": from, "to": [{"group": "", "kind": "Service"}]}}),
        );
    }
}

fn class(name: &str, controller: &str) -> Value {
    json!({"apiVersion": Kind::GatewayClass.api_version(), "kind": "GatewayClass",
        "metadata": {"name": name}, "spec": {"controllerName": controller}})
}

/// The listener of a place: of the protocol that its routes need.
fn listener(place: &Place, is_plain: bool) -> Value {
    let is_of = |kind: RouteKind| place.routes.iter().all(|route| route.kind == kind.kind());
    let certificates = json!({"certificateRefs": [{"name": NAME}]});
    let (protocol, tls) = if is_of(RouteKind::Tls) {
        ("TLS", json!({"mode": "Passthrough"}))
    } else if is_of(RouteKind::Tcp) {
        ("TCP", Value::Null)
    } else if is_of(RouteKind::Udp) {
        ("UDP", Value::Null)
    } else if is_plain {
        ("HTTP", Value::Null)
    } else {
        ("HTTPS", certificates)
    };
    let name = place.section.clone();
    let name = name.unwrap_or_else(|| format!("any-{}", place.port));
    let mut listener = json!({"name": name, "port": place.port, "protocol": protocol,
        "allowedRoutes": {"namespaces": {"from": "All"}}});
    if !tls.is_null() {
        listener["tls"] = tls;
    }
    listener
}

/// A Secret with a certificate for every name.
pub(crate) fn certificate(name: ObjectName) -> Object {
    let certificate = Certificate {
        leaf: b"".as_slice().into(),
        issuers: Arc::from(""),
        key: PrivateKey::new(b""),
        names: vec![Hostname::any()],
        not_before: UNIX_EPOCH,
        not_after: UNIX_EPOCH + NEVER,
        issuer: Arc::from(NAME),
    };
    Secret::with_certificate(name, Arc::new(certificate)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "gatewright.io/gateway-controller";

    fn route(name: &str, section: Value) -> Object {
        let mut parent = json!({"name": "edge", "namespace": "platform"});
        if !section.is_null() {
            parent["sectionName"] = section;
        }
        Object::parse(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"parentRefs": [parent], "hostnames": ["shop.example.org"],
                "rules": [{"backendRefs": [{"name": "db", "namespace": "data", "port": 80}]}]}}),
        )
        .expect("a route")
    }

    fn stand_ins(objects: Vec<Object>) -> StandIns {
        let objects: BTreeMap<ObjectKey, Object> = objects
            .into_iter()
            .map(|object| (object.key(), object))
            .collect();
        let referrers: BTreeSet<ObjectKey> = objects.keys().cloned().collect();
        let gateway = ObjectKey::new(Kind::Gateway, ObjectName::new("platform", "edge"));
        let service = ObjectKey::new(Kind::Service, ObjectName::new("data", "db"));
        let unread = BTreeMap::from([(gateway, referrers.clone()), (service, referrers)]);
        StandIns::new(|key| objects.get(key), &unread, OURS, None)
    }

    #[test]
    fn a_gateway_has_a_listener_for_each_that_routes_name() {
        let made = stand_ins(vec![
            route("a", json!("https")),
            route("b", json!("https")),
            route("c", json!("http")),
            route("d", Value::Null),
        ]);
        let sections: Vec<(Option<&str>, usize)> = made
            .places
            .iter()
            .map(|place| (place.section.as_deref(), place.routes.len()))
            .collect();
        assert_eq!(sections, [(Some("https"), 2), (Some("http"), 1), (None, 1)]);
        let ports: BTreeSet<u16> = made.places.iter().map(|place| place.port).collect();
        assert_eq!(ports.len(), 3, "each has a port of its own");
    }

    #[test]
    fn every_object_can_be_read() {
        let made = stand_ins(vec![route("a", Value::Null)]);
        let kinds: BTreeSet<Kind> = made
            .objects
            .iter()
            .map(|object| object.key().kind)
            .collect();
        for kind in [
            Kind::GatewayClass,
            Kind::Gateway,
            Kind::Secret,
            Kind::Service,
        ] {
            assert!(kinds.contains(&kind), "{} is there", kind.as_str());
        }
    }
}
