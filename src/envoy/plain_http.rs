//! Plain HTTP: how a request finds the scope of its host, and what such a scope has.
//!
//! Without SNI nothing but the host says which routes a request has. Its scope is looked up by the
//! host as the client wrote it, without the port: that finds exact hostnames in lower case, which
//! is what nearly all requests have. For all others a filter looks again ([`find`]): by the host in
//! lower case, and then by the wildcard over it, whose name is in the list of the frontend's
//! wildcards ([`wide_hosts`]).
//!
//! Envoy makes the filters of a request by its first route, and when that one runs there is none.
//! So on plain HTTP no filter is enabled or chosen by a route: each is in the connection manager
//! and reads the configuration of the route when it runs (see [`super::listener_filters::late`]).

use envoy_types::pb::envoy::config::core::v3::{CelExpressionConfig, TypedExtensionConfig};
use envoy_types::pb::envoy::config::route::v3::{Route, ScopedRouteConfiguration, VirtualHost};
use envoy_types::pb::envoy::extensions::filters::http::filter_chain::v3::{
    FilterChain, FilterChainConfig,
};
use envoy_types::pb::envoy::extensions::filters::http::set_filter_state::v3::Config as SetFilterState;
use envoy_types::pb::envoy::extensions::formatter::cel::v3::Cel;

use super::ResourceName;
use super::find_scope::{self, SET_FILTER_STATE, look_up, state};
use super::identity_headers;
use super::internal_headers::SCOPE_HEADER;
use super::listener_filters;
use super::proto::{any, disabled, extension, map_with};
use super::virtual_host::{answer_host, begun, challenge, configured, scoped};
use gatewright_core::model::{self, FrontendId, IdentityHeaders, Thumbprint, WideHosts};
use gatewright_core::request_outcome::NO_HOST;

/// The host in lower case, as filter state of the request.
const LOWER_CASE: &str = "gatewright.host";

/// The name of a virtual host without routes of its own. Other virtual hosts have names of
/// hostnames, which have no slash.
const ONLY_CHALLENGES: &str = "only/challenges";

/// The filter that looks for the scope again.
pub(super) fn find(frontend: &FrontendId) -> FilterChainConfig {
    let key = frontend.key();
    let header = |name: &str| format!("request.headers['{name}']");
    let scope = header(SCOPE_HEADER);
    // A virtual host, if only the request's host is one of its domains.
    let has_found = "has(xds.virtual_host_name)";
    let serves = format!(
        "{has_found} && (xds.virtual_host_name != '{ONLY_CHALLENGES}' || has(xds.route_name))"
    );
    let is_listed = format!("{scope} == '{key}'");
    let by_lower_case = frontend.scope_key(&format!("%FILTER_STATE({LOWER_CASE}:PLAIN)%"));
    let by_list = format!("%CEL({serves} ? {scope} : '{key}')%");
    let by_wildcard = format!(
        "%CEL({is_listed} ? '{key}|' : {scope})%\
         %CEL({is_listed} && {has_found} ? xds.virtual_host_name : '')%"
    );
    let filters = [lower_case()]
        .into_iter()
        .chain(look_up("1", by_lower_case))
        .chain(look_up("2", by_list))
        .chain(look_up("3", by_wildcard))
        .collect();
    FilterChainConfig {
        default_filter_chain: Some(FilterChain { filters }),
    }
}

fn lower_case() -> TypedExtensionConfig {
    let strings = CelExpressionConfig {
        enable_string_functions: true,
        ..Default::default()
    };
    let cel = Cel {
        cel_config: Some(strings),
    };
    let formatter = extension("envoy.formatter.cel", &cel);
    let value = state(
        LOWER_CASE,
        "%CEL(request.host.lowerAscii())%",
        Some(formatter),
    );
    extension(
        SET_FILTER_STATE,
        &SetFilterState {
            on_request_headers: vec![value],
            ..Default::default()
        },
    )
}

/// The virtual host of a hostname. Challenges of an account are answered before all routes.
pub(super) fn virtual_host(host: &model::VirtualHost, account: Option<&Thumbprint>) -> VirtualHost {
    let first = account.map(|account| challenge(account));
    let made = listener_filters::late(host, first.as_ref(), begun(host));
    let made = configured(made, find_scope::FILTER, any(&disabled()));
    match host.identity_headers {
        IdentityHeaders::Remove => made,
        IdentityHeaders::Keep => configured(
            made,
            identity_headers::FILTER,
            any(&identity_headers::keep_late()),
        ),
    }
}

