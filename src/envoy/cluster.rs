//! Clusters: the connections to backends. The endpoints of each cluster come by EDS.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::{
    CircuitBreakers, Cluster, UpstreamConnectionOptions,
    circuit_breakers::{Thresholds, thresholds::RetryBudget as PbRetryBudget},
    cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbPolicy},
};
use envoy_types::pb::envoy::config::core::v3::{
    Http1ProtocolOptions, Http2ProtocolOptions, HttpProtocolOptions as CommonOptions, Locality,
    TcpKeepalive,
};
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
};
use envoy_types::pb::envoy::extensions::upstreams::http::v3::{
    HttpProtocolOptions,
    http_protocol_options::{
        ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
    },
};
use envoy_types::pb::envoy::r#type::v3::Percent;

use super::backend_settings::with_settings;
use super::proto::{ads, any, duration, seconds, socket, uint};
use super::{Edge, fetched_keys, limits, login_rate, otlp, udp, upstream_tls};
use gatewright_core::model::{
    self, Addresses, AppProtocol, BackendSettings, BackendTransport, ClusterId, ObjectName,
    RetryBudget, Transport, Zone, ZoneEndpoints,
};

/// Name of the cluster without endpoints: a connection to it is reset. It is in the bootstrap; an
/// Envoy with another bootstrap, which does not know the name, resets the connection as well.
pub const REFUSED: &str = "gatewright/refused";

/// The cluster of a backend, or of a name passed through.
///
/// Clusters are the memory floor of an Envoy, so fields with default values are left out.
pub fn cluster(cluster: &model::Cluster) -> Cluster {
    cluster_within(cluster, &Edge::DEFAULT)
}

/// The cluster of a backend, or of a name passed through, with an operator's limits.
pub fn cluster_within(cluster: &model::Cluster, edge: &Edge) -> Cluster {
    let name = cluster.name();
    match cluster {
        model::Cluster::Backend(model::Backend {
            id,
            transport,
            retries,
            settings,
        }) => {
            let service = (&id.port.service, id.protocol);
            let transport_socket = match transport {
                BackendTransport::Plain => None,
                BackendTransport::Tls(tls) => {
                    Some(upstream_tls::transport_socket(tls, id.protocol))
                }
                BackendTransport::Refused => return refused(name),
            };
            let idle = settings.as_ref().and_then(|all| all.idle_timeout);
            let reached = Cluster {
                transport_socket,
                typed_extension_protocol_options: protocol_options(id.protocol, idle),
                ..reached(name, id.protocol, *retries, edge)
            };
            set(reached, settings.as_deref(), service, edge)
        }
        model::Cluster::Sni {
            port: Some(port),
            settings,
            ..
        } => {
            let plain = reached(name, AppProtocol::Tcp, None, edge);
            let service = (&port.service, AppProtocol::Tcp);
            set(plain, settings.as_deref(), service, edge)
        }
        model::Cluster::Sni { port: None, .. } => refused(name),
        model::Cluster::Udp {
            frontend: _,
            settings,
        } => udp::cluster(name, settings.as_ref(), edge),
    }
}

/// A cluster with the settings of its Service, if a policy has some.
fn set(
    cluster: Cluster,
    settings: Option<&BackendSettings>,
    service: (&ObjectName, AppProtocol),
    edge: &Edge,
) -> Cluster {
    match settings {
        Some(settings) => with_settings(cluster, settings, service, edge),
        None => cluster,
    }
}

/// A cluster that never has endpoints.
fn refused(name: String) -> Cluster {
    Cluster {
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name.clone(),
            ..Default::default()
        }),
        name,
        connect_timeout: seconds(limits::CONNECT_SECONDS),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        ..Default::default()
    }
}

