//! The HTTP connection manager: all HTTP settings that only a chain can hold.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::HeaderMutation;
use envoy_types::pb::envoy::config::core::v3::{
    CidrRange, Http1ProtocolOptions, Http2ProtocolOptions, HttpProtocolOptions,
    TypedExtensionConfig, header_value_option::HeaderAppendAction,
    http_protocol_options::HeadersWithUnderscoresAction,
};
use envoy_types::pb::envoy::config::listener::v3::Filter;
use envoy_types::pb::envoy::extensions::filters::http::cdn_loop::v3::CdnLoopConfig;
use envoy_types::pb::envoy::extensions::filters::http::cors::v3::Cors;
use envoy_types::pb::envoy::extensions::filters::http::filter_chain::v3::FilterChainConfig;
use envoy_types::pb::envoy::extensions::filters::http::header_to_metadata::v3::Config as HeaderToMetadata;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, LocalReplyConfig, Rds, ResponseMapper, ScopedRds,
    ScopedRoutes,
    http_connection_manager::{
        CodecType, InternalAddressConfig, PathWithEscapedSlashesAction, RouteSpecifier,
        ServerHeaderTransformation,
    },
    scoped_routes::{
        ConfigSpecifier, ScopeKeyBuilder,
        scope_key_builder::{
            FragmentBuilder,
            fragment_builder::{HeaderValueExtractor, Type, header_value_extractor::ExtractType},
        },
    },
};
use envoy_types::pb::envoy::extensions::http::early_header_mutation::header_mutation::v3::HeaderMutation as EarlyHeaderMutation;

use super::chain::network_filter;
use super::failure_log;
use super::headers::{HEADER_TO_METADATA, mutation};
use super::internal_headers::{HOST_HEADER, SCOPE_HEADER};
use super::name::stat_prefix;
use super::proto::{ads, boolean, extension, http_filter, off, seconds, uint};
use super::{
    Edge, ResourceName, access_log, authority, client_address, cors, find_scope, identity_headers,
    limits, listener_filters, location, misdirected, plain_http, retry, route_filters, traces,
    traffic, websocket,
};
use gatewright_core::model::{
    AccessLog, ClientAddress, FrontendId, Hostname, IdentityRemoval, OtherListeners, TableId,
    Tracing,
};

/// The host by which the scope is looked up on connections of a wildcard or catch-all listener. For
/// a host in upper case or with a port it is the SNI, whose virtual host matches both spellings if
/// they are of the same host (RFC 9110, 4.2.3). Envoy evaluates it for every request, which costs a
/// twentieth of one.
const SCOPE_OF: &str = "%CEL(request.host == connection.requested_server_name || request.host.contains(':') || \
                        request.host.matches('[A-Z]') ? connection.requested_server_name : request.host)%";

/// `own` for the connection's own host, in any spelling, and for all hosts without SNI; else
/// `other`.
const OWN_OR_OTHER: &str = "%CEL(request.host == connection.requested_server_name || \
                            connection.requested_server_name == '' || \
                            request.host.contains(':') && request.host.startsWith(connection.requested_server_name) || \
                            size(request.host) == size(connection.requested_server_name) && \
                            request.host.matches('[A-Z]') ? 'own' : 'other')%";

/// The number of times that a request may have passed this installation before: once, so that a
/// backend may be a proxy that requests another host of it.
const PASSES: u32 = 1;

/// The SNI, which Envoy has in lower case.
const SNI: &str = "%REQUESTED_SERVER_NAME%";

const CDN_LOOP: &str = "envoy.filters.http.cdn_loop";

/// The source of a connection manager's routes.
pub(super) enum Routes<'a> {
    /// The scope of the host, on plain HTTP, or that of the wildcard or catch-all over it.
    Plain,
    /// The scope of the host.
    Scopes {
        /// The wildcard or catch-all listener of the connections; `None` if the SNI is the
        /// listener's hostname.
        listener: Option<&'a Hostname>,
        /// The hosts without a scope that belong to other listeners.
        elsewhere: &'a OtherListeners,
        /// When headers that identify a client are removed.
        identity_headers: IdentityRemoval,
    },
    /// The table of a wildcard or catch-all listener.
    Table(&'a TableId),
}

/// The HTTP settings that all chains of a frontend have in common.
#[derive(Clone, Copy)]
pub(super) struct Http<'a> {
    /// The identifier in `CDN-Loop` of requests that this installation has forwarded.
    pub(super) cdn_id: &'a str,
    /// Whose word counts for the address of a client. With trusted proxies Envoy leaves their
    /// `X-Forwarded-Proto`.
    pub(super) clients: &'a ClientAddress,
    /// The access log.
    pub(super) log: Option<&'a AccessLog>,
    /// The tracing.
    pub(super) tracing: Option<&'a Tracing>,
    /// The version of HTTP: that of the client's choice over TCP, or HTTP/3.
    pub(super) codec: CodecType,
}

