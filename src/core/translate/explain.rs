//! Explains why a URL is served or not: the chain from the hostname to the endpoints, up to the first link that fails.

use std::fmt::Write as _;
use std::net::IpAddr;

pub use self::hosts::Host;
use super::admission::Admission;
use super::endpoints::AllowedEndpoints;
use super::frontends::Frontends;
use super::protocol::{Family, Protocol};
use super::routes::{Port, Routing};
use crate::model::{Action, FrontendId, Hostname, Match, PathMatch, Rule, Target, TransportPort, WeightedTarget};

/// A question: the parts of a URL.
#[derive(Clone, Debug)]
pub struct Question {
    /// True if it is `https`.
    pub tls: bool,
    /// The host, in lower case.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path, starting with a slash.
    pub path: String,
    /// The method.
    pub method: String,
    /// The address; only frontends that are bound to it are considered.
    pub address: Option<IpAddr>,
}

/// One link of the chain.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Link {
    /// The name of the step: `frontend`, `listener`, `certificate`, `route`, `backend`, `endpoints`.
    pub what: &'static str,
    /// True if it holds.
    pub ok: bool,
    /// The finding, or the reason why it fails.
    pub text: String,
}

/// The chain for a URL, up to the first link that fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Explanation {
    /// The links in order.
    pub links: Vec<Link>,
    /// The frontend that serves the URL, once found: its acknowledgement counts.
    pub frontend: Option<String>,
}

impl Explanation {
    /// True if every link holds.
    pub fn ok(&self) -> bool {
        self.links.last().is_some_and(|link| link.ok)
    }

    fn hold(&mut self, what: &'static str, text: String) {
        self.links.push(Link { what, ok: true, text });
    }

    fn fail(&mut self, what: &'static str, text: String) {
        self.links.push(Link { what, ok: false, text });
    }
}

