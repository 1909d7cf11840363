//! `rateLimit` of a TrafficPolicy.

use std::net::IpAddr;

use super::explained::ExplainedTraffic;
use super::judging::Judging;
use crate::explain::Question;
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::settings::{
    Judge, LimitUnit, LimitedBy, RateLimit, RateLimits, Refusal, Visit,
};

impl Judge<RateLimits> for Judging<'_> {
    /// No limit asks for more clients than an object may have.
    fn judge(&mut self, rules: &RateLimits) -> Result<Option<RateLimits>, Refusal> {
        let most = self.limits.rate_limit_clients;
        for (index, limit) in rules.limits.iter().enumerate() {
            let clients = limit.by.buckets();
            if limit.by != LimitedBy::Everyone && clients > most {
                let text = format!(
                    "rateLimit[{index}].by.maxClients: {clients}, limits.object.rateLimitClients is {most}"
                );
                return Err((Reason::LimitReached, text));
            }
        }
        self.notes.push("rateLimit: each Envoy counts for itself");
        Ok(Some(rules.clone()))
    }
}

impl Visit<RateLimits> for ExplainedTraffic<'_> {
    fn visit(&mut self, policy: &ObjectName, RateLimits { limits }: &RateLimits) {
        let limits: Vec<String> = limits
            .iter()
            .map(|limit| limited(limit, self.question))
            .collect();
        let text = format!("{}, by each Envoy; more is answered 429", limits.join(", "));
        self.add("rate limit", policy, &text);
    }
}

fn limited(limit: &RateLimit, question: &Question) -> String {
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
