//! How the endpoints of a backend are chosen, checked and limited.

use super::{Explainer, Explanation, with_notes};
use gatewright_objects::inputs::{Kind, PolicyTarget};
use gatewright_objects::model::{
    AppProtocol, BackendId, BackendLimits, BackendSettings, HashKey, HealthCheck, LoadBalancing,
    OutlierDetection, Probe, ProxyHeader,
};

impl Explainer<'_> {
    /// Adds the TrafficPolicy that a backend goes by, and those that are refused.
    pub(super) fn explain_settings(&self, backend: &BackendId, explanation: &mut Explanation) {
        let policies = self.routing.policies;
        let notes = self.refused_settings(backend);
        if let Some((policy, settings)) = policies.settings(&backend.port) {
            let text = format!("{policy}: {}", words(settings, backend.protocol));
            explanation.hold("backend policy", with_notes(text, notes));
        } else if !notes.is_empty() {
            explanation.hold("backend policy", with_notes("none".to_owned(), notes));
        }
    }

    /// Notes about TrafficPolicies on a Service that cannot be carried out, or are about ports that
    /// it does not have.
    fn refused_settings(&self, backend: &BackendId) -> Vec<String> {
        let store = self.routing.store;
        let service = &backend.port.service;
        let keys = store
            .indexes()
            .policies_by_service(service)
            .filter(|key| key.kind == Kind::TrafficPolicy);
        let mut notes = Vec::new();
        for key in keys {
            let judged = self.routing.policies.get(key);
            if let Some(Err((reason, text))) = judged.map(|judged| &judged.accepted) {
                notes.push(format!(
                    "{key} cannot be carried out: {}: {text}",
                    reason.as_str()
                ));
            }
            let targets = store.policy(key).map(|policy| policy.targets.as_slice());
            for PolicyTarget { section, .. } in targets
                .into_iter()
                .flatten()
                .filter(|target| target.object.name == *service)
            {
                let Some(section) = section else { continue };
                let ports = store.service(service).map(|service| &service.ports);
                if ports.is_none_or(|ports| ports.iter().all(|port| port.name != *section)) {
                    notes.push(format!(
                        "{key} is for port {section:?}, which Service {service} does not have"
                    ));
                }
            }
        }
        notes
    }
}

/// The settings in words.
fn words(settings: &BackendSettings, protocol: AppProtocol) -> String {
    let BackendSettings {
        load_balancing,
        // It is the Service's, and is told with the endpoints.
        prefers_zone: _,
        connect_timeout,
        idle_timeout,
        limits,
        active,
        passive,
        panic_percent,
        proxy_protocol,
    } = settings;
    let mut parts = vec![balancing(load_balancing, protocol)];
    parts.extend(connect_timeout.map(|time| format!("connects within {time:?}")));
    parts.extend(idle_timeout.map(|time| format!("closes idle connections after {time:?}")));
    parts.extend(most(limits));
    parts.extend(active.as_ref().map(|check| checks(check, protocol)));
    parts.extend(passive.as_ref().map(ejects));
    parts.extend(panic_percent.map(|percent| format!("all endpoints below {percent}% healthy")));
    parts.extend(proxy_protocol.map(|version| {
        let version = match version {
            ProxyHeader::V1 => 1,
            ProxyHeader::V2 => 2,
        };
        format!("PROXY protocol version {version}")
    }));
    parts.join(", ")
}

fn balancing(balancing: &LoadBalancing, protocol: AppProtocol) -> String {
    let has_requests = matches!(protocol, AppProtocol::Http1 | AppProtocol::H2c);
    match balancing {
        LoadBalancing::LeastRequest => "least request".to_owned(),
        LoadBalancing::RoundRobin => "round robin".to_owned(),
        LoadBalancing::Random => "random".to_owned(),
        LoadBalancing::ConsistentHash(HashKey::SourceIp) => {
            "hash of the client's address".to_owned()
        }
        LoadBalancing::ConsistentHash(_) if !has_requests => {
            "random, since connections have neither headers nor cookies".to_owned()
        }
        LoadBalancing::ConsistentHash(HashKey::Header(name)) => format!("hash of header {name}"),
        LoadBalancing::ConsistentHash(HashKey::Cookie { name, .. }) => {
            format!("hash of cookie {name}")
        }
    }
}

fn most(limits: &BackendLimits) -> Option<String> {
    let BackendLimits {
        connections,
        pending,
        requests,
        retries,
    } = limits;
    let parts = [
        connections.map(|most| format!("{most} connections")),
        pending.map(|most| format!("{most} waiting requests")),
        requests.map(|most| format!("{most} requests")),
        retries.map(|most| format!("{most} retries")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("at most {} at a time", parts.join(" and ")))
}

fn checks(check: &HealthCheck, protocol: AppProtocol) -> String {
    let how = match &check.probe {
        Probe::Http { path, .. } => format!("GET {path}"),
        Probe::Tcp => "a connection".to_owned(),
        Probe::Grpc { .. } if protocol == AppProtocol::H2c => "gRPC".to_owned(),
        Probe::Grpc { .. } => return "no checks, since these need HTTP/2".to_owned(),
    };
    format!("checked by {how} every {:?}", check.interval)
}

fn ejects(passive: &OutlierDetection) -> String {
    let counts = [
        (passive.consecutive_5xx, "errors"),
        (passive.consecutive_gateway, "gateway errors"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format!("taken out after {} in a row", counts.join(" or "))
}
