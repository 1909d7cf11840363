//! Envoy resources for tests and benches of the xDS server alone.

use std::io::{Read, Write};
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatcher;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use xds::{Event, Rejection, Resource};

use crate::served::PATIENCE;

/// Wraps a message in an `Any`.
pub fn any<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: M::type_url(),
        value: message.encode_to_vec(),
    }
}

/// A loopback address.
pub fn address(port: u16) -> core::Address {
    core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            address: "127.0.0.1".into(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port.into())),
            ..Default::default()
        })),
    }
}

/// A config source: ADS, on the stream of the request.
pub fn ads() -> core::ConfigSource {
    core::ConfigSource {
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(
            Default::default(),
        )),
        resource_api_version: core::ApiVersion::V3 as i32,
        ..Default::default()
    }
}

/// A cluster with endpoints by EDS.
pub fn eds_cluster(name: &str) -> Resource {
    let message = cluster::Cluster {
        name: name.into(),
        cluster_discovery_type: Some(cluster::cluster::ClusterDiscoveryType::Type(
            cluster::cluster::DiscoveryType::Eds as i32,
        )),
        eds_cluster_config: Some(cluster::cluster::EdsClusterConfig {
            eds_config: Some(ads()),
            ..Default::default()
        }),
        ..Default::default()
    };
    Resource::new(name, &message)
}

/// A cluster that Envoy refuses.
pub fn bad_cluster(name: &str) -> Resource {
    // An EDS cluster without a source of endpoints passes the message validation and not Envoy's.
    let message = cluster::Cluster {
        name: name.into(),
        cluster_discovery_type: Some(cluster::cluster::ClusterDiscoveryType::Type(
            cluster::cluster::DiscoveryType::Eds as i32,
        )),
        ..Default::default()
    };
    Resource::new(name, &message)
}

