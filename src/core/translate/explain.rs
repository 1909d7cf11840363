//! Explains why a URL is served or not: the chain from the hostname to the endpoints, up to the
//! first link that fails.

use std::collections::BTreeSet;
use std::net::IpAddr;

pub use self::authorization::{AuthorizationServer, CheckProtocol};
pub use self::hosts::Host;
pub use self::met::{Answers, Met, Reached, Spoken};
pub use self::serving::Serving;
use super::key::RouteKey;
use super::rule::protocol::Protocol;
use super::stage::admission::Admission;
use super::stage::plain_http::{https_port, is_kept};
use super::stage::report::Report;
use super::stage::routes::{Port, Routing};
use super::state::endpoints::AllowedEndpoints;
use super::state::frontends::Frontends;
use gatewright_objects::inputs::ObjectKey;
use gatewright_objects::model::{
    Family, FrontendId, Hostname, ObjectName, ProxyProtocol, ProxyProtocolMode, Route, Transport,
    TransportPort,
};
use gatewright_objects::request_outcome::{
    self, BROKEN_FILTERS, NO_HOST, NO_ROUTE, UPGRADE_REFUSED,
};

/// A question: a request.
#[derive(Clone, Debug)]
pub struct Question {
    /// True if it is `https`, or `tls`.
    pub tls: bool,
    /// The transport of a connection without TLS and HTTP, or of datagrams: `tcp` or `udp`.
    pub bare: Option<Transport>,
    /// The host, in lower case.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path, starting with a slash.
    pub path: String,
    /// The query, without the question mark.
    pub query: Option<String>,
    /// The method.
    pub method: String,
    /// All headers, with their names in lower case; `None` if they are not known.
    pub headers: Option<Vec<(String, String)>>,
    /// The address of the client; `None` if it is not known.
    pub client: Option<IpAddr>,
    /// The protocol of an upgrade (RFC 9110, 7.8).
    pub upgrade: Option<String>,
    /// The address; only frontends that are bound to it are considered.
    pub address: Option<IpAddr>,
}

/// One link of the chain.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Link {
    /// The name of the step: `frontend`, `load balancer`, `listener`, `certificate`,
    /// `client certificate`, `HTTP/3`, `filters`, `upgrade`, `route`, `access`, `server`,
    /// `rate limit`, `preflight`, `authorization`, `backend`, `backend TLS`, `protocol`,
    /// `endpoints`.
    pub what: &'static str,
    /// True if it holds.
    pub ok: bool,
    /// The finding, or the reason why it fails.
    pub text: String,
    /// The reason that a request has in the access log where the link fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The authorization server that it is about, which is still to be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<AuthorizationServer>,
    /// The Service of a backend, for those who cannot read it. Until the link of the next one,
    /// links are about it.
    #[serde(skip)]
    pub service: Option<ObjectName>,
    /// The endpoints that it is about. What Envoys met there is not known to the engine.
    #[serde(skip)]
    pub reached: Option<Reached>,
    /// What Envoys met at its endpoints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub met: Vec<Met>,
}

impl Link {
    /// A link that is about no server.
    pub fn new(what: &'static str, ok: bool, text: String) -> Self {
        Self {
            what,
            ok,
            text,
            reason: None,
            server: None,
            service: None,
            reached: None,
            met: Vec::new(),
        }
    }
}

/// The chain for a URL, up to the first link that fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Explanation {
    /// The links in order.
    pub links: Vec<Link>,
    /// The frontend that serves the URL, once found, and the hostname of the listener there: its
    /// acknowledgement counts. Written as the name of the frontend.
    #[serde(rename = "frontend", serialize_with = "frontend_name")]
    pub owner: Option<(FrontendId, Hostname)>,
    /// The Gateway or ListenerSet whose listener serves the URL, once found.
    #[serde(skip)]
    pub parent: Option<ObjectKey>,
    /// Notes about the inputs as a whole: what is not as its author wrote it.
    pub notes: Vec<String>,
}

