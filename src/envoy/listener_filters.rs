//! Filters of a listener: what stands before the routes of a virtual host.
//!
//! Envoy looks for a route before it runs any filter. So the filters are the virtual host's, whose
//! every request has a route, if only the one that says 404; and once a server has been asked, a
//! route is looked for again. By then the filters of the first route are in place, and they would
//! run for the second. A route behind listener filters therefore marks the request, and the filter
//! after that makes the route's own filters by the mark ([`MARKED`]). On plain HTTP, where a request
//! may have no route at first, that holds for all virtual hosts ([`late`]); and on TLS for those
//! whose routes share more lists of filters than `shared_filters.rs` has a place for ([`shared`]).

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{HeaderMutation, header_mutation};
use envoy_types::pb::envoy::config::core::v3::{
    TypedExtensionConfig, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::config::route::v3::{Route, VirtualHost};
use envoy_types::pb::envoy::extensions::common::matching::v3::{
    ExtensionWithMatcher, ExtensionWithMatcherPerRoute,
};
use envoy_types::pb::envoy::extensions::filters::http::composite::v3::{
    Composite, ExecuteFilterAction, FilterChainConfiguration,
};
use envoy_types::pb::envoy::extensions::filters::http::filter_chain::v3::{
    FilterChain, FilterChainConfigPerRoute,
};
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as MutatesHeaders, HeaderMutationPerRoute, Mutations,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher,
    matcher::{
        MatcherList, MatcherType, OnMatch,
        matcher_list::{FieldMatcher, Predicate},
        on_match,
    },
    string_matcher::MatchPattern,
};
use prost::Message;
use sha2::{Digest, Sha256};

use super::cors;
use super::external_auth;
use super::headers;
use super::internal_headers::ROUTE_HEADER;
use super::predicate::{all_of, header, regex};
use super::preflight::routes;
use super::proto::{always, any, disabled, extension, map, map_with, xds_extension};
use super::route_filters::Place;
use super::settings::{Filter, Phase, Waits};
use super::virtual_host::answer;
use gatewright_core::model::{ExternalAuth, ListenerFilters, VirtualHost as Host};
use gatewright_core::request_outcome::{BROKEN_FILTERS, NO_ROUTE};

/// Asks the servers of the virtual host: Envoy's filter chain filter.
pub(super) const FILTER: &str = "gatewright.listener_filters";

/// Sets the header that says which filters the route has: Envoy's header mutation filter.
pub(super) const MARK: &str = "gatewright.mark_route";

/// Make the filters of the marked route: Envoy's composite filter, which goes on with nothing
/// behind a filter that waits. So each of these has the filters behind the waiting one of the one
/// before.
pub(super) const MARKED: [&str; 3] = [
    "gatewright.marked_route_filters.1",
    "gatewright.marked_route_filters.2",
    "gatewright.marked_route_filters.3",
];

/// The filters that ask the servers of a virtual host on plain HTTP: Envoy's composite filter, each
/// with the server at its place. One of them cannot ask two servers, since it goes on with nothing
/// behind a filter that waits.
pub(super) const ASK: [&str; ListenerFilters::ON_PLAIN_HTTP] =
    ["gatewright.ask.1", "gatewright.ask.2"];

/// The filter [`MARK`] of a connection manager. What it does virtual hosts and routes say, and
/// routes last.
pub(super) fn mark() -> MutatesHeaders {
    MutatesHeaders {
        most_specific_header_mutations_wins: true,
        ..Default::default()
    }
}

/// A filter [`MARKED`] or [`ASK`] of a connection manager. What it does virtual hosts say.
pub(super) fn chosen() -> ExtensionWithMatcher {
    ExtensionWithMatcher {
        extension_config: Some(extension(
            "envoy.filters.http.composite",
            &Composite::default(),
        )),
        xds_matcher: Some(Matcher::default()),
        ..Default::default()
    }
}

