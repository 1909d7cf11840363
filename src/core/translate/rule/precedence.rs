//! The order of precedence of routes within one hostname.

use std::cmp::Reverse;

use gatewright_objects::inputs::Meta;
use gatewright_objects::model::{Hostname, Match, PathMatch};

/// Sort key of one match of one rule of one route: smaller goes first.
///
/// Gateway API: the route's own hostname (`GatewayRouteHostnameIntersectionPrecedence`), then path
/// (exact, regular expression, longest prefix), method, number of headers, number of query
/// parameters, the oldest route, its name, and the order within the route. Spelling and order of
/// headers play no part.
///
/// For a GRPCRoute the path is the gRPC method: service and method (an exact path), else the length
/// of the service, then that of the method (`GRPCRouteRule.matches`). Beside HTTPRoutes a service
/// ranks as its path would as a prefix, and any call as `/` would, so that the same rules decide
/// between the kinds (GEP-1016).
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MatchRank<'a> {
    own: RouteRank<'a>,
    path: Reverse<(u8, usize, usize)>,
    method: Reverse<bool>,
    headers: Reverse<usize>,
    query: Reverse<usize>,
    age: (i64, &'a gatewright_objects::model::ObjectName),
    place: (usize, usize),
}

/// The part of the rank by the route's own hostname.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RouteRank<'a>(Reverse<(bool, usize)>, &'a Hostname);

/// Returns the rank of a match at `place` (rule and match index) of a route.
pub(crate) fn match_rank<'a>(
    own: &'a Hostname,
    meta: &'a Meta,
    m: &Match,
    place: (usize, usize),
) -> MatchRank<'a> {
    let path = match (&m.path, m.call) {
        (PathMatch::Exact(path), _) => (2, path.len(), 0),
        (_, Some(call)) => (0, 1 + call.service, call.method),
        (PathMatch::Regex(path), None) => (1, path.len(), 0),
        (PathMatch::Prefix(path), None) => (0, path.len(), 0),
    };
    MatchRank {
        own: RouteRank(Reverse((own.is_exact(), own.as_str().len())), own),
        path: Reverse(path),
        method: Reverse(m.method.is_some()),
        headers: Reverse(m.headers.len()),
        query: Reverse(m.query.len()),
        age: (meta.created, &meta.name),
        place,
    }
}

/// Returns the rank of a whole route, for kinds of which one route gets all connections.
pub(crate) fn route_rank<'a>(own: &'a Hostname, meta: &'a Meta) -> impl Ord + use<'a> {
    (
        Reverse((own.is_exact(), own.as_str().len())),
        own,
        meta.created,
        &meta.name,
    )
}
