//! Endpoints of an Envoy's own zone first.
//!
//! All Envoys get the same endpoints, each in the locality of its zone. Which zone is an Envoy's
//! own is in its bootstrap only: the locality of its node, and the cluster [`LOCAL_CLUSTER`] with
//! one endpoint there, which stands for the fleet. While endpoints of that zone are healthy, they
//! get everything; otherwise those of all other zones do. An Envoy without a zone uses all of them.

use envoy_types::pb::envoy::config::cluster::v3::{
    LoadBalancingPolicy, load_balancing_policy::Policy,
};
use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::load_balancing_policies::common::v3::{
    LocalityLbConfig,
    locality_lb_config::{
        LocalityConfigSpecifier, ZoneAwareLbConfig, zone_aware_lb_config::ForceLocalZone,
    },
};
use envoy_types::pb::envoy::extensions::load_balancing_policies::least_request::v3::LeastRequest;
use envoy_types::pb::envoy::extensions::load_balancing_policies::random::v3::Random;
use envoy_types::pb::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use envoy_types::pb::google::protobuf::{Any, UInt64Value};
use gatewright_core::model::{LoadBalancing, Zone};
use serde_json::{Value, json};

use super::limits;
use super::proto::{any, uint};

/// The name of the cluster that stands for the fleet, in bootstraps of Envoys with a zone. No
/// Service has such a name.
pub(super) const LOCAL_CLUSTER: &str = "gatewright/fleet";

/// The load balancing policy of a cluster that prefers a zone. A consistent hash goes by no zone.
pub(super) fn policy(balancing: &LoadBalancing) -> Option<LoadBalancingPolicy> {
    let locality_lb_config = Some(own_first());
    let (name, typed_config) = match balancing {
        LoadBalancing::LeastRequest => {
            let config = LeastRequest {
                locality_lb_config,
                ..Default::default()
            };
            ("least_request", any(&config))
        }
        LoadBalancing::RoundRobin => {
            let config = RoundRobin {
                locality_lb_config,
                ..Default::default()
            };
            ("round_robin", any(&config))
        }
        LoadBalancing::Random => ("random", any(&Random { locality_lb_config })),
        LoadBalancing::ConsistentHash(_) => return None,
    };
    Some(single(name, typed_config))
}

fn single(name: &str, typed_config: Any) -> LoadBalancingPolicy {
    LoadBalancingPolicy {
        policies: vec![Policy {
            typed_extension_config: Some(TypedExtensionConfig {
                name: format!("envoy.load_balancing_policies.{name}"),
                typed_config: Some(typed_config),
            }),
        }],
    }
}

/// Everything to the own zone while one endpoint there is healthy, however few Envoys and endpoints
/// there are.
fn own_first() -> LocalityLbConfig {
    LocalityLbConfig {
        locality_config_specifier: Some(LocalityConfigSpecifier::ZoneAwareLbConfig(
            ZoneAwareLbConfig {
                min_cluster_size: Some(UInt64Value { value: 1 }),
                force_local_zone: Some(ForceLocalZone { min_size: uint(1) }),
                ..Default::default()
            },
        )),
    }
}

/// Adds the zone of an Envoy to its bootstrap.
pub(super) fn place(bootstrap: &mut Value, zone: &Zone) {
    let locality = json!({ "zone": zone.as_str() });
    bootstrap["node"]["locality"] = locality.clone();
    bootstrap["cluster_manager"]["local_cluster_name"] = json!(LOCAL_CLUSTER);
    if let Some(clusters) = bootstrap["static_resources"]["clusters"].as_array_mut() {
        clusters.push(fleet(&locality));
    }
}

/// The cluster that stands for the fleet. Nobody connects to its endpoint: Envoy only counts it.
fn fleet(locality: &Value) -> Value {
    let nobody = json!({ "socket_address": { "address": "127.0.0.1", "port_value": 9 } });
    json!({
        "name": LOCAL_CLUSTER,
        "type": "STATIC",
        "connect_timeout": format!("{}s", limits::CONNECT_SECONDS),
        "load_assignment": {
            "cluster_name": LOCAL_CLUSTER,
            "endpoints": [{
                "locality": locality,
                "lb_endpoints": [{ "endpoint": { "address": nobody } }],
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::HashKey;

    use super::*;

    #[test]
    fn a_consistent_hash_goes_by_no_zone() {
        let hash = LoadBalancing::ConsistentHash(HashKey::SourceIp);
        assert_eq!(policy(&hash), None, "a hash");
        for (balancing, name) in [
            (LoadBalancing::LeastRequest, "least_request"),
            (LoadBalancing::RoundRobin, "round_robin"),
            (LoadBalancing::Random, "random"),
        ] {
            let policies = policy(&balancing).expect("a policy").policies;
            let config = policies[0]
                .typed_extension_config
                .as_ref()
                .expect("it is typed");
            assert_eq!(
                config.name,
                format!("envoy.load_balancing_policies.{name}"),
                "{balancing:?}"
            );
        }
    }
}
