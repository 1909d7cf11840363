//! Scopes: everything one exact hostname serves on one TLS frontend, found by SNI.

use envoy_types::pb::envoy::config::route::v3::{
    ScopedRouteConfiguration,
    scoped_route_configuration::{
        Key,
        key::{Fragment, fragment},
    },
};

use super::ResourceName;
use super::virtual_host::{answer, route_configuration, virtual_host};
use crate::model::{Hostname, Scope};

/// The scope of a hostname, with its routes inline.
///
/// Its key is its name, `<frontend>|<hostname>`: the value of the early header of a connection with that SNI. Every
/// other host on such a connection gets the answer of the `*` virtual host (RFC 9110, 7.4 and 15.5.20).
pub fn scope(scope: &Scope) -> ScopedRouteConfiguration {
    let name = scope.resource_name();
    let hosts = vec![virtual_host(&scope.virtual_host, None), answer("*", &[Hostname::any()], scope.others, None)];
    ScopedRouteConfiguration {
        key: Some(Key { fragments: vec![Fragment { r#type: Some(fragment::Type::StringKey(name.clone())) }] }),
        route_configuration: Some(route_configuration(name.clone(), hosts)),
        name,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::testdata::{frontend, host, route, rule, to};
    use crate::model::{Action, Others, VirtualHost};

    #[test]
    fn a_scope_is_keyed_by_frontend_and_host_and_answers_others_last() {
        let made = scope(&Scope {
            frontend: frontend(443),
            virtual_host: VirtualHost {
                hostname: host("a.example.org"),
                routes: vec![route("/", rule(Action::Forward(vec![to("web", 1)])))],
            },
            others: Others::Misdirected,
        });
        let config = made.route_configuration.expect("inline");
        let domains: Vec<_> = config.virtual_hosts.iter().map(|h| h.domains.as_slice()).collect();
        assert_eq!(domains, [&["a.example.org".to_owned()][..], &["*".to_owned()][..]]);
        assert_eq!(made.name, "infra/edge:443|a.example.org");
        assert_eq!(made.key.expect("a key").fragments[0].r#type, Some(fragment::Type::StringKey(made.name)));
        assert_eq!(config.request_headers_to_remove, ["x-gw-sni"]);
        assert!(!config.validate_clusters.expect("said").value);
    }
}
