//! The backends of a rule: how they are connected to, and their endpoints.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::super::rule::protocol::Protocol;
use super::super::state::endpoints::PermittedEndpoints;
use super::{
    Explainer, Explanation, Link, Reached, Served, Spoken, answered, logged, with_causes,
    with_notes,
};
use gatewright_objects::inputs::{Kind, ObjectKey, PolicyTarget};
use gatewright_objects::model::{
    Action, AppProtocol, BackendId, BackendTls, BackendTransport, ClusterId, Hostname, ObjectName,
    Route, ServicePort, SubjectAltName, Target, WeightedTarget, Zone,
};
use gatewright_objects::request_outcome::{BROKEN_RULE, NO_ENDPOINTS};

impl Explainer<'_> {
    /// Adds what a route does with requests.
    pub(super) fn explain_action(
        &self,
        route: &Route,
        at: Served<'_>,
        explanation: &mut Explanation,
    ) {
        let Served {
            listener, protocol, ..
        } = at;
        match &route.rule.action {
            Action::Respond(status) => {
                let text = format!(
                    "the rule cannot be carried out: {}",
                    answered(protocol, *status)
                );
                explanation.fail_by(
                    "backend",
                    with_causes(text, self.cause_of_response(route, listener)),
                    logged(protocol, BROKEN_RULE),
                );
            }
            Action::Answer(answer) => {
                let kind = answer.content_type.as_deref().unwrap_or("text/plain");
                let body = match answer.body.len() {
                    0 => "without a body".to_owned(),
                    bytes => format!("with {bytes} bytes of {kind}"),
                };
                let text = format!(
                    "DirectResponse {}: answered {} {body}",
                    answer.object, answer.status
                );
                explanation.hold("direct response", text);
            }
            Action::Redirect(redirect) => {
                let to = redirect.hostname.as_deref().unwrap_or("the same host");
                let scheme = redirect.scheme.as_deref().unwrap_or("the same scheme");
                explanation.hold(
                    "redirect",
                    format!("{} to {to} by {scheme}", redirect.status),
                );
            }
            Action::Forward(shares) => {
                let shares: Vec<&WeightedTarget> =
                    shares.iter().filter(|share| share.weight > 0).collect();
                if shares.is_empty() {
                    explanation.fail_by(
                        "backend",
                        format!("no backend has a share: {}", answered(protocol, 500)),
                        logged(protocol, BROKEN_RULE),
                    );
                }
                for share in shares {
                    self.explain_share(route, share, at, explanation);
                    if !explanation.ok() {
                        return;
                    }
                }
            }
        }
    }

    fn explain_share(
        &self,
        route: &Route,
        share: &WeightedTarget,
        at: Served<'_>,
        explanation: &mut Explanation,
    ) {
        let protocol = at.protocol;
        let Target::Backend(backend) = &share.target else {
            let weight = share.weight;
            let answer = answered(protocol, 500);
            let text = format!("a backendRef with weight {weight} does not resolve: {answer}");
            explanation.fail_by(
                "backend",
                with_causes(text, self.unresolved_backends(route)),
                logged(protocol, BROKEN_RULE),
            );
            return;
        };
        let text = format!("{} with weight {}", backend.port.in_words(), share.weight);
        let notes = self.unknown_protocol(backend).into_iter().collect();
        explanation.links.push(Link {
            service: Some(backend.port.service.clone()),
            ..Link::new("backend", true, with_notes(text, notes))
        });
        self.explain_tls(backend, protocol, explanation);
        if !explanation.ok() {
            return;
        }
        self.explain_settings(backend, explanation);
        self.explain_endpoints(&backend.port, protocol, explanation);
        if let Some(link) = explanation.links.last_mut().filter(|link| link.ok) {
            link.reached = self.reached(backend, at);
        }
    }

    /// The endpoints of a backend as Envoys know them; `None` for datagrams, of which these do not
    /// know whether they arrive.
    fn reached(&self, backend: &BackendId, at: Served<'_>) -> Option<Reached> {
        let policies = self.routing.policies;
        let client = self.admission().parents.client_of(at.listener);
        let target = Target::Backend(backend.clone());
        let (target, by_sni) = match at.protocol {
            Protocol::Udp => return None,
            Protocol::TlsTerminate => (policies.terminated(target, client), None),
            // An exact name with one target has a cluster of its own.
            Protocol::TlsPassthrough => {
                let sni = ClusterId::Sni(at.frontend.clone(), at.hostname.clone());
                (target, Some(sni.to_string()))
            }
            Protocol::Http | Protocol::Https | Protocol::Tcp => (target, None),
        };
        let Target::Backend(backend) = target else {
            return None;
        };
        let settings = policies.settings(&backend.port);
        let spoken = Spoken {
            tls: matches!(policies.transport(&backend), BackendTransport::Tls(_)),
            http2: backend.protocol == AppProtocol::H2c,
            proxy_header: settings.is_some_and(|(_, all)| all.proxy_protocol.is_some()),
        };
        Some(Reached {
            clusters: std::iter::once(backend.to_string()).chain(by_sni).collect(),
            endpoints: self.allowed.permitted(&backend.port).addresses,
            spoken,
        })
    }

    /// Adds the endpoints of a Service port.
    pub(super) fn explain_endpoints(
        &self,
        port: &ServicePort,
        protocol: Protocol,
        explanation: &mut Explanation,
    ) {
        let permitted = self.allowed.permitted(port);
        if let Some(why) = permitted.unreached(port) {
            let text = format!("{why}: {}", answered(protocol, 503));
            explanation.fail_by("endpoints", text, logged(protocol, NO_ENDPOINTS));
            return;
        }
        let PermittedEndpoints {
            addresses,
            zones,
            terminating,
            ..
        } = permitted;
        let list: Vec<_> = addresses.iter().take(5).map(ToString::to_string).collect();
        let (count, list) = (addresses.len(), list.join(", "));
        let mut text = if terminating {
            format!("none is ready; {count} that terminate and still serve: {list}")
        } else {
            format!("{count} ready: {list}")
        };
        if let Some(resolution) = self.routing.store.resolution(&port.service) {
            let problem = resolution.problem.as_deref().map(str::to_owned);
            text = with_notes(
                format!("{count} of {}: {list}", resolution.name),
                problem.into_iter().collect(),
            );
        }
        if let Some(zones) = zones {
            text.push_str(&self.zones_in_words(port, count, &zones));
        }
        explanation.hold("endpoints", text);
    }

    /// The zones of the endpoints of a Service port that asks for those of an Envoy's own first.
    fn zones_in_words(
        &self,
        port: &ServicePort,
        count: usize,
        zones: &BTreeMap<SocketAddr, Zone>,
    ) -> String {
        if self.routing.policies.hash(port).is_some() {
            return "; trafficDistribution has no effect, since a consistent hash chooses"
                .to_owned();
        }
        let mut counts: BTreeMap<&Zone, usize> = BTreeMap::new();
        for zone in zones.values() {
            *counts.entry(zone).or_default() += 1;
        }
        let without = count - zones.len();
        let mut parts: Vec<String> = counts
            .iter()
            .take(5)
            .map(|(zone, count)| format!("{count} in {zone}"))
            .collect();
        parts.extend((without > 0).then(|| format!("{without} in none")));
        format!(
            "; an Envoy takes those of its own zone first ({})",
            parts.join(", ")
        )
    }

    /// Adds how a backend is verified, where policies are about its Service.
    fn explain_tls(&self, backend: &BackendId, protocol: Protocol, explanation: &mut Explanation) {
        let policies = self.routing.policies;
        let target = match protocol {
            // These bytes are forwarded as they come.
            Protocol::TlsPassthrough | Protocol::Tcp | Protocol::Udp => return,
            Protocol::TlsTerminate => policies.terminated(Target::Backend(backend.clone()), None),
            Protocol::Http | Protocol::Https => Target::Backend(backend.clone()),
        };
        let Target::Backend(backend) = target else {
            return;
        };
        let notes = self.policies_without_port(&backend.port.service);
        let policy = policies.tls_policy(&backend.port);
        let name = policy.map(ToString::to_string).unwrap_or_default();
        match policies.transport(&backend) {
            BackendTransport::Plain if notes.is_empty() => {}
            BackendTransport::Plain => {
                explanation.hold(
                    "backend TLS",
                    with_notes("none: plain text is sent".to_owned(), notes),
                );
            }
            BackendTransport::Tls(tls) => {
                explanation.hold(
                    "backend TLS",
                    with_notes(format!("{} ({name})", verified(&tls)), notes),
                );
            }
            BackendTransport::Refused => {
                let causes = policy
                    .map(|policy| self.why_unverified(policy))
                    .unwrap_or_default();
                let text = format!("{name} cannot be carried out: {}", answered(protocol, 503));
                explanation.fail_by(
                    "backend TLS",
                    with_causes(text, causes),
                    logged(protocol, NO_ENDPOINTS),
                );
            }
        }
    }

    /// A note about an `appProtocol` that Envoy does not speak.
    fn unknown_protocol(&self, backend: &BackendId) -> Option<String> {
        let service = self.routing.store.service(&backend.port.service)?;
        let port = service.port(backend.port.port, backend.port.transport)?;
        let unknown = port.unknown_protocol.as_deref()?;
        let is_tls = port.expects_tls();
        match (backend.protocol, self.routing.policies.transport(backend)) {
            (AppProtocol::Http1, BackendTransport::Plain) if is_tls => Some(format!(
                "plain text is sent although its appProtocol is {unknown}: TLS takes a BackendTLSPolicy"
            )),
            (AppProtocol::Http1, _) if !is_tls => Some(format!(
                "HTTP/1.1 is sent although its appProtocol is {unknown}: kubernetes.io/h2c is HTTP/2, a GRPCRoute speaks gRPC, and \
                 a TCPRoute forwards bytes"
            )),
            _ => None,
        }
    }

    /// The messages of the conditions of a policy that fail.
    fn why_unverified(&self, policy: &ObjectKey) -> Vec<String> {
        let Some(judged) = self.routing.policies.get(policy) else {
            return Vec::new();
        };
        let failed = [
            judged.accepted.as_ref().err(),
            judged
                .resolved
                .as_ref()
                .and_then(|resolved| resolved.as_ref().err()),
        ];
        failed
            .into_iter()
            .flatten()
            .map(|(reason, text)| format!("{}: {text}", reason.as_str()))
            .collect()
    }

    /// Notes about BackendTLSPolicies for ports of a Service that it does not have.
    fn policies_without_port(&self, service: &ObjectName) -> Vec<String> {
        let store = self.routing.store;
        let ports = store
            .service(service)
            .map(|service| service.ports.as_slice())
            .unwrap_or_default();
        let keys = store
            .indexes()
            .policies_by_service(service)
            .filter(|key| key.kind == Kind::BackendTLSPolicy);
        let targets = keys
            .filter_map(|key| Some((key, store.policy(key)?)))
            .flat_map(|(key, policy)| {
                let targets = policy
                    .targets
                    .iter()
                    .filter(|target| target.object.name == *service);
                targets
                    .filter_map(move |PolicyTarget { section, .. }| Some((key, section.as_ref()?)))
            });
        let missing =
            targets.filter(|(_, section)| ports.iter().all(|port| port.name != **section));
        missing
            .map(|(key, section)| {
                format!("{key} is for port {section:?}, which Service {service} does not have")
            })
            .collect()
    }
}

/// What the certificate of a backend must have.
fn verified(tls: &BackendTls) -> String {
    let hostname = &tls.hostname;
    if tls.names == [SubjectAltName::Dns(Hostname::clone(hostname))] {
        return format!("verified as {hostname}");
    }
    let names: Vec<String> = tls.names.iter().map(ToString::to_string).collect();
    format!(
        "verified as {}, with the SNI {hostname}",
        names.join(" or ")
    )
}
