//! Conditions on requests as Envoy's route matches.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, QueryParameterMatcher, RouteMatch,
    header_matcher::HeaderMatchSpecifier,
    query_parameter_matcher::QueryParameterMatchSpecifier,
    route_match::{GrpcRouteMatchOptions, PathSpecifier},
};
use envoy_types::pb::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};

use gatewright_core::model::{HeaderMatch, Match, PathMatch, QueryMatch, StringMatch};

/// The match of a route.
///
/// Of several conditions for one header or query parameter only the first counts (Gateway API
/// `HTTPRouteMatch`); names of headers are case-insensitive, those of query parameters
/// case-sensitive.
pub(super) fn request_match(matches: &Match) -> RouteMatch {
    let Match {
        path,
        call,
        method,
        headers,
        query,
    } = matches;
    let method = method
        .as_ref()
        .map(|method| header(":method", exact(method)));
    let mut seen = BTreeSet::new();
    let headers = headers
        .iter()
        .filter(|h| seen.insert(h.name.to_ascii_lowercase()))
        .map(header_match);
    let mut seen = BTreeSet::new();
    let query = query
        .iter()
        .filter(|q| seen.insert(q.name.as_str()))
        .map(query_match);
    RouteMatch {
        path_specifier: Some(path_specifier(path)),
        headers: method.into_iter().chain(headers).collect(),
        query_parameters: query.collect(),
        grpc: call.map(|_| GrpcRouteMatchOptions::default()),
        ..Default::default()
    }
}

fn path_specifier(path: &PathMatch) -> PathSpecifier {
    match path {
        PathMatch::Exact(path) => PathSpecifier::Path(path.clone()),
        PathMatch::Prefix(prefix) => match prefix.trim_end_matches('/') {
            // A path-separated prefix cannot be the root, which every path starts with anyway.
            "" => PathSpecifier::Prefix("/".to_owned()),
            prefix => PathSpecifier::PathSeparatedPrefix(prefix.to_owned()),
        },
        PathMatch::Regex(regex) => PathSpecifier::SafeRegex(regex_matcher(regex)),
    }
}

fn header_match(header_match: &HeaderMatch) -> HeaderMatcher {
    let HeaderMatch { name, value } = header_match;
    // HTTP/2 has no `host`, and Envoy's only name for it is `:authority`.
    let name = if name.eq_ignore_ascii_case("host") {
        ":authority"
    } else {
        name
    };
    header(name, string_matcher(value))
}

fn query_match(query: &QueryMatch) -> QueryParameterMatcher {
    QueryParameterMatcher {
        name: query.name.clone(),
        query_parameter_match_specifier: Some(QueryParameterMatchSpecifier::StringMatch(
            string_matcher(&query.value),
        )),
    }
}

pub(super) fn header(name: &str, value: StringMatcher) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(value)),
        ..Default::default()
    }
}

fn string_matcher(value: &StringMatch) -> StringMatcher {
    match value {
        StringMatch::Exact(text) => exact(text),
        StringMatch::Regex(regex) => matching(regex),
    }
}

pub(super) fn exact(text: &str) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(MatchPattern::Exact(text.to_owned())),
        ..Default::default()
    }
}

/// A matcher for texts that contain this one.
pub(super) fn containing(text: &str) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(MatchPattern::Contains(text.to_owned())),
        ..Default::default()
    }
}

/// A matcher by a regular expression (RE2) for the whole text.
pub(super) fn matching(regex: &str) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(MatchPattern::SafeRegex(regex_matcher(regex))),
        ..Default::default()
    }
}

pub(super) fn regex_matcher(regex: &str) -> RegexMatcher {
    RegexMatcher {
        regex: regex.to_owned(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_path() -> Match {
        Match {
            path: PathMatch::Prefix("/".into()),
            call: None,
            method: None,
            headers: vec![],
            query: vec![],
        }
    }

    #[test]
    fn a_prefix_matches_whole_elements_and_the_root_matches_all() {
        fn of(prefix: &str) -> PathSpecifier {
            path_specifier(&PathMatch::Prefix(prefix.to_owned()))
        }
        assert_eq!(of("/"), PathSpecifier::Prefix("/".into()));
        assert_eq!(of("/a"), PathSpecifier::PathSeparatedPrefix("/a".into()));
        assert_eq!(of("/a/"), PathSpecifier::PathSeparatedPrefix("/a".into()));
    }

    #[test]
    fn the_first_condition_on_a_header_counts() {
        fn condition(name: &str, value: &str) -> HeaderMatch {
            HeaderMatch {
                name: name.to_owned(),
                value: StringMatch::Exact(value.to_owned()),
            }
        }
        let headers = vec![
            condition("x-a", "1"),
            condition("X-A", "2"),
            condition("host", "h"),
        ];
        let made = request_match(&Match {
            headers,
            method: Some("GET".into()),
            ..any_path()
        });
        let names: Vec<_> = made.headers.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, [":method", "x-a", ":authority"]);
        assert_eq!(made.headers[1], header("x-a", exact("1")));
    }

    #[test]
    fn query_parameters_keep_their_case() {
        fn condition(name: &str) -> QueryMatch {
            QueryMatch {
                name: name.to_owned(),
                value: StringMatch::Regex("v.*".to_owned()),
            }
        }
        let query = vec![condition("a"), condition("A"), condition("a")];
        assert_eq!(
            request_match(&Match {
                query,
                ..any_path()
            })
            .query_parameters
            .len(),
            2
        );
    }
}
