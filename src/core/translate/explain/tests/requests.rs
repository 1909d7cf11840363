//! Explanations of requests whose headers, query and client are known.

use super::*;

const EDGE: &str = "edge";

fn edge() -> Value {
    json!([{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": EDGE}])
}

fn access(name: &str, rules: Value) -> Change {
    let mut spec = rules;
    spec["targetRefs"] = edge();
    object(
        "gatewright.io/v1alpha1",
        "AccessPolicy",
        name,
        json!({"spec": spec}),
    )
}

/// An engine whose route has these matches, the first for Service `web` and the others for none.
fn matching(matches: Value) -> Engine {
    let backend = json!([{"name": "web", "port": 80}]);
    let spec = json!({"parentRefs": [{"name": EDGE}], "hostnames": [HOST],
        "rules": [{"matches": matches, "backendRefs": backend}]});
    engine(vec![gateway_api("HTTPRoute", "web", spec)])
}

fn with_headers(headers: &[(&str, &str)]) -> Question {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Question {
        headers: Some(headers.collect()),
        ..Question::get(false, HOST, 80)
    }
}

fn with_query(query: Option<&str>) -> Question {
    Question {
        query: query.map(str::to_owned),
        ..Question::get(false, HOST, 80)
    }
}

fn of_client(address: &str) -> Question {
    Question {
        client: Some(address.parse().expect("an address")),
        ..Question::get(false, HOST, 80)
    }
}

/// The text of a step.
fn text(explained: &Explanation, what: &str) -> String {
    let link = explained.links.iter().find(|link| link.what == what);
    link.unwrap_or_else(|| panic!("no {what}: {explained:?}"))
        .text
        .clone()
}

#[test]
fn conditions_on_headers_are_judged_once_headers_are_known() {
    let canary = json!([{"headers": [{"name": "X-Canary", "value": "1"}]}]);
    let engine = matching(canary);
    let unknown = engine.explain(&Question::get(false, HOST, 80));
    assert!(text(&unknown, "route").ends_with("(if its header conditions hold)"));
    let met = engine.explain(&with_headers(&[("x-canary", "1")]));
    assert!(met.ok(), "{met:?}");
    assert!(!text(&met, "route").contains("if its"));
    for other in [&[("x-canary", "2")][..], &[("accept", "*/*")][..]] {
        let explained = engine.explain(&with_headers(other));
        assert!(!explained.ok(), "{explained:?}");
        assert!(text(&explained, "route").contains("matches no rule"));
    }
    let twice = engine.explain(&with_headers(&[("x-canary", "2"), ("x-canary", "1")]));
    assert!(twice.ok(), "one of them is enough: {twice:?}");
}

#[test]
fn the_host_is_a_header_of_each_request() {
    let engine = matching(json!([{"headers": [{"name": "Host", "value": HOST}]}]));
    let explained = engine.explain(&with_headers(&[("accept", "*/*")]));
    assert!(explained.ok(), "{explained:?}");
}

#[test]
fn the_query_is_that_of_the_url() {
    let engine = matching(json!([{"queryParams": [{"name": "beta", "value": "1"}]}]));
    let met = engine.explain(&with_query(Some("a=b&beta=1&beta=2")));
    assert!(met.ok(), "{met:?}");
    for query in [None, Some("beta"), Some("beta=2&beta=1"), Some("Beta=1")] {
        let explained = engine.explain(&with_query(query));
        assert!(!explained.ok(), "{query:?}: {explained:?}");
    }
}

#[test]
fn a_policy_that_only_reports_refuses_nobody() {
    let list = json!({"allow": ["192.0.2.0/24"]});
    let rules = json!({"enforcement": "Report", "clientAddress": list});
    let closing = json!({"enforcement": "Report", "clientAddress": {"allow": ["192.0.2.1/24"]}});
    let users = json!({"enforcement": "Report", "basicAuth": {"users": {"name": "users"}}});
    let engine = engine(vec![
        access("office", rules),
        access("broken", closing),
        access("users", users),
    ]);
    let explained = engine.explain(&of_client("198.51.100.1"));
    assert!(explained.ok(), "{explained:?}");
    let found = text(&explained, "access");
    assert!(
        found.starts_with("AccessPolicy a/office only reports, and refuses nobody: only clients"),
        "{found}"
    );
    let end = "198.51.100.1 is not admitted: with enforcement Enforce answered 403";
    assert!(found.ends_with(end), "{found}");
    let admitted = engine.explain(&of_client("192.0.2.1"));
    assert!(text(&admitted, "access").ends_with("192.0.2.1 is admitted"));
}

#[test]
fn a_client_is_judged_by_the_lists_of_addresses() {
    let lists = json!({"clientAddress": {"allow": ["192.0.2.0/24", "2001:db8::/32"],
        "deny": ["192.0.2.7/32"]}});
    let engine = engine(vec![access("office", lists)]);
    let unknown = engine.explain(&Question::get(false, HOST, 80));
    assert!(!text(&unknown, "access").contains("admitted"));
    for admitted in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1"] {
        let explained = engine.explain(&of_client(admitted));
        assert!(explained.ok(), "{explained:?}");
        assert!(text(&explained, "access").ends_with("is admitted"));
    }
    for refused in ["192.0.2.7", "198.51.100.1", "2001:db9::1"] {
        let explained = engine.explain(&of_client(refused));
        let last = explained.links.last().expect("a chain");
        assert!(!last.ok, "{explained:?}");
        assert_eq!(last.what, "access");
        assert_eq!(last.reason, Some("AddressDenied"));
        let end = format!("{refused} is not admitted: answered 403");
        assert!(last.text.ends_with(&end), "{explained:?}");
    }
}

#[test]
fn credentials_are_judged_by_name_and_never_printed() {
    let users = json!({"basicAuth": {"users": {"name": "users"}}});
    let line = "alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
    let secret = object(
        "v1",
        "Secret",
        "users",
        json!({"type": "gatewright.io/htpasswd", "stringData": {".htpasswd": line}}),
    );
    let engine = engine(vec![access("people", users), secret]);
    // alice:secret, and mallory:secret.
    let known = with_headers(&[("authorization", "Basic YWxpY2U6c2VjcmV0")]);
    let explained = engine.explain(&known);
    assert!(explained.ok(), "{explained:?}");
    assert!(text(&explained, "access").ends_with("the password is not checked here"));
    let told = format!("{explained:?}");
    assert!(
        !told.contains("YWxpY2U6") && !told.contains("alice"),
        "{told}"
    );
    for wrong in [
        "Basic bWFsbG9yeTpzZWNyZXQ=",
        "Basic %",
        "Bearer YWxpY2U6c2VjcmV0",
    ] {
        let explained = engine.explain(&with_headers(&[("authorization", wrong)]));
        let last = explained.links.last().expect("a chain");
        assert_eq!(last.reason, Some("Unauthenticated"), "{wrong}: {last:?}");
        assert!(last.text.ends_with("answered 401"), "{wrong}: {last:?}");
    }
}

#[test]
fn a_limit_says_which_bucket_a_request_draws_on() {
    let limits = json!([
        {"limit": {"requests": 5, "per": "Second"}, "by": {"type": "ClientAddress"}},
        {"limit": {"requests": 9, "per": "Minute"}, "by": {"type": "Header", "header": {"name": "X-Key"}}}]);
    let policy = object(
        "gatewright.io/v1alpha1",
        "TrafficPolicy",
        "slow",
        json!({"spec": {"targetRefs": edge(), "rateLimit": limits}}),
    );
    let engine = engine(vec![policy]);
    let unknown = engine.explain(&Question::get(false, HOST, 80));
    let told = text(&unknown, "rate limit");
    assert!(
        told.contains("5 per second of each client address"),
        "{told}"
    );
    let client = engine.explain(&of_client("2001:db8::9"));
    let told = text(&client, "rate limit");
    assert!(told.contains("of the /64 network of 2001:db8::9"), "{told}");
    let without = engine.explain(&with_headers(&[("accept", "*/*")]));
    let told = text(&without, "rate limit");
    assert!(
        told.contains("of all requests without header x-key"),
        "{told}"
    );
}
