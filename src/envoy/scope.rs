//! Scopes: the routes of one exact hostname on one TLS frontend, found by the request's host.

use envoy_types::pb::envoy::config::route::v3::{
    ScopedRouteConfiguration,
    scoped_route_configuration::{
        Key,
        key::{Fragment, fragment},
    },
};

use super::ResourceName;
use super::misdirected;
use super::virtual_host::{answer, route_configuration, virtual_host};
use gatewright_core::model::Scope;

/// The scope of a hostname, with its routes inline.
///
/// Its key is its name, `<frontend>|<hostname>`: the value of the early header of a request for
/// that host. Requests on another listener's connection are misdirected (RFC 9110, 7.4 and 15.5.20)
/// before any route is matched.
pub fn scope(scope: &Scope) -> ScopedRouteConfiguration {
    let name = scope.resource_name();
    let host = match &scope.listener {
        Some(listener) => {
            let mut host =
                virtual_host(&scope.virtual_host, Some(&misdirected::unless_of(listener)));
            if scope.virtual_host.filters.is_none() {
                // An explicit 404, since Envoy's own 404 is that of a host without a scope.
                host.routes.push(answer(404));
            }
            host
        }
        None => virtual_host(&scope.virtual_host, Some(&answer(421))),
    };
    ScopedRouteConfiguration {
        key: Some(Key {
            fragments: vec![Fragment {
                r#type: Some(fragment::Type::StringKey(name.clone())),
            }],
        }),
        route_configuration: Some(route_configuration(name.clone(), vec![host])),
        name,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::route::v3::{Route, route};

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
            listener: Some(host("a.example.org")),
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
            Some(fragment::Type::StringKey(made.name))
        );
        assert_eq!(
            config.request_headers_to_remove,
            ["x-gw-scope", "x-gw-sni", "x-gw-host"]
        );
        assert!(!config.validate_clusters.expect("said").value);
    }

    #[test]
    fn a_host_whose_listener_speaks_no_http_sends_every_request_to_another_connection() {
        let virtual_host = VirtualHost::new(host("a.example.org"), Vec::new());
        let made = scope(&Scope {
            frontend: frontend(443),
            listener: None,
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
