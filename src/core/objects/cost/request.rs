//! What a request costs: the processor time of a worker of Envoy that the dearest request to a
//! hostname takes to be compared with the matches of a route, in nanoseconds. Pure.
//!
//! Envoy compares one match after the other, of each first the method, the headers and the query,
//! then the path. A request has at most 60 KiB of headers. The numbers are measured, with an Envoy
//! of which nothing else is asked (`e2e/tests/isolation/regex_load.rs`).

use super::route::{OfServices, copies};
use crate::inputs::{Route, RouteRule};
use crate::model::{Cors, Match};

/// A match, with a path of 55 KB.
const MATCH: u64 = 1_500;
/// A match that has conditions on headers, with 90 lines of 600 bytes for one of them, and each
/// condition.
const OF_HEADERS: u64 = 4_000;
const CONDITION: u64 = 100;
/// The comparison of an origin with a wildcard, of 60 KB.
const ORIGIN: u64 = 180_000;

/// What takes less of it.
pub const MATCH_LESS: &str = "fewer matches, fewer expressions that begin alike or with a part that repeats, and other \
                              hostnames need less";

/// The time that a hostname of a route may take of the dearest request.
pub fn matching(route: &Route, services: &OfServices<'_, '_>) -> u64 {
    let rules: Vec<(&RouteRule, u64)> = route
        .rules
        .iter()
        .map(|rule| (rule, copies(rule, services)))
        .collect();
    let conditions = rules.iter().map(|(rule, copies)| of_rule(rule) * copies);
    let origins = route.rules.iter().map(of_origins).max();
    conditions.sum::<u64>() + of_paths(&rules) + origins.unwrap_or_default()
}

fn of_rule(rule: &RouteRule) -> u64 {
    let matches: u64 = rule.matches.iter().map(of_match).sum();
    matches + rule.regexes.values
}

fn of_match(one: &Match) -> u64 {
    let headers = one.headers.len() as u64;
    let conditions = headers + one.query.len() as u64;
    MATCH + OF_HEADERS * headers.min(1) + CONDITION * conditions
}

/// The origin of a request is compared with those of one rule.
fn of_origins(rule: &RouteRule) -> u64 {
    let filters = rule.filters.as_ref().ok().and_then(Option::as_deref);
    let cors = filters.and_then(|filters| filters.cors.as_ref());
    ORIGIN * cors.map_or(0, Cors::patterns) as u64
}

/// A path is compared to its end with the expressions that begin as it does: of those whose
/// literal beginnings are beginnings of each other the dearest together.
fn of_paths(rules: &[(&RouteRule, u64)]) -> u64 {
    let mut paths: Vec<(&str, u64)> = rules
        .iter()
        .flat_map(|(rule, copies)| {
            let paths = rule.regexes.paths.iter();
            paths.map(move |(prefix, time)| (&**prefix, time * copies))
        })
        .collect();
    paths.sort_unstable();
    let mut around: Vec<(&str, u64)> = Vec::new();
    let mut dearest = 0;
    for (prefix, time) in paths {
        while around
            .last()
            .is_some_and(|(outer, _)| !prefix.starts_with(outer))
        {
            around.pop();
        }
        let before = around.last().map_or(0, |(_, sum)| *sum);
        let sum = before.saturating_add(time);
        dearest = dearest.max(sum);
        around.push((prefix, sum));
    }
    dearest
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::Object;

    fn time(rules: &Value) -> u64 {
        let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": "a", "name": "r"}, "spec": {"rules": rules}});
        let Ok(Object::Route(route)) = Object::parse(route) else {
            panic!("a route")
        };
        let services = OfServices {
            session: &|_| None,
            answers: &|_| 0,
            hashes: &|_, _| false,
            is_there: &|_| true,
        };
        matching(&route, &services)
    }

    fn paths(texts: &[&str]) -> u64 {
        let matches: Vec<Value> = texts
            .iter()
            .map(|text| json!({"path": {"type": "RegularExpression", "value": text}}))
            .collect();
        time(&json!([{"matches": matches}])) - MATCH * texts.len() as u64
    }

    #[test]
    fn expressions_count_that_one_path_is_compared_with() {
        let one = paths(&["/a/.*x"]);
        assert_eq!(paths(&["/a/.*x", "/a/.*y"]), 2 * one, "both begin with /a/");
        assert_eq!(paths(&["/a/.*x", "/b/.*y"]), one, "a path begins with one");
        assert_eq!(paths(&["/a/.*x", "/a/b/.*y", "/a/c/.*y", "/b/.*"]), 2 * one);
        assert_eq!(paths(&["/.*x", "/b/.*y", "/a/.*"]), 2 * one);
        assert!(paths(&["/v[0-9]{1,3}"]) < one / 1000, "it ends at once");
    }

    fn header(value: &str) -> Value {
        json!({"type": "RegularExpression", "name": "x-a", "value": value})
    }

    /// A rule with so many origins.
    fn rule(number: usize) -> Value {
        let origins: Vec<String> = (0..number)
            .map(|at| format!("https://*.d{at}.example.org"))
            .collect();
        json!({"filters": [{"type": "CORS", "cors": {"allowOrigins": origins}}]})
    }

    #[test]
    fn conditions_count_for_each_match() {
        let plain = json!({"headers": [{"name": "x-a", "value": "v"}]});
        let one = time(&json!([{"matches": [{"headers": [header(".*a")]}]}]));
        assert!(one > 100_000, "{one}");
        let two = time(&json!([{"matches": [{"headers": [header(".*a")]}, plain]}]));
        assert_eq!(two, one + MATCH + OF_HEADERS + CONDITION);
        let hosts: Vec<Value> = (0..3)
            .map(|at| {
                json!({"name": "web", "port": 80, "filters": [
            {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": format!("/{at}")}}}]})
            })
            .collect();
        let copied =
            time(&json!([{"matches": [{"headers": [header(".*a")]}], "backendRefs": hosts}]));
        assert_eq!(copied, 3 * one);
    }

    #[test]
    fn origins_count_of_one_rule() {
        assert_eq!(
            time(&json!([rule(2), rule(3), rule(1)])),
            3 * ORIGIN + 3 * MATCH
        );
    }
}
