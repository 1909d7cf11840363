//! BackendTrafficPolicy: TrafficPolicies of its targets and of their Services, and timeouts and
//! retries of rules.

use serde_json::{Map, Value, json};

use super::duration::{millis, quantity};
use super::limits::{bandwidth, rate_limits};
use super::routes::services;
use super::services::settings;
use super::site::Site;
use super::targets::Rule;
use crate::convert::Verdict;
use crate::convert::document::Name;

/// The least bytes of a body that can be compressed.
const LEAST_BYTES: u64 = 64;
/// The bytes for which Envoy Gateway compresses without a number.
const BYTES: u64 = 30;
/// The most bytes of a body that is collected as a whole by default.
const COLLECTED: u64 = 64 << 10;
/// The most attempts of a rule.
const ATTEMPTS: u64 = 10;
/// The setting of timeouts that is of rules.
const REQUEST: &str = "timeout.http.requestTimeout";
/// The statuses for which Envoy Gateway repeats a request without `retryOn`.
const USUAL: [u64; 1] = [503];

/// Converts a policy.
pub(super) fn policy(site: &mut Site<'_>, document: usize) {
    let policy = site.policy(document);
    let (kind, name, spec) = (policy.kind, policy.name.clone(), policy.spec);
    of_targets(site, document, &name, spec);
    of_services(site, document, &name, spec);
    of_rules(site, document, spec);
    site.say_replaced(document, |others| {
        format!("TrafficPolicies add up field by field: fields that this one does not have are those of {others}, which Envoy Gateway has it replace")
    });
    site.report.fields(document, kind, spec);
}

/// Writes the TrafficPolicy of the targets.
fn of_targets(site: &mut Site<'_>, document: usize, name: &Name, spec: &Value) {
    let mut fields = Map::new();
    let limits = rate_limits(&mut site.report, document, spec);
    for (field, value) in [
        ("rateLimit", (!limits.is_empty()).then(|| json!(limits))),
        ("bandwidthLimit", bandwidth(spec)),
        ("compression", compression(spec)),
        ("requestBody", body(spec)),
        ("responseOverride", overrides(spec)),
    ] {
        if let Some(value) = value {
            fields.insert(field.to_owned(), value);
        }
    }
    let targets = site.policy(document).targets.clone();
    let (ours, others): (Vec<_>, Vec<_>) = targets
        .iter()
        .partition(|target| target.is_ours() && target.name.0 == name.0);
    if let (Some(target), false) = (others.first(), fields.is_empty()) {
        let text = format!(
            "{} {}/{} cannot have a TrafficPolicy of this namespace",
            target.kind, target.name.0, target.name.1
        );
        site.report
            .say(document, "targetRefs", Verdict::NotCarriedOver, text);
    }
    let (calls, requests): (Vec<_>, Vec<_>) = ours
        .into_iter()
        .partition(|target| target.kind == "GRPCRoute");
    let of_calls: Map<String, Value> = fields
        .iter()
        .filter(|(field, _)| !["requestBody", "responseOverride"].contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    if of_calls.len() < fields.len() && !calls.is_empty() {
        let text = "GRPCRoutes have neither requestBody nor responseOverride";
        site.report
            .say(document, "targetRefs", Verdict::Differs, text);
    }
    for (targets, fields) in [(requests, fields), (calls, of_calls)] {
        if fields.is_empty() {
            continue;
        }
        let references: Vec<Value> = targets.iter().map(|target| target.reference()).collect();
        let spec = Value::Object(fields);
        site.output
            .policy("TrafficPolicy", (&name.0, &name.1), &references, &spec);
    }
}

fn compression(spec: &Value) -> Option<Value> {
    let list = [&spec["compressor"], &spec["compression"]]
        .into_iter()
        .find_map(Value::as_array)?;
    let list: Vec<&Value> = list
        .iter()
        .filter(|of| of["type"] == "Brotli" || of["type"] == "Gzip")
        .collect();
    let mut algorithms: Vec<&Value> = Vec::new();
    for of in &list {
        if !algorithms.contains(&&of["type"]) {
            algorithms.push(&of["type"]);
        }
    }
    let least = list
        .iter()
        .map(|of| quantity(&of["minContentLength"]).unwrap_or(BYTES))
        .min()?;
    (!algorithms.is_empty())
        .then(|| json!({"algorithms": algorithms, "minBytes": least.max(LEAST_BYTES)}))
}

fn body(spec: &Value) -> Option<Value> {
    let bytes = quantity(&spec["requestBuffer"]["limit"]).filter(|bytes| *bytes > 0)?;
    let mut body = json!({"maxBytes": bytes});
    if bytes <= COLLECTED {
        body["buffer"] = json!("All");
    }
    Some(body)
}

/// Answers in place of errors.
fn overrides(spec: &Value) -> Option<Value> {
    let entries: Vec<Value> = spec["responseOverride"]
        .as_array()?
        .iter()
        .filter_map(override_of)
        .collect();
    (!entries.is_empty()).then(|| json!(entries))
}

fn override_of(entry: &Value) -> Option<Value> {
    let is_of_all = entry["source"].is_null() || entry["source"] == "All";
    if !is_of_all || !entry["redirect"].is_null() || !entry["match"]["responseHeaders"].is_null() {
        return None;
    }
    let codes: Vec<&Value> = entry["match"]["statusCodes"]
        .as_array()?
        .iter()
        .filter(|code| is_error(code))
        .collect();
    if codes.is_empty() {
        return None;
    }
    let mut response = json!({});
    for field in ["contentType", "statusCode", "body"] {
        if !entry["response"][field].is_null() {
            response[field] = entry["response"][field].clone();
        }
    }
    Some(json!({"match": {"statusCodes": codes}, "response": response}))
}

/// True for the statuses that can be replaced.
fn is_error(code: &Value) -> bool {
    if code["type"] == "Range" {
        return is_possible(&code["range"]["start"]) && is_possible(&code["range"]["end"]);
    }
    is_possible(&code["value"]) && code["value"] != 401
}

fn is_possible(code: &Value) -> bool {
    code.as_u64()
        .is_some_and(|code| (400..=599).contains(&code))
}

/// Sets what a policy says of the Services of its rules.
fn of_services(site: &mut Site<'_>, document: usize, name: &Name, spec: &Value) {
    let by = format!("BackendTrafficPolicy {}/{}", name.0, name.1);
    for (field, source, value) in settings(spec) {
        let rules = site.rules(site.policy(document), source);
        let mut names: Vec<Name> = rules
            .iter()
            .flat_map(|rule| services(site, *rule))
            .collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            site.lose(document, source, NO_SERVICE);
        }
        for service in names {
            let text = match site
                .output
                .service(service.clone(), (field, value.clone()), &by)
            {
                Ok(()) => continue,
                Err(other) => format!(
                    "{other} says otherwise of Service {}/{}, which has one for all its routes",
                    service.0, service.1
                ),
            };
            site.report
                .say(document, "targetRefs", Verdict::NotCarriedOver, text);
        }
    }
}

