//! Limits of the rules of a route: what is beyond them is not served, and the status says so.
//! `quotas.rs` has those of a namespace.

use super::experimental;
use crate::inputs::{RouteRule, Unsupported};
use crate::limits::Limits;
use crate::model::Retry;

/// Why a rule cannot be matched, as a sentence without the rule's name. `regexes` is the number of
/// expressions in the rules before it, which is updated.
pub(super) fn unmatched(rule: &RouteRule, regexes: &mut usize, limits: &Limits) -> Option<String> {
    if let Some(why) = &rule.unmatched {
        return Some(why.to_string());
    }
    let of = &rule.regexes;
    if of.longest > limits.max_regex_length {
        let found = of.longest;
        let most = limits.max_regex_length;
        return Some(format!(
            "a regular expression has {found} bytes, --max-regex-length is {most}"
        ));
    }
    if of.largest > limits.max_regex_size {
        let found = of.largest;
        let most = limits.max_regex_size;
        let text = format!(
            "a regular expression has about {found} instructions when compiled, --max-regex-size is {most}"
        );
        return Some(text + ": repeat less, or match in the backend");
    }
    if of.count > 0 && regexes.saturating_add(of.count) > limits.max_regexes_per_route {
        let most = limits.max_regexes_per_route;
        return Some(format!(
            "with its regular expressions the route has more than --max-regexes-per-route, {most}"
        ));
    }
    *regexes += of.count;
    None
}

/// Checks whether the actions of a rule are within the limits.
pub(super) fn allowed(rule: &RouteRule, limits: &Limits) -> Result<(), Unsupported> {
    let own = rule.filters.as_ref().ok().and_then(Option::as_deref);
    let of_backends = rule
        .backends
        .iter()
        .filter_map(|backend| backend.filters.as_ref().ok()?.as_deref());
    for filters in own.into_iter().chain(of_backends) {
        if filters.mirrors.len() > limits.max_mirrors_per_rule {
            let found = filters.mirrors.len();
            let most = limits.max_mirrors_per_rule;
            return refuse(format!(
                "{found} filters of type RequestMirror, --max-mirrors-per-rule is {most}"
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
            values.find(|(_, value)| value.len() > limits.max_header_value_length)
        {
            let found = value.len();
            let most = limits.max_header_value_length;
            return refuse(format!(
                "the value of header {name} has {found} bytes, --max-header-value-length is {most}"
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
pub(super) fn retries(rule: &RouteRule, limits: &Limits) -> (Option<Retry>, Option<String>) {
    let Some(asked) = rule.retry.as_deref() else {
        return (None, None);
    };
    let found = asked.attempts;
    let most = limits.max_retry_attempts;
    (
        Some(Retry {
            attempts: found.min(most),
            ..asked.clone()
        }),
        (found > most).then(|| {
            format!("retry.attempts is {found}, of which {most} are made: --max-retry-attempts")
        }),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::Object;
    use crate::model::Reason;
    use crate::store::Store;
    use crate::translate::resolve::resolve;
    use crate::translate::settings::Settings;

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
            limits: *limits,
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
            "rule 0: retry.attempts is 11, of which 10 are made: --max-retry-attempts"
        );
    }

    #[test]
    fn a_rule_beyond_a_limit_is_reported_with_limit_and_value() {
        let header = json!({"type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": [{"name": "x-a", "value": "a".repeat(11)}]}});
        let mirror = json!({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "b", "port": 80}}});
        let limits = Limits {
            max_header_value_length: 10,
            ..Limits::default()
        };
        for (rule, expected) in [
            (
                regex(&format!("/{}", "a".repeat(1024))),
                "has 1025 bytes, --max-regex-length is 1024",
            ),
            (regex("/(ab){1000}"), "--max-regex-size is 2000"),
            (
                json!({"filters": [mirror, mirror, mirror]}),
                "3 filters of type RequestMirror, --max-mirrors-per-rule is 2",
            ),
            (
                json!({"filters": [header]}),
                "header x-a has 11 bytes, --max-header-value-length is 10",
            ),
            (
                json!({"backendRefs": [{"name": "b", "port": 80, "filters": [header]}]}),
                "--max-header-value-length is 10",
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
    fn regular_expressions_of_a_route_are_counted_over_its_rules() {
        let limits = Limits {
            max_regexes_per_route: 2,
            ..Limits::default()
        };
        let (reason, text) = told(
            &json!([regex("/a"), regex("/b"), regex("/c"), {"name": "good"}]),
            1,
            &limits,
        );
        assert!(
            reason.is_none() && text.contains("rule 2: ") && !text.contains("rule 1: "),
            "{text}"
        );
        // Patterns of origins are compiled for each match.
        let cors = json!({"type": "CORS", "cors": {"allowOrigins": ["https://*.a.org"]}});
        let matches = json!([{"path": {"value": "/a"}}, {"path": {"value": "/b"}}, {"path": {"value": "/c"}}]);
        let (reason, text) = told(
            &json!([{"matches": matches, "filters": [cors]}]),
            1,
            &limits,
        );
        assert_eq!(reason, Some(Reason::UnsupportedValue), "{text}");
    }

    #[test]
    fn messages_stay_short_whatever_is_written() {
        let bad = regex(&format!("/{}**", "a".repeat(1000)));
        let (_, text) = told(&Value::Array(vec![bad; 16]), 1, &Limits::default());
        assert!(text.len() <= 4096, "{}", text.len());
    }
}
