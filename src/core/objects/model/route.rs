//! Routes: the handling of requests. All route kinds become these types.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Answer, BackendId, ExternalAuth, FrontendId, Hostname, IdentityHeaders, ListenerFilters,
    ObjectName, Origin, RequestHash, Session,
};
use crate::settings::{Access, TrafficSettings};

/// The routes of one hostname on one frontend: one ScopedRouteConfiguration, keyed by the request's
/// host. On TLS the hostname is exact.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The frontend.
    pub frontend: FrontendId,
    /// The requests for the hostname that it serves.
    pub requests: Requests,
    /// The hostname with its routes.
    pub virtual_host: VirtualHost,
}

/// The requests for a hostname that its scope serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Requests {
    /// Those on TLS connections of the listener with this hostname. Others are answered 421.
    OfListener(Hostname),
    /// None: its listener does not accept HTTP. All are answered 421.
    Misdirected,
    /// All, on plain HTTP. HTTP-01 challenges are answered ahead of everything else, if there is an
    /// account.
    Plain(Option<Thumbprint>),
    /// Only HTTP-01 challenges, on plain HTTP. The wildcard or catch-all over the hostname serves
    /// all others.
    Challenges(Thumbprint),
}

/// The thumbprint of an ACME account's key (RFC 7638).
pub type Thumbprint = Arc<str>;

/// The wildcards of a plain-HTTP frontend that have scopes, and the catch-all if it has one: what
/// Envoy reads for a host that has no scope of its own. It has names only, so that a change of
/// routes does not change it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WideHosts {
    /// The frontend.
    pub frontend: FrontendId,
    /// The hostnames, sorted.
    pub hostnames: Vec<Hostname>,
}

/// A table of virtual hosts: one RouteConfiguration, for a wildcard or catch-all listener with TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// The name.
    pub id: TableId,
    /// The virtual hosts, sorted by hostname.
    pub virtual_hosts: Vec<VirtualHost>,
    /// The hosts of other listeners of the port.
    pub elsewhere: OtherListeners,
}

/// Name of a table. Its resource is named `<frontend>|<listener hostname>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId {
    /// The frontend.
    pub frontend: FrontendId,
    /// The hostname of the wildcard or catch-all listener.
    pub listener: Hostname,
}

/// The hosts of other listeners of a port: a request for one of them on this listener's connection
/// is answered 421 (Misdirected Request), so that the client opens another connection; one for a
/// host without a listener is answered 404.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OtherListeners {
    /// Their hostnames, sorted.
    Listed(Vec<Hostname>),
    /// Too many to list: any host may be another listener's, except the connection's own, and those
    /// that this listener serves by name.
    Many,
}

impl OtherListeners {
    /// No other listener has hosts.
    pub const NOWHERE: Self = Self::Listed(Vec::new());
}

/// The routes of one hostname, in order of precedence: the first match wins, no match answers 404.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VirtualHost {
    /// The hostname; [`Hostname::any`] gets the requests that match no other virtual host.
    pub hostname: Hostname,
    /// The filters that every request passes before a route is looked for, if there are any.
    pub filters: Option<Arc<ListenerFilters>>,
    /// What becomes of headers by which a client says who it is.
    pub identity_headers: IdentityHeaders,
    /// The owner, where an access log names it.
    pub owner: Option<Arc<HostOwner>>,
    /// The port at which clients are told that HTTP/3 is, if it is.
    pub http3: Option<u16>,
    /// The routes in order of precedence.
    pub routes: Vec<Route>,
}

impl VirtualHost {
    /// A virtual host with the default of every setting.
    pub fn new(hostname: Hostname, routes: Vec<Route>) -> Self {
        Self {
            hostname,
            filters: None,
            identity_headers: IdentityHeaders::default(),
            owner: None,
            http3: None,
            routes,
        }
    }
}

/// The owner of a virtual host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostOwner {
    /// The namespace that the hostname belongs to.
    pub namespace: Arc<str>,
    /// The Gateway of the listener.
    pub gateway: ObjectName,
    /// The name of the listener; one of a ListenerSet is `set/listener`.
    pub listener: Arc<str>,
}

/// One match of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The name for stats and access logs: `httproute/namespace/name/rule-index`, or with the
    /// rule's name instead of its index.
    pub name: Arc<str>,
    /// The conditions on the request.
    pub matches: Match,
    /// The handling of matching requests.
    pub rule: Arc<Rule>,
}

/// The conditions on a request, all of which must hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    /// The path.
    pub path: PathMatch,
    /// For a GRPCRoute: the condition on the gRPC method. Requests that are not gRPC do not match.
    pub call: Option<Call>,
    /// The method, e.g. `GET`.
    pub method: Option<String>,
    /// Header conditions; of several for one name the first counts.
    pub headers: Vec<HeaderMatch>,
    /// Query parameter conditions; of several for one name the first counts.
    pub query: Vec<QueryMatch>,
}

impl Match {
    /// The regular expression for its path.
    pub fn path_regex(&self) -> Option<&str> {
        match &self.path {
            PathMatch::Regex(text) => Some(text),
            PathMatch::Exact(_) | PathMatch::Prefix(_) => None,
        }
    }

    /// The regular expressions for values of headers and query parameters.
    pub fn value_regexes(&self) -> impl Iterator<Item = &str> {
        self.headers
            .iter()
            .map(|header| &header.value)
            .chain(self.query.iter().map(|query| &query.value))
            .filter_map(|value| match value {
                StringMatch::Regex(text) => Some(text.as_str()),
                StringMatch::Exact(_) => None,
            })
    }
}

