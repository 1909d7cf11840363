//! Reading a GRPCRoute.

use super::automaton::Automata;
use super::httproute::{empty_rule, header_matches, is_counted, parents, rule_names, rule_of};
use super::manifest::Specified;
use super::route::match_count;
use super::schema::{self, exact, same_shape};
use super::{Meta, ParseError, Route, RouteKind};
use crate::gateway_api::{grpcroutes as gw, httproutes as http};
use crate::model::{Call, Match, PathMatch};

impl Route {
    pub(super) fn read_grpc(
        meta: Meta,
        Specified { metadata, spec }: Specified<gw::GrpcRouteSpec>,
    ) -> Result<Self, ParseError> {
        let namespace = meta.name.namespace.clone();
        let none = gw::GrpcRouteRules {
            backend_refs: None,
            filters: None,
            matches: None,
            name: None,
            session_persistence: None,
        };
        let rules = schema::at_most("spec.rules", 16, spec.rules.unwrap_or_else(|| vec![none]))?;
        rule_names(rules.iter().filter_map(|rule| rule.name.as_deref()))?;
        match_count(
            rules
                .iter()
                .filter_map(|rule| rule.matches.as_ref())
                .map(Vec::len)
                .sum(),
        )?;
        let hostnames = schema::at_most("spec.hostnames", 16, spec.hostnames.unwrap_or_default())?;
        let mut automata = Automata::of_a_route();
        Ok(Self {
            hostnames: schema::hostnames(&hostnames)?,
            parents: parents(same_shape(spec.parent_refs.unwrap_or_default())?)?,
            rules: exact(rules.into_iter().map(|rule| {
                let gw::GrpcRouteRules {
                    backend_refs,
                    filters,
                    matches,
                    name,
                    session_persistence,
                } = rule;
                let matches = schema::at_most("matches", 64, matches.unwrap_or_default())?;
                let mut matches = exact(matches.into_iter().map(read_match))?;
                if matches.is_empty() {
                    matches = vec![any_call(Vec::new())];
                }
                // The rest of a rule has a subset of the fields of an HTTPRoute's rule.
                let rule = http::HttpRouteRules {
                    backend_refs: same_shape(backend_refs)?,
                    filters: same_shape(filters)?,
                    session_persistence: same_shape(session_persistence)?,
                    name,
                    ..empty_rule()
                };
                rule_of(&namespace, rule, matches, &mut automata)
            }))?,
            uses_defaults: spec.use_default_gateways == Some(gw::GrpcRouteUseDefaultGateways::All),
            kind: RouteKind::Grpc,
            challenge: false,
            counted: is_counted(&metadata),
            unreadable: Vec::new(),
            meta,
        })
    }
}

fn any_call(headers: Vec<crate::model::HeaderMatch>) -> Match {
    let path = PathMatch::Prefix("/".to_owned());
    Match {
        path,
        call: Some(Call::default()),
        method: None,
        headers,
        query: Vec::new(),
    }
}

/// A call of `service.Method` is a request for `/service/Method` (gRPC over HTTP/2).
fn read_match(m: gw::GrpcRouteRulesMatches) -> Result<Match, ParseError> {
    let headers = header_matches(same_shape(m.headers.unwrap_or_default())?)?;
    let Some(called) = m.method else {
        return Ok(any_call(headers));
    };
    let service = called.service.filter(|text| !text.is_empty());
    let method = called.method.filter(|text| !text.is_empty());
    let call = Call {
        service: length(&service),
        method: length(&method),
    };
    let is_regex = called.r#type == Some(gw::GrpcRouteRulesMatchesMethodType::RegularExpression);
    if !is_regex {
        service
            .iter()
            .try_for_each(|text| name("matches.method.service", text, true))?;
        method
            .iter()
            .try_for_each(|text| name("matches.method.method", text, false))?;
    }
    let path = match (service, method) {
        (None, None) => {
            let text = "matches.method: one of service and method is needed, or both";
            return Err(ParseError::Schema(text.to_owned()));
        }
        (Some(service), Some(method)) if !is_regex => {
            PathMatch::Exact(format!("/{service}/{method}"))
        }
        (Some(service), None) if !is_regex => PathMatch::Prefix(format!("/{service}")),
        (service, method) => {
            // Without parentheses an alternative would end at the slash. `(?s)` or a class never
            // matches one.
            fn part(text: Option<String>) -> String {
                text.map_or("[^/]+".to_owned(), |text| format!("(?:{text})"))
            }
            PathMatch::Regex(format!("/{}/{}", part(service), part(method)))
        }
    };
    Ok(Match {
        path,
        call: Some(call),
        method: None,
        headers,
        query: Vec::new(),
    })
}

fn length(text: &Option<String>) -> usize {
    text.as_ref().map_or(0, String::len)
}

/// Checks an identifier of Protocol Buffers, dots between packages allowed if `dotted` (CEL of the
/// GRPCRoute CRD).
fn name(field: &str, text: &str, dotted: bool) -> Result<(), ParseError> {
    let good = if dotted {
        text.strip_prefix('.')
            .unwrap_or(text)
            .split('.')
            .all(letters)
    } else {
        letters(text)
    };
    if good && text.len() <= 1024 {
        Ok(())
    } else {
        Err(ParseError::Schema(format!(
            "{field}: {text:?} is no name of a gRPC service or method"
        )))
    }
}

fn letters(part: &str) -> bool {
    part.bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(method: serde_json::Value) -> Result<Match, ParseError> {
        read_match(serde_json::from_value(json!({"method": method})).expect("the shape is right"))
    }

    #[test]
    fn a_method_is_a_path() {
        fn path(method: serde_json::Value) -> PathMatch {
            read(method).expect("a match").path
        }
        let exact = path(json!({"service": "a.B", "method": "C"}));
        assert_eq!(exact, PathMatch::Exact("/a.B/C".to_owned()));
        assert_eq!(
            path(json!({"service": "a.B"})),
            PathMatch::Prefix("/a.B".to_owned())
        );
        assert_eq!(
            path(json!({"method": "C"})),
            PathMatch::Regex("/[^/]+/(?:C)".to_owned())
        );
        let regex = path(json!({"type": "RegularExpression", "service": "a|b", "method": "C.*"}));
        assert_eq!(regex, PathMatch::Regex("/(?:a|b)/(?:C.*)".to_owned()));
    }

    #[test]
    fn an_invalid_method_name_is_refused() {
        for wrong in [
            json!({}),
            json!({"service": ""}),
            json!({"service": "a/b"}),
            json!({"service": "a..b"}),
            json!({"service": "a", "method": "b.c"}),
            json!({"method": "1st"}),
            json!({"method": "a\nb"}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(read(json!({"service": ".a.b", "method": "_c"})).is_ok());
    }
}
