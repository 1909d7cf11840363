//! Reads TLSRoutes.

use std::sync::Arc;

use super::route::any_request;
use super::schema::{self, exact, same_shape};
use super::{Kind, LocalRef, Meta, ParseError, Regexes, Route, RouteKind, RouteRule};
use crate::gateway_api::tlsroutes::{TlsRouteRules, TlsRouteSpec, TlsRouteUseDefaultGateways};
use crate::model::{ObjectName, Timeouts, xbackend_of, xbackend_service};

impl Route {
    pub(super) fn read_tls(meta: Meta, spec: TlsRouteSpec) -> Result<Self, ParseError> {
        if spec.hostnames.is_empty() || spec.hostnames.len() > 1024 {
            return Err(ParseError::Schema(
                "spec.hostnames: 1 to 1024 hostnames are needed".to_owned(),
            ));
        }
        let rules = forwards(&meta.name.namespace, spec.rules)?;
        Ok(Self {
            meta,
            kind: RouteKind::Tls,
            hostnames: schema::hostnames(&spec.hostnames)?,
            parents: super::httproute::parents(same_shape(spec.parent_refs.unwrap_or_default())?)?,
            uses_defaults: spec.use_default_gateways == Some(TlsRouteUseDefaultGateways::All),
            rules,
            challenge: false,
            counted: false,
            unreadable: Vec::new(),
        })
    }
}

/// Reads the only rule of a route that forwards whole connections: it has nothing but backends.
pub(super) fn forwards(
    namespace: &Arc<str>,
    rules: Vec<TlsRouteRules>,
) -> Result<Vec<RouteRule>, ParseError> {
    let rule = <[TlsRouteRules; 1]>::try_from(rules);
    let [rule] =
        rule.map_err(|_| ParseError::Schema("spec.rules: exactly one rule is needed".to_owned()))?;
    let backends = schema::at_most("spec.rules.backendRefs", 16, rule.backend_refs)?;
    Ok(vec![RouteRule {
        name: rule.name,
        matches: vec![any_request()],
        regexes: Regexes::default(),
        unmatched: None,
        filters: Ok(None),
        backends: exact(
            backends
                .into_iter()
                .map(|backend| super::httproute::backend(namespace, same_shape(backend)?)),
        )?,
        timeouts: Timeouts::default(),
        retry: None,
        session: None,
    }])
}

impl LocalRef {
    /// A reference to a backend by an object in `namespace`. That to an XBackend has the name of
    /// the Service as which it is served.
    pub(super) fn backend(
        namespace: &Arc<str>,
        group: Option<String>,
        kind: Option<String>,
        to: Option<String>,
        name: String,
    ) -> Self {
        let namespace = to.map_or_else(|| namespace.clone(), Arc::from);
        let written = Self {
            group: group.unwrap_or_default(),
            kind: kind.unwrap_or_else(|| "Service".to_owned()),
            name: ObjectName::new(namespace, name),
        };
        if !written.is_of_kind(Kind::XBackend) {
            return written;
        }
        Self {
            name: xbackend_service(&written.name),
            ..written
        }
    }

    /// The kind of the backend that a reference leads to, a Service or an XBackend; `None` for
    /// anything else. The name is that of the Service in both cases.
    pub fn backend_kind(&self) -> Option<Kind> {
        let kind = match xbackend_of(&self.name) {
            Some(_) => Kind::XBackend,
            None => Kind::Service,
        };
        self.is_of_kind(kind).then_some(kind)
    }
}
