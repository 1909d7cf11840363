//! `headers` of a TrafficPolicy.

use super::explained::ExplainedTraffic;
use super::judging::Judging;
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::settings::{HeaderValue, Judge, KnownHeader, KnownHeaders, Refusal, Visit};

impl Judge<KnownHeaders> for Judging<'_> {
    /// No text is longer than that of a filter.
    fn judge(&mut self, rules: &KnownHeaders) -> Result<Option<KnownHeaders>, Refusal> {
        let most = self.limits.header_value_bytes;
        let mut texts = rules
            .all()
            .filter_map(|header| Some((&header.name, header.value.text()?)));
        if let Some((name, text)) = texts.find(|(_, text)| text.len() > most) {
            let text = format!(
                "headers: the value of {name} has {} bytes, limits.object.headerValueBytes is {most}",
                text.len()
            );
            return Err((Reason::LimitReached, text));
        }
        Ok(Some(rules.clone()))
    }
}

impl Visit<KnownHeaders> for ExplainedTraffic<'_> {
    fn visit(&mut self, policy: &ObjectName, headers: &KnownHeaders) {
        let KnownHeaders { request, response } = headers;
        for (step, headers) in [("request headers", request), ("response headers", response)] {
            if !headers.is_empty() {
                let headers: Vec<String> = headers.iter().map(told).collect();
                self.add(step, policy, &headers.join(", "));
            }
        }
    }
}

fn told(KnownHeader { name, value }: &KnownHeader) -> String {
    match value {
        HeaderValue::Text(text) => format!("{name}: {text}"),
        HeaderValue::Nothing => format!("no {name}, since the listener verifies no clients"),
        known => format!("{name}: {}", known.name()),
    }
}
