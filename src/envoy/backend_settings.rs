//! The settings of a cluster by the policy on its Service: load balancing, checks of endpoints,
//! limits, and the PROXY protocol.

use envoy_types::pb::envoy::config::cluster::v3::{
    CircuitBreakers, Cluster, OutlierDetection as PbOutlierDetection,
    circuit_breakers::Thresholds,
    cluster::{CommonLbConfig, LbConfig, LbPolicy, MaglevLbConfig},
};
use envoy_types::pb::envoy::config::core::v3::{
    HealthCheck as PbHealthCheck, ProxyProtocolConfig, TransportSocket,
    health_check::{GrpcHealthCheck, HealthChecker, HttpHealthCheck, TcpHealthCheck},
    proxy_protocol_config::Version,
    transport_socket::ConfigType,
};
use envoy_types::pb::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use envoy_types::pb::envoy::r#type::v3::{CodecClientType, Int64Range, Percent};
use envoy_types::pb::google::protobuf::{UInt32Value, UInt64Value};

use super::proto::{any, duration, uint};
use super::{Edge, limits, zone_preference};
use gatewright_core::model::{
    AppProtocol, BackendLimits, BackendSettings, HealthCheck, LoadBalancing, ObjectName,
    OutlierDetection, Probe, ProxyHeader,
};

/// The entries of the table of a consistent hash: a prime. Envoy makes the table again whenever the
/// endpoints change, so it is smaller than the default of 65,537.
const HASH_TABLE: u64 = 16_381;

/// A cluster of a Service with settings. Its transport socket is set before.
pub(super) fn with_settings(
    cluster: Cluster,
    settings: &BackendSettings,
    (service, protocol): (&ObjectName, AppProtocol),
    edge: &Edge,
) -> Cluster {
    let BackendSettings {
        load_balancing,
        prefers_zone,
        connect_timeout,
        // It is among the options of the protocol.
        idle_timeout: _,
        limits,
        active,
        passive,
        panic_percent,
        proxy_protocol,
    } = settings;
    let checks = active
        .as_ref()
        .and_then(|check| health_check(check, service, protocol));
    let mut cluster = Cluster {
        lb_policy: lb_policy(load_balancing).into(),
        lb_config: table(load_balancing),
        load_balancing_policy: prefers_zone
            .then(|| zone_preference::policy(load_balancing))
            .flatten(),
        connect_timeout: connect_timeout
            .and_then(duration)
            .or(cluster.connect_timeout),
        circuit_breakers: cluster
            .circuit_breakers
            .map(|breakers| with_limits(breakers, *limits, edge)),
        health_checks: checks.into_iter().collect(),
        outlier_detection: passive.as_ref().map(outlier_detection),
        ..cluster
    };
    if let Some(percent) = panic_percent {
        cluster.common_lb_config = Some(CommonLbConfig {
            healthy_panic_threshold: Some(Percent {
                value: f64::from(*percent),
            }),
            ..cluster.common_lb_config.unwrap_or_default()
        });
    }
    if let Some(version) = proxy_protocol {
        cluster.transport_socket = Some(proxied(cluster.transport_socket, *version));
    }
    cluster
}

pub(super) fn lb_policy(balancing: &LoadBalancing) -> LbPolicy {
    match balancing {
        LoadBalancing::LeastRequest => LbPolicy::LeastRequest,
        LoadBalancing::RoundRobin => LbPolicy::RoundRobin,
        LoadBalancing::Random => LbPolicy::Random,
        LoadBalancing::ConsistentHash(_) => LbPolicy::Maglev,
    }
}

pub(super) fn table(balancing: &LoadBalancing) -> Option<LbConfig> {
    match balancing {
        LoadBalancing::ConsistentHash(_) => Some(LbConfig::MaglevLbConfig(MaglevLbConfig {
            table_size: Some(UInt64Value { value: HASH_TABLE }),
        })),
        LoadBalancing::LeastRequest | LoadBalancing::RoundRobin | LoadBalancing::Random => None,
    }
}

