//! Virtual hosts, and the responses to ACME challenges before their routes.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, SubstitutionFormatString, data_source::Specifier,
    substitution_format_string::Format,
};
use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, Route, RouteConfiguration, RouteMatch, ScopedRouteConfiguration,
    VirtualHost,
    route::Action as PbAction,
    route_match::PathSpecifier,
    scoped_route_configuration::{
        Key,
        key::{Fragment, fragment},
    },
};
use envoy_types::pb::envoy::extensions::filters::http::header_to_metadata::v3::{
    Config as HeaderToMetadata,
    config::{KeyValuePair, Rule},
};
use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use envoy_types::pb::google::protobuf::Any;

use super::access_log::host_name;
use super::alternative_service;
use super::direct_response;
use super::headers::HEADER_TO_METADATA;
use super::identity_headers;
use super::internal_headers::{HOST_HEADER, SCOPE_HEADER};
use super::listener_filters::{guarded, shared};
use super::preflight::routes;
use super::proto::{any, boolean, map_with};
use super::request_match::{header, matching, regex_matcher};
use super::route::respond;
use super::route_filters::InRoute;
use super::shared_filters::folded;
use gatewright_core::model::{self, Action, Hostname, IdentityHeaders};
use gatewright_core::settings::BodyBuffer;

/// A route configuration of virtual hosts.
///
/// Clusters are not validated: a missing one is answered 503 on its own routes, instead of a
/// refusal of the whole resource. Our internal headers are removed from requests.
pub(super) fn route_configuration(
    name: String,
    virtual_hosts: Vec<VirtualHost>,
) -> RouteConfiguration {
    RouteConfiguration {
        name,
        max_direct_response_body_size_bytes: direct_response::largest_body(&virtual_hosts),
        virtual_hosts,
        request_headers_to_remove: [SCOPE_HEADER, HOST_HEADER].map(str::to_owned).to_vec(),
        validate_clusters: boolean(false),
        // Hosts are compared without their port (Gateway API, `HTTPRouteSpec.hostnames`).
        ignore_port_in_host_matching: true,
        ..Default::default()
    }
}

/// A scope with these virtual hosts.
pub(super) fn scoped(
    name: String,
    key: String,
    hosts: Vec<VirtualHost>,
) -> ScopedRouteConfiguration {
    ScopedRouteConfiguration {
        key: Some(Key {
            fragments: vec![Fragment {
                r#type: Some(fragment::Type::StringKey(key)),
            }],
        }),
        route_configuration: Some(route_configuration(name.clone(), hosts)),
        name,
        ..Default::default()
    }
}

/// The virtual host of one hostname. Envoy answers 404 to a request that matches none of its
/// routes. `first` precedes the routes.
pub(super) fn virtual_host(host: &model::VirtualHost, first: Option<&Route>) -> VirtualHost {
    let made = match &host.filters {
        Some(filters) => guarded(host, filters, first, begun(host)),
        None => unguarded(host, first),
    };
    match host.identity_headers {
        IdentityHeaders::Remove => made,
        IdentityHeaders::Keep => configured(
            made,
            identity_headers::FILTER,
            any(&identity_headers::keep()),
        ),
    }
}

/// The virtual host without listener filters.
fn unguarded(host: &model::VirtualHost, first: Option<&Route>) -> VirtualHost {
    fn any(host: &model::VirtualHost, is_so: fn(&model::Rule) -> bool) -> bool {
        host.routes.iter().any(|route| is_so(&route.rule))
    }
    let is_shared = any(host, shares_filters);
    if is_shared && any(host, needs_marks) {
        return shared(host, first, begun(host));
    }
    let own = routes(&host.routes, &mut InRoute);
    let made = VirtualHost {
        routes: first.cloned().into_iter().chain(own).collect(),
        ..begun(host)
    };
    if is_shared {
        folded(made).unwrap_or_else(|| shared(host, first, begun(host)))
    } else {
        made
    }
}

