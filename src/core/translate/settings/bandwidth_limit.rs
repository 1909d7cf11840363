//! `bandwidthLimit` of a TrafficPolicy.

use super::explained::ExplainedTraffic;
use super::judging::Judging;
use gatewright_objects::model::ObjectName;
use gatewright_objects::settings::{BandwidthLimit, Judge, Refusal, Visit};

impl Judge<BandwidthLimit> for Judging<'_> {
    fn judge(&mut self, rules: &BandwidthLimit) -> Result<Option<BandwidthLimit>, Refusal> {
        self.notes
            .push("bandwidthLimit: each Envoy counts for itself");
        Ok(Some(rules.clone()))
    }
}

impl Visit<BandwidthLimit> for ExplainedTraffic<'_> {
    fn visit(&mut self, policy: &ObjectName, limit: &BandwidthLimit) {
        let BandwidthLimit { request, response } = limit;
        let directions = [("requests", request), ("responses", response)];
        let each = directions.into_iter().filter_map(|(of, limit)| {
            let limit = (*limit)?;
            Some(format!("{limit} KiB a second of bodies of {of}"))
        });
        let each: Vec<String> = each.collect();
        let text = format!("{}, by each Envoy", each.join(", "));
        self.add("bandwidth limit", policy, &text);
    }
}