/// A virtual host with listener filters. `first` comes before its routes, and before the filters:
/// it answers what is not meant for this listener, and challenges of ACME.
pub(super) fn guarded(
    host: &Host,
    filters: &ListenerFilters,
    first: Option<&Route>,
    made: VirtualHost,
) -> VirtualHost {
    let first = first.into_iter().map(unasked);
    let servers = match filters {
        ListenerFilters::Refuse => {
            let refusal = answer(BROKEN_FILTERS, 500);
            return VirtualHost {
                routes: first.chain([refusal]).collect(),
                ..made
            };
        }
        ListenerFilters::Ask(servers) => servers,
    };
    let mut marked = MarkedFilters::default();
    let mut all: Vec<Route> = first.chain(routes(&host.routes, &mut marked)).collect();
    // Every request has a route, so that the filters run for it.
    all.push(answer(NO_ROUTE, 404));
    let ask = servers.iter().map(external_auth::before_routes).collect();
    let ask = FilterChainConfigPerRoute {
        filter_chain: Some(FilterChain { filters: ask }),
    };
    let has_cors = host.routes.iter().any(|route| route.rule.cors.is_some());
    let cors = has_cors.then(|| (cors::FILTER, any(&cors::none())));
    let configs: Vec<(&str, Any)> = [(FILTER, any(&ask))]
        .into_iter()
        .chain(cors)
        .chain(marked.configs())
        .collect();
    VirtualHost {
        routes: all,
        request_headers_to_remove: vec![ROUTE_HEADER.to_owned()],
        typed_per_filter_config: map(&configs),
        ..made
    }
}

/// A virtual host in which routes share filters: the matches of a rule count for its rate limits
/// together, and have the bodies of its overrides once.
pub(super) fn shared(host: &Host, first: Option<&Route>, made: VirtualHost) -> VirtualHost {
    let mut marked = MarkedFilters::default();
    let own = routes(&host.routes, &mut marked);
    let all = first.cloned().into_iter().chain(own).collect();
    VirtualHost {
        routes: all,
        request_headers_to_remove: vec![ROUTE_HEADER.to_owned()],
        typed_per_filter_config: map(&marked.configs()),
        ..made
    }
}

/// A virtual host on plain HTTP. All its filters are made by what the virtual host and the route
/// say when they run, and none by the first route of the request.
pub(super) fn late(host: &Host, first: Option<&Route>, made: VirtualHost) -> VirtualHost {
    let servers = match host.filters.as_deref() {
        Some(ListenerFilters::Refuse) => {
            return VirtualHost {
                routes: first
                    .cloned()
                    .into_iter()
                    .chain([answer(BROKEN_FILTERS, 500)])
                    .collect(),
                ..made
            };
        }
        Some(ListenerFilters::Ask(servers)) => servers.as_slice(),
        None => &[],
    };
    let asks: Vec<(&str, Any)> = ASK
        .into_iter()
        .zip(servers)
        .map(|(name, server)| (name, any(&ask(server))))
        .collect();
    let unasked = first.into_iter().map(|route| {
        let skip = any(&ExtensionWithMatcherPerRoute {
            xds_matcher: Some(Matcher::default()),
        });
        let configs = asks
            .iter()
            .fold(route.typed_per_filter_config.clone(), |all, (name, _)| {
                map_with(&all, name, skip.clone())
            });
        Route {
            typed_per_filter_config: configs,
            ..route.clone()
        }
    });
    let mut marked = MarkedFilters::default();
    let own = routes(&host.routes, &mut marked);
    // Every request has a route: one without would be searched for elsewhere.
    let all = unasked.chain(own).chain([answer(NO_ROUTE, 404)]).collect();
    let by_mark = if marked.0.is_empty() {
        Vec::new()
    } else {
        marked.configs()
    };
    let configs: Vec<(&str, Any)> = asks.iter().cloned().chain(by_mark.clone()).collect();
    VirtualHost {
        routes: all,
        request_headers_to_remove: by_mark
            .first()
            .map(|_| ROUTE_HEADER.to_owned())
            .into_iter()
            .collect(),
        typed_per_filter_config: map(&configs),
        ..made
    }
}

/// The configuration by which a filter [`ASK`] asks a server.
fn ask(server: &ExternalAuth) -> ExtensionWithMatcherPerRoute {
    let make = ExecuteFilterAction {
        typed_config: Some(external_auth::before_routes(server)),
        ..Default::default()
    };
    ExtensionWithMatcherPerRoute {
        xds_matcher: Some(always(xds_extension("composite-action", any(&make)))),
    }
}

