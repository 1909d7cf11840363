//! Cross-origin resource sharing (GEP-1767) as the CORS filter's per-route policy.

use envoy_types::pb::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;

use super::proto::boolean;
use super::request_match::{exact, matching};
use gatewright_core::model::{Cors, Origin};

/// The filter's name, under which routes configure it. On TLS it is in place only where they do.
pub(super) const FILTER: &str = "envoy.filters.http.cors";

/// The policy of a rule.
///
/// With credentials `*` is no wildcard to a browser (Fetch standard, 3.3.5). Envoy then responds
/// with the method and the headers that the preflight requests; for exposed headers there is no
/// such request, and `*` is left out.
pub(super) fn policy(cors: &Cors) -> CorsPolicy {
    let Cors {
        allow_origins: _,
        allow_methods,
        allow_headers,
        expose_headers,
        allow_credentials,
        max_age,
    } = cors;
    let exposed = expose_headers
        .iter()
        .map(String::as_str)
        .filter(|name| !*allow_credentials || *name != "*");
    CorsPolicy {
        allow_origin_string_match: origin_matchers(cors).collect(),
        allow_methods: list(allow_methods),
        allow_headers: list(allow_headers),
        expose_headers: exposed.collect::<Vec<_>>().join(", "),
        allow_credentials: boolean(*allow_credentials),
        max_age: max_age.as_secs().to_string(),
        forward_not_matching_preflights: boolean(false),
        ..Default::default()
    }
}

/// The policy of a virtual host whose routes are looked for again once the filters are made. It
/// puts the filter in place for the routes that have a policy. On the others it does nothing: it
/// allows no origin, and preflights of those are forwarded.
pub(super) fn none() -> CorsPolicy {
    CorsPolicy::default()
}

/// Returns true if Envoy responds to a preflight with the headers that it requests. To a preflight
/// that requests none it would send an empty `access-control-allow-headers`.
pub(super) fn echoes_headers(cors: &Cors) -> bool {
    cors.allow_credentials && is_any(&cors.allow_headers)
}

/// Joins a list. Envoy recognizes `*` only if it is the whole value.
fn list(all: &[String]) -> String {
    if is_any(all) {
        "*".to_owned()
    } else {
        all.join(", ")
    }
}

fn is_any(all: &[String]) -> bool {
    all.iter().any(|one| one == "*")
}

/// Matchers for the origins that a policy allows.
pub(super) fn origin_matchers(cors: &Cors) -> impl Iterator<Item = StringMatcher> {
    cors.allow_origins.iter().flat_map(origin_matcher)
}

/// Matchers for an origin with and without the default port, in any case: browsers write it in
/// lower case and without the port, and other clients need not. A wildcard covers any number of
/// labels.
fn origin_matcher(origin: &Origin) -> Vec<StringMatcher> {
    let Origin::Tuple { scheme, host, port } = origin else {
        return vec![matching(".*")];
    };
    let bare = format!("{}://{host}", scheme.as_str());
    let is_default = *port == scheme.default_port();
    match (bare.split_once('*'), is_default) {
        (None, true) => vec![in_any_case(format!("{bare}:{port}")), in_any_case(bare)],
        (None, false) => vec![in_any_case(format!("{bare}:{port}"))],
        (Some((before, after)), _) => {
            let port = if is_default {
                format!("(?::{port})?")
            } else {
                format!(":{port}")
            };
            vec![matching(&format!(
                "(?i){before}[^/:]+{}{port}",
                regex::escape(after)
            ))]
        }
    }
}

