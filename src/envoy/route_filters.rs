//! Filters of single routes, and where they run: in Envoy's filter chain filter, which is in every
//! connection manager and inactive on routes without such filters, or as `listener_filters.rs` says.

use envoy_types::pb::envoy::extensions::filters::http::filter_chain::v3::{
    FilterChain, FilterChainConfigPerRoute,
};
use envoy_types::pb::google::protobuf::Any;

use super::proto::any;
use super::settings::{Filter, Filters, Phase, Waits};
use super::{external_auth, session};
use gatewright_core::model::{Route, Session, WeightedTarget};

/// The filter's name, under which routes configure it.
pub(super) const FILTER: &str = "envoy.filters.http.filter_chain";

/// Where the filters of routes run.
pub(super) trait Place {
    /// The configuration of a route, or of one of its shares, that has filters.
    fn config(&mut self, filters: Vec<Filter>) -> (&'static str, Any);
}

/// In the route itself.
pub(super) struct InRoute;

impl Place for InRoute {
    fn config(&mut self, filters: Vec<Filter>) -> (&'static str, Any) {
        let filters = filters.into_iter().map(|filter| filter.config).collect();
        let chain = FilterChainConfigPerRoute {
            filter_chain: Some(FilterChain { filters }),
        };
        (FILTER, any(&chain))
    }
}

/// The configuration of a route's filters, for all of its shares or the only one.
pub(super) fn config(
    route: &Route,
    shares: &[&WeightedTarget],
    place: &mut impl Place,
) -> Option<(&'static str, Any)> {
    let of_share = match shares {
        [only] => only.session.as_deref(),
        _ => None,
    };
    let filters = filters(route, of_share.or(route.rule.session.as_deref()));
    (!filters.is_empty()).then(|| place.config(filters))
}

/// The configuration of the filters of one of several shares, which stand in place of the rule's,
/// where it has a session of its own.
pub(super) fn config_of_share(
    route: &Route,
    share: &WeightedTarget,
    place: &mut impl Place,
) -> Option<(&'static str, Any)> {
    let session = share.session.as_deref()?;
    Some(place.config(filters(route, Some(session))))
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