fn frontend_name<S: serde::Serializer>(
    owner: &Option<(FrontendId, Hostname)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let name = owner.as_ref().map(|(id, _)| id.to_string());
    serde::Serialize::serialize(&name, serializer)
}

impl Explanation {
    /// True if every link holds.
    pub fn ok(&self) -> bool {
        self.links.last().is_some_and(|link| link.ok)
    }

    fn hold(&mut self, what: &'static str, text: String) {
        self.links.push(Link::new(what, true, text));
    }

    fn fail(&mut self, what: &'static str, text: String) {
        self.links.push(Link::new(what, false, text));
    }

    /// Adds a link that fails, by the cause of [`request_outcome`] that requests have then.
    fn fail_by(&mut self, what: &'static str, text: String, cause: Option<&str>) {
        let outcome = cause.and_then(request_outcome::by_cause);
        self.links.push(Link {
            reason: outcome.map(|outcome| outcome.reason),
            ..Link::new(what, false, text)
        });
    }
}

/// The place that a route is served at.
#[derive(Clone, Copy)]
pub(super) struct Served<'a> {
    pub(super) frontend: &'a FrontendId,
    pub(super) hostname: &'a Hostname,
    pub(super) listener: &'a super::ListenerId,
    pub(super) protocol: Protocol,
}

/// The states from which explanations are made.
#[derive(Clone, Copy)]
pub(super) struct Explainer<'a> {
    pub(super) routing: Routing<'a>,
    pub(super) allowed: AllowedEndpoints<'a>,
    pub(super) report: Report<'a>,
}

