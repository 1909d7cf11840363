//! Limits of requests and of bandwidth.

use serde_json::{Value, json};

use super::duration::quantity;
use crate::convert::Verdict;
use crate::convert::report::Report;

/// The most limits of a policy, and the most requests of one.
const LIMITS: usize = 8;
const REQUESTS: u64 = 1_000_000;

/// The limits of a policy. One that cannot be carried out as it is meant is left out.
pub(super) fn rate_limits(report: &mut Report, document: usize, spec: &Value) -> Vec<Value> {
    let mut limits = Vec::new();
    for scope in ["local", "global"] {
        let rules = spec["rateLimit"][scope]["rules"].as_array();
        for rule in rules.into_iter().flatten() {
            match limit(rule) {
                Ok(limit) => limits.push(limit),
                Err((field, why)) => {
                    let setting = format!("rateLimit.{scope}.rules[].{field}");
                    let text = format!("the limit is left out: {why}");
                    report.say(document, &setting, Verdict::NotCarriedOver, text);
                }
            }
        }
    }
    if limits.len() > LIMITS {
        let text = format!("a policy has at most {LIMITS} limits: the first ones are there");
        let setting = "rateLimit.local.rules[].limit.requests";
        report.say(document, setting, Verdict::NotCarriedOver, text);
        limits.truncate(LIMITS);
    }
    limits
}

fn limit(rule: &Value) -> Result<Value, (&'static str, &'static str)> {
    if !rule["cost"].is_null() {
        return Err(("cost", "a request counts as one"));
    }
    if rule["shadowMode"] == true {
        return Err(("shadowMode", "it refuses nobody"));
    }
    if !rule["limit"]["fromMetadata"].is_null() {
        return Err(("limit.fromMetadata", "a limit is a number"));
    }
    let unit = &rule["limit"]["unit"];
    if !["Second", "Minute", "Hour"].iter().any(|of| unit == of) {
        return Err(("limit.unit", "the units are Second, Minute and Hour"));
    }
    let requests = rule["limit"]["requests"].as_u64().unwrap_or_default();
    if requests == 0 {
        return Err(("limit.requests", "close the route by an AccessPolicy"));
    }
    let by = clients(&rule["clientSelectors"]).ok_or((
        "clientSelectors",
        "a limit is for all requests of a rule: write a rule of the route with that match, and a TrafficPolicy with its sectionName",
    ))?;
    Ok(json!({"limit": {"requests": requests.min(REQUESTS), "per": unit}, "by": by}))
}

/// Those who share a bucket.
fn clients(selectors: &Value) -> Option<Value> {
    let conditions: Vec<(&String, &Value)> = selectors
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .flatten()
        .collect();
    match conditions.as_slice() {
        [] => Some(json!({"type": "Everyone"})),
        [(field, source)] if *field == "sourceCIDR" => {
            let is_all = ["0.0.0.0/0", "::/0"]
                .iter()
                .any(|all| source["value"] == *all);
            (is_all && source["type"] == "Distinct" && source["invert"] != true)
                .then(|| json!({"type": "ClientAddress"}))
        }
        [(field, headers)] if *field == "headers" => match headers.as_array()?.as_slice() {
            [header] if header["type"] == "Distinct" => {
                Some(json!({"type": "Header", "header": {"name": header["name"]}}))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The limits of bandwidth of a policy.
pub(super) fn bandwidth(spec: &Value) -> Option<Value> {
    let mut limit = json!({});
    for (field, source) in [
        ("requestKibPerSecond", "request"),
        ("responseKibPerSecond", "response"),
    ] {
        let value = &spec["bandwidthLimit"][source]["limit"];
        let Some(bytes) = quantity(&value["value"]) else {
            continue;
        };
        let seconds = match value["unit"].as_str() {
            Some("Minute") => 60,
            Some("Hour") => 3600,
            _ => 1,
        };
        limit[field] = json!((bytes / seconds / 1024).max(1));
    }
    (limit != json!({})).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_distinct_selector_tells_clients_apart() {
        for (selectors, expected) in [
            (Value::Null, Some("Everyone")),
            (
                json!([{"sourceCIDR": {"type": "Distinct", "value": "0.0.0.0/0"}}]),
                Some("ClientAddress"),
            ),
            (
                json!([{"headers": [{"type": "Distinct", "name": "x-user"}]}]),
                Some("Header"),
            ),
            (json!([{"sourceCIDR": {"value": "0.0.0.0/0"}}]), None),
            (
                json!([{"headers": [{"name": "x-user", "value": "a"}]}]),
                None,
            ),
            (json!([{"methods": [{"value": "GET"}]}]), None),
        ] {
            let found = clients(&selectors);
            let found = found.as_ref().and_then(|by| by["type"].as_str());
            assert_eq!(found, expected, "{selectors}");
        }
    }
}
