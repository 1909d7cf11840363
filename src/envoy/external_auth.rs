//! External authorization: a filter of its own for each route with an authorization server.

use std::sync::LazyLock;

use envoy_types::pb::envoy::config::common::mutation_rules::v3::HeaderMutationRules;
use envoy_types::pb::envoy::config::core::v3::{
    ApiVersion, GrpcService, HeaderValue, HttpUri, TypedExtensionConfig,
    grpc_service::{EnvoyGrpc, TargetSpecifier},
    http_uri::HttpUpstreamType,
};
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::{
    AuthorizationResponse, BufferSettings, ExtAuthz, HttpService, ext_authz::Services,
};
use envoy_types::pb::envoy::service::auth::v3::{
    AttributeContext, CheckRequest,
    attribute_context::{self, HttpRequest},
};
use envoy_types::pb::envoy::r#type::matcher::v3::{
    ListStringMatcher, StringMatcher, string_matcher::MatchPattern,
};

use prost::Message;

use super::REFUSED;
use super::proto::{boolean, duration, extension};
use super::request_match::{matching, regex_matcher};
use gatewright_core::inputs::kept_headers;
use gatewright_core::model::{AUTH_TIMEOUT, AuthProtocol, CheckPath, ExternalAuth};

/// A regular expression for headers, by prefix, that an authorization server must not change.
const KEPT_PREFIXES: &str = "x-(?:forwarded|gw)-.*";

/// The name of the filter.
pub(super) const FILTER: &str = "envoy.filters.http.ext_authz";

/// The headers in which a server that is not asked for the path of the request gets it, in formats
/// of Envoy's, as ingress-nginx tells it.
pub(super) const ORIGINAL: [(&str, &str); 3] = [
    (
        "x-original-url",
        "%REQ(X-FORWARDED-PROTO)%://%REQ(:AUTHORITY)%%REQ(:PATH)%",
    ),
    ("x-original-method", "%REQ(:METHOD)%"),
    ("x-auth-request-redirect", "%REQ(:PATH)%"),
];

/// The header by which request loops are detected.
const CDN_LOOP: &str = "cdn-loop";

/// The filter of a rule. A request passes only with the consent of the server: without a response
/// from it, it is answered 403.
pub(super) fn filter(auth: &ExternalAuth) -> TypedExtensionConfig {
    extension(FILTER, &ext_authz(auth))
}

/// The same before a route is looked for: what the server says decides which one it is.
pub(super) fn before_routes(auth: &ExternalAuth) -> TypedExtensionConfig {
    extension(
        FILTER,
        &ExtAuthz {
            clear_route_cache: true,
            ..ext_authz(auth)
        },
    )
}

/// A URL that Envoy asks about a request, at a cluster, with the deadline of the answer.
pub(super) fn http_uri(uri: String, cluster: String) -> HttpUri {
    HttpUri {
        uri,
        timeout: duration(AUTH_TIMEOUT),
        http_upstream_type: Some(HttpUpstreamType::Cluster(cluster)),
    }
}

/// The filter that lets nobody pass: there is no server that could be asked.
pub(super) fn nobody() -> TypedExtensionConfig {
    let service = HttpService {
        server_uri: Some(http_uri("http://nobody".to_owned(), REFUSED.to_owned())),
        ..Default::default()
    };
    let services = Some(Services::HttpService(service));
    extension(
        FILTER,
        &ExtAuthz {
            transport_api_version: ApiVersion::V3.into(),
            services,
            ..Default::default()
        },
    )
}

fn ext_authz(auth: &ExternalAuth) -> ExtAuthz {
    // The headers that a header modifier cannot change either; Envoy itself protects routing
    // headers and `x-envoy-*`.
    static KEPT: LazyLock<String> = LazyLock::new(|| {
        let all: Vec<&str> = kept_headers().chain([KEPT_PREFIXES]).collect();
        all.join("|").replace('-', "[-_]")
    });
    let ExternalAuth {
        server,
        headers,
        body,
        timeout,
        protocol,
    } = auth;
    let cluster = server.to_string();
    let authority = auth.authority();
    let mut allowed: Vec<StringMatcher> = headers.iter().map(|name| named(name)).collect();
    let services = match protocol {
        AuthProtocol::Grpc => Services::GrpcService(GrpcService {
            timeout: duration(*timeout),
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(EnvoyGrpc {
                cluster_name: cluster,
                authority,
                ..Default::default()
            })),
            // A check that comes back as a request is a loop too.
            initial_metadata: vec![HeaderValue {
                key: CDN_LOOP.to_owned(),
                value: format!("%REQ({CDN_LOOP})%"),
                ..Default::default()
            }],
            ..Default::default()
        }),
        AuthProtocol::Http {
            path,
            answers,
            to_clients,
        } => {
            allowed.push(named(CDN_LOOP));
            let answers = match answers.as_slice() {
                [] => vec![matching(".*")],
                some => some.iter().map(|name| named(name)).collect(),
            };
            let to_clients: Vec<StringMatcher> =
                to_clients.iter().map(|name| named(name)).collect();
            let (path_prefix, path_override) = match path {
                CheckPath::Prefix(prefix) => (prefix.clone(), String::new()),
                CheckPath::Exact(exact) => {
                    allowed.extend(ORIGINAL.map(|(name, _)| named(name)));
                    (String::new(), exact.clone())
                }
            };
            Services::HttpService(HttpService {
                server_uri: Some(HttpUri {
                    timeout: duration(*timeout),
                    ..http_uri(format!("http://{authority}"), cluster)
                }),
                path_prefix,
                path_override,
                authorization_response: Some(AuthorizationResponse {
                    allowed_upstream_headers: Some(ListStringMatcher { patterns: answers }),
                    allowed_client_headers_on_success: (!to_clients.is_empty()).then_some(
                        ListStringMatcher {
                            patterns: to_clients,
                        },
                    ),
                    ..Default::default()
                }),
                ..Default::default()
            })
        }
    };
    ExtAuthz {
        transport_api_version: ApiVersion::V3.into(),
        with_request_body: (*body > 0).then(|| BufferSettings {
            max_request_bytes: *body,
            ..Default::default()
        }),
        allowed_headers: (!allowed.is_empty()).then_some(ListStringMatcher { patterns: allowed }),
        // Our own headers, which selected the route of the request.
        disallowed_headers: Some(ListStringMatcher {
            patterns: vec![prefix("x-gw-")],
        }),
        // A tenant controls the server, and all tenants share the Envoy.
        validate_mutations: true,
        enforce_response_header_limits: true,
        enable_dynamic_metadata_ingestion: boolean(false),
        decoder_header_mutation_rules: Some(HeaderMutationRules {
            disallow_expression: Some(regex_matcher(&KEPT)),
            ..Default::default()
        }),
        services: Some(services),
        ..Default::default()
    }
}