/// The states from which explanations are made.
#[derive(Clone, Copy)]
pub(super) struct Explainer<'a> {
    pub(super) routing: Routing<'a>,
    pub(super) allowed: AllowedEndpoints<'a>,
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
        let Some((id, hostname)) = self.find_frontend(question, &host, &mut explanation) else { return explanation };
        explanation.frontend = Some(id.to_string());
        let frontend = self.frontends().get(&id).expect("found above");
        let (listener, protocol) = frontend.winner(&hostname).expect("found with the frontend");
        let namespace = &listener.parent.name().namespace;
        explanation.hold(
            "namespace",
            format!("{namespace} owns listener {:?} of {}", listener.name, listener.parent.object()),
        );
        explanation.hold("listener", format!("{protocol:?} hostname {hostname} on port {}", id.port));
        let Some(own) = self.admission().parents.get(&listener.parent).and_then(|p| p.listener(&listener.name)) else {
            return explanation;
        };
        if protocol.terminates() {
            match own.served.certificate() {
                Some(certificate) => {
                    let until = jiff::Timestamp::try_from(certificate.not_after).map(|t| t.to_string());
                    let until = until.unwrap_or_else(|_| "an unknown time".to_owned());
                    let text =
                        format!("serial {} by {}, valid until {until}", certificate.serial(), certificate.issuer);
                    if certificate.names.iter().any(|name| name.covers(&host)) {
                        explanation.hold("certificate", text);
                    } else {
                        explanation.hold("certificate", format!("{text}; NOTE: it does not name {host}"));
                    }
                }
                None => {
                    let reason = own.resolved.as_ref().err().map(|(_, text)| text.clone());
                    explanation.fail("certificate", reason.unwrap_or_else(|| "it is still being issued".to_owned()));
                    return explanation;
                }
            }
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
        let port = TransportPort::tcp(question.port);
        let on_port: Vec<_> = self.frontends().iter().filter(|(id, _)| id.transport_port() == port).collect();
        let here = |addresses: &[IpAddr]| question.address.is_none_or(|ip| addresses.contains(&ip));
        let mut refusal = format!("no Gateway of ours listens on port {}", question.port);
        for (id, frontend) in on_port.into_iter().filter(|(_, f)| here(f.addresses())) {
            if self.frontends().rival(id, self.admission().register).is_some() {
                refusal = format!("another Gateway holds port {} on the address of gateway {}", id.port, id.gateway);
                continue;
            }
            let Some((hostname, listener, protocol)) = frontend.owner(host) else {
                let names: Vec<_> = frontend.winners().take(5).map(|(name, _)| name.to_string()).collect();
                refusal = format!(
                    "no listener of gateway {} on port {} matches {host} (it has {})",
                    id.gateway,
                    id.port,
                    names.join(", ")
                );
                continue;
            };
            let is_of_another = || {
                self.admission().is_of_another(id, host, listener)
                    || self.admission().is_of_another_admitted(host, listener)
            };
            if hostname != host && is_of_another() {
                refusal = format!(
                    "{host} belongs to another namespace than listener {:?} for {hostname} on port {}: it is kept from it",
                    listener.name, id.port
                );
                continue;
            }
            if (protocol == Protocol::Http) == question.tls {
                refusal = format!("port {} of gateway {} speaks {protocol:?}", id.port, id.gateway);
                continue;
            }
            explanation.hold(
                "frontend",
                format!("gateway {} port {} on {}", id.gateway, id.port, addresses(frontend.addresses())),
            );
            return Some((id.clone(), hostname.clone()));
        }
        explanation.fail("frontend", refusal);
        None
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
        let candidates = std::iter::once(host.clone()).chain(host.covering()).chain(Some(Hostname::any()));
        if self.admission().kept_for(host, listener).is_some()
            && self.admission().served(host, listener).next().is_none()
        {
            let text =
                format!("{host} belongs to routes of another namespace, which give it to no listener of this port");
            explanation.fail("route", text);
            return;
        }
        let hostname = candidates.into_iter().find(|name| self.admission().served(name, listener).next().is_some());
        let Some(hostname) = hostname else {
            explanation
                .fail("route", format!("no route serves {host} through this listener: requests are answered 404"));
            return;
        };
        let at = Port { number: id.port, tls: protocol.family() == Family::Tls };
        let routes = self.routing.routes(at, &hostname, listener, None);
        let found = routes
            .iter()
            .find(|route| !matches!(protocol, Protocol::Http | Protocol::Https) || matches(&route.matches, question));
        let Some(route) = found else {
            let keys: Vec<_> =
                self.admission().served(&hostname, listener).map(|(key, _)| key.object().to_string()).collect();
            let text =
                format!("{} {} matches no rule of {}: answered 404", question.method, question.path, keys.join(", "));
            explanation.fail("route", text);
            return;
        };
        let mut conditions = String::new();
        if !route.matches.headers.is_empty() || !route.matches.query.is_empty() {
            let _ = write!(conditions, " (if its header and query conditions hold)");
        }
        explanation.hold("route", format!("{} for {hostname}{conditions}", route.name));
        self.explain_action(&route.rule, explanation);
    }

    fn explain_action(&self, rule: &Rule, explanation: &mut Explanation) {
        match &rule.action {
            Action::Respond(status) => {
                explanation.fail("backend", format!("the rule cannot be carried out: answered {status}"))
            }
            Action::Redirect(redirect) => {
                let to = redirect.hostname.as_deref().unwrap_or("the same host");
                let scheme = redirect.scheme.as_deref().unwrap_or("the same scheme");
                explanation.hold("redirect", format!("{} to {to} by {scheme}", redirect.status));
            }
            Action::Forward(shares) => {
                let shares: Vec<&WeightedTarget> = shares.iter().filter(|share| share.weight > 0).collect();
                if shares.is_empty() {
                    explanation.fail("backend", "no backend has a share: answered 500".to_owned());
                    return;
                }
                for share in shares {
                    let Target::Backend(backend) = &share.target else {
                        let text = format!("a backendRef with weight {} does not resolve: answered 500", share.weight);
                        explanation.fail("backend", text);
                        return;
                    };
                    explanation.hold("backend", format!("Service {} with weight {}", backend.port, share.weight));
                    let (endpoints, refused) = self.allowed.permitted(&backend.port);
                    if endpoints.is_empty() {
                        explanation.fail(
                            "endpoints",
                            match refused.first() {
                                None => format!("Service {} has no ready endpoints: answered 503", backend.port),
                                Some((address, why)) => format!(
                                    "Service {}: nothing is sent to its endpoint {address} ({why}): answered 503",
                                    backend.port
                                ),
                            },
                        );
                        return;
                    }
                    let list: Vec<_> = endpoints.iter().take(5).map(ToString::to_string).collect();
                    explanation.hold("endpoints", format!("{} ready: {}", endpoints.len(), list.join(", ")));
                }
            }
        }
    }
}

/// True if path and method of a match hold; conditions on headers and query parameters are ignored.
fn matches(m: &Match, question: &Question) -> bool {
    let method = m.method.as_ref().is_none_or(|method| *method == question.method);
    let path = question.path.split('?').next().unwrap_or_default();
    let on_path = match &m.path {
        PathMatch::Exact(exact) => path == exact,
        PathMatch::Prefix(prefix) if prefix == "/" => true,
        PathMatch::Prefix(prefix) => {
            path.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        PathMatch::Regex(text) => whole(text).is_some_and(|regex| regex.is_match(path)),
    };
    method && on_path
}

fn whole(text: &str) -> Option<regex::Regex> {
    regex::Regex::new(&format!("^(?:{text})$")).ok()
}

fn addresses(all: &[IpAddr]) -> String {
    let texts: Vec<_> = all.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

mod hosts;
