//! Marked scopes: scopes that are sent again after a refused response, or on the stream after it.
//!
//! When Envoy (1.40 and earlier) refuses a response for one scope, the scopes before it are in the
//! table of its main thread already, but not in those of its workers. It takes them for unchanged
//! when they come again with the same bytes, and its workers answer 404 for their hosts. A mark
//! changes the bytes and nothing else.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::ScopedRouteConfiguration;
use prost::Message;

use crate::Resource;

/// Returns a mark that no other response has, of this stream or another.
pub(crate) fn new_mark() -> u64 {
    RandomState::new().hash_one(())
}

/// Returns a scope with this mark as the name of its inline routes, under the same version. A scope
/// without inline routes is returned as it is.
pub(crate) fn marked(scope: &Arc<Resource>, mark: u64) -> Arc<Resource> {
    let Ok(mut message) = ScopedRouteConfiguration::decode(scope.body()) else {
        return scope.clone();
    };
    let Some(routes) = &mut message.route_configuration else {
        return scope.clone();
    };
    routes.name = format!("again-{mark}");
    Arc::new(scope.with_body(&crate::canonical_encoding::encode(&message)))
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;

    use super::*;

    #[test]
    fn a_mark_changes_the_bytes_and_not_the_version() {
        let message = ScopedRouteConfiguration {
            name: "a".to_owned(),
            route_configuration: Some(RouteConfiguration::default()),
            ..Default::default()
        };
        let scope = Arc::new(Resource::new("a", &message));
        let first = marked(&scope, 1);
        let second = marked(&first, 2);
        assert_eq!(second.version(), scope.version(), "the version stays");
        assert_ne!(first.body(), scope.body(), "the bytes differ");
        assert_ne!(first.body(), second.body(), "they differ each time");
    }

    #[test]
    fn a_scope_without_inline_routes_stays_as_it_is() {
        let message = ScopedRouteConfiguration {
            name: "a".to_owned(),
            route_configuration_name: "routes".to_owned(),
            ..Default::default()
        };
        let scope = Arc::new(Resource::new("a", &message));
        assert_eq!(marked(&scope, 1).body(), scope.body(), "the bytes stay");
    }
}
