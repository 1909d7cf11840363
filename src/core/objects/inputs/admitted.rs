//! Salvages an object that an API server admitted by a schema newer or laxer than ours, or that a
//! person wrote with a mistake: reads its readable parts. Pure.
//!
//! An unknown value invalidates the rule or listener that contains it, and is reported there; the
//! rest of the object, and the objects that refer to it, stay in effect. The result depends on the
//! object alone, so a restart changes nothing.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::document::{self, Fields};
use super::gateway::DERIVED_GATEWAY;
use super::httproute::SOLVER;
use super::manifest::Manifest;
use super::{
    AllowedRoutes, Gateway, Listener, ListenerFilter, ListenerSet, NamespaceRule, Object,
    ParseError, Route, RouteKind, Unsupported,
};
use crate::gateway_api::httproutes::HttpRouteParentRefs;
use crate::model::Hostname;

/// The most rules or listeners that are read one by one; the schema allows no more.
const MAX_PARTS: usize = 64;

/// Reads an object with one list of its specification replaced.
fn with(manifest: Manifest<'_>, list: &str, items: Vec<Value>) -> Result<Object, ParseError> {
    let value = manifest.value;
    let spec = value["spec"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(field, _)| *field != list);
    let mut spec: serde_json::Map<String, Value> = spec
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    spec.insert(list.to_owned(), Value::Array(items));
    let copy = json!({"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": value["metadata"], "spec": spec});
    Object::parse_with(&copy, manifest.fields)
}

/// An EndpointSlice without the ports and addresses that cannot be used: an API server admits any
/// number as a port, and names as addresses. Service proxies leave them out as well.
pub(super) fn endpoint_slice(manifest: Manifest<'_>, _: &ParseError) -> Option<Object> {
    let mut slice = manifest.value.clone();
    if let Some(ports) = list_mut(&mut slice, "ports") {
        ports.retain(|port| {
            port["port"].is_null()
                || port["port"]
                    .as_i64()
                    .is_some_and(|number| (1..=65535).contains(&number))
        });
    }
    for endpoint in list_mut(&mut slice, "endpoints").into_iter().flatten() {
        if let Some(addresses) = list_mut(endpoint, "addresses") {
            addresses.retain(|address| {
                let address = address.as_str().map(str::parse::<IpAddr>);
                address.is_some_and(|address| address.is_ok())
            });
        }
    }
    Object::parse_with(&slice, manifest.fields).ok()
}

/// The list in a field of what may be no object.
fn list_mut<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Vec<Value>> {
    value.get_mut(field)?.as_array_mut()
}

fn items<'a>(value: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    value["spec"][list].as_array().into_iter().flatten()
}

/// A Gateway with its readable listeners; unreadable ones are kept with their error. If the Gateway
/// cannot be read even without them, it has no listeners and is reported as invalid.
pub(super) fn gateway(manifest: Manifest<'_>, why: &ParseError) -> Option<Gateway> {
    let (readable, unreadable) = listeners(manifest);
    if let Ok(Object::Gateway(mut gateway)) = with(manifest, "listeners", readable)
        && !unreadable.is_empty()
    {
        gateway
            .listeners
            .extend(unreadable.into_iter().map(Into::into));
        return Some(gateway);
    }
    let value = manifest.value;
    Some(Gateway {
        meta: manifest.meta()?,
        uid: value["metadata"]["uid"].as_str().unwrap_or_default().into(),
        class: value["spec"]["gatewayClassName"].as_str()?.to_owned(),
        requests: Vec::new(),
        addresses: Vec::new(),
        allowed_listeners: NamespaceRule::None,
        listeners: Vec::new(),
        unsupported: Some(format!("the specification cannot be read ({why})")),
        client_certificate: None,
        frontend_tls: None,
        infrastructure: None,
        is_default: false,
        is_derived: value["metadata"]["labels"][DERIVED_GATEWAY].is_string(),
    })
}

pub(super) fn listener_set(manifest: Manifest<'_>, _: &ParseError) -> Option<ListenerSet> {
    let (readable, unreadable) = listeners(manifest);
    let Ok(Object::ListenerSet(mut set)) = with(manifest, "listeners", readable) else {
        return None;
    };
    set.listeners.extend(unreadable.into_iter().map(Into::into));
    Some(set)
}

