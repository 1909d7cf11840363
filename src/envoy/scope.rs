//! Scopes: the routes of one hostname on one frontend, found by the request's host.

use envoy_types::pb::envoy::config::route::v3::{ScopedRouteConfiguration, VirtualHost};

use super::find_scope;
use super::misdirected;
use super::plain_http;
use super::proto::{any, disabled};
use super::traffic::attributed;
use super::virtual_host::{answer, configured, scoped, virtual_host};
use super::{Edge, ResourceName};
use gatewright_core::model::{Requests, Scope};
use gatewright_core::request_outcome::{MISDIRECTED, NO_ROUTE};

/// The scope of a hostname, with its routes inline.
///
/// Its key is frontend and hostname, which the early header of a request for that host begins with.
/// Requests on another listener's connection are misdirected (RFC 9110, 7.4 and 15.5.20) before any
/// route is matched.
pub fn scope(scope: &Scope) -> ScopedRouteConfiguration {
    scope_within(scope, &Edge::DEFAULT)
}

/// The same with what an operator sets.
pub fn scope_within(scope: &Scope, edge: &Edge) -> ScopedRouteConfiguration {
    let host = match &scope.requests {
        Requests::OfListener(listener) => {
            let own = &scope.virtual_host.hostname;
            let first = misdirected::unless_of(&scope.frontend, own, listener);
            let mut host = found(virtual_host(&scope.virtual_host, Some(&first)));
            if scope.virtual_host.filters.is_none() {
                // An explicit 404, since Envoy's own 404 is that of a host without a scope.
                host.routes.push(answer(NO_ROUTE, 404));
            }
            host
        }
        Requests::Misdirected => {
            let first = answer(MISDIRECTED, 421);
            found(virtual_host(&scope.virtual_host, Some(&first)))
        }
        Requests::Plain(account) => plain_http::virtual_host(&scope.virtual_host, account.as_ref()),
        Requests::Challenges(account) => plain_http::challenges(&scope.virtual_host, account),
    };
    let host = attributed(host, &scope.virtual_host, edge.traffic);
    let key = scope.frontend.scope_key(&scope.virtual_host.hostname);
    scoped(scope.resource_name(), key, vec![host])
}

/// A virtual host whose requests need no other scope.
fn found(host: VirtualHost) -> VirtualHost {
    configured(host, find_scope::FILTER, any(&disabled()))
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::route::v3::{
        Route, route, scoped_route_configuration::key::fragment,
    };

    use super::*;
    use crate::testdata::{frontend, host, route, rule, to};
    use gatewright_core::model::{Action, VirtualHost};

    fn status(route: &Route) -> Option<u32> {
        match &route.action {
            Some(route::Action::DirectResponse(answer)) => Some(answer.status),
            _ => None,
        }
    }

    #[test]
    fn a_scope_is_keyed_by_frontend_and_host_and_sends_strangers_away_first() {
        let made = scope(&Scope {
            frontend: frontend(443),
            requests: Requests::OfListener(host("a.example.org")),
            virtual_host: VirtualHost::new(
                host("a.example.org"),
                vec![route("/", rule(Action::Forward(vec![to("web", 1)])))],
            ),
        });
        let config = made.route_configuration.expect("inline");
        let domains: Vec<_> = config
            .virtual_hosts
            .iter()
            .map(|h| h.domains.as_slice())
            .collect();
        assert_eq!(domains, [&["a.example.org".to_owned()][..]]);
        let statuses: Vec<_> = config.virtual_hosts[0].routes.iter().map(status).collect();
        assert_eq!(statuses, [Some(421), None, Some(404)]);
        assert_eq!(made.name, "infra/edge:443|a.example.org");
        assert_eq!(
            made.key.expect("a key").fragments[0].r#type,
            Some(fragment::Type::StringKey(
                "infra/edge/443|a.example.org".to_owned()
            ))
        );
        assert_eq!(
            config.request_headers_to_remove,
            ["x-gw-scope", "x-gw-host"]
        );
        assert!(!config.validate_clusters.expect("said").value);
    }

    #[test]
    fn a_host_whose_listener_speaks_no_http_sends_every_request_to_another_connection() {
        let virtual_host = VirtualHost::new(host("a.example.org"), Vec::new());
        let made = scope(&Scope {
            frontend: frontend(443),
            requests: Requests::Misdirected,
            virtual_host,
        });
        let config = made.route_configuration.expect("inline");
        assert_eq!(
            config.virtual_hosts[0]
                .routes
                .iter()
                .map(status)
                .collect::<Vec<_>>(),
            [Some(421)]
        );
    }
}
