//! What a route costs.

use super::{
    ANSWER, AUTH, Bytes, CONDITION, CORS, CORS_NAME, EDIT, HASH, HOST, INSTRUCTION, LOCATION,
    MATCH, MIRROR, ORIGIN, PATTERN_BYTE, REGEX, REMOVAL, RETRY, RETRY_CODE, SESSION, SHARE,
    SHARE_REWRITE, TEXT, text,
};
use crate::inputs::{AuthFilter, BackendRef, Filters, Route, RouteRule, SessionPersistence};
use crate::model::{
    AuthProtocol, Cors, HeaderEdits, Match, ObjectName, Origin, PathMatch, PathRewrite, Retry,
};

/// The additions of other objects to routes: of policies of Services to those that lead there, and
/// of DirectResponses to those that they answer for.
pub struct OfServices<'a, 's> {
    /// The session persistence of a Service.
    pub session: &'a dyn Fn(&ObjectName) -> Option<&'s SessionPersistence>,
    /// The bytes of the answer of a DirectResponse.
    pub answers: &'a dyn Fn(&ObjectName) -> u64,
    /// True if endpoints of a port of a Service are chosen by a hash.
    pub hashes: &'a dyn Fn(&ObjectName, u16) -> bool,
    /// True if a backend leads to a Service port.
    pub is_there: &'a dyn Fn(&BackendRef) -> bool,
}

/// A hostname of a route at a listener: its matches, each with the filters and backends of its
/// rule. Clusters are not included.
pub fn hostname(route: &Route, services: &OfServices<'_, '_>) -> Bytes {
    HOST + route.rules.iter().map(|rule| of_rule(rule, services)).sum()
}

/// All that the match and the rule say counts for each route that a match has, of which an empty
/// match is part of the share.
fn of_rule(rule: &RouteRule, services: &OfServices<'_, '_>) -> Bytes {
    let matches = rule.matches.len() as u64;
    let copies = copies(rule, services);
    let regexes = REGEX * rule.regexes.count as u64
        + INSTRUCTION * rule.regexes.instructions
        + Bytes::of(rule.regexes.kept, 0);
    let filters = rule.filters.iter().flatten();
    let own = filters
        .clone()
        .map(|filters| of_filters(filters) + of_answer(filters, services))
        .sum::<Bytes>();
    let edits = filters
        .map(|filters| of_edits(&filters.request_headers) + of_edits(&filters.response_headers))
        .sum::<Bytes>();
    let retry = rule.retry.as_deref().map_or(Bytes::default(), of_retry);
    let conditions = rule.matches.iter().map(of_match).sum::<Bytes>();
    let each = of_shares(rule) + of_sessions(rule, services.session) + of_hashes(rule, services);
    (MATCH + each + (own + retry) * copies + edits * edited(rule, copies)) * matches
        + (conditions + regexes) * copies
}

/// The routes that a match of a rule has: one, or one for each backend if a path is rewritten for
/// one, if one leads nowhere, or if their endpoints are chosen by different hashes.
pub(super) fn copies(rule: &RouteRule, services: &OfServices<'_, '_>) -> u64 {
    let backends = rule.backends.as_slice();
    if backends.iter().any(|backend| is_apart(backend, services)) {
        backends.len() as u64
    } else {
        1
    }
}

fn is_apart(backend: &BackendRef, services: &OfServices<'_, '_>) -> bool {
    let rewrites = match &backend.filters {
        Ok(filters) => filters
            .as_deref()
            .is_some_and(|filters| filters.rewrite.path.is_some()),
        Err(_) => true,
    };
    let is_hashed = backend
        .port
        .is_some_and(|port| (services.hashes)(&backend.target.name, port));
    rewrites || is_hashed || !(services.is_there)(backend)
}

