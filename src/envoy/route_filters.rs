//! Filters of single routes: Envoy's filter chain filter, which is in every connection manager and
//! inactive on routes without such filters.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::filter_chain::v3::{
    FilterChain, FilterChainConfigPerRoute,
};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use super::{
    access, compression, external_auth, jwt, oidc, rate_limit, request_body, response_override,
    session,
};
use gatewright_core::model::{Rule, Session, WeightedTarget};

/// The filter's name, under which routes configure it.
pub(super) const FILTER: &str = "envoy.filters.http.filter_chain";

/// The most filters of a route of which each waits before those behind it are made.
pub(super) const STAGES: usize = 3;

/// The filters of a rule, for all of its shares or the only one.
pub(super) fn filters(
    rule: &Rule,
    shares: &[&WeightedTarget],
) -> Option<FilterChainConfigPerRoute> {
    let of_share = match shares {
        [only] => only.session.as_deref(),
        _ => None,
    };
    chain(rule, of_share.or(rule.session.as_deref()))
}

/// The filters of one of several shares, which stand in place of the rule's, where it has a session
/// of its own.
pub(super) fn filters_of_share(
    rule: &Rule,
    share: &WeightedTarget,
) -> Option<FilterChainConfigPerRoute> {
    chain(rule, Some(share.session.as_deref()?))
}

/// In their order: who may not pass gets no session and is not counted, except by the limits of
/// single addresses in front of a login, and no server is asked about a client whose address is
/// not admitted, or which has sent too many requests. Responses pass them in the opposite order, so
/// that errors of all of them can be overridden.
fn chain(rule: &Rule, session: Option<&Session>) -> Option<FilterChainConfigPerRoute> {
    let overrides = rule.bodies.overrides.as_deref();
    let overrides = overrides.map(response_override::filter);
    let access = access::filters(&rule.access);
    let has_login = rule.access.iter().any(|access| access.login.is_some());
    let limits = rule.rate_limits.as_ref();
    let limits = limits.map(|limits| rate_limit::filters(limits, has_login));
    let [before_login, limits] = limits.unwrap_or_default();
    let auth = rule.auth.as_deref().map(external_auth::filter);
    let session = session.map(session::filter);
    let compression = rule.bodies.compression.as_deref();
    let request_body = rule.bodies.request.as_deref();
    let filters: Vec<_> = overrides
        .into_iter()
        .chain(before_login)
        .chain(access)
        .chain(limits)
        .chain(auth)
        .chain(session)
        .chain(compression.into_iter().flat_map(compression::filters))
        .chain(request_body.into_iter().flat_map(request_body::filters))
        .collect();
    (!filters.is_empty()).then_some(FilterChainConfigPerRoute {
        filter_chain: Some(FilterChain { filters }),
    })
}

/// Takes the filters out of the configuration of a route or of one of several shares, for the
/// composite filters: in their order, each list up to one that waits. Nobody passes where more of
/// them wait than there are composite filters.
pub(super) fn take_out(configs: &mut HashMap<String, Any>) -> Vec<Vec<TypedExtensionConfig>> {
    let Some(config) = configs.remove(FILTER) else {
        return Vec::new();
    };
    let config = FilterChainConfigPerRoute::decode(config.value.as_slice()).unwrap_or_default();
    let filters = config.filter_chain.unwrap_or_default().filters;
    let stages: Vec<_> = filters.split_inclusive(waits).map(<[_]>::to_vec).collect();
    if (1..=STAGES).contains(&stages.len()) {
        stages
    } else {
        vec![vec![external_auth::nobody()]]
    }
}

/// True for a filter that may wait for a server before the request goes on.
fn waits(filter: &TypedExtensionConfig) -> bool {
    match filter.name.as_str() {
        external_auth::FILTER | oidc::FILTER => true,
        request_body::UNKNOWN_LENGTH | request_body::ALL => true,
        jwt::JWT => jwt::fetches_keys(filter),
        _ => false,
    }
}
