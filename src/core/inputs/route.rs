//! A route of any kind.

use std::sync::Arc;

use super::reference::ParentRef;
use super::{AuthFilter, Kind, LocalRef, Meta, SessionPersistence, Unsupported, re2};
use crate::model::{
    Cors, Fraction, HeaderEdits, Hostname, HostnameError, Match, ObjectName, PathMatch, Redirect, Retry, Rewrite,
    Timeouts, Transport,
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

    /// All route kinds.
    pub const ALL: [Self; 5] = [RouteKind::Http, RouteKind::Grpc, RouteKind::Tls, RouteKind::Tcp, RouteKind::Udp];
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
        RouteKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
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
    /// Its hostnames as written, or the error of an invalid one; an empty list matches any hostname.
    pub hostnames: Arc<[Result<Hostname, HostnameError>]>,
    /// The parents that it refers to.
    pub parents: Arc<[ParentRef]>,
    /// True if it wants default Gateways as well (`useDefaultGateways: All`).
    pub uses_defaults: bool,
    /// Its rules in order.
    pub rules: Vec<RouteRule>,
    /// True if it answers an ACME challenge, for an issuer that solves challenges by routes (cert-manager).
    pub challenge: bool,
    /// The parts that are left out, and why: a newer or laxer schema admitted values that we cannot read.
    pub unreadable: Vec<String>,
}

/// The amount of Envoy configuration that a route becomes: everything counts once for every hostname.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Matches.
    pub matches: u64,
    /// Regular expressions.
    pub regexes: u64,
    /// Bytes of texts. Texts of a rule count for each of its matches.
    pub bytes: u64,
}

impl Route {
    /// How much of Envoy's configuration it becomes, where policies on Services have sessions of so many bytes.
    pub(crate) fn extent(&self, of_sessions: &dyn Fn(&ObjectName) -> u64) -> Extent {
        let hostnames = self.hostnames.len().max(1) as u64;
        let mut one = Extent::default();
        for rule in &self.rules {
            let matches = rule.matches.len() as u64;
            one.matches += matches;
            one.regexes += rule.regexes.count as u64;
            one.bytes += rule.matches.iter().map(Match::bytes).sum::<u64>() + matches * rule.bytes(of_sessions);
        }
        Extent { matches: hostnames * one.matches, regexes: hostnames * one.regexes, bytes: hostnames * one.bytes }
    }
}

/// A rule of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteRule {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The matches, one of which must match; never empty.
    pub matches: Vec<Match>,
    /// Count and sizes of the regular expressions of the matches and of the filters, for Envoy's limits.
    pub regexes: Regexes,
    /// Why the rule cannot be matched, as a sentence without the rule's name: Envoy would refuse a text of its matches.
    pub unmatched: Option<Box<str>>,
    /// The settings of its filters, `None` without filters; or why they cannot be carried out.
    pub filters: Result<Option<Box<Filters>>, Unsupported>,
    /// The backends that requests are forwarded to.
    pub backends: Vec<BackendRef>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Retries.
    pub retry: Option<Box<Retry>>,
    /// Session persistence, or why it is not served; `None` in nearly all rules, which do not request it.
    pub session: Option<Box<Result<SessionPersistence, Unsupported>>>,
}

impl RouteRule {
    /// Bytes of the texts that Envoy stores again for each match.
    fn bytes(&self, of_sessions: &dyn Fn(&ObjectName) -> u64) -> u64 {
        let filters =
            self.filters.iter().flatten().chain(self.backends.iter().flat_map(|b| b.filters.iter().flatten()));
        let names = self.backends.iter().map(|backend| backend.target.name.name.len() as u64).sum::<u64>();
        // Of several shares each with a session has the rule's other filter as well.
        let auth = self.filters.iter().flatten().filter_map(|filters| filters.auth.as_ref()).map(AuthFilter::bytes);
        let auth: u64 = if self.backends.len() > 1 { auth.sum() } else { 0 };
        let of_share = |session: u64| if session > 0 { session + auth } else { 0 };
        let sessions = match self.session.as_deref() {
            Some(own) => own.as_ref().map_or(0, SessionPersistence::bytes),
            None => self.backends.iter().map(|backend| of_sessions(&backend.target.name)).map(of_share).sum(),
        };
        names + filters.map(|filters| filters.bytes()).sum::<u64>() + sessions
    }
}

impl Filters {
    fn bytes(&self) -> u64 {
        let edits = [&self.request_headers, &self.response_headers].into_iter().map(HeaderEdits::bytes);
        let rewritten = self.rewrite.path.as_ref().map_or(0, |path| path.text().len() as u64);
        let redirected = self.redirect.iter().filter_map(|redirect| redirect.path.as_ref());
        edits.sum::<u64>()
            + self.cors.as_ref().map_or(0, Cors::bytes)
            + rewritten
            + redirected.map(|path| path.text().len() as u64).sum::<u64>()
            + self.auth.as_ref().map_or(0, AuthFilter::bytes)
    }
}

/// Count and sizes of the regular expressions of a rule, for Envoy's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regexes {
    /// The number of expressions: Envoy compiles those of filters for every match.
    pub count: usize,
    /// Length of the longest expression, in bytes.
    pub longest: usize,
    /// Instructions of the largest expression, as RE2 compiles it.
    pub largest: u32,
}

impl Regexes {
    /// Measures the expressions of `matches`, and counts `filters` expressions of the rule's filters for each match; or
    /// returns why Envoy would refuse one.
    pub(super) fn of(matches: &[Match], filters: usize) -> Result<Self, String> {
        let mut all = Self { count: filters * matches.len(), ..Self::default() };
        for text in matches.iter().flat_map(Match::regexes) {
            all.count += 1;
            all.longest = all.longest.max(text.len());
            all.largest = all.largest.max(re2::size(text)?);
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

/// The match of a rule without matches.
pub(super) fn any_request() -> Match {
    Match { path: PathMatch::Prefix("/".to_owned()), call: None, method: None, headers: Vec::new(), query: Vec::new() }
}