/// A route that the filters do not stand before.
fn unasked(route: &Route) -> Route {
    let off = any(&disabled());
    Route {
        typed_per_filter_config: map_with(&route.typed_per_filter_config, FILTER, off),
        ..route.clone()
    }
}

/// The filters of the routes of a virtual host, each list of them with its mark: the stages of the
/// list, one for each of [`MARKED`].
#[derive(Default)]
struct MarkedFilters(Vec<(String, Vec<Stage>)>);

/// Filters in their order, of which the last one alone may wait.
type Stage = Vec<Filter>;

/// A route has the mark in place of its filters, and so have its shares, whose filters stand in
/// place of the route's.
impl Place for MarkedFilters {
    fn configs(&mut self, filters: Vec<Filter>) -> Vec<(&'static str, Any)> {
        let stages = stages(&filters);
        let mark = name(&stages);
        let set = headers::mutation(
            ROUTE_HEADER,
            &mark,
            HeaderAppendAction::OverwriteIfExistsOrAdd,
        );
        if self.0.iter().all(|(known, _)| *known != mark) {
            self.0.push((mark, stages));
        }
        vec![(MARK, any(&mutation(set)))]
    }
}

/// Filters up to each that waits. Nobody passes where more of them wait than there are composite
/// filters.
fn stages(filters: &[Filter]) -> Vec<Stage> {
    let stages: Vec<Stage> = filters
        .split_inclusive(|filter| !matches!(filter.waits, Waits::Never))
        .map(<[_]>::to_vec)
        .collect();
    if stages.len() <= MARKED.len() {
        return stages;
    }
    vec![vec![Filter {
        phase: Phase::Authorization,
        config: external_auth::nobody(),
        waits: Waits::Always,
    }]]
}

impl MarkedFilters {
    /// The configuration of a virtual host for its marks.
    fn configs(self) -> Vec<(&'static str, Any)> {
        let unmarked = HeaderMutation {
            action: Some(header_mutation::Action::Remove(ROUTE_HEADER.to_owned())),
        };
        let stages = self.0.iter().map(|(_, stages)| stages.len()).max();
        let names = MARKED.into_iter().take(stages.unwrap_or(1)).enumerate();
        let by_mark = names.map(|(stage, name)| {
            let by_mark = ExtensionWithMatcherPerRoute {
                xds_matcher: Some(self.by_mark(stage)),
            };
            (name, any(&by_mark))
        });
        std::iter::once((MARK, any(&mutation(unmarked))))
            .chain(by_mark)
            .collect()
    }

    /// From the mark of a request to the filters of its route in one stage. A mark that is not
    /// known is of another version, and lets nobody pass.
    fn by_mark(&self, stage: usize) -> Matcher {
        let chosen = self.0.iter().filter_map(|(mark, stages)| {
            let filters = stages.get(stage)?;
            Some(by_request(mark, filters))
        });
        let any = header(ROUTE_HEADER, regex(format!(".+-[{}-9]", stage + 1)));
        let unknown = when(any, vec![external_auth::nobody()]);
        let matchers = chosen.flatten().chain([unknown]).collect();
        Matcher {
            matcher_type: Some(MatcherType::MatcherList(MatcherList { matchers })),
            on_no_match: None,
        }
    }
}

fn mutation(mutation: HeaderMutation) -> HeaderMutationPerRoute {
    HeaderMutationPerRoute {
        mutations: Some(Mutations {
            request_mutations: vec![mutation],
            ..Default::default()
        }),
    }
}

/// The name of filters: of all that they say, so that a mark of a newer version of the virtual host
/// is never taken for another one of an older. The number of their stages follows it.
fn name(stages: &[Stage]) -> String {
    let mut hash = Sha256::new();
    stages
        .iter()
        .flatten()
        .for_each(|filter| hash.update(filter.config.encode_length_delimited_to_vec()));
    let hash: String = hash.finalize()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{hash}-{}", stages.len())
}

/// The filters of a mark, of which those that collect a body are left out by what the request says.
fn by_request(mark: &str, filters: &[Filter]) -> Vec<FieldMatcher> {
    let mark = header(ROUTE_HEADER, MatchPattern::Exact(mark.to_owned()));
    let uncollected = filters
        .split_last()
        .and_then(|(last, others)| match &last.waits {
            Waits::Unless(passing) => {
                let passing = all_of(vec![mark.clone(), passing.clone()]);
                Some(when(passing, configs(others)))
            }
            Waits::Never | Waits::Always => None,
        });
    let collected = when(mark, configs(filters));
    uncollected.into_iter().chain([collected]).collect()
}

