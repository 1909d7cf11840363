//! Filters that a route brings along: Envoy's filter chain filter, which stands in every connection manager and does nothing
//! on routes that have none.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::filter_chain::v3::{FilterChain, FilterChainConfigPerRoute};

use super::{external_auth, session};
use gatewright_core::model::Rule;

/// The filter's name, under which routes configure it.
pub(super) const FILTER: &str = "envoy.filters.http.filter_chain";

/// The filters of a rule, in their order: who may not pass gets no session.
pub(super) fn filters(rule: &Rule) -> Option<FilterChainConfigPerRoute> {
    let auth = rule.auth.as_deref().map(external_auth::filter);
    let session = rule.session.as_deref().map(session::filter);
    let filters: Vec<_> = auth.into_iter().chain(session).collect();
    (!filters.is_empty()).then_some(FilterChainConfigPerRoute { filter_chain: Some(FilterChain { filters }) })
}

/// The same for the composite filter, which goes on with none of them behind one that waits: the server comes last. Who may not
/// pass gets no session all the same, since there is no backend that it could name.
pub(super) fn delegated(rule: &Rule) -> Vec<TypedExtensionConfig> {
    let session = rule.session.as_deref().map(session::filter);
    session.into_iter().chain(rule.auth.as_deref().map(external_auth::filter)).collect()
}
