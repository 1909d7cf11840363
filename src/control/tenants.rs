//! Messages about tenants: in the log, in `explain`, and in the table of hosts.

use crate::event::Event;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::{ConditionType, Hostname};
use gatewright_core::pipeline::Pipeline;
use gatewright_core::tenancy::Delta;
use gatewright_core::translate::{Explanation, Host, Link, Protocol, Question};

/// Returns events about tenants that need attention after a change. Routes at our Gateways are
/// excluded, since their statuses have these messages.
pub(super) fn complaints(pipeline: &Pipeline, delta: &Delta) -> Vec<Event> {
    let tenants = delta
        .tenants
        .iter()
        .filter_map(|(name, readiness)| Some((name, readiness.as_ref()?)));
    let tenants = tenants.filter(|(_, readiness)| readiness.reason != "Reconciled");
    let tenants = tenants.map(|(name, readiness)| Event::Condition {
        object: ObjectKey::new(Kind::TenantGateway, name.clone()),
        listeners: Vec::new(),
        generation: pipeline.tenancy().generation(name).unwrap_or_default(),
        condition: "Ready".to_owned(),
        status: "False".to_owned(),
        reason: readiness.reason.to_owned(),
        message: readiness.message.clone(),
        frozen: readiness.frozen,
    });
    let verdicts = delta
        .verdicts
        .iter()
        .filter_map(|((claim, tenant), verdict)| {
            let verdict = verdict.as_ref().filter(|verdict| !verdict.is_accepted())?;
            (!pipeline.tenancy().is_own(tenant)).then(|| Event::Condition {
                object: claim.object(),
                listeners: Vec::new(),
                generation: verdict.generation,
                condition: ConditionType::Accepted.to_string(),
                status: "False".to_owned(),
                reason: verdict.reason.as_str().to_owned(),
                message: verdict.message.to_string(),
                frozen: false,
            })
        });
    tenants.chain(verdicts).collect()
}

/// Adds the owner of the hostname as the first links, since everything else follows from it.
pub fn explain(pipeline: &Pipeline, question: &Question, explanation: &mut Explanation) {
    let Ok(host) = Hostname::parse(&question.host) else {
        return;
    };
    let owners = pipeline.tenancy().explain(&host);
    // Plain HTTP has no owner: it redirects all requests to HTTPS.
    let matters = question.tls && !explanation.links.is_empty();
    let links = owners
        .into_iter()
        .take(4)
        .map(|owner| Link::new("tenant", owner.ok || !matters, owner.text));
    let mut links: Vec<Link> = links.collect();
    // One owner with the hostname is enough.
    let held = links.iter().any(|link| link.ok);
    for link in links.iter_mut().filter(|_| held) {
        link.ok = true;
    }
    links.append(&mut explanation.links);
    explanation.links = links;
}

/// Returns the TenantGateway and the namespaces that a host is served for, as the table shows them.
pub fn tenants(pipeline: &Pipeline, host: &Host) -> String {
    let namespaces = pipeline.engine().tenants(host).join(", ");
    let governed = pipeline.tenancy().governs(&host.gateway) && host.protocol != Protocol::Http;
    match namespaces.as_str() {
        "" => "-".to_owned(),
        _ if governed && namespaces != *host.gateway.namespace => {
            format!("{namespaces} under {}", host.gateway.namespace)
        }
        _ => namespaces,
    }
}

/// Returns the rejected claims of hostnames, each as a line.
pub fn losers(pipeline: &Pipeline) -> Vec<String> {
    let refused = pipeline
        .tenancy()
        .verdicts()
        .filter(|(.., verdict)| !verdict.is_accepted());
    let line = refused.map(|(claim, _, verdict)| {
        format!(
            "{}: {}: {}",
            claim.object(),
            verdict.reason.as_str(),
            verdict.message
        )
    });
    line.collect()
}
