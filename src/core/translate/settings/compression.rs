//! `compression` of a TrafficPolicy.

use super::explained::ExplainedTraffic;
use super::judging::Judging;
use gatewright_objects::model::ObjectName;
use gatewright_objects::settings::{Compression, Judge, Refusal, Visit};

impl Judge<Compression> for Judging<'_> {
    fn judge(&mut self, rules: &Compression) -> Result<Option<Compression>, Refusal> {
        Ok(Some(rules.clone()))
    }
}

impl Visit<Compression> for ExplainedTraffic<'_> {
    fn visit(&mut self, policy: &ObjectName, compression: &Compression) {
        let Compression {
            types,
            min_bytes,
            algorithms,
        } = compression;
        let algorithms: Vec<String> = algorithms.iter().map(|one| format!("{one:?}")).collect();
        let text = format!(
            "{} from {min_bytes} bytes on, for {}",
            algorithms.join(" or "),
            types.join(", ")
        );
        self.add("compression", policy, &text);
    }
}
