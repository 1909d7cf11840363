//! Routes: what happens to a request. All route kinds become these.

use std::sync::Arc;
use std::time::Duration;

use super::{BackendId, ExternalAuth, FrontendId, Hostname, ListenerFilters, Session};

/// Everything one exact hostname serves on one TLS frontend: one ScopedRouteConfiguration keyed by the request's host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The frontend.
    pub frontend: FrontendId,
    /// Hostname of the listener it belongs to. Requests on another listener's connection are answered 421; all of them
    /// are where its listener speaks no HTTP.
    pub listener: Option<Hostname>,
    /// The exact hostname with its routes.
    pub virtual_host: VirtualHost,
}

/// A table of virtual hosts: one RouteConfiguration, for plain HTTP and for wildcard and catch-all listeners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// Which table.
    pub id: TableId,
    /// By hostname, sorted.
    pub virtual_hosts: Vec<VirtualHost>,
    /// The hosts that other listeners of the port serve.
    pub elsewhere: OtherListeners,
    /// Whether this is plain HTTP, where ACME challenges are answered ahead of everything else.
    pub plain_http: bool,
    /// Hosts whose HTTP-01 challenges are answered, on plain HTTP only. For other hosts that path is the users' own.
    pub challenges: Vec<Challenges>,
}

/// Hosts for which one ACME account answers HTTP-01 challenges. A host stands in one of a table's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Challenges {
    /// Thumbprint of the account's key (RFC 7638).
    pub thumbprint: Arc<str>,
    /// Exact hostnames and wildcards, sorted. For the empty one they are never answered.
    pub hosts: Vec<Hostname>,
}

/// Name of a table. Its resource is named `<frontend>` for plain HTTP, `<frontend>|<listener hostname>` otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId {
    /// The frontend.
    pub frontend: FrontendId,
    /// `None` on a plain-HTTP frontend; else the hostname of the wildcard or catch-all listener.
    pub listener: Option<Hostname>,
}

/// What other listeners of a port serve: a request for it on this listener's connection is answered 421 (Misdirected
/// Request), so that the client opens another connection; one for a host that no listener serves is answered 404.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OtherListeners {
    /// Under these hostnames, sorted.
    Listed(Vec<Hostname>),
    /// Under more than can be listed: every host but the connection's own, and those that this listener serves by name,
    /// may be another listener's.
    Many,
}

impl OtherListeners {
    /// Nobody else serves anything.
    pub const NOWHERE: Self = Self::Listed(Vec::new());
}

/// The routes of one hostname, in order of precedence: the first match wins, no match answers 404.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VirtualHost {
    /// The hostname; [`Hostname::any`] takes what no other takes.
    pub hostname: Hostname,
    /// What every request passes before a route is looked for; none where there is nothing.
    pub filters: Option<Arc<ListenerFilters>>,
    /// First match wins.
    pub routes: Vec<Route>,
}

/// One match of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// For stats and access logs: `httproute/namespace/name/rule-index` or the rule's name.
    pub name: Arc<str>,
    /// What is matched.
    pub matches: Match,
    /// What is done.
    pub rule: Arc<Rule>,
}

/// What a request must be like. All parts must hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    /// The path.
    pub path: PathMatch,
    /// Of a GRPCRoute: the gRPC method that the path stands for. Other requests than those of gRPC do not match.
    pub call: Option<Call>,
    /// The method, e.g. `GET`.
    pub method: Option<String>,
    /// Header conditions; the first of several for one name counts.
    pub headers: Vec<HeaderMatch>,
    /// Query parameter conditions; the first of several for one name counts.
    pub query: Vec<QueryMatch>,
}

impl Match {
    /// Bytes of its texts.
    pub fn bytes(&self) -> u64 {
        let (PathMatch::Exact(path) | PathMatch::Prefix(path) | PathMatch::Regex(path)) = &self.path;
        let headers = self.headers.iter().map(|header| header.name.len() + header.value.text().len());
        let query = self.query.iter().map(|query| query.name.len() + query.value.text().len());
        (path.len() + headers.chain(query).sum::<usize>()) as u64
    }

    /// Its regular expressions.
    pub fn regexes(&self) -> impl Iterator<Item = &str> {
        let path = match &self.path {
            PathMatch::Regex(text) => Some(text.as_str()),
            PathMatch::Exact(_) | PathMatch::Prefix(_) => None,
        };
        let values = self.headers.iter().map(|header| &header.value).chain(self.query.iter().map(|query| &query.value));
        path.into_iter().chain(values.filter_map(|value| match value {
            StringMatch::Regex(text) => Some(text.as_str()),
            StringMatch::Exact(_) => None,
        }))
    }
}

/// A condition on the gRPC method that is called, which the path stands for. What it is compared with is the path's; how
/// much of it is said decides between matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Call {
    /// Characters of the service, 0 where any matches.
    pub service: usize,
    /// Characters of the method, 0 where any matches.
    pub method: usize,
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// Whole path elements: `/a` matches `/a` and `/a/b`, not `/ab`. Without a trailing slash, except `/` itself.
    Prefix(String),
    /// RE2, the whole path.
    Regex(String),
}

/// A condition on a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StringMatch {
    /// Equal.
    Exact(String),
    /// RE2, the whole value.
    Regex(String),
}