/// The condition on the gRPC method, of which only the lengths are kept, for the precedence of
/// matches: the text is in the path condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Call {
    /// Characters of the service's name; 0 if any service matches.
    pub service: usize,
    /// Characters of the method's name; 0 if any method matches.
    pub method: usize,
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// A prefix of whole path elements: `/a` matches `/a` and `/a/b`, not `/ab`. No trailing slash,
    /// except `/` itself.
    Prefix(String),
    /// A regular expression (RE2) for the whole path.
    Regex(String),
}

/// A condition on a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StringMatch {
    /// Equal.
    Exact(String),
    /// A regular expression (RE2) for the whole value.
    Regex(String),
}

impl StringMatch {
    /// The text or expression.
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
    /// The condition on its value.
    pub value: StringMatch,
}

/// A condition on a query parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueryMatch {
    /// Case-sensitive name.
    pub name: String,
    /// The condition on its value.
    pub value: StringMatch,
}

/// The handling of a matched request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The response or the backends.
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
    /// X
    pub auth: Option<Box<ExternalAuth>>,
    /// What AccessPolicies ask for, the outermost first: a request passes all of them.
    pub access: Vec<Arc<Access>>,
    /// What TrafficPolicies ask for.
    pub traffic: TrafficSettings,
    /// True if requests of its route are counted by themselves.
    pub counted: bool,
}

impl Rule {
    /// A rule that asks for nothing else.
    pub fn new(action: Action) -> Self {
        Self {
            action,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            rewrite: Rewrite::default(),
            mirrors: Vec::new(),
            cors: None,
            timeouts: Timeouts::default(),
            retry: None,
            session: None,
            auth: None,
            access: Vec::new(),
            traffic: TrafficSettings::default(),
            counted: false,
        }
    }
}

/// The target of a request, or its response.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Forwards to backends by weight. If the list is empty or all weights are zero, the response
    /// is 500.
    Forward(Vec<WeightedTarget>),
    /// Responds with a redirect.
    Redirect(Redirect),
    /// Responds as a DirectResponse says.
    Answer(Arc<Answer>),
    /// Responds with a status, without a body: the rule cannot be carried out.
    Respond(u16),
}

/// A target of a rule with its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightedTarget {
    /// The target.
    pub target: Target,
    /// Its weight relative to the other targets'.
    pub weight: u32,
    /// Changes to the request's headers for this share.
    pub request_headers: HeaderEdits,
    /// Changes to the response's headers for this share.
    pub response_headers: HeaderEdits,
    /// Host and path rewrite for this share; overrides the rule's.
    pub rewrite: Rewrite,
    /// The name of the target, if it is outside of the cluster.
    pub external_name: Option<Arc<str>>,
    /// How clients stay with one endpoint of it, where a policy on its Service says so and not the
    /// rule.
    pub session: Option<Box<Session>>,
    /// The hash by which endpoints of it are chosen, where a policy on its Service says so.
    pub hash: Option<Box<RequestHash>>,
}

/// The target of a share.
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
    /// Name and value of headers to set.
    pub set: Vec<(String, String)>,
    /// Name and value of headers to add.
    pub add: Vec<(String, String)>,
    /// Names of headers to remove.
    pub remove: Vec<String>,
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
    /// Replaces the whole path.
    Full(String),
    /// Replaces the matched prefix.
    Prefix(String),
    /// Replaces a path that a regular expression (RE2) matches as a whole.
    Pattern {
        /// The expression.
        pattern: String,
        /// The new path, in which `\1` is the first group of the expression.
        new: String,
    },
    /// Keeps the path, with plain slashes in place of escaped ones.
    PlainSlashes,
}

impl PathRewrite {
    /// The new text of the path, or of a part of it.
    pub fn text(&self) -> &str {
        match self {
            PathRewrite::Full(text)
            | PathRewrite::Prefix(text)
            | PathRewrite::Pattern { new: text, .. } => text,
            PathRewrite::PlainSlashes => "",
        }
    }
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Redirect {
    /// `http` or `https`; the request's when absent.
    pub scheme: Option<String>,
    /// The new host; the request's when absent.
    pub hostname: Option<String>,
    /// The port as the specification derives it, `None` if it is the scheme's default, so that none
    /// is written.
    pub port: Option<u16>,
    /// The default port of the scheme.
    pub default_port: u16,
    /// The new path; the request's when absent.
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A copy of requests to another backend, whose responses are discarded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mirror {
    /// The backend that gets the copies.
    pub backend: BackendId,
    /// The fraction of requests that are copied.
    pub fraction: Fraction,
}

/// A fraction.
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
    /// The allowed origins.
    pub allow_origins: Vec<Origin>,
    /// Methods, or `*`.
    pub allow_methods: Vec<String>,
    /// Request headers, or `*`.
    pub allow_headers: Vec<String>,
    /// Response headers, or `*`.
    pub expose_headers: Vec<String>,
    /// True if credentials are allowed.
    pub allow_credentials: bool,
    /// The time for which a browser may cache the response to a preflight.
    pub max_age: Duration,
}

impl Cors {
    /// The number of its origins that are patterns, which Envoy compiles.
    pub fn patterns(&self) -> usize {
        self.allow_origins
            .iter()
            .filter(|origin| origin.is_pattern())
            .count()
    }
}

/// Timeouts; zero switches one off, absent leaves Envoy's default off for streaming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// Timeout of the whole request with all its attempts.
    pub request: Option<Duration>,
    /// Timeout of one attempt.
    pub backend_request: Option<Duration>,
}

/// Retries (Gateway API v1.7 `retry`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Retry {
    /// Statuses that are retried.
    pub codes: Vec<u16>,
    /// The number of retries; 0 means none.
    pub attempts: u32,
    /// Base interval between attempts.
    pub backoff: Option<Duration>,
    /// The most bytes of a body that an Envoy keeps to send it again.
    pub kept_bytes: u32,
}