fn in_any_case(text: String) -> StringMatcher {
    StringMatcher {
        ignore_case: true,
        ..exact(&text)
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
    use std::time::Duration;

    use super::*;

    fn cors(origin: &str, allow_credentials: bool) -> Cors {
        Cors {
            allow_origins: vec![Origin::parse(origin).expect("an origin")],
            allow_methods: vec!["GET".into(), "*".into()],
            allow_headers: vec!["x-a".into(), "x-b".into()],
            expose_headers: vec!["x-a".into(), "*".into(), "x-b".into()],
            allow_credentials,
            max_age: Duration::from_secs(5),
        }
    }

    fn allows(origin: &str, candidate: &str) -> bool {
        origin_matchers(&cors(origin, true)).any(|matcher| match matcher.match_pattern {
            Some(MatchPattern::Exact(text)) if matcher.ignore_case => {
                text.eq_ignore_ascii_case(candidate)
            }
            Some(MatchPattern::SafeRegex(regex)) => {
                regex::Regex::new(&format!("^(?:{})$", regex.regex))
                    .expect("a regular expression")
                    .is_match(candidate)
            }
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn origins() {
        for (origin, candidate, expected) in [
            ("*", "https://a.org", true),
            ("*", "null", true),
            ("https://a.org", "https://a.org", true),
            ("https://a.org", "https://a.org:443", true),
            ("https://a.org", "https://a.org:80", false),
            ("https://a.org", "https://a.org:8443", false),
            ("https://a.org", "HTTPS://A.ORG", true),
            ("https://A.org", "https://a.org", true),
            ("https://a.org", "http://a.org", false),
            ("https://a.org", "https://a.org.evil.org", false),
            ("https://a.org:443", "https://a.org", true),
            ("https://a.org:80", "https://a.org", false),
            ("https://a.org:80", "https://a.org:80", true),
            ("http://a.org:80", "http://a.org", true),
            ("http://a.org", "http://a.org:80", true),
            ("http://a.org", "http://a.org:443", false),
            ("http://a.org:443", "http://a.org", false),
            ("https://*.a.org", "https://b.a.org", true),
            ("https://*.a.org", "https://c.b.a.org", true),
            ("https://*.a.org", "https://b.a.org:443", true),
            ("https://*.a.org", "https://b.a.org:8443", false),
            ("https://*.a.org", "https://B.A.org", true),
            ("https://*.a.org", "https://a.org", false),
            ("https://*.a.org", "http://b.a.org", false),
            ("https://*.a.org", "https://evil.org/.a.org", false),
            ("https://*.a.org", "https://evil.org:1.a.org", false),
            ("https://*.a.org", "https://bxa.org", false),
            ("https://*.a.org:8443", "https://b.a.org:8443", true),
            ("https://*.a.org:8443", "https://b.a.org", false),
            ("https://*.a.org:443", "https://b.a.org", true),
            ("http://*.a.org", "http://b.a.org:80", true),
            ("http://*.a.org", "http://b.a.org:8080", false),
            ("https://*", "https://b.a.org", true),
            ("https://*", "https://b.a.org:8443", false),
            ("https://*:8443", "https://b.a.org:8443", true),
            ("https://*", "null", false),
        ] {
            assert_eq!(allows(origin, candidate), expected, "{origin} {candidate}");
        }
    }

    #[test]
    fn any_stands_alone() {
        let with = policy(&cors("https://a.org", true));
        let without = policy(&cors("https://a.org", false));
        assert_eq!(
            with.allow_methods.as_str(),
            "*",
            "credentials do not change any method"
        );
        assert_eq!(
            without.allow_methods.as_str(),
            "*",
            "any method stands alone"
        );
        assert_eq!(
            with.allow_headers.as_str(),
            "x-a, x-b",
            "the listed headers are named"
        );
        assert_eq!(with.max_age.as_str(), "5", "the age is set");
    }

    #[test]
    fn with_credentials_no_header_of_the_name_star_is_exposed() {
        assert_eq!(
            policy(&cors("https://a.org", true)).expose_headers,
            "x-a, x-b"
        );
        assert_eq!(
            policy(&cors("https://a.org", false)).expose_headers,
            "x-a, *, x-b"
        );
    }
}
