//! Routes that answer preflights (Fetch standard, 3.2.2; GEP-1767): requests by which a browser
//! asks whether it may send another one.
//!
//! A preflight has the URL of that request, its method in `Access-Control-Request-Method`, and the
//! names of its headers in `Access-Control-Request-Headers`. Each match of a rule with a CORS
//! filter therefore has routes for preflights before its own, which compare the method with the
//! first header. Of the match's headers a preflight may have the value (a proxy or the browser sets
//! it), the name, or nothing. A match whose headers are not known to hold answers only those
//! preflights that no other rule for the same path answers.
//!
//! Filters of the rule other than CORS do not apply: browsers send preflights without credentials.

use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, RouteAction, RouteMatch, header_matcher::HeaderMatchSpecifier, route::Action,
    route_action::ClusterSpecifier,
};
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;

use super::REFUSED;
use super::cors;
use super::proto::{any, map};
use super::request_match::{exact, header, matching, request_match};
use super::route::{respond, routes_of};
use super::route_filters::Place;
use gatewright_core::model::{Cors, HeaderMatch, Match, Origin, Route};

const ORIGIN: &str = "origin";
const REQUESTED_METHOD: &str = "access-control-request-method";
const REQUESTED_HEADERS: &str = "access-control-request-headers";

/// Headers of a match that a preflight has with the values of the request that it asks for.
const CARRIED: [&str; 2] = ["host", ORIGIN];

/// The routes of a virtual host, in order, with those for preflights.
pub(super) fn routes(all: &[Route], place: &mut impl Place) -> Vec<pb::Route> {
    let mut made = Vec::new();
    // The path of matches whose headers are not known to hold, with their answers.
    let mut waiting: Option<(&Route, Vec<pb::Route>)> = None;
    for route in all {
        made.extend(
            waiting
                .take_if(|(first, _)| !goes_on(first, route))
                .into_iter()
                .flat_map(|(_, answers)| answers),
        );
        if let Some(cors) = &route.rule.cors {
            made.extend(
                known(&route.matches)
                    .into_iter()
                    .flat_map(|headers| answers(route, cors, headers)),
            );
            if let Some(headers) = unknown(&route.matches) {
                waiting
                    .get_or_insert_with(|| (route, Vec::new()))
                    .1
                    .extend(answers(route, cors, headers));
            }
        }
        made.extend(routes_of(route, place));
    }
    made.extend(waiting.into_iter().flat_map(|(_, answers)| answers));
    made
}

/// True if a later match may answer preflights better than one whose headers are not known to hold.
fn goes_on(first: &Route, later: &Route) -> bool {
    later.rule.cors.is_some() && later.matches.path == first.matches.path
}

/// A match's conditions on headers as those on a preflight.
struct Conditions {
    /// Those that are compared.
    compared: Vec<HeaderMatch>,
    /// The names of those that the preflight asks for.
    requested: Vec<String>,
}

fn is_carried(header: &HeaderMatch) -> bool {
    CARRIED.contains(&header.name.as_str())
}

/// Conditions under which the headers of a match are known to hold: the preflight has them, or asks
/// for them.
fn known(matches: &Match) -> Vec<Conditions> {
    let (carried, others): (Vec<_>, Vec<_>) = matches.headers.iter().cloned().partition(is_carried);
    let all = Conditions {
        compared: matches.headers.clone(),
        requested: Vec::new(),
    };
    if others.is_empty() {
        return vec![all];
    }
    let requested = others.into_iter().map(|header| header.name).collect();
    vec![
        all,
        Conditions {
            compared: carried,
            requested,
        },
    ]
}

/// Conditions without the headers that a preflight need not have; `None` if that is all of them.
fn unknown(matches: &Match) -> Option<Conditions> {
    let compared: Vec<_> = matches
        .headers
        .iter()
        .filter(|header| is_carried(header))
        .cloned()
        .collect();
    (compared.len() < matches.headers.len()).then_some(Conditions {
        compared,
        requested: Vec::new(),
    })
}