/// Sets timeouts and retries of the rules of HTTPRoutes.
fn of_rules(site: &mut Site<'_>, document: usize, spec: &Value) {
    let timeout = &spec["timeout"]["http"]["requestTimeout"];
    if !timeout.is_null() {
        let rules = http_rules(site, document, "timeout");
        if rules.is_empty() {
            site.lose(document, REQUEST, NO_RULE);
        }
        for (route, rule) in rules {
            if let Some(object) = site.passed.get_mut(&route) {
                let timeouts = &mut object["spec"]["rules"][rule]["timeouts"];
                if timeouts["request"].is_null() {
                    timeouts["request"] = timeout.clone();
                }
            }
        }
    }
    let Some(retry) = retry(&spec["retry"]) else {
        return;
    };
    let rules = http_rules(site, document, "retry");
    if rules.is_empty() {
        site.lose(document, "retry.numRetries", NO_RULE);
    }
    for (route, rule) in rules {
        if let Some(object) = site.passed.get_mut(&route) {
            let rule = &mut object["spec"]["rules"][rule];
            if rule["retry"].is_null() {
                rule["retry"] = retry.clone();
            }
        }
    }
}

const NO_SERVICE: &str =
    "no rule of the input with a Service is below the targets, without a nearer policy";
const NO_RULE: &str =
    "no rule of an HTTPRoute of the input is below the targets, and it is a field of rules";

fn http_rules(site: &Site<'_>, document: usize, field: &str) -> Vec<Rule> {
    let mut rules = site.rules(site.policy(document), field);
    rules.retain(|(route, _)| site.documents[*route].value["kind"] == "HTTPRoute");
    rules
}

/// The retries of a rule.
fn retry(source: &Value) -> Option<Value> {
    source.as_object()?;
    let attempts = source["numRetries"].as_u64().unwrap_or(2);
    let attempts = attempts.min(ATTEMPTS);
    if attempts == 0 {
        return None;
    }
    let mut retry = json!({"attempts": attempts});
    let codes = codes(&source["retryOn"]);
    if !codes.is_empty() {
        retry["codes"] = json!(codes);
    }
    let backoff = source["perRetry"]["backOff"]["baseInterval"].as_str();
    if let Some(backoff) = backoff.filter(|of| millis(of).is_some_and(|of| of > 0)) {
        retry["backoff"] = json!(backoff);
    }
    Some(retry)
}

/// The statuses for which a request is repeated.
fn codes(on: &Value) -> Vec<u64> {
    if on.is_null() {
        return USUAL.to_vec();
    }
    let mut codes = Vec::new();
    for trigger in on["triggers"].as_array().into_iter().flatten() {
        match trigger.as_str() {
            Some("5xx") => codes.extend([500, 502, 503, 504]),
            Some("gateway-error") => codes.extend([502, 503, 504]),
            Some("retriable-4xx") => codes.push(409),
            Some("retriable-status-codes") => {
                let of = on["httpStatusCodes"].as_array().into_iter().flatten();
                codes.extend(of.filter_map(Value::as_u64).filter(|code| *code >= 400));
            }
            _ => {}
        }
    }
    codes.sort_unstable();
    codes.dedup();
    codes
}

impl Site<'_> {
    /// Says that a field with all below it is not carried over.
    fn lose(&mut self, document: usize, field: &str, why: &str) {
        let spec = self.spec(document);
        let pointer = format!("/{}", field.replace('.', "/"));
        let below = spec.pointer(&pointer).cloned().unwrap_or_default();
        let kind = self.policy(document).kind;
        for setting in super::report::settings(kind, field, &below) {
            if field == "timeout" && setting == REQUEST {
                continue;
            }
            self.report
                .say(document, setting, Verdict::NotCarriedOver, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_have_the_statuses_of_their_triggers() {
        let on = |triggers: &[&str]| json!({"triggers": triggers, "httpStatusCodes": [429, 200]});
        assert_eq!(codes(&Value::Null), [503], "without a word");
        assert_eq!(codes(&on(&["5xx"])), [500, 502, 503, 504], "all errors");
        assert_eq!(codes(&on(&["retriable-status-codes"])), [429], "named ones");
        assert!(codes(&on(&["connect-failure"])).is_empty(), "connections");
        assert_eq!(retry(&json!({"numRetries": 0})), None, "none");
    }
}