/// Lower limits than those that every cluster has: these protect the other tenants of an Envoy.
fn with_limits(breakers: CircuitBreakers, asked: BackendLimits, edge: &Edge) -> CircuitBreakers {
    let BackendLimits {
        connections,
        pending,
        requests,
        retries,
    } = asked;
    fn lower(asked: Option<u32>, most: u32) -> Option<UInt32Value> {
        uint(asked.unwrap_or(most).min(most))
    }
    let most = edge.backend_connections;
    let thresholds = breakers.thresholds.into_iter().map(|all| Thresholds {
        max_connections: lower(connections, most),
        max_pending_requests: lower(pending, most),
        max_requests: lower(requests, most),
        max_retries: lower(retries, limits::UPSTREAM_RETRIES),
        ..all
    });
    CircuitBreakers {
        thresholds: thresholds.collect(),
        ..breakers
    }
}

/// The check of a cluster's endpoints; none by gRPC where they do not get HTTP/2, which Envoy
/// refuses.
pub(super) fn health_check(
    check: &HealthCheck,
    service: &ObjectName,
    protocol: AppProtocol,
) -> Option<PbHealthCheck> {
    let HealthCheck {
        probe,
        timeout,
        interval,
        unhealthy_threshold,
        healthy_threshold,
    } = check;
    let checker = match probe {
        Probe::Http {
            path,
            hostname,
            statuses,
        } => HealthChecker::HttpHealthCheck(HttpHealthCheck {
            // Without a host Envoy sends the name of the cluster, which is no host.
            host: hostname
                .clone()
                .unwrap_or_else(|| format!("{}.{}.svc", service.name, service.namespace)),
            path: path.clone(),
            expected_statuses: statuses.iter().map(|status| only(*status)).collect(),
            codec_client_type: if protocol.is_http2() {
                CodecClientType::Http2.into()
            } else {
                CodecClientType::Http1.into()
            },
            ..Default::default()
        }),
        Probe::Tcp => HealthChecker::TcpHealthCheck(TcpHealthCheck::default()),
        Probe::Grpc { service: name } if protocol.is_http2() => {
            HealthChecker::GrpcHealthCheck(GrpcHealthCheck {
                service_name: name.clone(),
                authority: format!("{}.{}.svc", service.name, service.namespace),
                ..Default::default()
            })
        }
        Probe::Grpc { .. } => return None,
    };
    Some(PbHealthCheck {
        timeout: duration(*timeout),
        interval: duration(*interval),
        unhealthy_threshold: uint(*unhealthy_threshold),
        healthy_threshold: uint(*healthy_threshold),
        health_checker: Some(checker),
        ..Default::default()
    })
}

fn only(status: u16) -> Int64Range {
    let start = i64::from(status);
    Int64Range {
        start,
        end: start + 1,
    }
}

/// Only what is asked for takes endpoints out: not that others have fewer failures.
fn outlier_detection(passive: &OutlierDetection) -> PbOutlierDetection {
    let OutlierDetection {
        consecutive_5xx,
        consecutive_gateway,
        interval,
        base_ejection_time,
        max_ejection_percent,
    } = passive;
    fn enforced(count: u32) -> Option<UInt32Value> {
        uint(if count == 0 { 0 } else { 100 })
    }
    PbOutlierDetection {
        consecutive_5xx: uint((*consecutive_5xx).max(1)),
        enforcing_consecutive_5xx: enforced(*consecutive_5xx),
        consecutive_gateway_failure: uint((*consecutive_gateway).max(1)),
        enforcing_consecutive_gateway_failure: enforced(*consecutive_gateway),
        enforcing_success_rate: uint(0),
        interval: duration(*interval),
        base_ejection_time: duration(*base_ejection_time),
        max_ejection_percent: uint((*max_ejection_percent).into()),
        ..Default::default()
    }
}