impl<'a> Explainer<'a> {
    fn admission(&self) -> Admission<'a> {
        self.routing.admission
    }

    fn frontends(&self) -> &'a Frontends {
        self.allowed.frontends
    }

    /// Traces a URL from the frontend to the endpoints.
    pub(super) fn explain(&self, question: &Question) -> Explanation {
        let mut explanation = Explanation::default();
        let host = match Hostname::parse(&question.host) {
            // Nothing tells a listener which host a connection is for.
            _ if question.bare.is_some() => Hostname::any(),
            Ok(host) if host.is_exact() => host,
            Ok(_) => {
                explanation.fail("host", format!("{:?} is no single host", question.host));
                return explanation;
            }
            Err(error) => {
                explanation.fail("host", error.to_string());
                return explanation;
            }
        };
        let Some((id, hostname)) = self.find_frontend(question, &host, &mut explanation) else {
            return explanation;
        };
        explanation.owner = Some((id.clone(), hostname.clone()));
        let frontend = self.frontends().get(&id).expect("found above");
        if let Some(proxy_protocol) = &frontend.clients().proxy_protocol {
            explanation.hold("load balancer", senders(proxy_protocol));
        }
        let (listener, protocol) = frontend.winner(&hostname).expect("found with the frontend");
        explanation.parent = Some(listener.parent.object());
        let namespace = &listener.parent.name().namespace;
        explanation.hold(
            "namespace",
            format!(
                "{namespace} owns listener {:?} of {}",
                listener.name,
                listener.parent.object()
            ),
        );
        explanation.hold(
            "listener",
            format!("{protocol:?} hostname {hostname} on port {}", id.port),
        );
        let Some(parent) = self.admission().parents.get(&listener.parent) else {
            return explanation;
        };
        let Some(own) = parent.listener(&listener.name) else {
            return explanation;
        };
        if protocol.terminates() {
            self.explain_handshake(&host, parent, own, &mut explanation);
        }
        if own.guard.refuses() {
            let why = own
                .guard
                .accepted
                .as_ref()
                .err()
                .or(own.guard.resolved.as_ref().err());
            explanation.fail_by(
                "filters",
                why.map(|(_, text)| text.clone()).unwrap_or_default(),
                Some(BROKEN_FILTERS),
            );
        }
        for server in own
            .guard
            .filters
            .iter()
            .flat_map(|filters| filters.servers())
        {
            self.explain_authorization(
                "a filter of the listener",
                server,
                question,
                &mut explanation,
            );
        }
        if let Some(upgrade) = question
            .upgrade
            .as_deref()
            .filter(|_| matches!(protocol, Protocol::Http | Protocol::Https))
        {
            explain_upgrade(upgrade, &mut explanation);
        }
        if !explanation.ok() {
            return explanation;
        }
        self.explain_route(question, &host, &id, listener, *protocol, &mut explanation);
        explanation
    }

    /// Finds the frontend and the listener's hostname for a host.
    fn find_frontend(
        &self,
        question: &Question,
        host: &Hostname,
        explanation: &mut Explanation,
    ) -> Option<(FrontendId, Hostname)> {
        let port = TransportPort {
            number: question.port,
            transport: question.bare.unwrap_or(Transport::Tcp),
        };
        let on_port: Vec<_> = self
            .frontends()
            .iter()
            .filter(|(id, _)| id.transport_port() == port)
            .collect();
        let mut refusal = None;
        for (id, frontend) in on_port
            .into_iter()
            .filter(|(_, f)| here(f.addresses(), &question.address))
        {
            if self
                .frontends()
                .rival(id, self.admission().register)
                .is_some()
            {
                let text = format!(
                    "another Gateway holds port {} on the address of gateway {}",
                    id.port, id.gateway
                );
                refusal = Some(text);
                continue;
            }
            let Some((hostname, listener, protocol)) = frontend.owner(host) else {
                let names: Vec<_> = frontend
                    .winners()
                    .take(5)
                    .map(|(name, _)| name.to_string())
                    .collect();
                let text = format!(
                    "no listener of gateway {} on port {} matches {host} (it has {})",
                    id.gateway,
                    id.port,
                    names.join(", ")
                );
                refusal = Some(with_causes(
                    text,
                    self.causes_of_listeners(host, question.port),
                ));
                continue;
            };
            let is_of_another = || {
                self.admission().is_of_another(id, host, listener)
                    || self.admission().is_of_another_admitted(host, listener)
            };
            let redirects = https_port(
                self.frontends(),
                self.admission().parents,
                (id, host),
                listener,
            );
            if hostname != host && is_of_another() && redirects.is_none() {
                let text = format!(
                    "{host} belongs to another namespace than listener {:?} for {hostname} on port {}: it is kept from it",
                    listener.name, id.port
                );
                refusal = Some(text + &self.granted_over(host));
                continue;
            }
            let is_spoken = match question.bare {
                Some(Transport::Tcp) => protocol == Protocol::Tcp,
                Some(Transport::Udp) => protocol == Protocol::Udp,
                None => (protocol == Protocol::Http) != question.tls,
            };
            if !is_spoken {
                refusal = Some(format!(
                    "port {} of gateway {} speaks {protocol:?}",
                    id.port, id.gateway
                ));
                continue;
            }
            explanation.hold(
                "frontend",
                format!(
                    "gateway {} port {} on {}",
                    id.gateway,
                    id.port,
                    addresses(frontend.addresses())
                ),
            );
            return Some((id.clone(), hostname.clone()));
        }
        explanation.fail(
            "frontend",
            refusal.unwrap_or_else(|| {
                let text = format!("no Gateway of ours listens on port {}", question.port);
                let causes = self.causes_of_listeners(host, question.port);
                with_causes(
                    text,
                    if causes.is_empty() {
                        self.gateways_of_others(question.port)
                    } else {
                        causes
                    },
                )
            }),
        );
        None
    }

    /// An addition to a message about a hostname of another namespace: the platform granted it.
    fn granted_over(&self, host: &Hostname) -> String {
        let granted = self.admission().register.granted();
        granted.over(host).map_or_else(String::new, |name| {
            format!(
                " (the platform granted {name} to namespace {})",
                namespace(&name, granted)
            )
        })
    }

    /// True if a route of a hostname answers a request on plain HTTP although HTTPS serves the
    /// host.
    fn keeps(
        &self,
        question: &Question,
        id: &FrontendId,
        hostname: Option<&Hostname>,
        listener: &super::ListenerId,
    ) -> bool {
        let at = Port {
            number: id.port,
            tls: false,
        };
        let routes = hostname.map(|name| self.routing.routes(at, name, listener, None));
        let mut routes = routes.into_iter().flatten();
        let found = routes.find(|route| question.meets(&route.matches));
        found.is_some_and(|route| is_kept(&route))
    }

    fn explain_route(
        &self,
        question: &Question,
        host: &Hostname,
        id: &FrontendId,
        listener: &super::ListenerId,
        protocol: Protocol,
        explanation: &mut Explanation,
    ) {
        let candidates = std::iter::once(host.clone())
            .chain(host.covering())
            .chain(Some(Hostname::any()));
        let candidates: Vec<Hostname> = candidates.collect();
        let is_served = |name: &Hostname| self.admission().served(name, listener).next().is_some();
        let mut narrower = candidates.iter().take_while(|name| !is_served(name));
        if narrower.any(|name| self.admission().kept_for(name, listener).is_some()) {
            let text = format!(
                "{host} belongs to routes of another namespace, which give it to no listener of this port"
            );
            explanation.fail("route", text + &self.granted_over(host));
            return;
        }
        let hostname = candidates.into_iter().find(is_served);
        let https = https_port(
            self.frontends(),
            self.admission().parents,
            (id, host),
            listener,
        )
        .filter(|_| protocol == Protocol::Http);
        if let Some(https) = https
            && !self.keeps(question, id, hostname.as_ref(), listener)
        {
            let text = format!(
                "answered 301 to HTTPS on port {https}, where a listener of the same Gateway serves {host} (plainHttp: Redirect)"
            );
            explanation.hold("route", text);
            return;
        }
        let Some(hostname) = hostname else {
            let text = format!(
                "no route serves {host} through this listener: {}",
                answered(protocol, 404)
            );
            explanation.fail_by(
                "route",
                with_causes(text, self.causes_of_routes(host, listener)),
                logged(protocol, NO_HOST),
            );
            return;
        };
        let at = Port {
            number: id.port,
            tls: protocol.family() == Family::Tls,
        };
        let routes = self.routing.routes(at, &hostname, listener, None);
        let is_http = matches!(protocol, Protocol::Http | Protocol::Https);
        let found = routes
            .iter()
            .find(|route| !is_http || question.meets(&route.matches));
        let answering = routes
            .iter()
            .find(|route| is_http && answers_preflights(route, question));
        if let Some(answering) = answering.filter(|_| question.method == "OPTIONS") {
            explanation.hold("preflight", preflight(answering));
        }
        let Some(route) = found else {
            if answering.is_some() && question.method == "OPTIONS" {
                return;
            }
            let keys: BTreeSet<&RouteKey> = self
                .admission()
                .served(&hostname, listener)
                .map(|(key, _)| key)
                .collect();
            let names: Vec<_> = keys.iter().map(|key| key.object().to_string()).collect();
            let method = &question.method;
            let path = &question.path;
            let text = format!(
                "{method} {path} matches no rule of {}: {}",
                names.join(", "),
                answered(protocol, 404)
            );
            explanation.fail_by(
                "route",
                with_causes(text, self.causes_in_rules(&keys)),
                logged(protocol, NO_ROUTE),
            );
            return;
        };
        let conditions = match &question.headers {
            None if !route.matches.headers.is_empty() => " (if its header conditions hold)",
            _ => "",
        };
        explanation.hold(
            "route",
            format!("{} for {hostname}{conditions}", route.name),
        );
        self.explain_access(question, route, (&hostname, listener), explanation);
        if !explanation.ok() {
            return;
        }
        self.explain_traffic(question, route, (&hostname, listener), explanation);
        if let Some(auth) = &route.rule.auth {
            self.explain_authorization("filter ExternalAuth", auth, question, explanation);
            if !explanation.ok() {
                return;
            }
        }
        let at = Served {
            frontend: id,
            hostname: &hostname,
            listener,
            protocol,
        };
        self.explain_action(route, at, explanation);
    }
}

