//! UDP: a listener with a single cluster, whose endpoints have weights.
//!
//! Envoy's UDP proxy has no weighted clusters. The weights are those of localities: each backend is
//! a locality of the cluster, regardless of its number of endpoints
//! (`intro/arch_overview/upstream/load_balancing/locality_weight`).

use std::net::{Ipv4Addr, SocketAddr};

use envoy_types::pb::envoy::config::cluster::v3::{
    CircuitBreakers, Cluster,
    circuit_breakers::Thresholds,
    cluster::{
        ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig, LbPolicy,
        common_lb_config::{LocalityConfigSpecifier, LocalityWeightedLbConfig},
    },
};
use envoy_types::pb::envoy::config::core::v3::{HealthCheck, Locality, UdpSocketConfig};
use envoy_types::pb::envoy::config::endpoint::v3::{
    LbEndpoint, LocalityLbEndpoints, endpoint::HealthCheckConfig, lb_endpoint::HostIdentifier,
};
use envoy_types::pb::envoy::config::listener::v3::{
    AdditionalAddress, Listener, ListenerFilter, UdpListenerConfig, listener_filter,
};
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::{
    Route, UdpProxyConfig, udp_proxy_config,
    udp_proxy_config::{HashPolicy, hash_policy},
};
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::UInt64Value;

use super::backend_settings::{health_check, lb_policy, table};
use super::cluster::endpoint;
use super::name::stat_prefix;
use super::proto::{ads, always, any, seconds, socket, uint, xds_extension};
use super::{Edge, ResourceName, limits, zone_preference};
use gatewright_core::model::{
    AppProtocol, BackendSettings, ClusterId, DatagramSettings, Frontend, LoadBalancing, Transport,
    WeightedEndpoints,
};

/// The target of datagrams without a backend: Envoy skips a locality without endpoints, and the
/// others would get its share. A program that listens on the discard port ignores what it receives
/// (RFC 863); usually there is none.
const DISCARD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

