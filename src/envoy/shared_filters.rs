//! Filters that several routes of a virtual host have together, on TLS: the matches of a rule count
//! for its rate limits together, and have the bodies of its overrides once.
//!
//! In: routes with the configuration of their filters, each for itself. Out: what is equal stands
//! in the virtual host, for one of several filter chain filters that all other routes switch off.
//! That costs a request nothing but the filters themselves. Where there are more lists than such
//! filters, they are made by marks ([`super::listener_filters::shared`]), which costs more.

use std::collections::HashSet;

use envoy_types::pb::envoy::config::route::v3::{Route, VirtualHost};
use envoy_types::pb::google::protobuf::Any;

use super::proto::{any, disabled, map};
use super::route_filters::{FILTER, SHARED};

/// A virtual host that has the filters of several routes itself; `None` if there are too many lists.
pub(super) fn folded(host: VirtualHost) -> Option<VirtualHost> {
    let repeated = repeated(&host.routes);
    let mut all = host.routes.iter().filter_map(own);
    let places = if all.all(|filters| repeated.contains(filters)) {
        &SHARED[..]
    } else {
        &SHARED[..1]
    };
    if repeated.len() > places.len() {
        return None;
    }
    let configs: Vec<(&str, Any)> = places.iter().copied().zip(repeated).collect();
    let routes = host.routes.into_iter();
    Some(VirtualHost {
        routes: routes.map(|route| placed(route, &configs)).collect(),
        typed_per_filter_config: map(&configs),
        ..host
    })
}

fn own(route: &Route) -> Option<&Any> {
    route.typed_per_filter_config.get(FILTER)
}

/// The filters that more than one route has, in the order of the routes.
fn repeated(routes: &[Route]) -> Vec<Any> {
    let (mut once, mut twice) = (HashSet::new(), HashSet::new());
    let all = routes.iter().filter_map(own);
    all.filter(|filters| !once.insert(&filters.value) && twice.insert(&filters.value))
        .cloned()
        .collect()
}