/// How often the edits of a rule count beside those of its routes: if a backend has edits, those of
/// the rule are in each backend.
fn edited(rule: &RouteRule, copies: u64) -> u64 {
    let of_backends = rule
        .backends
        .iter()
        .filter_map(|backend| backend.filters.as_ref().ok()?.as_deref());
    let mut edits = of_backends.flat_map(|f| [&f.request_headers, &f.response_headers]);
    if edits.any(|edits| *edits != HeaderEdits::default()) {
        (rule.backends.len() as u64).saturating_sub(copies)
    } else {
        0
    }
}

/// What a match asks for.
fn of_match(one: &Match) -> Bytes {
    let (PathMatch::Exact(path) | PathMatch::Prefix(path) | PathMatch::Regex(path)) = &one.path;
    let headers = one
        .headers
        .iter()
        .map(|header| CONDITION + text(&header.name) + text(header.value.text()));
    let query = one
        .query
        .iter()
        .map(|query| CONDITION + text(&query.name) + text(query.value.text()));
    let method = one.method.as_deref().map(|method| CONDITION + text(method));
    text(path) + headers.chain(query).chain(method).sum()
}

fn of_filters(filters: &Filters) -> Bytes {
    let Filters {
        request_headers,
        response_headers,
        rewrite,
        redirect,
        // The objects that it refers to count.
        direct_response: _,
        mirrors,
        cors,
        auth,
    } = filters;
    let path = |path: &Option<PathRewrite>| {
        path.as_ref()
            .map_or(Bytes::default(), |path| text(path.text()))
    };
    let redirect = redirect
        .iter()
        .map(|redirect| LOCATION + path(&redirect.path));
    of_edits(request_headers)
        + of_edits(response_headers)
        + LOCATION * u64::from(rewrite.hostname.is_some() || rewrite.path.is_some())
        + path(&rewrite.path)
        + redirect.sum()
        + MIRROR * mirrors.len() as u64
        + cors.as_ref().map_or(Bytes::default(), of_cors)
        + auth.as_ref().map_or(Bytes::default(), of_auth)
}

fn of_answer(filters: &Filters, services: &OfServices<'_, '_>) -> Bytes {
    let answer = filters.direct_response.as_ref();
    answer.map_or(Bytes::default(), |name| {
        ANSWER + TEXT * (services.answers)(name)
    })
}

fn of_edits(edits: &HeaderEdits) -> Bytes {
    let HeaderEdits { set, add, remove } = edits;
    let pairs = set
        .iter()
        .chain(add)
        .map(|(name, value)| EDIT + text(name) + text(value));
    pairs
        .chain(remove.iter().map(|name| REMOVAL + text(name)))
        .sum()
}

fn of_cors(cors: &Cors) -> Bytes {
    let Cors {
        allow_origins,
        allow_methods,
        allow_headers,
        expose_headers,
        ..
    } = cors;
    let names = [allow_methods, allow_headers, expose_headers]
        .into_iter()
        .flatten();
    CORS + allow_origins.iter().map(of_origin).sum()
        + names.map(|name| CORS_NAME + text(name)).sum()
}

fn of_origin(origin: &Origin) -> Bytes {
    let pattern = match origin {
        Origin::Tuple { host, .. } if origin.is_pattern() => PATTERN_BYTE * host.len() as u64,
        _ => Bytes::default(),
    };
    ORIGIN + pattern
}

/// A filter ExternalAuth, for each match or virtual host that has it.
pub fn of_auth(auth: &AuthFilter) -> Bytes {
    of_check(&auth.headers, &auth.protocol)
}

/// The filter that asks a server by a protocol, which gets these headers.
pub(crate) fn of_check(headers: &[String], protocol: &AuthProtocol) -> Bytes {
    let of_protocol = match protocol {
        AuthProtocol::Grpc => Bytes::default(),
        AuthProtocol::Http {
            path,
            answers,
            to_clients,
        } => {
            let names = answers.iter().chain(to_clients);
            text(path.as_str()) + names.map(|name| text(name)).sum()
        }
    };
    AUTH + of_protocol + headers.iter().map(|name| text(name)).sum()
}

fn of_retry(retry: &Retry) -> Bytes {
    RETRY + RETRY_CODE * retry.codes.len() as u64
}