/// The message that asks a server by gRPC for its consent to a request, encoded.
pub fn check_request(method: &str, host: &str, path: &str) -> Vec<u8> {
    let http = HttpRequest {
        method: method.to_owned(),
        host: host.to_owned(),
        path: path.to_owned(),
        ..Default::default()
    };
    let request = attribute_context::Request {
        http: Some(http),
        ..Default::default()
    };
    let attributes = AttributeContext {
        request: Some(request),
        ..Default::default()
    };
    CheckRequest {
        attributes: Some(attributes),
    }
    .encode_to_vec()
}

/// A matcher for a header of this lower-case name, in any case.
fn named(name: &str) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(MatchPattern::Exact(name.to_owned())),
        ignore_case: true,
    }
}

fn prefix(text: &str) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(MatchPattern::Prefix(text.to_owned())),
        ignore_case: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::backend;
    use gatewright_core::model::AppProtocol;

    fn made(protocol: AuthProtocol, headers: &[&str], body: u32) -> ExtAuthz {
        let headers = headers.iter().map(|name| (*name).to_owned()).collect();
        let auth = ExternalAuth {
            server: backend("auth", AppProtocol::Http1),
            headers,
            body,
            timeout: AUTH_TIMEOUT,
            protocol,
        };
        let config = filter(&auth).typed_config.expect("a configuration");
        ExtAuthz::decode(config.value.as_slice()).expect("the filter")
    }

    fn http() -> AuthProtocol {
        AuthProtocol::Http {
            path: CheckPath::Prefix(String::new()),
            answers: Vec::new(),
            to_clients: Vec::new(),
        }
    }

    #[test]
    fn a_server_gets_what_is_listed_and_never_our_own_headers() {
        fn count(made: &ExtAuthz) -> Option<usize> {
            made.allowed_headers
                .as_ref()
                .map(|list| list.patterns.len())
        }
        assert_eq!(
            count(&made(AuthProtocol::Grpc, &[], 0)),
            None,
            "all of them"
        );
        assert_eq!(count(&made(AuthProtocol::Grpc, &["x-a"], 0)), Some(1));
        assert_eq!(
            count(&made(http(), &["x-a"], 0)),
            Some(2),
            "and that which ends circles"
        );
        let all = [made(AuthProtocol::Grpc, &[], 0), made(http(), &[], 0)];
        for made in all {
            assert_eq!(
                made.disallowed_headers.expect("a list").patterns,
                [prefix("x-gw-")]
            );
            assert!(!made.failure_mode_allow && made.validate_mutations);
        }
    }

    #[test]
    fn headers_of_framing_and_hosts_are_protected_in_either_spelling() {
        let rules = made(http(), &[], 0)
            .decoder_header_mutation_rules
            .expect("rules");
        assert!(
            rules.allow_envoy.is_none() && rules.allow_all_routing.is_none(),
            "off by default"
        );
        let text = rules.disallow_expression.expect("an expression").regex;
        let kept = regex::Regex::new(&format!("^(?:{text})$")).expect("a regular expression");
        for name in [
            "host",
            "transfer-encoding",
            "content_length",
            "x-gw-sni",
            "x_gw_scope",
            "x-forwarded-for",
        ] {
            assert!(kept.is_match(name), "{name}");
        }
        for name in ["x-user", "authorization", "cookie", "x-auth-host"] {
            assert!(!kept.is_match(name), "{name}");
        }
    }

    #[test]
    fn a_body_is_held_only_where_the_server_gets_it() {
        assert_eq!(made(http(), &[], 0).with_request_body, None);
        let body = made(http(), &[], 10).with_request_body.expect("it is held");
        assert!(
            body.max_request_bytes == 10 && !body.allow_partial_message,
            "what is longer is answered 413"
        );
    }
}
