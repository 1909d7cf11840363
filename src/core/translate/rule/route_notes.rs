//! Notes on a rule that is served, though not as its author may expect. They are in the message of
//! `Accepted`.

use gatewright_objects::inputs::{Filters, RouteRule};
use gatewright_objects::model::StringMatch;

/// The notes on a rule with these filters.
pub(crate) fn notes(rule: &RouteRule, filters: &Filters) -> impl Iterator<Item = String> {
    exposed(filters).into_iter().chain(unmatched_value(rule))
}

/// A note on exposed headers: to a request with credentials `*` is the name of a header (Fetch
/// standard, 3.3.5).
fn exposed(filters: &Filters) -> Option<String> {
    let cors = filters.cors.as_ref()?;
    let in_vain = cors.allow_credentials && cors.expose_headers.iter().any(|name| name == "*");
    in_vain.then(|| {
        "filter CORS: exposeHeaders \"*\" exposes nothing where credentials are allowed: list the names of the headers".into()
    })
}

/// A note on the first value of a query parameter that no request has. Envoy compares a query as
/// clients send it, in which a space is encoded, `&` ends a value, and `#` ends the query (RFC
/// 3986, 3.4).
fn unmatched_value(rule: &RouteRule) -> Option<String> {
    let parameters = rule.matches.iter().flat_map(|matches| &matches.query);
    let mut exact = parameters.filter_map(|parameter| match &parameter.value {
        StringMatch::Exact(value) => Some((&parameter.name, value)),
        StringMatch::Regex(_) => None,
    });
    let (name, value) = exact.find(|(_, value)| value.contains([' ', '&', '#']))?;
    let value: String = value.chars().take(100).collect();
    let encoded = value
        .replace(' ', "%20")
        .replace('&', "%26")
        .replace('#', "%23");
    Some(format!(
        "queryParams {name}: no request has the value {value:?}, since a query is compared as clients send it: write \
         {encoded:?} (clients that send forms write + for a space)"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use gatewright_objects::inputs::{Object, Route};

    fn route(rule: &Value) -> Route {
        let object = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "r", "namespace": "a"}, "spec": {"rules": [rule]}});
        match Object::parse(object).expect("an object") {
            Object::Route(route) => route,
            other => panic!("{other:?}"),
        }
    }

    fn notes(rule: &Value) -> Vec<String> {
        let rule = route(rule).rules.remove(0);
        let filters = rule.filters.clone().expect("supported").unwrap_or_default();
        super::notes(&rule, &filters).collect()
    }

    #[test]
    fn a_star_for_exposed_headers_is_in_vain_with_credentials() {
        fn cors(credentials: bool, exposed: &str) -> Value {
            json!({"filters": [{"type": "CORS", "cors": {"allowOrigins": ["https://a.org"],
                "allowCredentials": credentials, "exposeHeaders": [exposed]}}]})
        }
        assert_eq!(notes(&cors(true, "*")).len(), 1);
        assert!(notes(&cors(false, "*")).is_empty() && notes(&cors(true, "x-a")).is_empty());
    }

    #[test]
    fn values_that_no_query_has_are_told() {
        fn query(kind: &str, value: &str) -> Value {
            json!({"matches": [{"queryParams": [{"type": kind, "name": "q", "value": value}]}]})
        }
        for value in ["a b", "a&b", "a#b"] {
            let told = notes(&query("Exact", value));
            assert!(
                told.len() == 1 && told[0].starts_with("queryParams q: "),
                "{value}: {told:?}"
            );
        }
        assert!(notes(&query("Exact", "a b"))[0].contains("write \"a%20b\""));
        for (kind, value) in [
            ("Exact", "a%20b"),
            ("Exact", "a+b"),
            ("RegularExpression", "a b"),
        ] {
            assert!(notes(&query(kind, value)).is_empty(), "{value}");
        }
    }
}