/// A single backend is part of the match.
fn of_shares(rule: &RouteRule) -> Bytes {
    let all = rule.backends.iter().map(of_share).sum();
    match rule.backends.as_slice() {
        [only] if !matches!(only.filters, Ok(Some(_))) => Bytes::default(),
        _ => all,
    }
}

fn of_share(backend: &BackendRef) -> Bytes {
    let Some(filters) = backend.filters.as_ref().ok().and_then(Option::as_deref) else {
        return SHARE;
    };
    let is_rewritten = filters.rewrite.hostname.is_some() || filters.rewrite.path.is_some();
    SHARE + of_filters(filters) + SHARE_REWRITE * u64::from(is_rewritten)
}

/// The session of a rule, or those of its shares.
fn of_sessions<'s>(
    rule: &RouteRule,
    sessions: &dyn Fn(&ObjectName) -> Option<&'s SessionPersistence>,
) -> Bytes {
    if let Some(own) = rule.session.as_deref() {
        return own.as_ref().map_or(Bytes::default(), of_session);
    }
    let stay = rule
        .backends
        .iter()
        .filter_map(|backend| sessions(&backend.target.name));
    stay.map(of_session).sum()
}

fn of_hashes(rule: &RouteRule, services: &OfServices<'_, '_>) -> Bytes {
    let hashed = rule.backends.iter().filter(|backend| {
        backend
            .port
            .is_some_and(|port| (services.hashes)(&backend.target.name, port))
    });
    HASH * hashed.count() as u64
}

fn of_session(session: &SessionPersistence) -> Bytes {
    SESSION
        + match session {
            SessionPersistence::Cookie {
                name,
                path,
                lifetime: _,
            } => name.as_deref().map_or(Bytes::default(), text) + text(path),
            SessionPersistence::Header(name) => text(name),
        }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::Object;

    /// The cost of a hostname of a route with a regular expression and edits, and so many backends
    /// with these filters, of which the Services exist or not.
    fn cost(backends: usize, filters: &Value, is_there: bool) -> Bytes {
        let backends: Vec<Value> = (0..backends)
            .map(|number| json!({"name": format!("web-{number}"), "port": 80, "filters": filters}))
            .collect();
        let edits: Vec<Value> = (0..16)
            .map(|number| json!({"name": format!("x-{number}"), "value": "v"}))
            .collect();
        let rule = json!({"backendRefs": backends,
            "matches": [{"path": {"type": "RegularExpression", "value": "/[a-z]{50}"}}],
            "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": edits}}]});
        let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": "a", "name": "r"}, "spec": {"rules": [rule]}});
        let Ok(Object::Route(route)) = Object::parse(route) else {
            panic!("a route")
        };
        let services = OfServices {
            session: &|_| None,
            answers: &|_| 0,
            hashes: &|_, _| false,
            is_there: &|_| is_there,
        };
        hostname(&route, &services)
    }

    #[test]
    fn what_a_rule_says_counts_for_each_route_that_it_has() {
        let none = json!([]);
        let empty = (HOST + MATCH).envoy;
        let shares = 16 * SHARE.envoy;
        let one = cost(1, &none, true).envoy;
        let many = cost(16, &none, true).envoy;
        assert_eq!(many, one + shares, "16 backends are one route");
        let lost = cost(16, &none, false).envoy;
        assert_eq!(
            lost - empty - shares,
            16 * (one - empty),
            "of a backend without a Service"
        );
        let path = json!([{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/x"}}}]);
        let rewritten = cost(16, &path, true).envoy;
        assert!(
            rewritten > 16 * (one - empty),
            "paths are rewritten: {rewritten}"
        );
    }

    #[test]
    fn edits_of_a_rule_count_for_each_backend_if_one_has_edits() {
        let edit = json!([{"type": "ResponseHeaderModifier", "responseHeaderModifier": {"remove": ["x-a"]}}]);
        let plain = cost(16, &json!([]), true).envoy;
        let edited = cost(16, &edit, true).envoy;
        assert!(edited - plain > 15 * 16 * EDIT.envoy, "{plain}, {edited}");
    }
}