fn reached(
    name: String,
    protocol: AppProtocol,
    retries: Option<RetryBudget>,
    edge: &Edge,
) -> Cluster {
    let most_requests = match protocol {
        AppProtocol::Otlp => edge.backend_connections.min(limits::EXPORT_BATCHES),
        _ => edge.backend_connections,
    };
    let alt_stat_name = match protocol {
        AppProtocol::Otlp => otlp::STATISTICS.to_owned(),
        _ => String::new(),
    };
    Cluster {
        name,
        alt_stat_name,
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        // Without a name of its own the assignment is requested under the cluster's.
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: ads(),
            ..Default::default()
        }),
        connect_timeout: seconds(limits::CONNECT_SECONDS),
        per_connection_buffer_limit_bytes: uint(limits::BUFFER_BYTES),
        lb_policy: LbPolicy::LeastRequest.into(),
        circuit_breakers: Some(CircuitBreakers {
            thresholds: vec![Thresholds {
                // A slow or silent backend holds no more than this of the memory and file
                // descriptors that all tenants of the Envoy share. Further requests are answered
                // 503, for this backend alone.
                max_connections: uint(edge.backend_connections),
                max_pending_requests: uint(edge.backend_connections),
                max_requests: uint(most_requests),
                max_retries: uint(limits::UPSTREAM_RETRIES),
                // In place of the number before it. No backend has more retries than requests.
                retry_budget: retries.map(retry_budget),
                ..Default::default()
            }],
            ..Default::default()
        }),
        // A dead peer behind a silent network is detected within about two minutes instead of
        // never.
        upstream_connection_options: Some(UpstreamConnectionOptions {
            tcp_keepalive: Some(TcpKeepalive {
                keepalive_time: uint(60),
                keepalive_interval: uint(15),
                keepalive_probes: uint(4),
            }),
            ..Default::default()
        }),
        // An endpoint that EDS removes is removed at once; there is no active health check that
        // could object.
        ignore_health_on_host_removal: true,
        ..Default::default()
    }
}

/// Requests count from when they begin, for as long as the interval; retries count while they are
/// active.
fn retry_budget(budget: RetryBudget) -> PbRetryBudget {
    PbRetryBudget {
        budget_percent: Some(Percent {
            value: budget.percent.into(),
        }),
        budget_interval: duration(budget.interval),
        min_retry_concurrency: uint(budget.at_a_time()),
    }
}

/// HTTP/1.1 is Envoy's default; h2c is never negotiated, so it is explicit. At most one entry: a
/// protobuf map with more has no stable encoding.
fn protocol_options(
    protocol: AppProtocol,
    idle: Option<Duration>,
) -> HashMap<String, envoy_types::pb::google::protobuf::Any> {
    let config = match protocol {
        AppProtocol::Tcp | AppProtocol::Terminated | AppProtocol::Udp => return HashMap::new(),
        AppProtocol::Http1 if idle.is_none() => return HashMap::new(),
        AppProtocol::Http1 | AppProtocol::KeySets | AppProtocol::Logins => {
            ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default())
        }
        AppProtocol::H2c | AppProtocol::KeySetsH2c | AppProtocol::LoginsH2c | AppProtocol::Otlp => {
            ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions {
                max_concurrent_streams: uint(limits::STREAMS),
                initial_stream_window_size: uint(limits::BACKEND_STREAM_WINDOW_BYTES),
                initial_connection_window_size: uint(limits::BACKEND_CONNECTION_WINDOW_BYTES),
                ..Default::default()
            })
        }
    };
    let common = CommonOptions {
        idle_timeout: idle.and_then(duration),
        // What a collector does not answer would be kept for ever: Envoy's loggers have no timeout
        // of their own.
        max_stream_duration: (protocol == AppProtocol::Otlp)
            .then(|| seconds(limits::EXPORT_SECONDS))
            .flatten(),
        ..Default::default()
    };
    let http_filters = match protocol {
        AppProtocol::KeySets | AppProtocol::KeySetsH2c => fetched_keys::filters(),
        AppProtocol::Logins | AppProtocol::LoginsH2c => login_rate::filters(),
        AppProtocol::Otlp => otlp::filters(),
        _ => Vec::new(),
    };
    let options = HttpProtocolOptions {
        common_http_protocol_options: (common != CommonOptions::default()).then_some(common),
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(
            ExplicitHttpConfig {
                protocol_config: Some(config),
            },
        )),
        http_filters,
        ..Default::default()
    };
    HashMap::from([(
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions".to_owned(),
        any(&options),
    )])
}

/// The load assignment of a cluster. Without addresses it is sent too: requests are answered 503,
/// connections are reset.
pub fn endpoints(endpoints: &model::Endpoints) -> ClusterLoadAssignment {
    let transport = match &endpoints.cluster {
        ClusterId::Backend(_) | ClusterId::Sni(..) => Transport::Tcp,
        ClusterId::Udp(_) => Transport::Udp,
    };
    let localities = match &endpoints.addresses {
        Addresses::Alike(addresses) if addresses.is_empty() => Vec::new(),
        Addresses::Alike(addresses) => vec![locality(None, addresses, transport)],
        Addresses::Zoned(zones) => zones
            .iter()
            .map(|ZoneEndpoints { zone, addresses }| locality(zone.as_ref(), addresses, transport))
            .collect(),
        Addresses::Weighted(shares) => udp::localities(shares),
    };
    ClusterLoadAssignment {
        cluster_name: endpoints.cluster.to_string(),
        endpoints: localities,
        ..Default::default()
    }
}