/// How connections of a load balancer begin.
fn senders(proxy_protocol: &ProxyProtocol) -> String {
    let ProxyProtocol { mode, from } = proxy_protocol;
    let from: Vec<String> = from.iter().take(5).map(ToString::to_string).collect();
    let from = from.join(", ");
    match mode {
        ProxyProtocolMode::Required => format!(
            "connections must begin with a PROXY header and come from {from}: all others are closed"
        ),
        ProxyProtocolMode::Optional => format!(
            "connections come from {from}, and may begin with a PROXY header: all others are closed"
        ),
    }
}

fn here(addresses: &[IpAddr], question_address: &Option<IpAddr>) -> bool {
    question_address.is_none_or(|ip| addresses.contains(&ip))
}

fn namespace(name: &Hostname, granted: &super::state::granted_names::GrantedNames) -> String {
    granted
        .first(name)
        .map_or_else(String::new, ToString::to_string)
}

/// Adds whether a request for another protocol passes.
fn explain_upgrade(upgrade: &str, explanation: &mut Explanation) {
    match upgrade.to_ascii_lowercase().as_str() {
        "websocket" => {
            explanation.hold("upgrade", "to WebSocket, if the backend agrees".to_owned())
        }
        "h2c" => explanation.hold(
            "upgrade",
            "to h2c, ignored: the request is answered over HTTP/1.1".to_owned(),
        ),
        _ => explanation.fail_by(
            "upgrade",
            format!("to {upgrade}, answered 403: WebSocket is the only protocol that passes"),
            Some(UPGRADE_REFUSED),
        ),
    }
}