/// A transport socket that sends the header of the PROXY protocol before everything else.
fn proxied(socket: Option<TransportSocket>, version: ProxyHeader) -> TransportSocket {
    fn plain() -> TransportSocket {
        TransportSocket {
            name: "envoy.transport_sockets.raw_buffer".to_owned(),
            config_type: Some(ConfigType::TypedConfig(any(&RawBuffer {}))),
        }
    }
    let transport = ProxyProtocolUpstreamTransport {
        config: Some(ProxyProtocolConfig {
            version: match version {
                ProxyHeader::V1 => Version::V1.into(),
                ProxyHeader::V2 => Version::V2.into(),
            },
            ..Default::default()
        }),
        transport_socket: Some(socket.unwrap_or_else(plain)),
        ..Default::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.upstream_proxy_protocol".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&transport))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testdata::backend;
    use gatewright_core::model::{self, HashKey};

    fn settings() -> BackendSettings {
        BackendSettings::default()
    }

    fn made(settings: BackendSettings, protocol: AppProtocol) -> Cluster {
        crate::cluster(&model::Cluster::Backend(model::Backend {
            settings: Some(settings.into()),
            ..backend("web", protocol).into()
        }))
    }

    fn checked(probe: Probe, protocol: AppProtocol) -> Vec<PbHealthCheck> {
        let active = HealthCheck {
            probe,
            timeout: Duration::from_secs(1),
            interval: Duration::from_secs(3),
            unhealthy_threshold: 3,
            healthy_threshold: 1,
        };
        let settings = BackendSettings {
            active: Some(active),
            ..settings()
        };
        made(settings, protocol).health_checks
    }

    #[test]
    fn settings_without_values_leave_a_cluster_as_it_is() {
        let plain = crate::cluster(&model::Cluster::Backend(
            backend("web", AppProtocol::Http1).into(),
        ));
        assert_eq!(made(settings(), AppProtocol::Http1), plain);
    }

    #[test]
    fn a_limit_is_never_above_the_installations() {
        let limits = BackendLimits {
            connections: Some(7),
            pending: Some(1_000_000),
            requests: None,
            retries: Some(0),
        };
        let cluster = made(
            BackendSettings {
                limits,
                ..settings()
            },
            AppProtocol::Http1,
        );
        let thresholds = &cluster.circuit_breakers.expect("it has some").thresholds[0];
        let most = Edge::DEFAULT.backend_connections;
        assert_eq!(thresholds.max_connections, uint(7), "it is lower");
        assert_eq!(thresholds.max_pending_requests, uint(most), "it is higher");
        assert_eq!(thresholds.max_requests, uint(most), "it is not asked for");
        assert_eq!(thresholds.max_retries, uint(0), "none is lower");
    }

    #[test]
    fn a_check_by_grpc_is_left_out_where_envoy_would_refuse_it() {
        let grpc = Probe::Grpc {
            service: String::new(),
        };
        for protocol in [
            AppProtocol::Http1,
            AppProtocol::Tcp,
            AppProtocol::Terminated,
        ] {
            assert_eq!(checked(grpc.clone(), protocol), [], "{protocol:?}");
        }
        assert_eq!(checked(grpc, AppProtocol::H2c).len(), 1, "HTTP/2 has it");
    }

    #[test]
    fn a_check_by_http_names_the_service_and_speaks_its_protocol() {
        let http = Probe::Http {
            path: "/".to_owned(),
            hostname: None,
            statuses: vec![204],
        };
        for (protocol, expected) in [
            (AppProtocol::Http1, CodecClientType::Http1),
            (AppProtocol::H2c, CodecClientType::Http2),
        ] {
            let checks = checked(http.clone(), protocol);
            let Some(HealthChecker::HttpHealthCheck(check)) = &checks[0].health_checker else {
                panic!("a check by HTTP")
            };
            assert_eq!(check.host.as_str(), "web.default.svc", "{protocol:?}");
            assert_eq!(check.codec_client_type(), expected, "{protocol:?}");
            assert_eq!(check.expected_statuses, [only(204)], "{protocol:?}");
        }
    }

    #[test]
    fn a_cluster_that_refuses_has_no_settings() {
        let refused = crate::cluster(&model::Cluster::Backend(model::Backend {
            transport: model::BackendTransport::Refused,
            settings: Some(
                BackendSettings {
                    load_balancing: LoadBalancing::ConsistentHash(HashKey::SourceIp),
                    proxy_protocol: Some(ProxyHeader::V1),
                    ..settings()
                }
                .into(),
            ),
            ..backend("web", AppProtocol::Http1).into()
        }));
        assert_eq!(refused.transport_socket, None, "nobody is connected to");
        assert_eq!(refused.lb_config, None, "nobody is chosen");
    }
}
