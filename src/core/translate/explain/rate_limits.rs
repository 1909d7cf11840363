//! The rate limits of a route.

use std::collections::BTreeSet;

use super::super::key::ListenerId;
use super::{Explainer, Explanation, with_notes};
use crate::inputs::{Kind, ObjectKey};
use crate::model::{Hostname, LimitUnit, LimitedBy, RateLimit, RateLimits, Route};

/// The most policies that are told of because they cannot be carried out.
const REFUSED: usize = 5;

impl Explainer<'_> {
    /// Adds the rate limits of a route and their policy, and the TrafficPolicies that cannot be
    /// carried out.
    pub(super) fn explain_rate_limits(
        &self,
        route: &Route,
        hostname: &Hostname,
        listener: &ListenerId,
        explanation: &mut Explanation,
    ) {
        let notes = self.refused_traffic(hostname, listener);
        match &route.rule.rate_limits {
            Some(limits) => explanation.hold("rate limit", with_notes(words(&limits.all), notes)),
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

fn words(all: &RateLimits) -> String {
    let RateLimits { policy, limits } = all;
    let limits: Vec<String> = limits.iter().map(of_limit).collect();
    format!(
        "TrafficPolicy {policy}: {}, by each Envoy; more is answered 429",
        limits.join(", ")
    )
}

fn of_limit(limit: &RateLimit) -> String {
    let RateLimit {
        requests,
        per,
        burst,
        by,
    } = limit;
    let by = match by {
        LimitedBy::Everyone => "of all clients together".to_owned(),
        LimitedBy::ClientAddress { .. } => "of each client address".to_owned(),
        LimitedBy::Header { name, .. } => format!("of each value of header {name}"),
    };
    let burst = (burst != requests).then(|| format!(" (burst {burst})"));
    format!(
        "{requests} per {}{} {by}",
        LimitUnit::words(*per),
        burst.unwrap_or_default()
    )
}
