//! Filters of single routes: Envoy's filter chain filter, which is in every connection manager and inactive on routes
//! without such filters.

use envoy_types::pb::envoy::extensions::filters::http::filter_chain::v3::{FilterChain, FilterChainConfigPerRoute};

use super::{external_auth, session};
use gatewright_core::model::Rule;

/// The filter's name, under which routes configure it.
pub(super) const FILTER: &str = "envoy.filters.http.filter_chain";

/// The filters of a rule, in order: authorization precedes the session, so that a refused client gets none.
pub(super) fn filters(rule: &Rule) -> Option<FilterChainConfigPerRoute> {
    let auth = rule.auth.as_deref().map(external_auth::filter);
    let session = rule.session.as_deref().map(session::filter);
    let filters: Vec<_> = auth.into_iter().chain(session).collect();
    (!filters.is_empty()).then_some(FilterChainConfigPerRoute { filter_chain: Some(FilterChain { filters }) })
}
