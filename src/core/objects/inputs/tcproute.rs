//! Reads TCPRoutes and UDPRoutes, which have the same shape.

use serde::Serialize;

use super::schema::same_shape;
use super::tlsroute::forwards;
use super::{Meta, ParseError, Route, RouteKind};
use crate::gateway_api::tcproutes::{TcpRouteSpec, TcpRouteUseDefaultGateways};
use crate::gateway_api::tlsroutes::TlsRouteRules;
use crate::gateway_api::udproutes::{UdpRouteSpec, UdpRouteUseDefaultGateways};

impl Route {
    pub(super) fn read_tcp(meta: Meta, spec: TcpRouteSpec) -> Result<Self, ParseError> {
        let uses_defaults = spec.use_default_gateways == Some(TcpRouteUseDefaultGateways::All);
        Ok(Self {
            uses_defaults,
            ..read(meta, RouteKind::Tcp, spec.parent_refs, spec.rules)?
        })
    }

    pub(super) fn read_udp(meta: Meta, spec: UdpRouteSpec) -> Result<Self, ParseError> {
        let uses_defaults = spec.use_default_gateways == Some(UdpRouteUseDefaultGateways::All);
        Ok(Self {
            uses_defaults,
            ..read(meta, RouteKind::Udp, spec.parent_refs, spec.rules)?
        })
    }
}

/// Reads a route without hostnames, which gets all traffic of a port.
fn read(
    meta: Meta,
    kind: RouteKind,
    parents: impl Serialize,
    rules: impl Serialize,
) -> Result<Route, ParseError> {
    let rules: Vec<TlsRouteRules> = same_shape(rules)?;
    if rules.iter().any(|rule| rule.backend_refs.is_empty()) {
        return Err(ParseError::Schema(
            "spec.rules.backendRefs: at least one is needed".to_owned(),
        ));
    }
    Ok(Route {
        kind,
        hostnames: [].into(),
        parents: super::httproute::parents(
            same_shape::<_, Option<_>>(parents)?.unwrap_or_default(),
        )?,
        rules: forwards(&meta.name.namespace, rules)?,
        meta,
        uses_defaults: false,
        challenge: false,
        counted: false,
        unreadable: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::Object;

    fn parse(kind: &str, version: &str, spec: Value) -> Result<Route, String> {
        let value = json!({"apiVersion": format!("gateway.networking.k8s.io/{version}"), "kind": kind,
            "metadata": {"namespace": "a", "name": "x"}, "spec": spec});
        match Object::parse(value).map_err(|why| why.to_string())? {
            Object::Route(route) => Ok(route),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_kinds_have_parents_and_weighted_backends_and_no_hostname() {
        let backends = json!([{"name": "db", "port": 5432, "weight": 9}, {"name": "other", "port": 5432, "weight": 0}]);
        let spec = json!({"parentRefs": [{"name": "edge", "sectionName": "db"}], "rules": [{"backendRefs": backends}]});
        for (kind, expected) in [("TCPRoute", RouteKind::Tcp), ("UDPRoute", RouteKind::Udp)] {
            for version in ["v1", "v1alpha2"] {
                let route = parse(kind, version, spec.clone()).expect("it can be read");
                let weights: Vec<u32> = route.rules[0]
                    .backends
                    .iter()
                    .map(|backend| backend.weight)
                    .collect();
                assert_eq!(route.kind, expected, "the kind is kept");
                assert_eq!(route.hostnames.len(), 0, "there are no hostnames");
                assert_eq!(weights, vec![9, 0], "the weights are read");
                assert_eq!(route.parents[0].section.as_deref(), Some("db"));
            }
        }
    }

    #[test]
    fn a_route_that_the_schema_refuses_is_an_error() {
        let rule = json!({"backendRefs": [{"name": "db", "port": 5432}]});
        for wrong in [
            json!({"rules": []}),
            json!({"rules": [rule, rule]}),
            json!({"rules": [{"backendRefs": []}]}),
            json!({"rules": [{"backendRefs": vec![json!({"name": "db", "port": 1}); 17]}]}),
            json!({"rules": [{"backendRefs": [{"name": "db", "port": 0}]}]}),
            json!({"hostnames": ["x.org"], "rules": [rule]}),
        ] {
            for kind in ["TCPRoute", "UDPRoute"] {
                assert!(parse(kind, "v1", wrong.clone()).is_err(), "{kind} {wrong}");
            }
        }
    }
}
