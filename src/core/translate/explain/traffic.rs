//! What TrafficPolicies do with requests of a route.

use std::collections::BTreeSet;

use super::super::key::ListenerId;
use super::{Explainer, Explanation, Question, with_notes};
use crate::settings::ExplainedTraffic;
use gatewright_objects::inputs::{Kind, ObjectKey};
use gatewright_objects::model::{Hostname, Route};

/// The most policies that are told of because they cannot be carried out.
const REFUSED: usize = 5;

impl Explainer<'_> {
    /// Adds the settings of a route and their policies, and with the first of them the
    /// TrafficPolicies that cannot be carried out.
    pub(super) fn explain_traffic(
        &self,
        question: &Question,
        route: &Route,
        (hostname, listener): (&Hostname, &ListenerId),
        explanation: &mut Explanation,
    ) {
        let traffic = &route.rule.traffic;
        let mut notes = self.refused_traffic(hostname, listener);
        if traffic.rate_limit.is_none() && !notes.is_empty() {
            let text = with_notes("none".to_owned(), std::mem::take(&mut notes));
            explanation.hold("rate limit", text);
        }
        let mut explained = ExplainedTraffic::new(question);
        traffic.visit(&mut explained);
        for (step, text) in explained.steps {
            explanation.hold(step, with_notes(text, std::mem::take(&mut notes)));
        }
    }

    fn refused_traffic(&self, hostname: &Hostname, listener: &ListenerId) -> Vec<String> {
        let indexes = self.routing.store.indexes();
        let keys: BTreeSet<&ObjectKey> = self
            .attached_to(hostname, listener)
            .iter()
            .flat_map(|object| indexes.policies_by_target(object))
            .filter(|key| key.kind == Kind::TrafficPolicy)
            .collect();
        let refused = keys.into_iter().filter_map(|key| {
            let judged = self.routing.policies.get(key)?;
            let (reason, text) = judged.accepted.as_ref().err()?;
            let reason = reason.as_str();
            Some(format!("{key} cannot be carried out: {reason}: {text}"))
        });
        refused.take(REFUSED).collect()
    }
}
