//! Routes: one match of one rule becomes one or more Envoy routes.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::config::route::v3::{
    redirect_action::{PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier},
    route::Action as PbAction,
    route_action::{ClusterSpecifier, HostRewriteSpecifier, RequestMirrorPolicy},
    weighted_cluster::{ClusterWeight, cluster_weight},
};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};
use envoy_types::pb::google::protobuf::Any;

use super::cors;
use super::direct_response;
use super::headers::{Headers, headers};
use super::location;
use super::path::{NewPath, new_path, whole};
use super::proto::{any, duration, map, uint};
use super::request_hash;
use super::request_match::{containing, header, request_match};
use super::retry::{kept_bytes, times};
use super::route_filters::{self, Place};
use super::traffic;
use gatewright_core::model::{
    Action, Answer, Fraction, HeaderEdits, Mirror, PathMatch, Redirect, Rewrite, Route, Rule,
    Target, WeightedTarget,
};

/// Parts per million: Envoy's finest fraction.
const MILLION: u64 = 1_000_000;

/// The routes of one match, in order, without those for preflights.
///
/// Usually one. A rule with an invalid share, or with shares that rewrite the path or have
/// different hashes, which Envoy's weighted clusters cannot express, becomes one route per share;
/// these get their parts of the requests by cumulative fractions of the one random number of a
/// request.
pub(super) fn routes_of(route: &Route, place: &mut impl Place) -> Vec<pb::Route> {
    let shares: &[WeightedTarget] = match &route.rule.action {
        Action::Forward(shares) => shares,
        Action::Redirect(redirect) => return redirects(route, redirect, place),
        Action::Answer(answer) => return vec![answered(route, answer, place)],
        Action::Respond(status) => return vec![made(route, &[], respond(*status), place)],
    };
    let shares: Vec<&WeightedTarget> = shares.iter().filter(|share| share.weight > 0).collect();
    let hash = shares.first().map(|share| &share.hash);
    let together = shares.iter().all(|share| {
        share.target != Target::Invalid && share.rewrite.path.is_none() && Some(&share.hash) == hash
    });
    match shares.as_slice() {
        [] => vec![made(route, &[], nobody(route), place)],
        all if together || all.len() == 1 => {
            let action = forward(route, all, place);
            vec![made(route, all, action, place)]
        }
        all => apart(route, all, place),
    }
}

/// Envoy keeps the port of the request's host if the redirect has none. A second route for such
/// hosts, and for addresses of IPv6, has the default one of its scheme, which is taken out of the
/// answer. A host may have 60 KB: an expression would take it a hundred times as long to find the
/// port.
fn redirects(route: &Route, redirect: &Redirect, place: &mut impl Place) -> Vec<pb::Route> {
    fn action(redirect: &Redirect, route_matches_path: &PathMatch) -> PbAction {
        PbAction::Redirect(redirect_action(route_matches_path, redirect))
    }
    let usual = made(route, &[], action(redirect, &route.matches.path), place);
    if redirect.port.is_some() || redirect.hostname.is_some() {
        return vec![usual];
    }
    let redirect = Redirect {
        port: Some(redirect.default_port),
        ..redirect.clone()
    };
    let mut with_port = made(route, &[], action(&redirect, &route.matches.path), place);
    with_port
        .r#match
        .get_or_insert_default()
        .headers
        .push(header(":authority", containing(":")));
    with_port.typed_per_filter_config = location::turned_on(&with_port.typed_per_filter_config);
    vec![with_port, usual]
}

/// Returns one route per share.
fn apart(route: &Route, shares: &[&WeightedTarget], place: &mut impl Place) -> Vec<pb::Route> {
    let total: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
    let mut taken = 0;
    shares
        .iter()
        .map(|share| {
            taken += u64::from(share.weight);
            let action = forward(route, &[share], place);
            let mut made = made(route, &[share], action, place);
            if let (true, Some(matches)) = (taken < total, &mut made.r#match) {
                matches.runtime_fraction = Some(fraction(taken * MILLION / total));
            }
            made
        })
        .collect()
}