/// The HTTP connection manager. It is the same for all chains of a frontend except for the routes
/// and the early header.
pub(super) fn filter(
    frontend: &FrontendId,
    http: Http<'_>,
    routes: Routes<'_>,
    edge: &Edge,
) -> Filter {
    let http_filters = match routes {
        Routes::Plain => filters_of_plain_http(frontend, http),
        Routes::Scopes {
            listener,
            identity_headers,
            ..
        } => {
            let find = listener.is_none().then(|| misdirected::find(frontend));
            http_filters(http, find, identity_headers)
        }
        Routes::Table(_) => http_filters(http, None, IdentityRemoval::Late),
    };
    let of_spans = http.tracing.map(|_| traces::message_filter());
    let http_filters: Vec<HttpFilter> = of_spans.into_iter().chain(http_filters).collect();
    let (route_specifier, early, unknown_host) = match routes {
        Routes::Plain => {
            let scope = frontend.scope_key(&"%REQ(:AUTHORITY)%");
            (scoped_routes(), vec![set(SCOPE_HEADER, &scope)], None)
        }
        Routes::Table(table) => (rds(table), vec![set(HOST_HEADER, OWN_OR_OTHER)], None),
        Routes::Scopes {
            listener,
            elsewhere,
            identity_headers,
        } => {
            let removal = match identity_headers {
                IdentityRemoval::Early => Some(identity_headers::removal(http.clients.hops)),
                IdentityRemoval::Late => None,
            };
            let host = listener.map_or(SNI, |_| SCOPE_OF);
            let scope = misdirected::scope_header(frontend, &host, listener);
            (
                scoped_routes(),
                removal
                    .into_iter()
                    .chain([set(SCOPE_HEADER, &scope)])
                    .collect(),
                Some(misdirected::unknown_host(elsewhere)),
            )
        }
    };
    let of_traces = http
        .tracing
        .map(|_| self::early(vec![traces::early_state()]));
    let manager = HttpConnectionManager {
        codec_type: http.codec.into(),
        stat_prefix: stat_prefix(frontend),
        access_log: [
            access_log::access_logs(frontend, http.clients, http.log),
            traffic::loggers(edge.traffic),
            vec![failure_log::of_requests()],
        ]
        .concat(),
        tracing: http
            .tracing
            .map(|tracing| traces::tracing(frontend, tracing)),
        route_specifier: Some(route_specifier),
        early_header_mutation_extensions: [self::early(early)]
            .into_iter()
            .chain(of_traces)
            .collect(),
        local_reply_config: Some(local_replies(unknown_host)),
        upgrade_configs: vec![websocket::upgrade(&http_filters)],
        http_filters,
        common_http_protocol_options: Some(HttpProtocolOptions {
            idle_timeout: seconds(edge.idle_seconds),
            max_connection_duration: (edge.max_connection_seconds > 0)
                .then(|| seconds(edge.max_connection_seconds))
                .flatten(),
            max_headers_count: uint(limits::HEADERS_COUNT),
            headers_with_underscores_action: HeadersWithUnderscoresAction::RejectRequest.into(),
            ..Default::default()
        }),
        // HTTP/1.0 of health checks and old proxies. Without a default host, a request needs a
        // `Host`, as in HTTP/1.1.
        http_protocol_options: Some(Http1ProtocolOptions {
            accept_http_10: true,
            ..Default::default()
        }),
        http2_protocol_options: Some(Http2ProtocolOptions {
            max_concurrent_streams: uint(limits::STREAMS),
            initial_stream_window_size: uint(limits::STREAM_WINDOW_BYTES),
            initial_connection_window_size: uint(limits::CONNECTION_WINDOW_BYTES),
            // WebSockets over HTTP/2 (RFC 8441).
            allow_connect: true,
            ..Default::default()
        }),
        max_request_headers_kb: uint(limits::HEADERS_KIB),
        // The whole request has no timeout here, so that uploads and streams of any length pass;
        // routes have timeouts.
        request_timeout: seconds(0),
        request_headers_timeout: seconds(limits::REQUEST_HEADERS_SECONDS),
        stream_idle_timeout: seconds(limits::STREAM_IDLE_SECONDS),
        delayed_close_timeout: seconds(limits::DELAYED_CLOSE_SECONDS),
        // A connection beyond the maximum duration ends with a response that closes it, instead of
        // between two requests.
        http1_safe_max_connection_duration: true,
        // No `server` header and no `via` of our own: neither reveals the software here.
        server_header_transformation: ServerHeaderTransformation::PassThrough.into(),
        use_remote_address: boolean(true),
        xff_num_trusted_hops: http.clients.hops.into(),
        internal_address_config: Some(nobody_is_internal()),
        normalize_path: boolean(true),
        merge_slashes: true,
        // Gateway API: a match compares the path as the client wrote it.
        path_with_escaped_slashes_action: PathWithEscapedSlashesAction::KeepUnchanged.into(),
        // The dot of a fully qualified name has no meaning. The port stays: backends build links
        // with it.
        strip_trailing_host_dot: true,
        ..Default::default()
    };
    network_filter("envoy.filters.network.http_connection_manager", &manager)
}