/// The routes that answer preflights under some conditions: those of strangers without any header
/// of CORS, and the others as the policy says.
fn answers(route: &Route, cors: &Cors, conditions: Conditions) -> Vec<pb::Route> {
    let preflight = preflight(&route.matches, conditions);
    let mut made = Vec::new();
    if !cors.allow_origins.contains(&Origin::Any) {
        let others = cors::origin_matchers(cors).map(|origin| header(ORIGIN, origin));
        let strange = others.map(|origin| HeaderMatcher {
            invert_match: true,
            ..origin
        });
        made.push(answer(route, also(&preflight, strange), respond(200)));
    }
    if cors::echoes_headers(cors) {
        let absent = HeaderMatcher {
            name: REQUESTED_HEADERS.to_owned(),
            header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(false)),
            ..Default::default()
        };
        let none = Cors {
            allow_headers: Vec::new(),
            ..cors.clone()
        };
        made.push(allowed(route, also(&preflight, [absent]), &none));
    }
    made.push(allowed(route, preflight, cors));
    made
}

/// The route of preflights that the CORS filter answers by a policy; its cluster has no endpoint.
fn allowed(route: &Route, matches: RouteMatch, cors: &Cors) -> pb::Route {
    let cluster_specifier = Some(ClusterSpecifier::Cluster(REFUSED.to_owned()));
    let action = Action::Route(RouteAction {
        cluster_specifier,
        ..Default::default()
    });
    pb::Route {
        typed_per_filter_config: map(&[(cors::FILTER, any(&cors::policy(cors)))]),
        ..answer(route, matches, action)
    }
}

fn answer(route: &Route, matches: RouteMatch, action: Action) -> pb::Route {
    pb::Route {
        name: route.name.to_string(),
        r#match: Some(matches),
        action: Some(action),
        ..Default::default()
    }
}

fn also(matches: &RouteMatch, headers: impl IntoIterator<Item = HeaderMatcher>) -> RouteMatch {
    let mut matches = matches.clone();
    matches.headers.extend(headers);
    matches
}

/// The match of preflights that ask for a request that matches.
fn preflight(matches: &Match, conditions: Conditions) -> RouteMatch {
    let Match {
        path,
        call: _,
        method,
        headers: _,
        query,
    } = matches;
    let Conditions {
        compared,
        requested,
    } = conditions;
    let made = request_match(&Match {
        path: path.clone(),
        call: None,
        method: Some("OPTIONS".to_owned()),
        headers: compared,
        query: query.clone(),
    });
    // A rule for OPTIONS is one for preflights, whatever they ask for.
    let method = match method.as_deref() {
        None | Some("OPTIONS") => matching(".+"),
        Some(method) => exact(method),
    };
    let asked = [
        header(ORIGIN, matching(".+")),
        header(REQUESTED_METHOD, method),
    ];
    also(
        &made,
        asked.into_iter().chain(
            requested
                .iter()
                .map(|name| header(REQUESTED_HEADERS, listed(name))),
        ),
    )
}