/// True if a match answers preflights that ask for such a request, with any method.
fn answers_preflights(route: &Route, question: &Question) -> bool {
    route.rule.cors.is_some() && question.meets_all_but_method(&route.matches)
}

/// What a match does with preflights.
fn preflight(route: &Route) -> String {
    let method = route
        .matches
        .method
        .as_deref()
        .filter(|method| *method != "OPTIONS");
    let asked = method.map_or_else(
        || "that".to_owned(),
        |method| format!("that ask for {method}, and"),
    );
    format!(
        "preflights (Origin and Access-Control-Request-Method) {asked} match no rule before it are answered by filter CORS of \
         {}, and reach no backend",
        route.name
    )
}

/// A text with the causes of what it says.
fn with_causes(text: String, causes: Vec<String>) -> String {
    std::iter::once(text)
        .chain(causes)
        .collect::<Vec<_>>()
        .join("; ")
}

/// A text with notes about what is not as people may expect.
fn with_notes(text: String, notes: Vec<String>) -> String {
    std::iter::once(text)
        .chain(notes.into_iter().map(|note| format!("NOTE: {note}")))
        .collect::<Vec<_>>()
        .join("; ")
}

/// The cause of what clients get, where the protocol has an access log.
fn logged(protocol: Protocol, cause: &str) -> Option<&str> {
    match protocol {
        Protocol::Http | Protocol::Https => Some(cause),
        Protocol::TlsTerminate | Protocol::TlsPassthrough | Protocol::Tcp | Protocol::Udp => None,
    }
}

/// What clients get in place of a backend's answer.
fn answered(protocol: Protocol, status: u16) -> String {
    match protocol {
        Protocol::Http | Protocol::Https => format!("answered {status}"),
        Protocol::TlsTerminate | Protocol::TlsPassthrough | Protocol::Tcp => {
            "connections are closed".to_owned()
        }
        Protocol::Udp => "datagrams are dropped".to_owned(),
    }
}

fn addresses(all: &[IpAddr]) -> String {
    let texts: Vec<_> = all.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

mod access;
mod authorization;
mod backend_settings;
mod backends;
mod causes;
mod handshake;
mod hosts;
mod met;
mod request;
mod servers;
mod serving;
#[cfg(test)]
mod tests;
mod traffic;