/// The endpoints of a zone, or those without one.
fn locality(
    zone: Option<&Zone>,
    addresses: &[SocketAddr],
    transport: Transport,
) -> LocalityLbEndpoints {
    LocalityLbEndpoints {
        locality: zone.map(|zone| Locality {
            zone: zone.to_string(),
            ..Default::default()
        }),
        lb_endpoints: addresses
            .iter()
            .map(|address| endpoint(*address, transport))
            .collect(),
        ..Default::default()
    }
}

/// An endpoint with an address of a transport.
pub(super) fn endpoint(address: SocketAddr, transport: Transport) -> LbEndpoint {
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(socket(address.ip(), address.port(), transport)),
            ..Default::default()
        })),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{backend, frontend, host};

    #[test]
    fn clusters_of_one_service_port_have_assignments_of_their_own() {
        let port = backend("web", AppProtocol::Http1).port;
        let all = [
            model::Cluster::Backend(backend("web", AppProtocol::Http1).into()),
            model::Cluster::Backend(backend("web", AppProtocol::H2c).into()),
            model::Cluster::Sni {
                frontend: frontend(443),
                hostname: host("a.example.org"),
                port: Some(port),
                settings: None,
            },
        ]
        .map(|c| cluster(&c));
        let names: Vec<_> = all.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "default/web:80",
                "default/web:80/h2c",
                "infra/edge:443|a.example.org"
            ]
        );
        for cluster in &all {
            assert_eq!(
                cluster
                    .eds_cluster_config
                    .as_ref()
                    .expect("EDS")
                    .service_name,
                "",
                "the name of the cluster"
            );
        }
    }

    #[test]
    fn only_h2c_says_its_protocol() {
        let of = |protocol| {
            cluster(&model::Cluster::Backend(backend("web", protocol).into()))
                .typed_extension_protocol_options
        };
        assert!(of(AppProtocol::Http1).is_empty() && of(AppProtocol::Tcp).is_empty());
        assert_eq!(of(AppProtocol::H2c).len(), 1);
        assert_eq!(of(AppProtocol::Otlp).len(), 1);
    }

    #[test]
    fn a_retry_budget_stands_beside_the_other_limits() {
        let second = std::time::Duration::from_secs(1);
        let id = backend("web", AppProtocol::Http1);
        let retries = Some(RetryBudget {
            percent: 30,
            interval: 60 * second,
            count: 7,
            per: second,
        });
        let made = cluster(&model::Cluster::Backend(model::Backend {
            retries,
            ..id.into()
        }));
        let mut limits = made.circuit_breakers.expect("it has some").thresholds;
        let budget = limits[0].retry_budget.take().expect("a budget");
        assert_eq!(
            budget.budget_percent.map(|p| p.value),
            Some(30.0),
            "the share is the policy's"
        );
        assert_eq!(
            budget.min_retry_concurrency,
            uint(7),
            "the minimum is the policy's"
        );
        assert_eq!(budget.budget_interval, duration(60 * second));
        let plain = cluster(&model::Cluster::Backend(
            backend("web", AppProtocol::Http1).into(),
        ));
        assert_eq!(
            limits,
            plain.circuit_breakers.expect("it has some").thresholds
        );
    }

    #[test]
    fn a_name_without_a_backend_has_a_cluster_that_refuses() {
        let refused = cluster(&model::Cluster::Sni {
            frontend: frontend(443),
            hostname: host("a.org"),
            port: None,
            settings: None,
        });
        assert!(refused.eds_cluster_config.is_none());
        assert!(
            refused
                .load_assignment
                .expect("an assignment")
                .endpoints
                .is_empty()
        );
    }

    #[test]
    fn endpoints_keep_their_order_and_may_be_none() {
        let cluster = model::ClusterId::Backend(backend("web", AppProtocol::Http1));
        let addresses = ["10.0.0.1:80", "[2001:db8::1]:80"]
            .map(|a| a.parse().expect("an address"))
            .into();
        let full = endpoints(&model::Endpoints {
            cluster: cluster.clone(),
            addresses: Addresses::Alike(addresses),
        });
        assert_eq!(full.endpoints[0].lb_endpoints.len(), 2);
        let none = Addresses::Alike([].into());
        assert!(
            endpoints(&model::Endpoints {
                cluster,
                addresses: none
            })
            .endpoints
            .is_empty()
        );
    }
}