/// Returns an Envoy route with this action.
///
/// A share's mutations follow its rule's (Gateway API `HTTPBackendRef.filters`). Envoy's order is
/// the reverse: a route may undo the mutations of its weighted cluster. So a single share's
/// mutations are in the route after the rule's, and if several shares have mutations, the rule's
/// are in each of them.
fn made(
    route: &Route,
    shares: &[&WeightedTarget],
    action: PbAction,
    place: &mut impl Place,
) -> pb::Route {
    let Route {
        name,
        matches,
        rule,
    } = route;
    let Rule {
        request_headers,
        response_headers,
        counted,
        ..
    } = &**rule;
    let (request, response) = match shares {
        [only] => (
            headers(&[request_headers, &only.request_headers]),
            headers(&[response_headers, &only.response_headers]),
        ),
        _ if edited(shares) => (Headers::default(), Headers::default()),
        _ => (headers(&[request_headers]), headers(&[response_headers])),
    };
    pb::Route {
        name: name.to_string(),
        metadata: counted.then(|| traffic::of_route(name)),
        r#match: Some(request_match(matches)),
        request_headers_to_add: request.add,
        request_headers_to_remove: request.remove,
        response_headers_to_add: response.add,
        response_headers_to_remove: response.remove,
        typed_per_filter_config: per_filter(route, shares, place),
        request_body_buffer_limit: kept_bytes(rule.retry.as_ref()),
        action: Some(action),
        ..Default::default()
    }
}

/// The per-filter configuration of a route.
fn per_filter(
    route: &Route,
    shares: &[&WeightedTarget],
    place: &mut impl Place,
) -> HashMap<String, Any> {
    let cors = route
        .rule
        .cors
        .as_ref()
        .map(|cors| (cors::FILTER, any(&cors::policy(cors))));
    let own = route_filters::configs(route, shares, place);
    let configs: Vec<_> = cors.into_iter().chain(own).collect();
    map(&configs)
}

/// A route that answers itself. Its headers come before the edits of the rule, which change them.
fn answered(route: &Route, answer: &Answer, place: &mut impl Place) -> pb::Route {
    let action = direct_response::action(answer);
    let made = made(route, &[], action, place);
    let own = direct_response::headers_of(answer);
    let headers = headers(&[&own, &route.rule.response_headers]);
    pb::Route {
        name: direct_response::name(&route.name),
        response_headers_to_add: headers.add,
        response_headers_to_remove: headers.remove,
        ..made
    }
}

/// A fixed status without a body.
pub(super) fn respond(status: u16) -> PbAction {
    PbAction::DirectResponse(pb::DirectResponseAction {
        status: status.into(),
        ..Default::default()
    })
}

/// The response if no backend gets the request (Gateway API `HTTPBackendRef`: 500;
/// `GRPCBackendRef`: UNAVAILABLE, which is 503 for gRPC).
fn nobody(route: &Route) -> PbAction {
    respond(if route.matches.call.is_some() {
        503
    } else {
        500
    })
}

/// Forwards to one share, or to several that differ only in cluster, headers and host.
fn forward(route: &Route, shares: &[&WeightedTarget], place: &mut impl Place) -> PbAction {
    let rule = &route.rule;
    let (hostname, path) = match shares {
        [only] => (
            only.rewrite
                .hostname
                .as_ref()
                .or(rule.rewrite.hostname.as_ref()),
            only.rewrite.path.as_ref().or(rule.rewrite.path.as_ref()),
        ),
        _ if edited(shares) => (None, rule.rewrite.path.as_ref()),
        _ => (rule.rewrite.hostname.as_ref(), rule.rewrite.path.as_ref()),
    };
    let Some(cluster_specifier) = cluster_specifier(route, shares, place) else {
        return nobody(route);
    };
    let times = times(&rule.timeouts, rule.retry.as_ref());
    let mut action = pb::RouteAction {
        cluster_specifier: Some(cluster_specifier),
        timeout: duration(times.total),
        idle_timeout: times.idle.and_then(duration),
        retry_policy: times.retry,
        request_mirror_policies: rule.mirrors.iter().map(mirror).collect(),
        hash_policy: request_hash::of_requests(shares),
        host_rewrite_specifier: hostname
            .cloned()
            .map(HostRewriteSpecifier::HostRewriteLiteral),
        ..Default::default()
    };
    match path.and_then(|rewrite| new_path(&route.matches.path, rewrite)) {
        None => {}
        Some(NewPath::Prefix(prefix)) => action.prefix_rewrite = prefix,
        Some(NewPath::Regex(regex)) => action.regex_rewrite = Some(regex),
        Some(NewPath::Whole(path)) => action.regex_rewrite = Some(whole(&path)),
    }
    PbAction::Route(action)
}

/// Returns the cluster or weighted clusters; `None` if a share is invalid.
fn cluster_specifier(
    route: &Route,
    shares: &[&WeightedTarget],
    place: &mut impl Place,
) -> Option<ClusterSpecifier> {
    fn name(share: &WeightedTarget) -> Option<String> {
        match &share.target {
            Target::Backend(backend) => Some(backend.to_string()),
            Target::Invalid => None,
        }
    }
    if let [only] = shares {
        return name(only).map(ClusterSpecifier::Cluster);
    }
    let edited = edited(shares);
    let weight = |share: &&WeightedTarget| {
        let filters = route_filters::configs_of_share(route, share, place);
        let plain = ClusterWeight {
            name: name(share)?,
            weight: uint(share.weight),
            typed_per_filter_config: map(&filters),
            ..Default::default()
        };
        Some(if edited {
            with_edits(plain, &route.rule, share)
        } else {
            plain
        })
    };
    let clusters = shares.iter().map(weight).collect::<Option<Vec<_>>>()?;
    Some(ClusterSpecifier::WeightedClusters(pb::WeightedCluster {
        clusters,
        ..Default::default()
    }))
}

