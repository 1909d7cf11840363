//! A route of any kind.

use std::sync::Arc;

use super::automaton::Automata;
use super::reference::ParentRef;
use super::{AuthFilter, Kind, LocalRef, Meta, ParseError, SessionPersistence, Unsupported, re2};
use crate::model::{
    Cors, Fraction, HeaderEdits, Hostname, HostnameError, Match, ObjectName, PathMatch, Redirect,
    Retry, Rewrite, Timeouts, Transport,
};

/// A route kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteKind {
    /// HTTPRoute.
    Http,
    /// GRPCRoute.
    Grpc,
    /// TLSRoute.
    Tls,
    /// TCPRoute.
    Tcp,
    /// UDPRoute.
    Udp,
}

impl RouteKind {
    /// The object kind.
    pub fn kind(self) -> Kind {
        match self {
            RouteKind::Http => Kind::HTTPRoute,
            RouteKind::Grpc => Kind::GRPCRoute,
            RouteKind::Tls => Kind::TLSRoute,
            RouteKind::Tcp => Kind::TCPRoute,
            RouteKind::Udp => Kind::UDPRoute,
        }
    }

    /// The route kind of an object kind; `None` for objects that are no routes.
    pub fn of(kind: Kind) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.kind() == kind)
    }

    /// The transport of the routed traffic.
    pub fn transport(self) -> Transport {
        match self {
            RouteKind::Http | RouteKind::Grpc | RouteKind::Tls | RouteKind::Tcp => Transport::Tcp,
            RouteKind::Udp => Transport::Udp,
        }
    }

    /// True if routes of this kind have hostnames. Others get all traffic of a port.
    pub fn has_hostnames(self) -> bool {
        match self {
            RouteKind::Http | RouteKind::Grpc | RouteKind::Tls => true,
            RouteKind::Tcp | RouteKind::Udp => false,
        }
    }

    /// True if routes of this kind route requests, each by itself. Others route connections.
    pub fn has_requests(self) -> bool {
        matches!(self, RouteKind::Http | RouteKind::Grpc)
    }

    /// All route kinds.
    pub const ALL: [Self; 5] = [
        RouteKind::Http,
        RouteKind::Grpc,
        RouteKind::Tls,
        RouteKind::Tcp,
        RouteKind::Udp,
    ];
}

/// A set of route kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteKinds(u8);

impl RouteKinds {
    /// True if the set contains a kind.
    pub fn contains(self, kind: RouteKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The kinds in the set, in the order of [`RouteKind::ALL`].
    pub fn iter(self) -> impl Iterator<Item = RouteKind> {
        RouteKind::ALL
            .into_iter()
            .filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<RouteKind> for RouteKinds {
    fn from_iter<I: IntoIterator<Item = RouteKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |all, kind| all | 1 << kind as u8))
    }
}

/// A route of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Its metadata.
    pub meta: Meta,
    /// Its kind.
    pub kind: RouteKind,
    /// Its hostnames as written, or the error of an invalid one; an empty list matches any
    /// hostname.
    pub hostnames: Arc<[Result<Hostname, HostnameError>]>,
    /// The parents that it refers to.
    pub parents: Arc<[ParentRef]>,
    /// True if it wants default Gateways as well (`useDefaultGateways: All`).
    pub uses_defaults: bool,
    /// Its rules in order.
    pub rules: Vec<RouteRule>,
    /// True if it answers an ACME challenge, for an issuer that solves challenges by routes
    /// (cert-manager).
    pub challenge: bool,
    /// True if its requests are to be counted by themselves (annotation
    /// `gatewright.io/traffic-metrics: Route`); of HTTPRoutes and GRPCRoutes only.
    pub counted: bool,
    /// The parts that are left out, and why: a newer or laxer schema admitted values that we cannot
    /// read.
    pub unreadable: Vec<String>,
}

impl Route {
    /// True if it routes requests, each by itself: policies on Gateways, ListenerSets and routes
    /// have an effect on these alone.
    pub fn has_requests(&self) -> bool {
        self.kind.has_requests()
    }

    /// The number of its matches, each counted once for every hostname.
    pub fn matches(&self) -> u64 {
        let matches: usize = self.rules.iter().map(|rule| rule.matches.len()).sum();
        (self.hostnames.len().max(1) * matches) as u64
    }

    /// The number of its regular expressions, for each hostname at each listener.
    pub fn regexes(&self) -> u64 {
        self.rules
            .iter()
            .map(|rule| rule.regexes.count as u64)
            .sum()
    }
}