/// A route that has its own filters, or those of the virtual host that are equal.
fn placed(route: Route, shared: &[(&str, Any)]) -> Route {
    let place = shared
        .iter()
        .find(|(_, filters)| Some(filters) == own(&route))
        .map(|(place, _)| *place);
    let kept = route
        .typed_per_filter_config
        .iter()
        .filter(|(name, _)| place.is_none() || *name != FILTER)
        .map(|(name, config)| (name.as_str(), config.clone()));
    let off = shared
        .iter()
        .filter(|(other, _)| Some(*other) != place)
        .map(|(other, _)| (*other, any(&disabled())));
    let configs = map(&kept.chain(off).collect::<Vec<_>>());
    Route {
        typed_per_filter_config: configs,
        ..route
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gatewright_core::model::{
        Action, ObjectName, Route as ModelRoute, Session, VirtualHost as Host, WeightedTarget,
    };
    use gatewright_core::request_outcome::MISDIRECTED;
    use gatewright_core::settings::{LimitUnit, LimitedBy, OfPolicy, RateLimit, RateLimits};
    use prost::Message;

    use super::*;
    use crate::listener_filters::MARK;
    use crate::testdata::{host, route, rule, to};
    use crate::virtual_host::{answer, virtual_host};

    fn limited_to(path: &str, name: &str, shares: Vec<WeightedTarget>) -> ModelRoute {
        let limit = RateLimit {
            requests: 1,
            per: LimitUnit::Second,
            burst: 1,
            by: LimitedBy::Everyone,
        };
        let mut rule = rule(Action::Forward(shares));
        rule.traffic.rate_limit = Some(Arc::new(OfPolicy {
            policy: ObjectName::new("default", "p"),
            setting: RateLimits {
                limits: Arc::from([limit]),
            },
        }));
        ModelRoute {
            name: Arc::from(name),
            ..route(path, rule)
        }
    }

    fn limited(path: &str, name: &str) -> ModelRoute {
        limited_to(path, name, vec![to("web", 1)])
    }

    fn plain(path: &str) -> ModelRoute {
        route(path, rule(Action::Forward(vec![to("web", 1)])))
    }

    fn made(routes: Vec<ModelRoute>) -> VirtualHost {
        let first = answer(MISDIRECTED, 421);
        virtual_host(&Host::new(host("a.org"), routes), Some(&first))
    }

    /// The filters that each route runs: those of the virtual host and its own, of which Envoy runs
    /// both, unless it switches the filter off.
    fn run(host: &VirtualHost) -> Vec<Vec<Vec<u8>>> {
        let off = any(&disabled()).value;
        let run = |route: &Route| {
            let names = SHARED.into_iter();
            names
                .filter(|name| {
                    let own = route.typed_per_filter_config.get(*name);
                    own.is_none_or(|own| own.value != off)
                })
                .flat_map(|name| {
                    let all = [
                        &host.typed_per_filter_config,
                        &route.typed_per_filter_config,
                    ];
                    all.map(|configs| configs.get(name)).into_iter().flatten()
                })
                .map(|filters| filters.value.clone())
                .collect()
        };
        host.routes.iter().map(run).collect()
    }

    #[test]
    fn the_matches_of_a_rule_with_rate_limits_have_one_filter() {
        let made = made(vec![
            limited("/one", "httproute/a/b/0"),
            limited("/two", "httproute/a/b/0"),
            limited("/three", "httproute/a/b/1"),
            plain("/plain"),
        ]);
        let run = run(&made);
        let counts: Vec<usize> = run.iter().map(Vec::len).collect();
        assert_eq!(counts, [0, 1, 1, 1, 0], "each route has its filters alone");
        assert_eq!(run[1], run[2], "the matches of a rule");
        assert_ne!(run[1], run[3], "another rule with the same policy");
        let own = made.routes[3].typed_per_filter_config.get(FILTER);
        assert_eq!(
            own.map(|own| &own.value),
            run[3].first(),
            "a rule with one match has them in its route"
        );
    }

    #[test]
    fn more_lists_than_filters_are_made_by_marks() {
        let rules = |count: usize| {
            let names = (0..count).map(|rule| format!("httproute/a/b/{rule}"));
            let twice = names.flat_map(|name| [limited("/one", &name), limited("/two", &name)]);
            made(twice.collect())
        };
        let all = rules(SHARED.len());
        assert!(!all.typed_per_filter_config.contains_key(MARK), "{all:?}");
        let counts = run(&all).into_iter().skip(1).map(|run| run.len());
        assert_eq!(counts.max(), Some(1), "each route has its filters alone");
        let more = rules(SHARED.len() + 1);
        assert!(more.typed_per_filter_config.contains_key(MARK));
        assert!(run(&more).iter().all(Vec::is_empty), "by marks alone");
    }

    #[test]
    fn shares_with_sessions_of_their_own_are_made_by_marks() {
        let mut kept = to("web", 1);
        kept.session = Some(Box::new(Session::Header("x-one".to_owned())));
        let shares = vec![kept, to("web", 1)];
        let made = made(vec![limited_to("/", "httproute/a/b/0", shares)]);
        assert!(made.typed_per_filter_config.contains_key(MARK));
    }

    #[test]
    fn a_host_without_limits_has_no_filter_for_them() {
        let made = made(vec![plain("/one"), plain("/two")]);
        assert!(made.typed_per_filter_config.is_empty());
    }

    #[test]
    fn equal_hosts_encode_to_equal_bytes() {
        let host = || {
            made(vec![
                limited("/one", "httproute/a/b/0"),
                limited("/two", "httproute/a/b/0"),
                limited("/three", "httproute/a/b/1"),
                limited("/four", "httproute/a/b/1"),
            ])
        };
        let bytes = host().encode_to_vec();
        for _ in 0..20 {
            assert!(host().encode_to_vec() == bytes, "maps in their order");
        }
    }
}
