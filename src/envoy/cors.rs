//! Cross-origin resource sharing (GEP-1767) as the CORS filter's per-route policy.

use envoy_types::pb::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;

use super::proto::boolean;
use super::request_match::{exact, matching};
use gatewright_core::model::Cors;

/// The filter's name, under which routes configure it.
pub(super) const FILTER: &str = "envoy.filters.http.cors";

/// The policy of a rule.
///
/// A preflight of another origin is answered without `access-control-*` and never reaches a backend. With credentials
/// `*` is no wildcard to a browser (Fetch standard, 3.3.5): Envoy then responds with the values that the preflight
/// requests.
pub(super) fn policy(cors: &Cors) -> CorsPolicy {
    let Cors { allow_origins, allow_methods, allow_headers, expose_headers, allow_credentials, max_age } = cors;
    CorsPolicy {
        allow_origin_string_match: allow_origins.iter().map(|origin| origin_matcher(origin)).collect(),
        allow_methods: list(allow_methods),
        allow_headers: list(allow_headers),
        expose_headers: expose_headers.join(", "),
        allow_credentials: boolean(*allow_credentials),
        max_age: max_age.as_secs().to_string(),
        forward_not_matching_preflights: boolean(false),
        ..Default::default()
    }
}

/// Returns true if Envoy responds to a preflight with the headers that it requests. To a preflight that requests none
/// it would send an empty `access-control-allow-headers`.
pub(super) fn echoes_headers(cors: &Cors) -> bool {
    cors.allow_credentials && is_any(&cors.allow_headers)
}

/// Joins a list. Envoy recognizes `*` only if it is the whole value.
fn list(all: &[String]) -> String {
    if is_any(all) { "*".to_owned() } else { all.join(", ") }
}

fn is_any(all: &[String]) -> bool {
    all.iter().any(|one| one == "*")
}

/// A matcher for an origin: `*` is any origin; the wildcard of `https://*.example.org` covers any number of labels.
fn origin_matcher(origin: &str) -> StringMatcher {
    match origin.split_once('*') {
        None => exact(origin),
        Some(("", "")) => matching(".*"),
        Some((before, after)) => {
            let port = if after.contains(':') { "" } else { "(:[0-9]+)?" };
            matching(&format!("{}[^/:]+{}{port}", regex::escape(before), regex::escape(after)))
        }
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
    use std::time::Duration;

    use super::*;

    fn allows(origin: &str, candidate: &str) -> bool {
        match origin_matcher(origin).match_pattern {
            Some(MatchPattern::Exact(text)) => text == candidate,
            Some(MatchPattern::SafeRegex(regex)) => {
                regex::Regex::new(&format!("^(?:{})$", regex.regex)).expect("a regular expression").is_match(candidate)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn origins() {
        for (origin, candidate, expected) in [
            ("*", "https://a.org", true),
            ("https://a.org", "https://a.org", true),
            ("https://a.org", "https://a.org.evil.org", false),
            ("https://*.a.org", "https://b.a.org", true),
            ("https://*.a.org", "https://c.b.a.org", true),
            ("https://*.a.org", "https://b.a.org:8443", true),
            ("https://*.a.org", "https://a.org", false),
            ("https://*.a.org", "http://b.a.org", false),
            ("https://*.a.org", "https://evil.org/.a.org", false),
            ("https://*.a.org", "https://bxa.org", false),
            ("https://*.a.org:8443", "https://b.a.org:8443", true),
            ("https://*.a.org:8443", "https://b.a.org", false),
        ] {
            assert_eq!(allows(origin, candidate), expected, "{origin} {candidate}");
        }
    }

    #[test]
    fn any_stands_alone() {
        let cors = |allow_credentials| Cors {
            allow_origins: vec!["https://a.org".into()],
            allow_methods: vec!["GET".into(), "*".into()],
            allow_headers: vec!["x-a".into(), "x-b".into()],
            expose_headers: vec![],
            allow_credentials,
            max_age: Duration::from_secs(5),
        };
        let (with, without) = (policy(&cors(true)), policy(&cors(false)));
        assert_eq!((with.allow_methods.as_str(), without.allow_methods.as_str()), ("*", "*"));
        assert_eq!((with.allow_headers.as_str(), with.max_age.as_str()), ("x-a, x-b", "5"));
    }
}