/// True for a rule with filters that are made by marks: of shares in place of those that matches
/// have together, behind one that collects a body, or one that collects all bodies.
fn needs_marks(rule: &model::Rule) -> bool {
    let sessions = match &rule.action {
        Action::Forward(shares) if shares.len() > 1 => {
            shares.iter().any(|share| share.session.is_some())
        }
        _ => false,
    };
    let body = rule.traffic.request_body.as_ref();
    sessions
        || body.is_some_and(|body| {
            body.setting.buffer == BodyBuffer::All || rule.traffic.bandwidth_limit.is_some()
        })
}

/// True for a rule whose matches have their filters together: they count for rate limits together,
/// and Envoy would have the bodies of overrides, and warn of the filter's status, for each match.
/// Whether a body is collected says the request.
fn shares_filters(rule: &model::Rule) -> bool {
    let mut fields = rule.traffic.fields();
    fields.any(|field| field.uses().is_shared)
}

/// The virtual host of one hostname before it has routes.
pub(super) fn begun(host: &model::VirtualHost) -> VirtualHost {
    VirtualHost {
        name: host_name(&host.hostname, host.owner.as_ref()),
        domains: vec![host.hostname.to_string()],
        response_headers_to_add: host
            .http3
            .map(alternative_service::http3)
            .into_iter()
            .collect(),
        ..Default::default()
    }
}

/// A virtual host with the configuration of one more filter.
pub(super) fn configured(host: VirtualHost, filter: &str, config: Any) -> VirtualHost {
    VirtualHost {
        typed_per_filter_config: map_with(&host.typed_per_filter_config, filter, config),
        ..host
    }
}

/// A virtual host with one response to all requests for some hosts.
pub(super) fn answer_host(
    name: &str,
    hosts: &[Hostname],
    (why, status): (&str, u16),
) -> VirtualHost {
    VirtualHost {
        name: name.to_owned(),
        domains: hosts.iter().map(Hostname::to_string).collect(),
        routes: vec![answer(why, status)],
        ..Default::default()
    }
}

/// A route with one response to all requests; its name is the cause in access logs.
pub(super) fn answer(why: &str, status: u16) -> Route {
    Route {
        name: why.to_owned(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
            ..Default::default()
        }),
        action: Some(respond(status)),
        ..Default::default()
    }
}

/// The route that answers HTTP-01 challenges of one ACME account: `<token>.<thumbprint>` (RFC 8555,
/// 8.3).
///
/// Stateless: the token is extracted from the path, so that no challenge changes Envoy's
/// configuration. The response is useful only to the holder of the account's key. Filter and route
/// match exactly the same paths (the filter also gets the query): the filter would reflect a path
/// that its expression does not match.
pub(super) fn challenge(thumbprint: &str) -> Route {
    const PREFIX: &str = r"/\.well-known/acme-challenge/";
    let token = Rule {
        header: ":path".to_owned(),
        on_header_present: Some(KeyValuePair {
            metadata_namespace: "acme".to_owned(),
            key: "token".to_owned(),
            regex_value_rewrite: Some(RegexMatchAndSubstitute {
                pattern: Some(regex_matcher(&format!(
                    r"^{PREFIX}([A-Za-z0-9_-]+)(\?.*)?$"
                ))),
                substitution: r"\1".to_owned(),
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let body = SubstitutionFormatString {
        format: Some(Format::TextFormatSource(DataSource {
            specifier: Some(Specifier::InlineString(format!(
                "%DYNAMIC_METADATA(acme:token)%.{thumbprint}"
            ))),
            ..Default::default()
        })),
        content_type: "text/plain".to_owned(),
        ..Default::default()
    };
    Route {
        name: "acme-challenge".to_owned(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::SafeRegex(regex_matcher(&format!(
                "{PREFIX}[A-Za-z0-9_-]+"
            )))),
            headers: vec![header(":method", matching("GET|HEAD"))],
            ..Default::default()
        }),
        // The filter extracts the token.
        typed_per_filter_config: HashMap::from([(
            HEADER_TO_METADATA.to_owned(),
            any(&HeaderToMetadata {
                request_rules: vec![token],
                ..Default::default()
            }),
        )]),
        action: Some(PbAction::DirectResponse(DirectResponseAction {
            status: 200,
            body_format: Some(body),
            ..Default::default()
        })),
        ..Default::default()
    }
}