/// The listener of a UDP frontend. It is constant: only the endpoints of its cluster change.
pub(super) fn listener(frontend: &Frontend, edge: &Edge) -> Listener {
    let Frontend {
        id,
        addresses,
        port,
        cdn_id: _,
        clients: _,
        access_log: _,
        tracing: _,
        kind: _,
    } = frontend;
    let mut addresses = addresses
        .iter()
        .map(|ip| socket(*ip, *port, Transport::Udp));
    let route = Route {
        cluster: ClusterId::Udp(id.clone()).to_string(),
    };
    let route = always(xds_extension("route", any(&route)));
    let proxy = UdpProxyConfig {
        stat_prefix: stat_prefix(id),
        idle_timeout: seconds(edge.udp_idle_seconds),
        // Clusters that choose by a hash read it, and no others do: the listener stays the same
        // when a policy comes or goes.
        hash_policies: vec![HashPolicy {
            policy_specifier: Some(hash_policy::PolicySpecifier::SourceIp(true)),
        }],
        upstream_socket_config: datagrams(),
        route_specifier: Some(udp_proxy_config::RouteSpecifier::Matcher(route)),
        ..Default::default()
    };
    Listener {
        name: frontend.resource_name(),
        address: addresses.next(),
        additional_addresses: addresses
            .map(|address| AdditionalAddress {
                address: Some(address),
                ..Default::default()
            })
            .collect(),
        stat_prefix: frontend.resource_name(),
        listener_filters: vec![ListenerFilter {
            name: "envoy.filters.udp_listener.udp_proxy".to_owned(),
            config_type: Some(listener_filter::ConfigType::TypedConfig(any(&proxy))),
            ..Default::default()
        }],
        udp_listener_config: Some(UdpListenerConfig {
            downstream_socket_config: datagrams(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn datagrams() -> Option<UdpSocketConfig> {
    let max_rx_datagram_size = Some(UInt64Value {
        value: limits::DATAGRAM_BYTES,
    });
    Some(UdpSocketConfig {
        max_rx_datagram_size,
        ..Default::default()
    })
}

/// The cluster of a UDP frontend. Each session counts as a connection: above the limit a new one
/// gets no response until another has ended.
pub(super) fn cluster(name: String, settings: Option<&DatagramSettings>, edge: &Edge) -> Cluster {
    let cluster = weighted(name, edge);
    match settings {
        Some(settings) => with_settings(cluster, settings, edge),
        None => cluster,
    }
}

/// A cluster with the settings that its Services have in common. Endpoints in order take the place
/// of those with fewer requests: a session is no request.
fn with_settings(cluster: Cluster, asked: &DatagramSettings, edge: &Edge) -> Cluster {
    let DatagramSettings { service, settings } = asked;
    let BackendSettings {
        load_balancing,
        prefers_zone,
        connect_timeout: _,
        idle_timeout: _,
        limits,
        active,
        passive: _,
        panic_percent,
        proxy_protocol: _,
    } = &**settings;
    let balancing = match load_balancing {
        LoadBalancing::LeastRequest => &LoadBalancing::RoundRobin,
        other => other,
    };
    let by_zone = prefers_zone
        .then(|| zone_preference::policy(balancing))
        .flatten();
    let weights = cluster
        .common_lb_config
        .and_then(|config| config.locality_config_specifier)
        .filter(|_| !prefers_zone);
    let panic = panic_percent.map(|percent| Percent {
        value: f64::from(percent),
    });
    let sessions = limits
        .connections
        .unwrap_or(edge.udp_port_sessions)
        .min(edge.udp_port_sessions);
    let checks = active
        .as_ref()
        .and_then(|check| health_check(check, service, AppProtocol::Udp))
        // Sessions do not count as traffic, without which Envoy checks once a minute.
        .map(|check| HealthCheck {
            no_traffic_interval: check.interval,
            ..check
        });
    Cluster {
        lb_policy: lb_policy(balancing).into(),
        lb_config: table(balancing),
        load_balancing_policy: by_zone,
        common_lb_config: (weights.is_some() || panic.is_some()).then(|| CommonLbConfig {
            healthy_panic_threshold: panic,
            locality_config_specifier: weights,
            ..Default::default()
        }),
        circuit_breakers: Some(sessions_at_most(sessions)),
        health_checks: checks.into_iter().collect(),
        ..cluster
    }
}

fn sessions_at_most(sessions: u32) -> CircuitBreakers {
    CircuitBreakers {
        thresholds: vec![Thresholds {
            max_connections: uint(sessions),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A cluster whose endpoints have the weights of their localities, and nothing else.
fn weighted(name: String, edge: &Edge) -> Cluster {
    let by_weight = LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig {});
    Cluster {
        name,
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: ads(),
            ..Default::default()
        }),
        lb_policy: LbPolicy::RoundRobin.into(),
        common_lb_config: Some(CommonLbConfig {
            locality_config_specifier: Some(by_weight),
            ..Default::default()
        }),
        circuit_breakers: Some(sessions_at_most(edge.udp_port_sessions)),
        ignore_health_on_host_removal: true,
        ..Default::default()
    }
}

/// A locality for each share; none if all shares are discarded.
pub(super) fn localities(shares: &[WeightedEndpoints]) -> Vec<LocalityLbEndpoints> {
    if shares.iter().all(|share| share.addresses.is_empty()) {
        return Vec::new();
    }
    fn locality(share: &WeightedEndpoints) -> LocalityLbEndpoints {
        let WeightedEndpoints {
            port,
            weight,
            addresses,
        } = share;
        let discarded = addresses.is_empty().then_some(&DISCARD);
        let all = addresses.iter().chain(discarded);
        LocalityLbEndpoints {
            locality: Some(Locality {
                zone: port
                    .as_ref()
                    .map_or("discarded".to_owned(), ToString::to_string),
                ..Default::default()
            }),
            lb_endpoints: all.map(|address| target(*address)).collect(),
            load_balancing_weight: uint(*weight),
            ..Default::default()
        }
    }
    shares.iter().map(locality).collect()
}

/// An endpoint. Nobody answers for [`DISCARD`], which gets its share whatever the checks of others.
fn target(address: SocketAddr) -> LbEndpoint {
    let mut target = endpoint(address, Transport::Udp);
    if let (DISCARD, Some(HostIdentifier::Endpoint(endpoint))) =
        (address, &mut target.host_identifier)
    {
        endpoint.health_check_config = Some(HealthCheckConfig {
            disable_active_health_check: true,
            ..Default::default()
        });
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::frontend;
    use gatewright_core::model::ServicePort;
    use gatewright_core::model::{
        Addresses, ClientAddress, Cluster as ModelCluster, Endpoints, FrontendId, FrontendKind,
        ObjectName,
    };

    fn dns() -> FrontendId {
        FrontendId {
            transport: Transport::Udp,
            ..frontend(53)
        }
    }

    fn share(service: Option<&str>, weight: u32, addresses: &[&str]) -> WeightedEndpoints {
        let addresses = addresses
            .iter()
            .map(|address| address.parse().expect("an address"))
            .collect();
        WeightedEndpoints {
            port: service.map(|name| ServicePort {
                service: ObjectName::new("a", name),
                port: 53,
                transport: Transport::Udp,
            }),
            weight,
            addresses,
        }
    }

    #[test]
    fn tcp_and_udp_of_one_number_are_two_listeners() {
        fn made(id: FrontendId, kind: FrontendKind) -> Listener {
            let addresses = vec!["127.0.0.1".parse().expect("an address")];
            crate::listener(&Frontend {
                id,
                addresses,
                port: 53,
                cdn_id: "test".into(),
                clients: ClientAddress::default(),
                access_log: None,
                tracing: None,
                kind,
            })
        }
        let udp = made(dns(), FrontendKind::Udp);
        let tcp = made(frontend(53), FrontendKind::Tcp { shares: Vec::new() });
        assert_eq!(tcp.name.as_str(), "infra/edge:53", "TCP has the plain name");
        assert_eq!(udp.name.as_str(), "infra/edge:53/udp", "UDP has its suffix");
        assert_ne!(tcp.address, udp.address);
        assert!(udp.filter_chains.is_empty() && udp.udp_listener_config.is_some());
        assert_eq!(tcp.filter_chains.len(), 1, "the listener has its chain");
        assert_eq!(
            tcp.listener_filters.len(),
            0,
            "nothing is looked at before it"
        );
    }

    #[test]
    fn each_share_is_a_locality_with_its_weight_and_what_is_invalid_is_discarded() {
        let shares = vec![
            share(None, 3, &[]),
            share(Some("dns"), 7, &["10.0.0.1:53", "10.0.0.2:53"]),
        ];
        let made = localities(&shares);
        let weights: Vec<_> = made
            .iter()
            .filter_map(|locality| locality.load_balancing_weight)
            .collect();
        assert_eq!(
            weights
                .iter()
                .map(|weight| weight.value)
                .collect::<Vec<_>>(),
            [3, 7]
        );
        assert_eq!(made[0].lb_endpoints, [target(DISCARD)]);
        assert_ne!(
            made[0].locality, made[1].locality,
            "two localities of one name would be one"
        );
        assert!(
            localities(&shares[..1]).is_empty(),
            "nobody is left whose share it could become"
        );
    }

    #[test]
    fn the_cluster_asks_for_the_endpoints_that_are_sent() {
        let cluster = crate::cluster(&ModelCluster::Udp {
            frontend: dns(),
            settings: None,
        });
        let sent = crate::endpoints(&Endpoints {
            cluster: ClusterId::Udp(dns()),
            addresses: Addresses::Weighted(vec![]),
        });
        assert_eq!(cluster.name, sent.cluster_name);
        let sessions = cluster.circuit_breakers.expect("limits").thresholds[0]
            .max_connections
            .expect("one");
        assert_eq!(sessions.value, Edge::DEFAULT.udp_port_sessions);
    }
}