/// A rule of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteRule {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The matches, one of which must match; never empty.
    pub matches: Vec<Match>,
    /// Count and sizes of the regular expressions of the matches and of the filters, for Envoy's
    /// limits.
    pub regexes: Regexes,
    /// Why the rule cannot be matched, as a sentence without the rule's name: Envoy would refuse a
    /// text of its matches.
    pub unmatched: Option<Box<str>>,
    /// The settings of its filters, `None` without filters; or why they cannot be carried out.
    pub filters: Result<Option<Box<Filters>>, Unsupported>,
    /// The backends that requests are forwarded to.
    pub backends: Vec<BackendRef>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Retries.
    pub retry: Option<Box<Retry>>,
    /// Session persistence, or why it is not served; `None` in nearly all rules, which do not
    /// request it.
    pub session: Option<Box<Result<SessionPersistence, Unsupported>>>,
}

impl RouteRule {
    /// True if a DirectResponse answers its requests.
    pub fn answers(&self) -> bool {
        let filters = self.filters.as_ref().ok().and_then(Option::as_deref);
        filters.is_some_and(|filters| filters.direct_response.is_some())
    }
}

/// Count and sizes of the regular expressions of a rule, for Envoy's limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regexes {
    /// The number of expressions: Envoy compiles those of filters for every match.
    pub count: usize,
    /// Instructions of the largest expression, as RE2 compiles it.
    pub largest: u32,
    /// Instructions of all expressions of matches.
    pub instructions: u64,
    /// The bytes that Envoy keeps of all expressions of matches when requests came.
    pub kept: u64,
    /// The processor time that the longest values of headers and query parameters take, in
    /// nanoseconds.
    pub values: u64,
    /// For each expression of a path what the paths begin with that it is compared with to the end,
    /// and the time that the longest one takes.
    pub paths: Vec<(Box<str>, u64)>,
}

impl Regexes {
    /// Measures the expressions of `matches` by the automata of their route, and counts `filters`
    /// expressions of the rule's filters for each match; or returns why Envoy would refuse one, or
    /// what it would cost.
    pub(super) fn of(
        matches: &[Match],
        filters: usize,
        automata: &mut Automata,
    ) -> Result<Self, String> {
        let mut all = Self {
            count: filters * matches.len(),
            ..Self::default()
        };
        for one in matches {
            for text in one.path_regex().into_iter().chain(one.value_regexes()) {
                all.count += 1;
                let size = re2::size(text)?;
                all.largest = all.largest.max(size);
                all.instructions += u64::from(size);
                all.kept += automata.of(text)?.kept;
            }
            for text in one.value_regexes() {
                all.values += automata.of(text)?.time;
            }
            if let Some(text) = one.path_regex() {
                let automaton = automata.of(text)?;
                let prefix = automaton.prefix.as_str();
                all.paths.push((prefix.into(), automaton.time));
            }
        }
        Ok(all)
    }
}

/// The settings of the filters of a rule or backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    /// Changes to the request's headers.
    pub request_headers: HeaderEdits,
    /// Changes to the response's headers.
    pub response_headers: HeaderEdits,
    /// Host and path rewrite.
    pub rewrite: Rewrite,
    /// A redirect; its port is as written, not yet derived.
    pub redirect: Option<Redirect>,
    /// The DirectResponse, of the route's namespace, that answers in place of backends.
    pub direct_response: Option<ObjectName>,
    /// Copies of the request.
    pub mirrors: Vec<(LocalRef, Option<u16>, Fraction)>,
    /// Cross-origin policy.
    pub cors: Option<Cors>,
    /// External authorization, which precedes all other filters.
    pub auth: Option<AuthFilter>,
}

/// A reference to a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendRef {
    /// The referenced object.
    pub target: LocalRef,
    /// The Service's port.
    pub port: Option<u16>,
    /// Its weight relative to the other backends of the rule.
    pub weight: u32,
    /// The settings of its filters; `None` for nearly all backends, which have none.
    pub filters: Result<Option<Box<Filters>>, Unsupported>,
}

/// Checks how many matches the rules of a route have together.
pub(super) fn match_count(matches: usize) -> Result<(), ParseError> {
    if matches > 128 {
        return Err(ParseError::Schema(format!(
            "spec.rules: {matches} matches, at most 128 are allowed"
        )));
    }
    Ok(())
}

/// The match of a rule without matches.
pub(super) fn any_request() -> Match {
    Match {
        path: PathMatch::Prefix("/".to_owned()),
        call: None,
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
    }
}
