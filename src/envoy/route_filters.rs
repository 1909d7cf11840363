//! Filters of single routes, and where they run: in Envoy's filter chain filter, which is in every
//! connection manager and inactive on routes without such filters, or as `listener_filters.rs` says.

use envoy_types::pb::envoy::extensions::common::matching::v3::ExtensionWithMatcher;
use envoy_types::pb::envoy::extensions::filters::common::matcher::action::v3::SkipFilter;
use envoy_types::pb::envoy::extensions::filters::http::filter_chain::v3::{
    FilterChain, FilterChainConfig, FilterChainConfigPerRoute,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher,
    matcher::{MatcherList, MatcherType, OnMatch, matcher_list::FieldMatcher, on_match},
};

use super::proto::{any, extension, http_filter, off, xds_extension};
use super::settings::{Filter, Filters, Phase, Waits, has_length};
use super::{external_auth, session};
use gatewright_core::model::{Route, Session, WeightedTarget};

/// The filter's name, under which routes configure it.
pub(super) const FILTER: &str = "envoy.filters.http.filter_chain";

/// The filters for what several routes of a virtual host have together (`shared_filters.rs`): Envoy's
/// filter chain filter. Each more of them would cost every request some 200 instructions. [`FILTER`]
/// is one of them where no route has filters of its own: Envoy runs those of the virtual host as
/// well.
pub(super) const SHARED: [&str; 2] = ["gatewright.shared_route_filters", FILTER];

/// The filter that collects bodies of unknown length: Envoy's filter chain filter. Requests with a
/// length skip it, and upgrades have none.
pub(super) const COLLECT: &str = "gatewright.collect";

/// The filters of a connection manager for those of routes, in their order, all disabled.
pub(super) fn disabled_filters() -> [HttpFilter; 3] {
    let [shared, own] = SHARED.map(|name| http_filter(name, &FilterChainConfig::default()));
    [shared, own, skipping_length(COLLECT)].map(off)
}

/// A filter chain filter that requests skip whose body has a length.
fn skipping_length(name: &str) -> HttpFilter {
    let skip = FieldMatcher {
        predicate: Some(has_length()),
        on_match: Some(OnMatch {
            on_match: Some(on_match::OnMatch::Action(xds_extension(
                "skip",
                any(&SkipFilter {}),
            ))),
            ..Default::default()
        }),
    };
    let filter = ExtensionWithMatcher {
        extension_config: Some(extension(FILTER, &FilterChainConfig::default())),
        xds_matcher: Some(Matcher {
            matcher_type: Some(MatcherType::MatcherList(MatcherList {
                matchers: vec![skip],
            })),
            on_no_match: None,
        }),
        ..Default::default()
    };
    http_filter(name, &filter)
}

/// Where the filters of routes run.
pub(super) trait Place {
    /// The configurations of a route, or of one of its shares, that has filters.
    fn configs(&mut self, filters: Vec<Filter>) -> Vec<(&'static str, Any)>;
}

/// In the route itself, whose last filter alone may collect a body, of unknown length.
pub(super) struct InRoute;

impl Place for InRoute {
    fn configs(&mut self, mut filters: Vec<Filter>) -> Vec<(&'static str, Any)> {
        let collecting = filters.pop_if(|last| matches!(last.waits, Waits::Unless(_)));
        let collecting = collecting.map(|filter| (COLLECT, chain(vec![filter])));
        let others = (!filters.is_empty()).then(|| (FILTER, chain(filters)));
        others.into_iter().chain(collecting).collect()
    }
}

fn chain(filters: Vec<Filter>) -> Any {
    let filters = filters.into_iter().map(|filter| filter.config).collect();
    any(&FilterChainConfigPerRoute {
        filter_chain: Some(FilterChain { filters }),
    })
}

/// The configurations of a route's filters, for all of its shares or the only one.
pub(super) fn configs(
    route: &Route,
    shares: &[&WeightedTarget],
    place: &mut impl Place,
) -> Vec<(&'static str, Any)> {
    let of_share = match shares {
        [only] => only.session.as_deref(),
        _ => None,
    };
    let filters = filters(route, of_share.or(route.rule.session.as_deref()));
    if filters.is_empty() {
        return Vec::new();
    }
    place.configs(filters)
}

/// The configurations of the filters of one of several shares, which stand in place of the rule's,
/// where it has a session of its own.
pub(super) fn configs_of_share(
    route: &Route,
    share: &WeightedTarget,
    place: &mut impl Place,
) -> Vec<(&'static str, Any)> {
    match share.session.as_deref() {
        Some(session) => place.configs(filters(route, Some(session))),
        None => Vec::new(),
    }
}

fn filters(route: &Route, session: Option<&Session>) -> Vec<Filter> {
    let mut filters = Filters::of(route);
    if let Some(auth) = route.rule.auth.as_deref() {
        let filter = external_auth::filter(auth);
        filters.add_waiting(Phase::Authorization, filter, Waits::Always);
    }
    if let Some(session) = session {
        filters.add(Phase::Session, session::filter(session));
    }
    filters.in_order()
}