/// One endpoint on loopback.
pub fn endpoints(name: &str, port: u16) -> Resource {
    let message = endpoint::ClusterLoadAssignment {
        cluster_name: name.into(),
        endpoints: vec![endpoint::LocalityLbEndpoints {
            lb_endpoints: vec![endpoint::LbEndpoint {
                host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(
                    endpoint::Endpoint {
                        address: Some(address(port)),
                        ..Default::default()
                    },
                )),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    Resource::new(name, &message)
}

/// A route configuration of one virtual host for all names.
pub fn routes(name: &str, routes: Vec<route::Route>) -> route::RouteConfiguration {
    route::RouteConfiguration {
        name: name.into(),
        virtual_hosts: vec![route::VirtualHost {
            name: "all".into(),
            domains: vec!["*".into()],
            routes,
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Matches every path.
pub fn prefix() -> route::RouteMatch {
    route::RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::Prefix("/".into())),
        ..Default::default()
    }
}

/// Matches paths by a regular expression, which Envoy may reject.
pub fn regex(pattern: &str) -> route::RouteMatch {
    let regex = RegexMatcher {
        regex: pattern.into(),
        ..Default::default()
    };
    route::RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::SafeRegex(regex)),
        ..Default::default()
    }
}

/// A route with a direct response.
pub fn respond(r#match: route::RouteMatch, status: u32) -> route::Route {
    let action = route::route::Action::DirectResponse(route::DirectResponseAction {
        status,
        ..Default::default()
    });
    route::Route {
        r#match: Some(r#match),
        action: Some(action),
        ..Default::default()
    }
}

/// A route that forwards to a cluster.
pub fn forward(cluster: &str) -> route::Route {
    let to = route::route_action::ClusterSpecifier::Cluster(cluster.into());
    let action = route::route::Action::Route(route::RouteAction {
        cluster_specifier: Some(to),
        ..Default::default()
    });
    route::Route {
        r#match: Some(prefix()),
        action: Some(action),
        ..Default::default()
    }
}

/// A listener with one HTTP connection manager.
pub fn http_listener(
    name: &str,
    port: u16,
    routes: hcm::http_connection_manager::RouteSpecifier,
) -> Resource {
    let manager = hcm::HttpConnectionManager {
        stat_prefix: "http".into(),
        route_specifier: Some(routes),
        http_filters: vec![hcm::HttpFilter {
            name: "envoy.filters.http.router".into(),
            config_type: Some(hcm::http_filter::ConfigType::TypedConfig(any(
                &Router::default(),
            ))),
            ..Default::default()
        }],
        ..Default::default()
    };
    let filter = listener::Filter {
        name: "hcm".into(),
        config_type: Some(listener::filter::ConfigType::TypedConfig(any(&manager))),
    };
    let chain = listener::FilterChain {
        filters: vec![filter],
        ..Default::default()
    };
    let message = listener::Listener {
        name: name.into(),
        address: Some(address(port)),
        filter_chains: vec![chain],
        ..Default::default()
    };
    Resource::new(name, &message)
}

/// Routes by RDS.
pub fn rds(name: &str) -> hcm::http_connection_manager::RouteSpecifier {
    hcm::http_connection_manager::RouteSpecifier::Rds(hcm::Rds {
        config_source: Some(ads()),
        route_config_name: name.into(),
    })
}

/// Scopes keyed by the header `x-key`.
pub fn scoped() -> hcm::http_connection_manager::RouteSpecifier {
    use hcm::scoped_routes::scope_key_builder::{FragmentBuilder, fragment_builder};
    let extractor = fragment_builder::HeaderValueExtractor {
        name: "x-key".into(),
        extract_type: Some(fragment_builder::header_value_extractor::ExtractType::Index(0)),
        ..Default::default()
    };
    hcm::http_connection_manager::RouteSpecifier::ScopedRoutes(hcm::ScopedRoutes {
        name: "scopes".into(),
        scope_key_builder: Some(hcm::scoped_routes::ScopeKeyBuilder {
            fragments: vec![FragmentBuilder {
                r#type: Some(fragment_builder::Type::HeaderValueExtractor(extractor)),
            }],
        }),
        rds_config_source: Some(ads()),
        config_specifier: Some(hcm::scoped_routes::ConfigSpecifier::ScopedRds(
            hcm::ScopedRds {
                scoped_rds_config_source: Some(ads()),
                ..Default::default()
            },
        )),
    })
}

/// A scope whose key is its name.
pub fn scope(name: &str, r#match: route::RouteMatch) -> Resource {
    let fragment = route::scoped_route_configuration::key::Fragment {
        r#type: Some(
            route::scoped_route_configuration::key::fragment::Type::StringKey(name.into()),
        ),
    };
    let message = route::ScopedRouteConfiguration {
        name: name.into(),
        key: Some(route::scoped_route_configuration::Key {
            fragments: vec![fragment],
        }),
        route_configuration: Some(routes(name, vec![respond(r#match, 200)])),
        ..Default::default()
    };
    Resource::new(name, &message)
}

/// A certificate with its key.
pub fn secret(name: &str, certificate: &str, key: &str) -> Resource {
    let inline = |text: &str| {
        Some(core::DataSource {
            specifier: Some(core::data_source::Specifier::InlineString(text.into())),
            ..Default::default()
        })
    };
    let message = tls::Secret {
        name: name.into(),
        r#type: Some(tls::secret::Type::TlsCertificate(tls::TlsCertificate {
            certificate_chain: inline(certificate),
            private_key: inline(key),
            ..Default::default()
        })),
    };
    Resource::new(name, &message)
}

/// A listener with one filter chain for each secret.
pub fn tls_listener(name: &str, port: u16, secrets: &[String]) -> Resource {
    let chain = |secret: &String| {
        let context = tls::DownstreamTlsContext {
            common_tls_context: Some(tls::CommonTlsContext {
                tls_certificate_sds_secret_configs: vec![tls::SdsSecretConfig {
                    name: secret.clone(),
                    sds_config: Some(ads()),
                }],
                ..Default::default()
            }),
            ..Default::default()
        };
        let manager = hcm::HttpConnectionManager {
            stat_prefix: "https".into(),
            route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::RouteConfig(
                routes("inline", vec![respond(prefix(), 200)]),
            )),
            http_filters: vec![hcm::HttpFilter {
                name: "envoy.filters.http.router".into(),
                config_type: Some(hcm::http_filter::ConfigType::TypedConfig(any(
                    &Router::default(),
                ))),
                ..Default::default()
            }],
            ..Default::default()
        };
        listener::FilterChain {
            filter_chain_match: Some(listener::FilterChainMatch {
                server_names: vec![format!("{}.test", secret.replace('/', "-"))],
                ..Default::default()
            }),
            filters: vec![listener::Filter {
                name: "hcm".into(),
                config_type: Some(listener::filter::ConfigType::TypedConfig(any(&manager))),
            }],
            transport_socket: Some(core::TransportSocket {
                name: "tls".into(),
                config_type: Some(core::transport_socket::ConfigType::TypedConfig(any(
                    &context,
                ))),
            }),
            ..Default::default()
        }
    };
    let inspector = envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector::default();
    let message = listener::Listener {
        name: name.into(),
        address: Some(address(port)),
        filter_chains: secrets.iter().map(chain).collect(),
        listener_filters: vec![listener::ListenerFilter {
            name: "tls_inspector".into(),
            config_type: Some(listener::listener_filter::ConfigType::TypedConfig(any(
                &inspector,
            ))),
            ..Default::default()
        }],
        ..Default::default()
    };
    Resource::new(name, &message)
}

/// A listener with on-demand certificates by SNI.
pub fn on_demand_listener(
    name: &str,
    port: u16,
    routes: hcm::http_connection_manager::RouteSpecifier,
) -> Resource {
    use envoy_types::pb::envoy::extensions::transport_sockets::tls::{
        cert_mappers::sni, cert_selectors::on_demand_secret,
    };
    let mapper = core::TypedExtensionConfig {
        name: "sni".into(),
        typed_config: Some(any(&sni::v3::Sni {
            default_value: "-".into(),
        })),
    };
    let selector = on_demand_secret::v3::Config {
        config_source: Some(ads()),
        certificate_mapper: Some(mapper),
        ..Default::default()
    };
    let context = tls::DownstreamTlsContext {
        common_tls_context: Some(tls::CommonTlsContext {
            custom_tls_certificate_selector: Some(core::TypedExtensionConfig {
                name: "on_demand".into(),
                typed_config: Some(any(&selector)),
            }),
            ..Default::default()
        }),
        disable_stateful_session_resumption: true,
        session_ticket_keys_type: Some(
            tls::downstream_tls_context::SessionTicketKeysType::DisableStatelessSessionResumption(
                true,
            ),
        ),
        ..Default::default()
    };
    let plain = http_listener(name, port, routes);
    let mut message = listener::Listener::decode(plain.body()).expect("just encoded");
    message.filter_chains[0].transport_socket = Some(core::TransportSocket {
        name: "tls".into(),
        config_type: Some(core::transport_socket::ConfigType::TypedConfig(any(
            &context,
        ))),
    });
    let inspector = envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector::default();
    message.listener_filters = vec![listener::ListenerFilter {
        name: "tls_inspector".into(),
        config_type: Some(listener::listener_filter::ConfigType::TypedConfig(any(
            &inspector,
        ))),
        ..Default::default()
    }];
    Resource::new(name, &message)
}

/// Returns a free port.
pub fn free_port() -> u16 {
    e2e::port::free_port().expect("loopback has ports")
}

/// Returns the status of a request, once the port accepts connections.
pub fn status(port: u16, header: &str) -> u16 {
    let mut last = String::new();
    for _ in 0..600 {
        let answer = std::net::TcpStream::connect(("127.0.0.1", port)).and_then(|mut socket| {
            write!(
                socket,
                "GET / HTTP/1.1\r\nHost: test\r\n{header}Connection: close\r\n\r\n"
            )?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer)?;
            Ok(answer)
        });
        match answer {
            Ok(answer) if answer.len() > 12 => {
                return answer[9..12].parse().expect("a status line");
            }
            other => last = format!("{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("port {port} never answered: {last}")
}

/// Waits for the next rejection.
pub async fn rejection(events: &mut tokio::sync::broadcast::Receiver<Event>) -> Rejection {
    tokio::time::timeout(PATIENCE, async {
        loop {
            if let Event::Rejected(rejection) = events.recv().await.expect("the cache lives") {
                return rejection;
            }
        }
    })
    .await
    .expect("envoy refuses")
}

/// Waits for the next recovery.
pub async fn recovery(events: &mut tokio::sync::broadcast::Receiver<Event>) -> Rejection {
    tokio::time::timeout(PATIENCE, async {
        loop {
            if let Event::Recovered(rejection) = events.recv().await.expect("the cache lives") {
                return rejection;
            }
        }
    })
    .await
    .expect("envoy takes the corrected resource")
}