/// The readable listeners, and of the others the fields that a status needs.
fn listeners(manifest: Manifest<'_>) -> (Vec<Value>, Vec<Listener>) {
    let mut readable = Vec::new();
    let mut unreadable = Vec::new();
    if items(manifest.value, "listeners").count() > MAX_PARTS {
        return (readable, unreadable);
    }
    for listener in items(manifest.value, "listeners") {
        match with(manifest, "listeners", vec![listener.clone()]) {
            Ok(_) => readable.push(listener.clone()),
            Err(why) => unreadable.extend(
                without_filters(manifest, listener, &why).or_else(|| broken(listener, &why)),
            ),
        }
    }
    (readable, unreadable)
}

/// A listener of which the filters alone cannot be read: it keeps its hostname, which a wider one
/// would serve without them.
fn without_filters(manifest: Manifest<'_>, listener: &Value, why: &ParseError) -> Option<Listener> {
    let mut bare = listener.clone();
    bare.as_object_mut()?.remove("filters")?;
    let listeners = match with(manifest, "listeners", vec![bare]).ok()? {
        Object::Gateway(gateway) => gateway.listeners,
        Object::ListenerSet(set) => set.listeners,
        _ => return None,
    };
    let listener = Listener::clone(listeners.first()?);
    let filters = vec![ListenerFilter::Unreadable(
        format!("cannot be read: {why}").into(),
    )];
    Some(Listener {
        filters,
        ..listener
    })
}

fn broken(listener: &Value, why: &ParseError) -> Option<Listener> {
    Some(Listener {
        name: listener["name"].as_str()?.into(),
        port: u16::try_from(listener["port"].as_u64()?).ok()?,
        protocol: listener["protocol"].as_str().unwrap_or_default().to_owned(),
        hostname: listener["hostname"]
            .as_str()
            .map_or(Ok(Hostname::any()), Hostname::parse),
        tls: None,
        allowed: AllowedRoutes {
            kinds: None,
            namespaces: NamespaceRule::None,
        }
        .into(),
        filters: Vec::new(),
        unreadable: Some(format!("cannot be read: {why}").into()),
    })
}

/// A route with its readable rules. A rule of which only the matches can be read refuses the
/// requests that it matches. A route that loses rules is reported as invalid, and keeps its
/// hostnames.
pub(super) fn route(manifest: Manifest<'_>, why: &ParseError) -> Option<Route> {
    let kind = RouteKind::of(manifest.kind)?;
    let by_rules = match kind {
        RouteKind::Http | RouteKind::Grpc => route_by_rules(manifest),
        RouteKind::Tls | RouteKind::Tcp | RouteKind::Udp => None,
    };
    if by_rules.is_some() {
        return by_rules;
    }
    let value = manifest.value;
    let parents = items(value, "parentRefs")
        .map(|parent| document::read::<HttpRouteParentRefs>(parent, Fields::Any).ok());
    let hostnames =
        items(value, "hostnames").map(|hostname| Some(Hostname::parse(hostname.as_str()?)));
    let labels = value["metadata"]["labels"].as_object();
    Some(Route {
        meta: manifest.meta()?,
        kind,
        hostnames: hostnames.collect::<Option<_>>()?,
        parents: super::httproute::parents(parents.collect::<Option<_>>()?).ok()?,
        rules: Vec::new(),
        uses_defaults: value["spec"]["useDefaultGateways"] == "All",
        challenge: kind == RouteKind::Http
            && labels.is_some_and(|labels| labels.contains_key(SOLVER)),
        counted: false,
        unreadable: vec![format!("the specification cannot be read ({why})")],
    })
}