/// A matcher for a list with this name.
fn listed(name: &str) -> StringMatcher {
    matching(&format!(
        "(?i)(?:.*[, \\t])?{}(?:[, \\t].*)?",
        regex::escape(name)
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::route_filters::InRoute;
    use crate::testdata::{route, rule, to};
    use gatewright_core::model::{Action as ModelAction, Rule, StringMatch};

    fn policy(origins: &[&str]) -> Cors {
        Cors {
            allow_origins: origins
                .iter()
                .map(|text| Origin::parse(text).expect("an origin"))
                .collect(),
            allow_methods: vec!["GET".into()],
            allow_headers: vec![],
            expose_headers: vec![],
            allow_credentials: true,
            max_age: Duration::from_secs(5),
        }
    }

    fn served(path: &str, cors: Option<Cors>) -> Route {
        route(
            path,
            Rule {
                cors,
                ..rule(ModelAction::Forward(vec![to("web", 1)]))
            },
        )
    }

    fn with_header(name: &str, route: Route) -> Route {
        let headers = vec![HeaderMatch {
            name: name.into(),
            value: StringMatch::Exact("1".into()),
        }];
        Route {
            matches: Match {
                headers,
                ..route.matches
            },
            ..route
        }
    }

    /// Each route as `path`, with `!` if it refuses strangers, `?` if it answers preflights, and
    /// the number of conditions.
    fn shown(all: &[Route]) -> Vec<String> {
        fn show(made: pb::Route) -> String {
            let matches = made.r#match.expect("a match");
            let path = match matches.path_specifier.expect("a path") {
                pb::route_match::PathSpecifier::PathSeparatedPrefix(path) => path,
                other => panic!("{other:?}"),
            };
            let asks = matches
                .headers
                .iter()
                .any(|header| header.name == REQUESTED_METHOD);
            let mark = match made.action {
                Some(Action::DirectResponse(_)) => "!",
                _ if asks => "?",
                _ => "",
            };
            format!("{path}{mark}{}", matches.headers.len())
        }
        routes(all, &mut InRoute).into_iter().map(show).collect()
    }

    #[test]
    fn rules_without_cors_have_no_routes_for_preflights() {
        assert_eq!(
            shown(&[served("/a", None), with_header("x-a", served("/b", None))]),
            ["/a0", "/b1"]
        );
    }

    #[test]
    fn strangers_come_first_where_there_are_any() {
        assert_eq!(
            shown(&[served("/a", Some(policy(&["https://a.org:1"])))]),
            ["/a!4", "/a?3", "/a0"]
        );
        assert_eq!(
            shown(&[served("/a", Some(policy(&["*"])))]),
            ["/a?3", "/a0"]
        );
    }

    #[test]
    fn a_method_is_compared_with_the_one_that_is_asked_for() {
        fn of(method: &str) -> (Option<HeaderMatcher>, Option<HeaderMatcher>) {
            let matches = Match {
                method: Some(method.into()),
                ..served("/a", None).matches
            };
            let made = preflight(&matches, known(&matches).remove(0));
            fn value(name: &str, made_headers: &[HeaderMatcher]) -> Option<HeaderMatcher> {
                made_headers
                    .iter()
                    .find(|header| header.name == name)
                    .cloned()
            }
            (
                value(":method", &made.headers),
                value(REQUESTED_METHOD, &made.headers),
            )
        }
        let options = Some(header(":method", exact("OPTIONS")));
        assert_eq!(
            of("PUT"),
            (
                options.clone(),
                Some(header(REQUESTED_METHOD, exact("PUT")))
            )
        );
        assert_eq!(
            of("OPTIONS"),
            (options, Some(header(REQUESTED_METHOD, matching(".+"))))
        );
    }

    #[test]
    fn unknown_headers_come_after_other_rules_of_the_path_and_before_those_without_the_filter() {
        fn cors() -> Option<Cors> {
            Some(policy(&["*"]))
        }
        let headed = with_header("x-a", served("/a", cors()));
        let known = ["/a?4", "/a?4", "/a1"];
        assert_eq!(
            shown(std::slice::from_ref(&headed)),
            [&known[..], &["/a?3"]].concat()
        );
        let two = [headed.clone(), served("/a", cors())];
        assert_eq!(shown(&two), [&known[..], &["/a?3", "/a0", "/a?3"]].concat());
        let plain = [headed.clone(), served("/a", None)];
        assert_eq!(shown(&plain), [&known[..], &["/a?3", "/a0"]].concat());
        let elsewhere = [headed, served("/", None)];
        assert_eq!(routes(&elsewhere, &mut InRoute).len(), 5);
    }

    #[test]
    fn headers_that_preflights_carry_are_compared() {
        fn cors() -> Option<Cors> {
            Some(policy(&["*"]))
        }
        for name in CARRIED {
            assert_eq!(
                shown(&[with_header(name, served("/a", cors()))]),
                ["/a?4", "/a1"],
                "{name}"
            );
        }
    }

    #[test]
    fn a_list_has_a_name_as_a_whole() {
        let Some(
            envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern::SafeRegex(
                regex,
            ),
        ) = listed("x-a").match_pattern
        else {
            panic!("an expression")
        };
        let regex =
            regex::Regex::new(&format!("^(?:{})$", regex.regex)).expect("a regular expression");
        for list in ["x-a", "X-A", "b,x-a", "x-a,b", "a, x-a , b"] {
            assert!(regex.is_match(list), "{list}");
        }
        for list in ["", "x-ab", "xx-a", "x-a-b", "b"] {
            assert!(!regex.is_match(list), "{list}");
        }
    }

    #[test]
    fn preflights_that_ask_for_no_headers_are_answered_none() {
        let cors = Cors {
            allow_headers: vec!["*".into()],
            ..policy(&["*"])
        };
        assert_eq!(
            shown(&[served("/a", Some(cors.clone()))]),
            ["/a?4", "/a?3", "/a0"]
        );
        let without = Cors {
            allow_credentials: false,
            ..cors
        };
        assert_eq!(shown(&[served("/a", Some(without))]), ["/a?3", "/a0"]);
    }
}