fn local_replies(unknown_host: Option<ResponseMapper>) -> LocalReplyConfig {
    LocalReplyConfig {
        mappers: unknown_host
            .into_iter()
            .chain([retry::too_long_to_repeat()])
            .collect(),
        ..Default::default()
    }
}

/// No address is internal, since `x-envoy-*` request headers of internal clients set retries and
/// timeouts. Without a range Envoy trusts all private and loopback addresses, which behind a load
/// balancer are all clients; no client has 0.0.0.0.
fn nobody_is_internal() -> InternalAddressConfig {
    let nobody = CidrRange {
        address_prefix: "0.0.0.0".to_owned(),
        prefix_len: uint(32),
    };
    InternalAddressConfig {
        cidr_ranges: vec![nobody],
        ..Default::default()
    }
}

fn rds(table: &TableId) -> RouteSpecifier {
    RouteSpecifier::Rds(Rds {
        config_source: ads(),
        route_config_name: table.resource_name(),
    })
}

/// The scoped routes: identical in every connection manager of an Envoy, so that all share one
/// table of scopes.
fn scoped_routes() -> RouteSpecifier {
    let extractor = HeaderValueExtractor {
        name: SCOPE_HEADER.to_owned(),
        // The port of a host, or the listener, follows it.
        element_separator: ":".to_owned(),
        extract_type: Some(ExtractType::Index(0)),
    };
    RouteSpecifier::ScopedRoutes(ScopedRoutes {
        name: "scopes".to_owned(),
        scope_key_builder: Some(ScopeKeyBuilder {
            fragments: vec![FragmentBuilder {
                r#type: Some(Type::HeaderValueExtractor(extractor)),
            }],
        }),
        rds_config_source: ads(),
        config_specifier: Some(ConfigSpecifier::ScopedRds(ScopedRds {
            scoped_rds_config_source: ads(),
            ..Default::default()
        })),
    })
}

/// Overwrites a header.
fn set(name: &str, value: &str) -> HeaderMutation {
    mutation(name, value, HeaderAppendAction::OverwriteIfExistsOrAdd)
}

/// Mutations before a route is selected.
fn early(mutations: Vec<HeaderMutation>) -> TypedExtensionConfig {
    extension(
        "envoy.http.early_header_mutation.header_mutation",
        &EarlyHeaderMutation { mutations },
    )
}

/// Answers 502 to a request in a loop, whichever way it returns.
fn cdn_loop(cdn_id: &str) -> HttpFilter {
    let config = CdnLoopConfig {
        cdn_id: cdn_id.to_owned(),
        max_allowed_occurrences: PASSES,
    };
    http_filter(CDN_LOOP, &config)
}

fn router() -> HttpFilter {
    let config = Router {
        suppress_envoy_headers: true,
        ..Default::default()
    };
    http_filter("envoy.filters.http.router", &config)
}

/// The HTTP filters on plain HTTP. None of them is enabled by a route, since a request may have
/// none when they are made.
fn filters_of_plain_http(frontend: &FrontendId, http: Http<'_>) -> Vec<HttpFilter> {
    let chosen = |name: &str| http_filter(name, &listener_filters::chosen());
    let identity = identity_headers::late_filter(http.clients.hops);
    [authority::filter()]
        .into_iter()
        .chain(client_address::readable(http.clients.hops))
        .chain([
            cdn_loop(http.cdn_id),
            http_filter(find_scope::FILTER, &plain_http::find(frontend)),
            http_filter(HEADER_TO_METADATA, &HeaderToMetadata::default()),
        ])
        .chain(location::filters())
        .chain([http_filter(identity_headers::FILTER, &identity)])
        .chain(listener_filters::ASK.map(chosen))
        .chain([
            http_filter(cors::FILTER, &Cors {}),
            http_filter(listener_filters::MARK, &listener_filters::mark()),
        ])
        .chain(listener_filters::MARKED.map(chosen))
        .chain([router()])
        .collect()
}