fn route_by_rules(manifest: Manifest<'_>) -> Option<Route> {
    fn read(rules: Vec<Value>, manifest: Manifest<'_>) -> Result<Route, ParseError> {
        match with(manifest, "rules", rules) {
            Ok(Object::Route(route)) => Ok(route),
            Ok(_) => Err(ParseError::NoName),
            Err(why) => Err(why),
        }
    }
    if items(manifest.value, "rules").count() > MAX_PARTS {
        return None;
    }
    let mut rules = Vec::new();
    let mut refused = Vec::new();
    let mut dropped = Vec::new();
    for (index, rule) in items(manifest.value, "rules").enumerate() {
        let Err(why) = read(vec![rule.clone()], manifest) else {
            rules.push(rule.clone());
            continue;
        };
        let text = format!("cannot be read: {why}");
        // Without a field that is not there: in a file, null is no value.
        let kept = ["name", "matches"].into_iter().filter_map(|field| {
            let value = rule.get(field).filter(|value| !value.is_null())?;
            Some((field.to_owned(), value.clone()))
        });
        let bare = Value::Object(kept.collect());
        if read(vec![bare.clone()], manifest).is_ok() {
            refused.push((rules.len(), text));
            rules.push(bare);
        } else {
            dropped.push(format!(
                "rule {}: {text}",
                rule["name"]
                    .as_str()
                    .map_or(index.to_string(), str::to_owned)
            ));
        }
    }
    let mut route = read(rules, manifest)
        .ok()
        .filter(|_| !refused.is_empty() || !dropped.is_empty())?;
    for (index, text) in refused {
        route.rules.get_mut(index)?.filters = Err(Unsupported::Value(text));
    }
    route.unreadable = dropped;
    Some(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(kind: &str, spec: Value) -> Object {
        let value = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
            "metadata": {"namespace": "a", "name": "x"}, "spec": spec});
        assert!(
            Object::parse(value.clone()).is_err(),
            "in a file it is a mistake"
        );
        Object::parse_admitted(value).expect("something of it can be read")
    }

    #[test]
    fn a_port_or_address_that_cannot_be_used_leaves_the_others() {
        for (ports, addresses) in [
            (
                json!([{"name": "http", "port": 80}, {"name": "b", "port": 0}]),
                json!(["10.0.0.1"]),
            ),
            (
                json!([{"name": "b", "port": -5}, {"name": "http", "port": 80}]),
                json!(["10.0.0.1"]),
            ),
            (
                json!([{"name": "b", "port": 70_000}, {"name": "http", "port": 80}]),
                json!(["10.0.0.1"]),
            ),
            (
                json!([{"name": "http", "port": 80}]),
                json!(["10.0.0.1", "010.0.0.2"]),
            ),
            (
                json!([{"name": "http", "port": 80}]),
                json!(["web.example.org", "10.0.0.1"]),
            ),
        ] {
            let value = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"namespace": "a", "name": "x", "labels": {"kubernetes.io/service-name": "s"}},
                "addressType": "IPv4", "ports": ports, "endpoints": [{"addresses": addresses}]});
            assert!(
                Object::parse(value.clone()).is_err(),
                "in a file it is a mistake: {value}"
            );
            let Ok(Object::EndpointSlice(slice)) = Object::parse_admitted(value.clone()) else {
                panic!("the rest can be read: {value}")
            };
            let names: Vec<(&str, u16)> = slice
                .ports
                .iter()
                .map(|(name, at)| (&**name, at.number))
                .collect();
            assert_eq!(names, [("http", 80)], "{value}");
            assert_eq!(slice.addresses.len(), 1, "{value}");
        }
    }

    #[test]
    fn a_listener_that_cannot_be_read_leaves_the_others() {
        let listeners = json!([{"name": "good", "port": 80, "protocol": "HTTP"},
            {"name": "new", "port": 81, "protocol": "HTTP", "hostname": "x.org",
                "allowedRoutes": {"namespaces": {"from": "Orbit"}}}]);
        let gateway = admitted(
            "Gateway",
            json!({"gatewayClassName": "c", "listeners": listeners}),
        );
        let set = admitted(
            "ListenerSet",
            json!({"parentRef": {"name": "g"}, "listeners": listeners}),
        );
        let (
            Object::Gateway(Gateway {
                listeners,
                unsupported: None,
                ..
            }),
            Object::ListenerSet(set),
        ) = (gateway, set)
        else {
            panic!("both are read")
        };
        for listeners in [listeners, set.listeners] {
            let told: Vec<_> = listeners
                .iter()
                .map(|l| (&*l.name, l.port, l.unreadable.as_deref()))
                .collect();
            assert_eq!(told[0], ("good", 80, None));
            assert_eq!(told[1].0, "new", "the readable listener is there");
            assert_eq!(told[1].1, 81, "with its port");
            assert!(
                told[1].2.is_some_and(|why| why.contains("Orbit")),
                "{told:?}"
            );
        }
    }

    #[test]
    fn a_listener_whose_filters_cannot_be_read_keeps_its_hostname_and_lets_nobody_pass() {
        let filters = json!({"requests": [{"type": "Orbit", "orbit": {}}]});
        let listeners = json!([{"name": "good", "port": 80, "protocol": "HTTP"},
            {"name": "new", "port": 80, "protocol": "HTTP", "hostname": "x.org", "filters": filters}]);
        let spec = json!({"gatewayClassName": "c", "listeners": listeners});
        let Object::Gateway(gateway) = admitted("Gateway", spec) else {
            panic!("a Gateway")
        };
        let [good, new] = gateway.listeners.as_slice() else {
            panic!("two listeners")
        };
        assert!(good.filters.is_empty() && new.unreadable.is_none());
        assert_eq!(new.hostname.as_ref().map(Hostname::as_str), Ok("x.org"));
        let [ListenerFilter::Unreadable(text)] = new.filters.as_slice() else {
            panic!("{:?}", new.filters)
        };
        assert!(text.contains("Orbit"), "{text}");
    }

    #[test]
    fn a_gateway_that_cannot_be_read_is_one_without_listeners() {
        let listeners = json!([{"name": "good", "port": 80, "protocol": "HTTP"}]);
        let allowed = json!({"namespaces": {"from": "Orbit"}});
        let spec =
            json!({"gatewayClassName": "c", "listeners": listeners, "allowedListeners": allowed});
        let Object::Gateway(gateway) = admitted("Gateway", spec) else {
            panic!("a Gateway")
        };
        assert_eq!(&*gateway.class, "c", "the class is read");
        assert_eq!(gateway.listeners.len(), 0, "no listener is");
        assert!(
            gateway
                .unsupported
                .is_some_and(|text| text.contains("Orbit"))
        );
    }

    #[test]
    fn a_rule_that_cannot_be_read_leaves_the_others_and_lets_nothing_pass() {
        fn path(path: &str) -> Value {
            json!([{"path": {"type": "PathPrefix", "value": path}}])
        }
        let route = admitted(
            "HTTPRoute",
            json!({"hostnames": ["x.org"], "parentRefs": [{"name": "g"}], "rules": [
                {"matches": path("/good")},
                {"matches": path("/guarded"), "filters": [{"type": "Orbit"}]},
                {"matches": [{"path": {"type": "Orbit", "value": "/"}}]}]}),
        );
        let Object::Route(route) = route else {
            panic!("a route")
        };
        assert_eq!(route.hostnames.len(), 1, "the hostname is read");
        assert_eq!(route.parents.len(), 1, "the parent is read");
        assert_eq!(route.rules.len(), 2, "the readable rules are there");
        assert!(route.rules[0].filters.is_ok() && route.rules[1].filters.is_err());
        assert!(
            route.unreadable.len() == 1
                && route.unreadable[0].starts_with("rule 2: cannot be read: ")
        );
    }

    #[test]
    fn a_route_that_cannot_be_read_keeps_its_hostnames() {
        let rules = json!([{"name": "same"}, {"name": "same"}]);
        let spec = json!({"hostnames": ["x.org"], "parentRefs": [{"name": "g"}], "rules": rules});
        for kind in ["HTTPRoute", "GRPCRoute", "TLSRoute"] {
            let Object::Route(route) = admitted(kind, spec.clone()) else {
                panic!("a route")
            };
            assert_eq!(route.hostnames.len(), 1, "the hostname is read");
            assert_eq!(route.parents.len(), 1, "the parent is read");
            assert_eq!(route.rules.len(), 0, "no rule is");
            assert_eq!(route.unreadable.len(), 1, "{kind}");
        }
    }
}
