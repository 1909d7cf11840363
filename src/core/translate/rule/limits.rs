//! Limits of the rules of a route: what is beyond them is not served, and the status says so.
//! `quotas.rs` has those of a namespace.

use super::experimental;
use gatewright_objects::inputs::{RouteRule, Unsupported};
use gatewright_objects::limits::ObjectLimits;
use gatewright_objects::model::Retry;

/// Why a rule cannot be matched, as a sentence without the rule's name.
pub(crate) fn unmatched(rule: &RouteRule, limits: &ObjectLimits) -> Option<String> {
    if let Some(why) = &rule.unmatched {
        return Some(why.to_string());
    }
    let found = rule.regexes.largest;
    let most = limits.regex_instructions;
    if found > most {
        let text = format!(
            "a regular expression has about {found} instructions when compiled, limits.object.regexInstructions is {most}"
        );
        return Some(text + ": repeat less, or match in the backend");
    }
    None
}

/// Checks whether the actions of a rule are within the limits.
pub(crate) fn allowed(rule: &RouteRule, limits: &ObjectLimits) -> Result<(), Unsupported> {
    let own = rule.filters.as_ref().ok().and_then(Option::as_deref);
    let of_backends = rule
        .backends
        .iter()
        .filter_map(|backend| backend.filters.as_ref().ok()?.as_deref());
    for filters in own.into_iter().chain(of_backends) {
        if filters.mirrors.len() > limits.mirrors {
            let found = filters.mirrors.len();
            let most = limits.mirrors;
            return refuse(format!(
                "{found} filters of type RequestMirror, limits.object.mirrors is {most}"
            ));
        }
        filters
            .auth
            .as_ref()
            .map_or(Ok(()), |auth| experimental::body(auth, limits))
            .map_err(Unsupported::Value)?;
        let edits = [&filters.request_headers, &filters.response_headers];
        let mut values = edits
            .into_iter()
            .flat_map(|edits| edits.set.iter().chain(&edits.add));
        if let Some((name, value)) =
            values.find(|(_, value)| value.len() > limits.header_value_bytes)
        {
            let found = value.len();
            let most = limits.header_value_bytes;
            return refuse(format!(
                "the value of header {name} has {found} bytes, limits.object.headerValueBytes is {most}"
            ));
        }
    }
    Ok(())
}

fn refuse(text: String) -> Result<(), Unsupported> {
    Err(Unsupported::Value(text))
}

/// Returns the retries of a rule, at most as many as are allowed, and a message if it requests
/// more: `retry.attempts` is an upper bound.
pub(crate) fn retries(rule: &RouteRule, limits: &ObjectLimits) -> (Option<Retry>, Option<String>) {
    let Some(asked) = rule.retry.as_deref() else {
        return (None, None);
    };
    let found = asked.attempts;
    let most = limits.retries;
    (
        Some(Retry {
            attempts: found.min(most),
            kept_bytes: asked.kept_bytes.min(limits.buffered_bytes()),
            ..asked.clone()
        }),
        (found > most).then(|| {
            format!("retry.attempts is {found}, of which {most} are made: limits.object.retries")
        }),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::rule::settings::Settings;
    use crate::stage::resolve::resolve;
    use gatewright_objects::inputs::Object;
    use gatewright_objects::limits::Limits;
    use gatewright_objects::model::Reason;
    use gatewright_objects::store::Store;

    /// The outcome of a route with these rules and hostnames: the reason why it is invalid, and the
    /// message about left-out parts.
    fn told(rules: &Value, hostnames: usize, limits: &Limits) -> (Option<Reason>, String) {
        let names: Vec<String> = (0..hostnames)
            .map(|index| format!("h{index}.example.org"))
            .collect();
        let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": "a", "name": "r"},
            "spec": {"parentRefs": [{"name": "g"}], "hostnames": names, "rules": rules}});
        let Ok(Object::Route(route)) = Object::parse(route) else {
            panic!("a route")
        };
        let settings = Settings {
            limits: limits.clone(),
            ..Settings::new("c", Vec::new())
        };
        let resolved = resolve(&route, &Store::default(), &settings);
        let (reason, text) = resolved.invalid.unzip();
        (reason, text.or(resolved.partial).unwrap_or_default())
    }

    fn regex(text: &str) -> Value {
        json!({"matches": [{"path": {"type": "RegularExpression", "value": text}}]})
    }

    #[test]
    fn retries_beyond_the_limit_are_fewer_and_told() {
        let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": "a", "name": "r"}, "spec": {"parentRefs": [{"name": "g"}],
                "rules": [{"retry": {"attempts": 11}}, {"retry": {"attempts": 10}}]}});
        let Ok(Object::Route(route)) = Object::parse(route) else {
            panic!("a route")
        };
        let resolved = resolve(&route, &Store::default(), &Settings::new("c", Vec::new()));
        let attempts: Vec<_> = resolved
            .rules
            .iter()
            .map(|rule| rule.rule.retry.as_ref().map(|r| r.attempts))
            .collect();
        assert_eq!(attempts, [Some(10), Some(10)]);
        assert_eq!(resolved.invalid, None, "the rule is valid");
        assert_eq!(resolved.partial, None, "nothing of it is dropped");
        let note = resolved.note.expect("it is told");
        assert_eq!(
            note,
            "rule 0: retry.attempts is 11, of which 10 are made: limits.object.retries"
        );
    }

    #[test]
    fn a_rule_beyond_a_limit_is_reported_with_limit_and_value() {
        let header = json!({"type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": [{"name": "x-a", "value": "a".repeat(11)}]}});
        let mirror = json!({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "b", "port": 80}}});
        let limits = Limits {
            object: ObjectLimits {
                header_value_bytes: 10,
                ..ObjectLimits::default()
            },
            ..Limits::default()
        };
        for (rule, expected) in [
            (
                regex("/(ab){1000}"),
                "limits.object.regexInstructions is 2000",
            ),
            (
                json!({"filters": [mirror, mirror, mirror]}),
                "3 filters of type RequestMirror, limits.object.mirrors is 2",
            ),
            (
                json!({"filters": [header]}),
                "header x-a has 11 bytes, limits.object.headerValueBytes is 10",
            ),
            (
                json!({"backendRefs": [{"name": "b", "port": 80, "filters": [header]}]}),
                "limits.object.headerValueBytes is 10",
            ),
        ] {
            let (reason, text) = told(&json!([rule]), 1, &limits);
            assert_eq!(reason, Some(Reason::UnsupportedValue), "{text}");
            assert!(text.contains(expected), "{text}");
            // The route's other rules are served.
            let (reason, text) = told(&json!([rule, {"name": "good"}]), 1, &limits);
            assert!(
                reason.is_none() && text.starts_with("Dropped Rule: ") && text.contains(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn messages_stay_short_whatever_is_written() {
        let bad = regex(&format!("/{}**", "a".repeat(1000)));
        let (_, text) = told(&Value::Array(vec![bad; 16]), 1, &Limits::default());
        assert!(text.len() <= 4096, "{}", text.len());
    }
}