/// Returns true if any of several shares has more than its backend and a path.
fn edited(shares: &[&WeightedTarget]) -> bool {
    let none = HeaderEdits::default();
    shares.len() > 1
        && shares.iter().any(|share| {
            let WeightedTarget {
                request_headers,
                response_headers,
                rewrite: Rewrite { hostname, path: _ },
                ..
            } = share;
            *request_headers != none || *response_headers != none || hostname.is_some()
        })
}

fn with_edits(plain: ClusterWeight, rule: &Rule, share: &WeightedTarget) -> ClusterWeight {
    let request = headers(&[&rule.request_headers, &share.request_headers]);
    let response = headers(&[&rule.response_headers, &share.response_headers]);
    let hostname = share
        .rewrite
        .hostname
        .as_ref()
        .or(rule.rewrite.hostname.as_ref());
    ClusterWeight {
        request_headers_to_add: request.add,
        request_headers_to_remove: request.remove,
        response_headers_to_add: response.add,
        response_headers_to_remove: response.remove,
        host_rewrite_specifier: hostname
            .cloned()
            .map(cluster_weight::HostRewriteSpecifier::HostRewriteLiteral),
        ..plain
    }
}

/// A mirror of the unchanged request: without `-shadow` after its host.
fn mirror(mirror: &Mirror) -> RequestMirrorPolicy {
    let Mirror {
        backend,
        fraction: Fraction {
            numerator,
            denominator,
        },
    } = mirror;
    let part = u64::from(*numerator) * MILLION / u64::from((*denominator).max(1));
    RequestMirrorPolicy {
        cluster: backend.to_string(),
        runtime_fraction: (part < MILLION).then(|| fraction(part)),
        disable_shadow_host_suffix_append: true,
        ..Default::default()
    }
}

fn fraction(per_million: u64) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent {
        default_value: Some(FractionalPercent {
            numerator: u32::try_from(per_million.min(MILLION)).expect("a million fits"),
            denominator: DenominatorType::Million.into(),
        }),
        ..Default::default()
    }
}