/// The virtual host of a hostname that has nothing but challenges. Other requests match none of its
/// routes, and [`find_scope`] finds the wildcard or catch-all that serves them.
pub(super) fn challenges(host: &model::VirtualHost, account: &Thumbprint) -> VirtualHost {
    let answer = challenge(account);
    let found = Route {
        typed_per_filter_config: map_with(
            &answer.typed_per_filter_config,
            find_scope::FILTER,
            any(&disabled()),
        ),
        ..answer
    };
    VirtualHost {
        name: ONLY_CHALLENGES.to_owned(),
        domains: vec![host.hostname.to_string()],
        routes: vec![found],
        ..Default::default()
    }
}

/// The list of a frontend's wildcards, which filter `find` matches with a host. A virtual host has
/// the name of its hostname's scope; its route is never the one of a request.
pub fn wide_hosts(wide: &WideHosts) -> ScopedRouteConfiguration {
    let listed = wide.hostnames.iter().map(|hostname| {
        let hosts = std::slice::from_ref(hostname);
        answer_host(&hostname.to_string(), hosts, (NO_HOST, 404))
    });
    scoped(wide.resource_name(), wide.frontend.key(), listed.collect())
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::route::v3::route::Action as PbAction;
    use prost::Message;

    use super::*;
    use crate::scope;
    use crate::testdata::{frontend, host, route, rule, to};
    use gatewright_core::model::{Action, Cors, Origin, Requests, Scope, VirtualHost as Host};

    fn made(name: &str, requests: Requests) -> VirtualHost {
        let routes = vec![route("/", rule(Action::Forward(vec![to("web", 1)])))];
        let made = scope(&Scope {
            frontend: frontend(80),
            requests,
            virtual_host: Host::new(host(name), routes),
        });
        let mut config = made.route_configuration.expect("inline");
        config.virtual_hosts.pop().expect("one")
    }

    fn names(host: &VirtualHost) -> Vec<&str> {
        host.routes.iter().map(|r| r.name.as_str()).collect()
    }

    fn status(route: &Route) -> Option<u32> {
        match &route.action {
            Some(PbAction::DirectResponse(answer)) => Some(answer.status),
            _ => None,
        }
    }

    #[test]
    fn a_scope_switches_the_search_off_and_answers_what_it_has_no_route_for() {
        let made = made("a.org", Requests::Plain(None));
        assert!(
            made.typed_per_filter_config
                .contains_key(find_scope::FILTER)
        );
        assert_eq!(status(made.routes.last().expect("routes")), Some(404));
        assert_eq!(made.routes.len(), 2, "nothing before its own route");
    }

    #[test]
    fn challenges_come_first() {
        let made = made("a.org", Requests::Plain(Some("thumb".into())));
        assert_eq!(names(&made)[0], "acme-challenge");
    }

    #[test]
    fn a_host_with_challenges_alone_leaves_everything_else_to_the_wildcard_over_it() {
        let made = made("a.org", Requests::Challenges("thumb".into()));
        assert_eq!(names(&made), ["acme-challenge"]);
        assert!(
            made.typed_per_filter_config.is_empty(),
            "requests without a route are searched for"
        );
        assert!(
            made.routes[0]
                .typed_per_filter_config
                .contains_key(find_scope::FILTER),
            "challenges are not"
        );
    }

    #[test]
    fn the_list_of_wildcards_has_no_routes_of_theirs() {
        let made = wide_hosts(&WideHosts {
            frontend: frontend(80),
            hostnames: vec![host(""), host("*.a.org")],
        });
        assert_eq!(made.name, "infra/edge:80");
        let config = made.route_configuration.expect("inline");
        let domains: Vec<_> = config
            .virtual_hosts
            .iter()
            .map(|h| (h.name.as_str(), h.domains.join(" ")))
            .collect();
        assert_eq!(
            domains,
            [("*", "*".to_owned()), ("*.a.org", "*.a.org".to_owned())]
        );
    }

    #[test]
    fn equal_scopes_encode_to_equal_bytes() {
        let mut guarded = rule(Action::Respond(404));
        guarded.cors = Some(Cors {
            allow_origins: vec![Origin::Any],
            allow_methods: vec!["GET".into()],
            allow_headers: vec![],
            expose_headers: vec![],
            allow_credentials: false,
            max_age: std::time::Duration::ZERO,
        });
        let of = Scope {
            frontend: frontend(80),
            requests: Requests::Plain(Some("thumb".into())),
            virtual_host: Host::new(host("a.org"), vec![route("/", guarded)]),
        };
        let bytes = scope(&of).encode_to_vec();
        for _ in 0..50 {
            assert!(
                scope(&of).encode_to_vec() == bytes,
                "a map with two entries has no stable encoding"
            );
        }
    }
}