impl StringMatch {
    /// The text, whatever it is compared as.
    pub fn text(&self) -> &str {
        match self {
            StringMatch::Exact(text) | StringMatch::Regex(text) => text,
        }
    }
}

/// A condition on a header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderMatch {
    /// Lower-case name.
    pub name: String,
    /// Its value.
    pub value: StringMatch,
}

/// A condition on a query parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueryMatch {
    /// Case-sensitive name.
    pub name: String,
    /// Its value.
    pub value: StringMatch,
}

/// What is done with a matched request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Where it goes.
    pub action: Action,
    /// Changes to the request's headers.
    pub request_headers: HeaderEdits,
    /// Changes to the response's headers.
    pub response_headers: HeaderEdits,
    /// Host and path rewrite.
    pub rewrite: Rewrite,
    /// Copies of the request.
    pub mirrors: Vec<Mirror>,
    /// Cross-origin policy.
    pub cors: Option<Cors>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Retries.
    pub retry: Option<Retry>,
    /// Session persistence.
    pub session: Option<Box<Session>>,
    /// Who is asked before anything else is done.
    pub auth: Option<Box<ExternalAuth>>,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// To backends by weight. All weights zero or an empty list answers 500.
    Forward(Vec<WeightedTarget>),
    /// A redirect.
    Redirect(Redirect),
    /// A fixed status without a body.
    Respond(u16),
}

/// A share of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightedTarget {
    /// Who gets it.
    pub target: Target,
    /// Its weight relative to the others'.
    pub weight: u32,
    /// Changes to the request's headers for this share.
    pub request_headers: HeaderEdits,
    /// Changes to the response's headers for this share.
    pub response_headers: HeaderEdits,
    /// Host and path rewrite for this share; wins over the rule's.
    pub rewrite: Rewrite,
}

/// Who gets a share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A backend.
    Backend(BackendId),
    /// A reference that does not resolve: its share is answered 500 (HTTP) or reset (TLS).
    Invalid,
}

/// Changes to headers: set (replace), add (append), remove, in that order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeaderEdits {
    /// Name and value.
    pub set: Vec<(String, String)>,
    /// Name and value.
    pub add: Vec<(String, String)>,
    /// Names.
    pub remove: Vec<String>,
}

impl HeaderEdits {
    /// Bytes of its names and values.
    pub fn bytes(&self) -> u64 {
        let pairs = self.set.iter().chain(&self.add).map(|(name, value)| name.len() + value.len());
        (pairs.chain(self.remove.iter().map(String::len)).sum::<usize>()) as u64
    }
}

/// Host and path rewrite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rewrite {
    /// New `Host`.
    pub hostname: Option<String>,
    /// New path.
    pub path: Option<PathRewrite>,
}

/// A new path for a rewrite or redirect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathRewrite {
    /// The whole path.
    Full(String),
    /// Instead of the matched prefix.
    Prefix(String),
    /// The same path, with plain slashes in place of escaped ones.
    PlainSlashes,
}

impl PathRewrite {
    /// What is written in place of the old path, or of a part of it.
    pub fn text(&self) -> &str {
        match self {
            PathRewrite::Full(text) | PathRewrite::Prefix(text) => text,
            PathRewrite::PlainSlashes => "",
        }
    }
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Redirect {
    /// `http` or `https`; the request's when absent.
    pub scheme: Option<String>,
    /// The request's when absent.
    pub hostname: Option<String>,
    /// The port as the specification derives it, already left out when it is the scheme's own. `None` writes no port.
    pub port: Option<u16>,
    /// The port that goes without saying: the scheme's own.
    pub default_port: u16,
    /// The request's when absent.
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A copy of requests to another backend, whose answers are thrown away.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mirror {
    /// Who gets the copies.
    pub backend: BackendId,
    /// How many of them.
    pub fraction: Fraction,
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction {
    /// Above the line.
    pub numerator: u32,
    /// Below the line; never 0.
    pub denominator: u32,
}

/// Cross-origin resource sharing (GEP-1767).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cors {
    /// `*`, exact origins, or origins with a wildcard such as `https://*.example.org`.
    pub allow_origins: Vec<String>,
    /// Methods, or `*`.
    pub allow_methods: Vec<String>,
    /// Request headers, or `*`.
    pub allow_headers: Vec<String>,
    /// Response headers, or `*`.
    pub expose_headers: Vec<String>,
    /// Whether credentials are allowed.
    pub allow_credentials: bool,
    /// How long a browser may remember a preflight.
    pub max_age: Duration,
}

impl Cors {
    /// How many of its origins are patterns, which Envoy compiles.
    pub fn patterns(&self) -> usize {
        self.allow_origins.iter().filter(|origin| origin.contains('*')).count()
    }
}

/// Time limits; zero switches one off, absent leaves Envoy's default off for streaming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// The whole request with all its tries.
    pub request: Option<Duration>,
    /// One try.
    pub backend_request: Option<Duration>,
}

/// Retries (Gateway API v1.7 `retry`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Retry {
    /// Statuses that are tried again.
    pub codes: Vec<u16>,
    /// Tries after the first; 0 means none.
    pub attempts: u32,
    /// Base interval between tries.
    pub backoff: Option<Duration>,
}
