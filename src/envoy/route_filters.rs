//! Filters of single routes: Envoy's filter chain filter, which is in every connection manager and
//! inactive on routes without such filters.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::filter_chain::v3::{
    FilterChain, FilterChainConfigPerRoute,
};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;

use super::{access, compression, external_auth, oidc, rate_limit, response_override, session};
use gatewright_core::model::{Rule, Session, WeightedTarget};

/// The filter's name, under which routes configure it.
pub(super) const FILTER: &str = "envoy.filters.http.filter_chain";

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

/// In their order: who may not pass gets no session and is not counted, and no server is asked
/// about a client whose address is not admitted, or which has sent too many requests. Responses
/// pass them in the opposite order, so that errors of all of them can be overridden.
fn chain(rule: &Rule, session: Option<&Session>) -> Option<FilterChainConfigPerRoute> {
    let overrides = rule.bodies.overrides.as_deref();
    let overrides = overrides.map(response_override::filter);
    let access = access::filters(&rule.access);
    let limits = rule.rate_limits.as_ref().map(rate_limit::filter);
    let auth = rule.auth.as_deref().map(external_auth::filter);
    let session = session.map(session::filter);
    let compression = rule.bodies.compression.as_deref();
    let filters: Vec<_> = overrides
        .into_iter()
        .chain(access)
        .chain(limits)
        .chain(auth)
        .chain(session)
        .chain(compression.into_iter().flat_map(compression::filters))
        .collect();
    (!filters.is_empty()).then_some(FilterChainConfigPerRoute {
        filter_chain: Some(FilterChain { filters }),
    })
}

/// Takes the filters out of the configuration of a route or of one of several shares, for the
/// composite filter, which goes on with none of them behind one that waits: the server comes last.
/// Who may not pass gets no session all the same, since there is no backend that it could name.
/// Filters that never wait keep their order.
pub(super) fn take_out(configs: &mut HashMap<String, Any>) -> Vec<TypedExtensionConfig> {
    let Some(config) = configs.remove(FILTER) else {
        return Vec::new();
    };
    match FilterChainConfigPerRoute::decode(config.value.as_slice()) {
        Ok(FilterChainConfigPerRoute {
            filter_chain: Some(chain),
        }) if chain
            .filters
            .iter()
            .any(|filter| filter.name == oidc::FILTER) =>
        {
            // It waits where others stand behind it.
            vec![external_auth::nobody()]
        }
        Ok(FilterChainConfigPerRoute {
            filter_chain: Some(chain),
        }) => {
            let (waiting, others): (Vec<_>, Vec<_>) = chain
                .filters
                .into_iter()
                .partition(|filter| filter.name == external_auth::FILTER);
            others.into_iter().chain(waiting).collect()
        }
        _ => vec![external_auth::nobody()],
    }
}