/// The HTTP filters on TLS, which routes configure. `find` looks for another scope.
fn http_filters(
    http: Http<'_>,
    find: Option<FilterChainConfig>,
    removal: IdentityRemoval,
) -> Vec<HttpFilter> {
    let identity = match removal {
        IdentityRemoval::Early => None,
        IdentityRemoval::Late => Some(identity_headers::filter(http.clients.hops)),
    };
    [authority::filter()]
        .into_iter()
        .chain(client_address::readable(http.clients.hops))
        .chain([cdn_loop(http.cdn_id)])
        .chain(find.map(|find| http_filter(find_scope::FILTER, &find)))
        .chain(location::filters().map(off))
        // Nothing of what a client says about itself is asked or forwarded.
        .chain(identity.map(|identity| http_filter(identity_headers::FILTER, &identity)))
        // The filters of a listener precede those of its routes, for preflights as well.
        .chain([off(http_filter(
            listener_filters::FILTER,
            &FilterChainConfig::default(),
        ))])
        .chain([off(http_filter(cors::FILTER, &Cors {}))])
        .chain([off(http_filter(
            listener_filters::MARK,
            &listener_filters::mark(),
        ))])
        .chain(
            listener_filters::MARKED
                .map(|name| off(http_filter(name, &listener_filters::chosen()))),
        )
        // They follow CORS: browsers send preflights without credentials, and these are answered
        // first.
        .chain(route_filters::disabled_filters())
        .chain([router()])
        .collect()
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
    use prost::Message;

    use super::*;
    use crate::testdata::{frontend, host};

    fn manager(port: u16, routes: Routes<'_>) -> HttpConnectionManager {
        let Some(ConfigType::TypedConfig(config)) =
            filter(&frontend(port), http(), routes, &Edge::DEFAULT).config_type
        else {
            panic!("a configuration")
        };
        HttpConnectionManager::decode(config.value.as_slice()).expect("a connection manager")
    }

    static NOBODY: ClientAddress = ClientAddress {
        proxy_protocol: None,
        hops: 0,
    };

    fn http() -> Http<'static> {
        Http {
            cdn_id: "test",
            clients: &NOBODY,
            log: None,
            tracing: None,
            codec: CodecType::Auto,
        }
    }

    fn scopes() -> Routes<'static> {
        Routes::Scopes {
            listener: None,
            elsewhere: const { &OtherListeners::NOWHERE },
            identity_headers: IdentityRemoval::Early,
        }
    }

    fn scopes_of(listener: &Hostname) -> Routes<'_> {
        Routes::Scopes {
            listener: Some(listener),
            elsewhere: const { &OtherListeners::NOWHERE },
            identity_headers: IdentityRemoval::Late,
        }
    }

    #[test]
    fn only_connections_whose_sni_is_the_listener_look_for_another_scope() {
        fn finds(made: &HttpConnectionManager) -> bool {
            let all = made.http_filters.iter();
            all.clone()
                .any(|filter| filter.name == find_scope::FILTER && !filter.disabled)
        }
        assert!(
            finds(&manager(443, scopes())),
            "the SNI's scope may be of another host"
        );
        assert!(
            !finds(&manager(443, scopes_of(&host("*.a.org")))),
            "the first look-up is by the host"
        );
    }

    #[test]
    fn scoped_routes_are_the_same_for_all_frontends_and_the_header_tells_them_apart() {
        let one = manager(443, scopes());
        let two = manager(8443, scopes());
        assert_eq!(one.route_specifier, two.route_specifier);
        assert_ne!(
            one.early_header_mutation_extensions,
            two.early_header_mutation_extensions
        );
    }

    #[test]
    fn no_filter_of_plain_http_waits_for_a_route_to_enable_it() {
        let made = manager(80, Routes::Plain);
        let upgrades = &made.upgrade_configs[0].filters;
        let waiting = made
            .http_filters
            .iter()
            .chain(upgrades)
            .filter(|filter| filter.disabled);
        assert_eq!(
            waiting.count(),
            0,
            "a request may have no route when its filters are made"
        );
    }

    #[test]
    fn only_plain_http_has_the_filter_of_challenges() {
        let wild = TableId {
            frontend: frontend(443),
            listener: host("*.example.org"),
        };
        fn names(m: HttpConnectionManager) -> Vec<String> {
            m.http_filters
                .into_iter()
                .map(|f| f.name)
                .collect::<Vec<_>>()
        }
        assert_eq!(
            names(manager(80, Routes::Plain))[1..4],
            [CDN_LOOP, find_scope::FILTER, HEADER_TO_METADATA]
        );
        assert_eq!(
            names(manager(443, Routes::Table(&wild))),
            names(manager(443, scopes_of(&wild.listener)))
        );
    }
}
