//! The rate limits of a route.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::super::key::ListenerId;
use super::{Explainer, Explanation, Question, with_notes};
use gatewright_objects::inputs::{Kind, ObjectKey};
use gatewright_objects::model::{Hostname, LimitUnit, LimitedBy, RateLimit, RateLimits, Route};

/// The most policies that are told of because they cannot be carried out.
const REFUSED: usize = 5;

impl Explainer<'_> {
    /// Adds the rate limits of a route and their policy, and the TrafficPolicies that cannot be
    /// carried out.
    pub(super) fn explain_rate_limits(
        &self,
        question: &Question,
        route: &Route,
        (hostname, listener): (&Hostname, &ListenerId),
        explanation: &mut Explanation,
    ) {
        let notes = self.refused_traffic(hostname, listener);
        match &route.rule.rate_limits {
            Some(limits) => {
                let text = words(&limits.all, question);
                explanation.hold("rate limit", with_notes(text, notes));
            }
            None if notes.is_empty() => {}
            None => explanation.hold("rate limit", with_notes("none".to_owned(), notes)),
        }
    }

    fn refused_traffic(&self, hostname: &Hostname, listener: &ListenerId) -> Vec<String> {
        let indexes = self.routing.store.indexes();
        let keys: BTreeSet<&ObjectKey> = self
            .attached_to(hostname, listener)
            .iter()
            .flat_map(|object| indexes.attached_by_target(object))
            .filter(|key| key.kind == Kind::TrafficPolicy)
            .collect();
        let refused = keys.into_iter().filter_map(|key| {
            let judged = self.routing.attached.get(key)?;
            let (reason, text) = judged.accepted.as_ref().err()?;
            let reason = reason.as_str();
            Some(format!("{key} cannot be carried out: {reason}: {text}"))
        });
        refused.take(REFUSED).collect()
    }
}

fn words(all: &RateLimits, question: &Question) -> String {
    let RateLimits { policy, limits } = all;
    let limits: Vec<String> = limits
        .iter()
        .map(|limit| of_limit(limit, question))
        .collect();
    format!(
        "TrafficPolicy {policy}: {}, by each Envoy; more is answered 429",
        limits.join(", ")
    )
}

fn of_limit(limit: &RateLimit, question: &Question) -> String {
    let RateLimit {
        requests,
        per,
        burst,
        by,
    } = limit;
    let by = match by {
        LimitedBy::Everyone => "of all clients together".to_owned(),
        LimitedBy::ClientAddress { .. } => match question.client() {
            None => "of each client address".to_owned(),
            Some(IpAddr::V4(client)) => format!("of {client}"),
            Some(IpAddr::V6(client)) => format!("of the /64 network of {client}"),
        },
        LimitedBy::Header { name, .. } if question.headers.is_none() => {
            format!("of each value of header {name}")
        }
        LimitedBy::Header { name, .. } => match question.header(name) {
            Some(_) => format!("of the given value of header {name}"),
            None => format!("of all requests without header {name}"),
        },
    };
    let burst = (burst != requests).then(|| format!(" (burst {burst})"));
    format!(
        "{requests} per {}{} {by}",
        LimitUnit::words(*per),
        burst.unwrap_or_default()
    )
}