fn redirect_action(matched: &PathMatch, redirect: &Redirect) -> pb::RedirectAction {
    let Redirect {
        scheme,
        hostname,
        port,
        default_port: _,
        path,
        status,
    } = redirect;
    pb::RedirectAction {
        scheme_rewrite_specifier: scheme.clone().map(SchemeRewriteSpecifier::SchemeRedirect),
        host_redirect: hostname.clone().unwrap_or_default(),
        port_redirect: port.map(u32::from).unwrap_or_default(),
        path_rewrite_specifier: path.as_ref().and_then(|path| new_path(matched, path)).map(
            |path| match path {
                NewPath::Prefix(prefix) => PathRewriteSpecifier::PrefixRewrite(prefix),
                NewPath::Regex(regex) => PathRewriteSpecifier::RegexRewrite(regex),
                NewPath::Whole(path) => PathRewriteSpecifier::PathRedirect(path),
            },
        ),
        response_code: match status {
            301 => RedirectResponseCode::MovedPermanently,
            303 => RedirectResponseCode::SeeOther,
            307 => RedirectResponseCode::TemporaryRedirect,
            308 => RedirectResponseCode::PermanentRedirect,
            _ => RedirectResponseCode::Found,
        }
        .into(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route_filters::InRoute;
    use crate::testdata::{backend, route, rule, share, to};
    use gatewright_core::model::{AppProtocol, PathRewrite};

    fn forwarded(shares: Vec<WeightedTarget>) -> Vec<pb::Route> {
        routes_of(&route("/a", rule(Action::Forward(shares))), &mut InRoute)
    }

    fn fraction_of(route: &pb::Route) -> Option<u32> {
        let fraction = route
            .r#match
            .as_ref()
            .expect("a match")
            .runtime_fraction
            .as_ref()?;
        Some(fraction.default_value.as_ref().expect("a value").numerator)
    }

    fn status_of(route: &pb::Route) -> Option<u32> {
        match route.action.as_ref().expect("an action") {
            PbAction::DirectResponse(response) => Some(response.status),
            _ => None,
        }
    }

    fn action_of(route: &pb::Route) -> &pb::RouteAction {
        match route.action.as_ref().expect("an action") {
            PbAction::Route(action) => action,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_backend_is_a_cluster_and_several_are_weighted() {
        let one = forwarded(vec![to("web", 1)]);
        assert_eq!(
            action_of(&one[0]).cluster_specifier,
            Some(ClusterSpecifier::Cluster("default/web:80".into()))
        );
        let two = forwarded(vec![to("web", 9), to("api", 1), to("off", 0)]);
        let Some(ClusterSpecifier::WeightedClusters(made)) = &action_of(&two[0]).cluster_specifier
        else {
            panic!("weighted clusters")
        };
        assert_eq!(two.len(), 1, "both backends are one route");
        assert_eq!(made.clusters.len(), 2, "each has its share");
    }

    #[test]
    fn no_weight_or_no_backend_is_500() {
        for shares in [vec![], vec![to("web", 0)], vec![share(Target::Invalid, 1)]] {
            let made = forwarded(shares);
            assert_eq!(made.len(), 1, "there is one route");
            assert_eq!(status_of(&made[0]), Some(500), "it answers 500");
        }
    }

    #[test]
    fn an_invalid_share_answers_500_for_its_part() {
        let made = forwarded(vec![to("web", 1), share(Target::Invalid, 2), to("api", 1)]);
        let fractions: Vec<_> = made.iter().map(fraction_of).collect();
        assert_eq!(fractions, [Some(250_000), Some(750_000), None]);
        let statuses: Vec<_> = made.iter().map(status_of).collect();
        assert_eq!(statuses, [None, Some(500), None]);
    }

    #[test]
    fn shares_that_rewrite_the_path_are_routes_of_their_own() {
        let mut rewritten = to("api", 1);
        rewritten.rewrite.path = Some(PathRewrite::Prefix("/b".into()));
        let mut shared = rule(Action::Forward(vec![to("web", 1), rewritten]));
        shared.rewrite.path = Some(PathRewrite::Prefix("/c".into()));
        let made = routes_of(&route("/a", shared), &mut InRoute);
        let prefixes: Vec<_> = made
            .iter()
            .map(|r| action_of(r).prefix_rewrite.as_str())
            .collect();
        assert_eq!(prefixes, ["/c", "/b"]);
    }

    #[test]
    fn edits_of_shares_come_after_the_rules() {
        let mut edited = to("web", 1);
        edited
            .request_headers
            .set
            .push(("x-a".into(), "share".into()));
        fn with(shares: Vec<WeightedTarget>) -> pb::Route {
            let mut rule = rule(Action::Forward(shares));
            rule.request_headers.set.push(("x-a".into(), "rule".into()));
            routes_of(&route("/a", rule), &mut InRoute).remove(0)
        }
        let one = with(vec![edited.clone()]);
        assert_eq!(one.request_headers_to_add.len(), 2);
        assert_eq!(
            action_of(&one).cluster_specifier,
            Some(ClusterSpecifier::Cluster("default/web:80".into()))
        );
        let two = with(vec![edited, to("api", 1)]);
        assert!(two.request_headers_to_add.is_empty());
        let Some(ClusterSpecifier::WeightedClusters(clusters)) = &action_of(&two).cluster_specifier
        else {
            panic!("weighted clusters")
        };
        let edits: Vec<_> = clusters
            .clusters
            .iter()
            .map(|c| c.request_headers_to_add.len())
            .collect();
        assert_eq!(edits, [2, 1]);
    }

    #[test]
    fn a_mirror_of_everything_has_no_fraction() {
        fn of(numerator: u32, denominator: u32) -> Option<RuntimeFractionalPercent> {
            let backend = backend("copy", AppProtocol::Http1);
            mirror(&Mirror {
                backend,
                fraction: Fraction {
                    numerator,
                    denominator,
                },
            })
            .runtime_fraction
        }
        assert_eq!(of(100, 100), None);
        assert_eq!(of(1, 3), Some(fraction(333_333)));
        assert_eq!(of(0, 100), Some(fraction(0)));
    }

    #[test]
    fn a_redirect_has_what_it_changes_and_nothing_else() {
        let redirect = Redirect {
            scheme: Some("https".into()),
            hostname: None,
            port: Some(8443),
            default_port: 443,
            path: None,
            status: 301,
        };
        let made = redirect_action(&PathMatch::Prefix("/".into()), &redirect);
        assert_eq!(made.port_redirect, 8443, "the port is changed");
        assert_eq!(made.host_redirect.as_str(), "", "the host is not");
        assert_eq!(made.response_code(), RedirectResponseCode::MovedPermanently);
        assert_eq!(made.path_rewrite_specifier, None);
    }
}
