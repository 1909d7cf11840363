//! `responseOverride` of a TrafficPolicy.

use super::explained::ExplainedTraffic;
use super::judging::Judging;
use crate::state::answers;
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::settings::{
    Judge, OverrideRules, Refusal, ResponseOverride, ResponseOverrides, Visit,
};
use gatewright_objects::store::Store;

impl Judge<ResponseOverrides> for Judging<'_> {
    /// Where a body is missing, the other settings of the policy have their effect.
    fn judge(&mut self, rules: &Vec<OverrideRules>) -> Result<Option<ResponseOverrides>, Refusal> {
        let overrides = rules.iter().enumerate();
        let overrides = overrides.map(|(index, rules)| {
            with_body(rules, self.store)
                .map_err(|why| format!("responseOverride[{index}].response.body: {why}"))
        });
        match overrides.collect() {
            Ok(overrides) => Ok(Some(ResponseOverrides { overrides })),
            Err::<_, String>(why) => {
                let text = format!("{why}; responseOverride has no effect");
                self.lacking = Err((Reason::Invalid, text));
                Ok(None)
            }
        }
    }
}

fn with_body(rules: &OverrideRules, store: &Store) -> Result<ResponseOverride, String> {
    let OverrideRules {
        statuses,
        status,
        content_type,
        body,
    } = rules;
    Ok(ResponseOverride {
        statuses: statuses.clone(),
        status: *status,
        content_type: content_type.clone(),
        body: answers::bytes(body, store)?,
    })
}

impl Visit<ResponseOverrides> for ExplainedTraffic<'_> {
    fn visit(&mut self, policy: &ObjectName, ResponseOverrides { overrides }: &ResponseOverrides) {
        let answers: Vec<String> = overrides.iter().map(answer).collect();
        self.add("response override", policy, &answers.join("; "));
    }
}

fn answer(one: &ResponseOverride) -> String {
    let ResponseOverride {
        statuses,
        status,
        content_type,
        body,
    } = one;
    let statuses: Vec<String> = statuses.iter().map(ToString::to_string).collect();
    let answered = status.map_or(String::new(), |status| format!(" as {status}"));
    format!(
        "{}{answered} with {} bytes of {}",
        statuses.join(", "),
        body.len(),
        content_type.as_deref().unwrap_or("text/plain")
    )
}
