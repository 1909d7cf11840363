//! What the TrafficPolicy of a Service means for its UDP ports, and for UDPRoutes.
//!
//! A datagram has no header, no answer that could be judged, and no connection. All backends of a
//! UDPRoute are one cluster, which has the settings that all of them share.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::policies::Policies;
use gatewright_objects::inputs::{Route, Service, ServicePortSpec};
use gatewright_objects::model::{
    BackendLimits, BackendSettings, DatagramSettings, HashKey, HealthCheck, LoadBalancing, Probe,
    ServicePort, Target, Transport, WeightedTarget,
};
use gatewright_objects::store::target_ports;

/// Returns whether a check of a UDP port can be answered: the Service has a TCP port that leads to
/// the same port of its pods.
pub(crate) fn is_checked(service: &Service, port: &ServicePortSpec) -> bool {
    let mut others = service.ports.iter();
    others.any(|other| other.transport == Transport::Tcp && other.target == port.target)
}

/// The part of a policy's settings that datagrams go by.
pub(crate) fn settings(all: &BackendSettings, is_checked: bool) -> BackendSettings {
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
    } = all;
    BackendSettings {
        load_balancing: match load_balancing {
            LoadBalancing::ConsistentHash(HashKey::Header(_) | HashKey::Cookie { .. }) => {
                LoadBalancing::Random
            }
            other => other.clone(),
        },
        prefers_zone: *prefers_zone,
        connect_timeout: None,
        idle_timeout: None,
        limits: BackendLimits {
            connections: limits.connections,
            ..BackendLimits::default()
        },
        active: active.clone().filter(|check| is_checked && !is_grpc(check)),
        passive: None,
        panic_percent: *panic_percent,
        proxy_protocol: None,
    }
}

fn is_grpc(check: &HealthCheck) -> bool {
    matches!(check.probe, Probe::Grpc { .. })
}

/// The fields of a policy that have no effect on datagrams.
pub(crate) fn without_effect(all: &BackendSettings, is_checked: bool) -> Vec<&'static str> {
    let BackendSettings {
        load_balancing,
        prefers_zone: _,
        connect_timeout,
        idle_timeout,
        limits:
            BackendLimits {
                connections: _,
                pending,
                requests,
                retries,
            },
        active,
        passive,
        panic_percent: _,
        proxy_protocol,
    } = all;
    let hash = match load_balancing {
        LoadBalancing::ConsistentHash(HashKey::Header(_) | HashKey::Cookie { .. }) => true,
        LoadBalancing::ConsistentHash(HashKey::SourceIp)
        | LoadBalancing::LeastRequest
        | LoadBalancing::RoundRobin
        | LoadBalancing::Random => false,
    };
    let active = active.as_ref();
    let fields = [
        (hash, "loadBalancer.consistentHash by header or cookie"),
        (connect_timeout.or(*idle_timeout).is_some(), "timeout"),
        (
            pending.or(*requests).or(*retries).is_some(),
            "circuitBreaker but for maxConnections",
        ),
        (active.is_some_and(is_grpc), "healthCheck.active by gRPC"),
        (
            active.is_some_and(|check| !is_checked && !is_grpc(check)),
            "healthCheck.active (it needs a TCP port of the Service with the same targetPort)",
        ),
        (passive.is_some(), "healthCheck.passive"),
        (proxy_protocol.is_some(), "proxyProtocol"),
    ];
    fields
        .into_iter()
        .filter_map(|(is_set, field)| is_set.then_some(field))
        .collect()
}

/// The settings of the cluster of a UDPRoute, which are those of each of its backends. None prefers
/// a zone if there are several, or if a share is discarded: then the weights decide.
pub(crate) fn of_shares(
    shares: &[WeightedTarget],
    policies: &Policies,
) -> Option<DatagramSettings> {
    let ports: BTreeSet<&ServicePort> = shares
        .iter()
        .filter_map(|share| match &share.target {
            Target::Backend(id) => Some(&id.port),
            Target::Invalid => None,
        })
        .collect();
    let discards = shares
        .iter()
        .any(|share| matches!(share.target, Target::Invalid));
    let settings = common(&ports, policies)?;
    let prefers_zone = settings.prefers_zone && ports.len() == 1 && !discards;
    Some(DatagramSettings {
        service: ports.first()?.service.clone(),
        settings: Arc::new(BackendSettings {
            prefers_zone,
            ..settings
        }),
    })
}