fn configs(filters: &[Filter]) -> Vec<TypedExtensionConfig> {
    filters.iter().map(|filter| filter.config.clone()).collect()
}

fn when(predicate: Predicate, filters: Vec<TypedExtensionConfig>) -> FieldMatcher {
    let make = ExecuteFilterAction {
        filter_chain: Some(FilterChainConfiguration {
            typed_config: filters,
        }),
        ..Default::default()
    };
    FieldMatcher {
        predicate: Some(predicate),
        on_match: Some(OnMatch {
            on_match: Some(on_match::OnMatch::Action(xds_extension(
                "composite-action",
                any(&make),
            ))),
            ..Default::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use envoy_types::pb::envoy::config::route::v3::{
        FilterConfig, route::Action as PbAction, route_action::ClusterSpecifier,
    };
    use gatewright_core::model::{
        AUTH_TIMEOUT, Action, AppProtocol, AuthProtocol, CheckPath, Cors, ExternalAuth, Origin,
        Route as ModelRoute, Session, WeightedTarget,
    };

    use gatewright_core::request_outcome::MISDIRECTED;

    use super::*;
    use crate::route_filters;
    use crate::testdata::{backend, host, route, rule, to};
    use crate::virtual_host::virtual_host;

    fn auth(name: &str) -> ExternalAuth {
        let protocol = AuthProtocol::Http {
            path: CheckPath::Prefix(String::new()),
            answers: Vec::new(),
            to_clients: Vec::new(),
        };
        ExternalAuth {
            server: backend(name, AppProtocol::Http1),
            headers: Vec::new(),
            body: 0,
            timeout: AUTH_TIMEOUT,
            protocol,
        }
    }

    fn made(filters: ListenerFilters, routes: Vec<ModelRoute>) -> VirtualHost {
        let host = Host {
            filters: Some(std::sync::Arc::new(filters)),
            ..Host::new(host("a.org"), routes)
        };
        virtual_host(&host, Some(&answer(MISDIRECTED, 421)))
    }

    /// A route whose rule has a server of its own.
    fn own(path: &str, name: &str) -> ModelRoute {
        let mut rule = rule(Action::Forward(vec![to("web", 1)]));
        rule.auth = Some(Box::new(auth(name)));
        route(path, rule)
    }

    fn marks(of: &VirtualHost) -> Vec<Option<&Any>> {
        of.routes
            .iter()
            .map(|route| route.typed_per_filter_config.get(MARK))
            .collect()
    }

    #[test]
    fn every_request_has_a_route_and_none_has_filters_before_it_is_known() {
        let plain = route("/plain", rule(Action::Forward(vec![to("web", 1)])));
        let all = vec![
            own("/one", "x"),
            own("/two", "y"),
            own("/three", "x"),
            plain,
        ];
        let made = made(
            ListenerFilters::Ask(vec![auth("first"), auth("second")]),
            all,
        );
        assert_eq!(made.routes.len(), 6);
        assert_eq!(
            made.routes.last().expect("it has some").action,
            answer(NO_ROUTE, 404).action,
            "what no other takes"
        );
        fn config(route: &Route, name: &str) -> Option<Any> {
            route.typed_per_filter_config.get(name).cloned()
        }
        let off = any(&FilterConfig {
            disabled: true,
            ..Default::default()
        });
        assert_eq!(
            config(&made.routes[0], FILTER),
            Some(off),
            "what is not meant for the listener asks nobody"
        );
        assert!(
            made.routes
                .iter()
                .skip(1)
                .all(|route| config(route, FILTER).is_none())
        );
        assert!(
            made.routes
                .iter()
                .all(|route| config(route, route_filters::FILTER).is_none())
        );
        let marks = marks(&made);
        assert!(
            marks[1].is_some() && marks[1] == marks[3] && marks[1] != marks[2],
            "alike where filters are"
        );
        assert_eq!(marks[0], None, "the first route has no mark");
        assert_eq!(marks[4], None, "the one before the last has none");
        assert_eq!(marks[5], None, "the last one has none");
        let by_mark = made
            .typed_per_filter_config
            .get(MARKED[0])
            .expect("it is there");
        let by_mark =
            ExtensionWithMatcherPerRoute::decode(by_mark.value.as_slice()).expect("a matcher");
        let Some(MatcherType::MatcherList(list)) = by_mark.xds_matcher.expect("one").matcher_type
        else {
            panic!("a list")
        };
        assert_eq!(list.matchers.len(), 3, "two that are known, and all others");
    }

    #[test]
    fn the_filter_of_cors_is_in_place_before_the_route_is_known() {
        let mut with = rule(Action::Forward(vec![to("web", 1)]));
        with.cors = Some(Cors {
            allow_origins: vec![Origin::Any],
            allow_methods: Vec::new(),
            allow_headers: Vec::new(),
            expose_headers: Vec::new(),
            allow_credentials: false,
            max_age: std::time::Duration::ZERO,
        });
        fn has_it(rules: Vec<ModelRoute>) -> bool {
            made(ListenerFilters::Ask(vec![auth("first")]), rules)
                .typed_per_filter_config
                .contains_key(cors::FILTER)
        }
        assert!(
            has_it(vec![own("/one", "x"), route("/two", with)]),
            "a route may need it"
        );
        assert!(!has_it(vec![own("/one", "x")]), "no route needs it");
    }

    #[test]
    fn the_filters_of_shares_are_made_by_their_own_mark() {
        fn session(name: &str) -> Option<Box<Session>> {
            Some(Box::new(Session::Header(name.to_owned())))
        }
        fn kept(name: &str) -> WeightedTarget {
            WeightedTarget {
                session: session(name),
                ..to("web", 1)
            }
        }
        let mut shares = rule(Action::Forward(vec![
            kept("x-one"),
            kept("x-two"),
            to("web", 1),
        ]));
        shares.auth = Some(Box::new(auth("x")));
        let only = route("/only", rule(Action::Forward(vec![kept("x-one")])));
        let made = made(
            ListenerFilters::Ask(vec![auth("first")]),
            vec![route("/shares", shares), only],
        );
        let Some(PbAction::Route(action)) = &made.routes[1].action else {
            panic!("it forwards")
        };
        let Some(ClusterSpecifier::WeightedClusters(clusters)) = &action.cluster_specifier else {
            panic!("shares")
        };
        let configs: Vec<_> = clusters
            .clusters
            .iter()
            .map(|share| &share.typed_per_filter_config)
            .collect();
        assert!(
            configs
                .iter()
                .all(|configs| !configs.contains_key(route_filters::FILTER)),
            "none before it is known"
        );
        let marks: BTreeSet<_> = configs
            .iter()
            .map(|configs| configs.get(MARK).map(|mark| &mark.value))
            .collect();
        assert_eq!(
            marks.len(),
            3,
            "one for each session, and the rule's for the rest"
        );
        assert!(
            marks.contains(&None),
            "one for each session, and the rule's for the rest"
        );
        let whole: Vec<_> = self::marks(&made)
            .into_iter()
            .map(|mark| mark.map(|mark| &mark.value))
            .collect();
        assert!(
            whole[1].is_some() && !marks.contains(&whole[1]),
            "the rule's is of its server alone"
        );
        assert!(
            whole[2].is_some(),
            "a single share's session is the route's"
        );
    }

    #[test]
    fn where_nobody_can_be_asked_there_are_no_routes() {
        let made = made(ListenerFilters::Refuse, vec![own("/one", "x")]);
        let actions: Vec<_> = made
            .routes
            .iter()
            .map(|route| route.action.clone())
            .collect();
        assert_eq!(
            actions,
            [
                answer(MISDIRECTED, 421).action,
                answer(BROKEN_FILTERS, 500).action
            ]
        );
    }

    #[test]
    fn equal_hosts_encode_to_equal_bytes() {
        fn host() -> VirtualHost {
            made(
                ListenerFilters::Ask(vec![auth("a")]),
                vec![own("/one", "x"), own("/two", "y")],
            )
        }
        let bytes = host().encode_to_vec();
        for _ in 0..50 {
            assert!(
                host().encode_to_vec() == bytes,
                "maps in the order of their keys"
            );
        }
    }
}
