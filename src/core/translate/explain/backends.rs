//! The backends of a rule: how they are connected to, and their endpoints.

use super::super::protocol::Protocol;
use super::{Explainer, Explanation, answered, with_causes, with_notes};
use crate::inputs::{Kind, ObjectKey, PolicyTarget};
use crate::model::{
    Action, BackendId, BackendTls, BackendTransport, Hostname, ObjectName, Route, SubjectAltName, Target,
    WeightedTarget,
};

impl Explainer<'_> {
    /// Adds what a route does with requests.
    pub(super) fn explain_action(&self, route: &Route, protocol: Protocol, explanation: &mut Explanation) {
        match &route.rule.action {
            Action::Respond(status) => {
                let text = format!("the rule cannot be carried out: {}", answered(protocol, *status));
                explanation.fail("backend", with_causes(text, self.cause_of_response(route)));
            }
            Action::Redirect(redirect) => {
                let to = redirect.hostname.as_deref().unwrap_or("the same host");
                let scheme = redirect.scheme.as_deref().unwrap_or("the same scheme");
                explanation.hold("redirect", format!("{} to {to} by {scheme}", redirect.status));
            }
            Action::Forward(shares) => {
                let shares: Vec<&WeightedTarget> = shares.iter().filter(|share| share.weight > 0).collect();
                if shares.is_empty() {
                    explanation.fail("backend", format!("no backend has a share: {}", answered(protocol, 500)));
                }
                for share in shares {
                    self.explain_share(route, share, protocol, explanation);
                    if !explanation.ok() {
                        return;
                    }
                }
            }
        }
    }

    fn explain_share(&self, route: &Route, share: &WeightedTarget, protocol: Protocol, explanation: &mut Explanation) {
        let Target::Backend(backend) = &share.target else {
            let (weight, answer) = (share.weight, answered(protocol, 500));
            let text = format!("a backendRef with weight {weight} does not resolve: {answer}");
            explanation.fail("backend", with_causes(text, self.unresolved_backends(route)));
            return;
        };
        explanation.hold("backend", format!("Service {} with weight {}", backend.port, share.weight));
        self.explain_tls(backend, protocol, explanation);
        if !explanation.ok() {
            return;
        }
        let (endpoints, refused) = self.allowed.permitted(&backend.port);
        if endpoints.is_empty() {
            let (port, answer) = (&backend.port, answered(protocol, 503));
            let text = match refused.first() {
                None => format!("Service {port} has no ready endpoints: {answer}"),
                Some((address, why)) => {
                    format!("Service {port}: nothing is sent to its endpoint {address} ({why}): {answer}")
                }
            };
            explanation.fail("endpoints", text);
            return;
        }
        let list: Vec<_> = endpoints.iter().take(5).map(ToString::to_string).collect();
        explanation.hold("endpoints", format!("{} ready: {}", endpoints.len(), list.join(", ")));
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
        let Target::Backend(backend) = target else { return };
        let notes = self.policies_without_port(&backend.port.service);
        let policy = policies.tls_policy(&backend.port);
        let name = policy.map(ToString::to_string).unwrap_or_default();
        match policies.transport(&backend) {
            BackendTransport::Plain if notes.is_empty() => {}
            BackendTransport::Plain => {
                explanation.hold("backend TLS", with_notes("none: plain text is sent".to_owned(), notes));
            }
            BackendTransport::Tls(tls) => {
                explanation.hold("backend TLS", with_notes(format!("{} ({name})", verified(&tls)), notes));
            }
            BackendTransport::Refused => {
                let causes = policy.map(|policy| self.why_unverified(policy)).unwrap_or_default();
                let text = format!("{name} cannot be carried out: {}", answered(protocol, 503));
                explanation.fail("backend TLS", with_causes(text, causes));
            }
        }
    }

    /// The messages of the conditions of a policy that fail.
    fn why_unverified(&self, policy: &ObjectKey) -> Vec<String> {
        let Some(judged) = self.routing.policies.judged(policy) else { return Vec::new() };
        let failed =
            [judged.accepted.as_ref().err(), judged.resolved.as_ref().and_then(|resolved| resolved.as_ref().err())];
        failed.into_iter().flatten().map(|(reason, text)| format!("{}: {text}", reason.as_str())).collect()
    }

    /// Notes about BackendTLSPolicies for ports of a Service that it does not have.
    fn policies_without_port(&self, service: &ObjectName) -> Vec<String> {
        let store = self.routing.store;
        let ports = store.service(service).map(|service| service.ports.as_slice()).unwrap_or_default();
        let keys = store.indexes().policies_by_service(service).filter(|key| key.kind == Kind::BackendTLSPolicy);
        let targets = keys.filter_map(|key| Some((key, store.policy(key)?))).flat_map(|(key, policy)| {
            let targets = policy.targets.iter().filter(|target| target.service == *service);
            targets.filter_map(move |PolicyTarget { section, .. }| Some((key, section.as_ref()?)))
        });
        let missing = targets.filter(|(_, section)| ports.iter().all(|port| port.name != **section));
        let note = |(key, section)| format!("{key} is for port {section:?}, which Service {service} does not have");
        missing.map(note).collect()
    }
}

/// What the certificate of a backend must have.
fn verified(tls: &BackendTls) -> String {
    let hostname = &tls.hostname;
    if tls.names == [SubjectAltName::Dns(Hostname::clone(hostname))] {
        return format!("verified as {hostname}");
    }
    let names: Vec<String> = tls.names.iter().map(ToString::to_string).collect();
    format!("verified as {}, with the SNI {hostname}", names.join(" or "))
}