/// The settings that all ports have, zones aside; `None` without any, or if they differ.
fn common(ports: &BTreeSet<&ServicePort>, policies: &Policies) -> Option<BackendSettings> {
    let mut all = ports.iter().map(|port| {
        policies
            .settings_at(port)
            .map(|settings| (*settings).clone())
    });
    let first = all.next()??;
    all.all(|other| other.is_some_and(|other| is_same(&first, &other)))
        .then_some(first)
}

/// True if two Services are treated alike but for zones, which several backends do not have.
fn is_same(one: &BackendSettings, other: &BackendSettings) -> bool {
    fn weighted(settings: &BackendSettings) -> BackendSettings {
        BackendSettings {
            prefers_zone: false,
            ..settings.clone()
        }
    }
    weighted(one) == weighted(other)
}

/// A note on a UDPRoute whose backends ask for what one cluster cannot have.
pub(crate) fn note(route: &Route, policies: &Policies) -> Option<String> {
    let ports: BTreeSet<ServicePort> = target_ports(route).collect();
    let ports: BTreeSet<&ServicePort> = ports.iter().collect();
    let has_several = ports.len() > 1;
    let is_policed = ports.iter().any(|port| policies.settings(port).is_some());
    let is_zoned = ports
        .iter()
        .any(|port| policies.prefers_zone(&port.service));
    if !has_several {
        return None;
    }
    let differing = (is_policed && common(&ports, policies).is_none()).then_some(
        "the TrafficPolicies of its backends have no effect, since they are not the same for all",
    );
    let zoned = is_zoned.then_some("trafficDistribution has no effect beside weights");
    let notes: Vec<&str> = differing.into_iter().chain(zoned).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use gatewright_objects::model::{OutlierDetection, ProxyHeader};

    fn check(probe: Probe) -> HealthCheck {
        let second = Duration::from_secs(1);
        HealthCheck {
            probe,
            timeout: second,
            interval: 3 * second,
            unhealthy_threshold: 3,
            healthy_threshold: 1,
        }
    }

    #[test]
    fn what_datagrams_do_not_go_by_is_left_out_and_told() {
        let all = BackendSettings {
            load_balancing: LoadBalancing::ConsistentHash(HashKey::Header("x-user".to_owned())),
            prefers_zone: true,
            connect_timeout: Some(Duration::from_secs(1)),
            idle_timeout: Some(Duration::from_secs(4)),
            limits: BackendLimits {
                connections: Some(7),
                pending: Some(1),
                requests: None,
                retries: None,
            },
            active: Some(check(Probe::Tcp)),
            passive: Some(OutlierDetection {
                consecutive_5xx: 5,
                consecutive_gateway: 0,
                interval: Duration::from_secs(3),
                base_ejection_time: Duration::from_secs(30),
                max_ejection_percent: 50,
            }),
            panic_percent: Some(10),
            proxy_protocol: Some(ProxyHeader::V2),
        };
        let expected = BackendSettings {
            load_balancing: LoadBalancing::Random,
            prefers_zone: true,
            limits: BackendLimits {
                connections: Some(7),
                ..BackendLimits::default()
            },
            active: Some(check(Probe::Tcp)),
            panic_percent: Some(10),
            ..BackendSettings::default()
        };
        assert_eq!(settings(&all, true), expected, "a TCP port answers");
        assert_eq!(settings(&all, false).active, None, "nobody would answer");
        assert_eq!(without_effect(&all, true).len(), 5);
        assert_eq!(without_effect(&all, false).len(), 6);
        assert_eq!(
            without_effect(&expected, true),
            Vec::<&str>::new(),
            "what is left has an effect"
        );
    }

    #[test]
    fn a_check_by_grpc_is_none_of_datagrams() {
        let grpc = Probe::Grpc {
            service: String::new(),
        };
        let all = BackendSettings {
            active: Some(check(grpc)),
            ..BackendSettings::default()
        };
        assert_eq!(settings(&all, true).active, None);
        assert_eq!(without_effect(&all, true), ["healthCheck.active by gRPC"]);
    }
}
