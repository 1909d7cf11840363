//! Reading a TLSRoute.

use std::sync::Arc;

use super::gateway::same_shape;
use super::route::exact;
use super::{LocalRef, Meta, ParseError, Regexes, Route, RouteKind, RouteRule};
use crate::gateway_api::tlsroutes::TlsRouteSpec;
use crate::model::{Hostname, Match, PathMatch, Timeouts};

impl Route {
    pub(super) fn read_tls(meta: Meta, spec: TlsRouteSpec) -> Result<Self, ParseError> {
        if spec.hostnames.is_empty() || spec.hostnames.len() > 1024 {
            return Err(ParseError::Schema("spec.hostnames: 1 to 1024 hostnames are needed".to_owned()));
        }
        if spec.rules.len() != 1 {
            return Err(ParseError::Schema("spec.rules: exactly one rule is needed".to_owned()));
        }
        let namespace = meta.name.namespace.clone();
        let rules = spec
            .rules
            .into_iter()
            .map(|rule| {
                Ok(RouteRule {
                    name: rule.name,
                    matches: vec![any_request()],
                    regexes: Regexes::default(),
                    unmatched: None,
                    filters: Ok(None),
                    backends: exact(
                        rule.backend_refs
                            .into_iter()
                            .map(|backend| super::httproute::backend(&namespace, same_shape(backend)?)),
                    )?,
                    timeouts: Timeouts::default(),
                    retry: None,
                })
            })
            .collect::<Result<_, ParseError>>()?;
        Ok(Self {
            meta,
            kind: RouteKind::Tls,
            hostnames: spec.hostnames.iter().map(|hostname| Hostname::parse(hostname)).collect(),
            parents: super::httproute::parents(same_shape(spec.parent_refs)?)?,
            rules,
            challenge: false,
            gates: Vec::new(),
            unreadable: Vec::new(),
        })
    }
}

/// The match of a rule without matches.
pub(super) fn any_request() -> Match {
    Match { path: PathMatch::Prefix("/".to_owned()), call: None, method: None, headers: Vec::new(), query: Vec::new() }
}

impl LocalRef {
    pub(super) fn backend(
        namespace: &Arc<str>,
        group: Option<String>,
        kind: Option<String>,
        to: Option<String>,
        name: String,
    ) -> Self {
        Self {
            group: group.unwrap_or_default(),
            kind: kind.unwrap_or_else(|| "Service".to_owned()),
            name: crate::model::ObjectName::new(to.map_or_else(|| namespace.clone(), Arc::from), name),
        }
    }
}
