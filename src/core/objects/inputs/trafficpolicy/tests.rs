use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::inputs::Object;
use crate::model::{HealthCheck, OutlierDetection, Probe};

fn written(spec: Value) -> Value {
    let mut value = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
        "metadata": {"name": "p", "namespace": "a"}, "spec": spec});
    value["spec"]["targetRefs"] = json!([{"group": "", "kind": "Service", "name": "web"}]);
    value
}

/// The settings of a policy that an API server admitted.
fn settings_of(spec: Value) -> Result<BackendSettings, String> {
    match Object::parse_admitted(written(spec)) {
        Ok(Object::Policy(policy)) => match policy.rules {
            PolicyRules::Backend(rules) => rules.map(|settings| (*settings).clone()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn refusal(spec: Value) -> String {
    settings_of(spec).expect_err("it is refused")
}

#[test]
fn an_empty_policy_leaves_what_every_backend_has() {
    assert_eq!(settings_of(json!({})), Ok(BackendSettings::default()));
}

#[test]
fn every_field_is_read() {
    let spec = json!({
        "loadBalancer": {"type": "ConsistentHash",
            "consistentHash": {"type": "Cookie", "cookie": {"name": "sid", "ttl": "1h"}}},
        "timeout": {"tcp": {"connectTimeout": "250ms"}, "http": {"connectionIdleTimeout": "4s"}},
        "circuitBreaker": {"maxConnections": 1, "maxPendingRequests": 2, "maxParallelRequests": 3,
            "maxParallelRetries": 0},
        "healthCheck": {
            "active": {"type": "HTTP", "timeout": "500ms", "interval": "2s", "unhealthyThreshold": 2,
                "healthyThreshold": 4, "http": {"path": "/healthz?a=b", "hostname": "a.org",
                    "expectedStatuses": [200, 204]}},
            "passive": {"consecutive5XxErrors": 0, "consecutiveGatewayErrors": 7, "interval": "5s",
                "baseEjectionTime": "10s", "maxEjectionPercent": 100},
            "panicThreshold": 0},
        "proxyProtocol": {"version": "V2"}});
    let second = Duration::from_secs(1);
    let expected = BackendSettings {
        load_balancing: LoadBalancing::ConsistentHash(HashKey::Cookie {
            name: "sid".to_owned(),
            ttl: Some(3600 * second),
        }),
        prefers_zone: false,
        connect_timeout: Some(Duration::from_millis(250)),
        idle_timeout: Some(Duration::from_secs(4)),
        limits: BackendLimits {
            connections: Some(1),
            pending: Some(2),
            requests: Some(3),
            retries: Some(0),
        },
        active: Some(HealthCheck {
            probe: Probe::Http {
                path: "/healthz?a=b".to_owned(),
                hostname: Some("a.org".to_owned()),
                statuses: vec![200, 204],
            },
            timeout: second / 2,
            interval: 2 * second,
            unhealthy_threshold: 2,
            healthy_threshold: 4,
        }),
        passive: Some(OutlierDetection {
            consecutive_5xx: 0,
            consecutive_gateway: 7,
            interval: 5 * second,
            base_ejection_time: 10 * second,
            max_ejection_percent: 100,
        }),
        panic_percent: Some(0),
        proxy_protocol: Some(ProxyHeader::V2),
    };
    assert_eq!(settings_of(spec), Ok(expected));
}

#[test]
fn omitted_fields_of_checks_have_the_defaults_of_the_documentation() {
    let checks = json!({"healthCheck": {"active": {"type": "TCP"}, "passive": {}}});
    let settings = settings_of(checks).expect("it is valid");
    let second = Duration::from_secs(1);
    let active = HealthCheck {
        probe: Probe::Tcp,
        timeout: second,
        interval: 3 * second,
        unhealthy_threshold: 3,
        healthy_threshold: 1,
    };
    assert_eq!(settings.active, Some(active), "the active check");
    let passive = OutlierDetection {
        consecutive_5xx: 5,
        consecutive_gateway: 0,
        interval: 3 * second,
        base_ejection_time: 30 * second,
        max_ejection_percent: 50,
    };
    assert_eq!(settings.passive, Some(passive), "the passive check");
}

#[test]
fn a_value_out_of_bounds_is_refused_with_its_field() {
    fn hash(hash: Value) -> Value {
        json!({"loadBalancer": {"type": "ConsistentHash", "consistentHash": hash}})
    }
    fn active(active: Value) -> Value {
        json!({"healthCheck": {"active": active}})
    }
    fn http(http: Value) -> Value {
        active(json!({"type": "HTTP", "http": http}))
    }
    for (spec, expected) in [
        (
            json!({"loadBalancer": {"type": "ConsistentHash"}}),
            "loadBalancer.consistentHash: ",
        ),
        (
            json!({"loadBalancer": {"type": "Random", "consistentHash": {"type": "SourceIP"}}}),
            "loadBalancer.consistentHash: ",
        ),
        (
            hash(json!({"type": "Header"})),
            "loadBalancer.consistentHash: ",
        ),
        (
            hash(json!({"type": "Header", "header": {"name": "a b"}})),
            "loadBalancer.consistentHash.header.name",
        ),
        (
            hash(json!({"type": "Cookie", "cookie": {"name": "a;b"}})),
            "loadBalancer.consistentHash.cookie.name",
        ),
        (
            hash(json!({"type": "Cookie", "cookie": {"name": "a", "ttl": "8761h"}})),
            "loadBalancer.consistentHash.cookie.ttl",
        ),
        (
            json!({"timeout": {"tcp": {"connectTimeout": "9ms"}}}),
            "timeout.tcp.connectTimeout: 10ms to 1m is expected, found 9ms",
        ),
        (
            json!({"timeout": {"http": {"connectionIdleTimeout": "99ms"}}}),
            "timeout.http.connectionIdleTimeout: 100ms to 1h is expected, found 99ms",
        ),
        (
            json!({"timeout": {"http": {"connectionIdleTimeout": "61m"}}}),
            "timeout.http.connectionIdleTimeout: 100ms to 1h is expected, found 61m",
        ),
        (
            json!({"circuitBreaker": {"maxConnections": 0}}),
            "circuitBreaker.maxConnections",
        ),
        (
            json!({"circuitBreaker": {"maxParallelRequests": 1_000_001}}),
            "circuitBreaker.maxParallelRequests",
        ),
        (active(json!({"type": "HTTP"})), "healthCheck.active.http"),
        (
            active(json!({"type": "TCP", "grpc": {}})),
            "healthCheck.active.type",
        ),
        (
            active(json!({"type": "TCP", "interval": "1s"})),
            "healthCheck.active.interval",
        ),
        (
            active(json!({"type": "TCP", "timeout": "3s"})),
            "healthCheck.active.timeout",
        ),
        (
            active(json!({"type": "TCP", "healthyThreshold": 0})),
            "healthCheck.active.healthyThreshold",
        ),
        (http(json!({"path": "x"})), "healthCheck.active.http.path"),
        (http(json!({"path": "/ x"})), "healthCheck.active.http.path"),
        (
            http(json!({"path": "/", "hostname": "*.a.org"})),
            "healthCheck.active.http.hostname",
        ),
        (
            http(json!({"path": "/", "expectedStatuses": [600]})),
            "healthCheck.active.http.expectedStatuses",
        ),
        (
            http(json!({"path": "/", "expectedStatuses": []})),
            "healthCheck.active.http.expectedStatuses",
        ),
        (
            json!({"healthCheck": {"passive": {"consecutive5XxErrors": 0}}}),
            "healthCheck.passive: one of",
        ),
        (
            json!({"healthCheck": {"passive": {"maxEjectionPercent": 101}}}),
            "healthCheck.passive.maxEjectionPercent",
        ),
        (
            json!({"healthCheck": {"panicThreshold": -1}}),
            "healthCheck.panicThreshold",
        ),
        (json!({"loadBalancer": {"type": "Best"}}), "cannot be read"),
        (json!({"rateLimit": {}}), "cannot be read"),
        (
            json!({"rateLimit": [{"limit": {"requests": 1, "per": "Second"}, "by": {"type": "Everyone"}}]}),
            "rateLimit: it belongs to Gateways, ListenerSets and routes",
        ),
    ] {
        let text = refusal(spec.clone());
        assert!(text.contains(expected), "{spec}: {text}");
    }
}

#[test]
fn a_policy_on_services_and_routes_together_is_refused() {
    let mut spec = written(json!({"loadBalancer": {"type": "Random"}}));
    let route = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
    let targets = spec["spec"]["targetRefs"].as_array_mut().expect("targets");
    targets.push(route);
    let Ok(Object::Policy(policy)) = Object::parse(spec) else {
        panic!("a policy on Services")
    };
    let PolicyRules::Backend(Err(text)) = policy.rules else {
        panic!("{policy:?}")
    };
    assert!(text.starts_with("targetRefs: "), "{text}");
}

/// A path such as `spec.healthCheck.active` in the definition.
fn defined<'a>(crd: &'a Value, path: &[&str]) -> &'a Value {
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    path.iter()
        .fold(schema, |schema, field| &schema["properties"][*field])
}

fn fields(schema: &Value) -> Vec<&str> {
    let fields = schema["properties"].as_object().expect("fields");
    let mut fields: Vec<&str> = fields.keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}

/// All fields of the definition exist in the type, and the other way round.
#[test]
fn the_definition_and_the_type_agree() {
    let crd: Value = serde_yaml_ng::from_str(TRAFFIC_POLICY_CRD).expect("the definition is YAML");
    for (path, expected) in [
        (
            vec![],
            vec![
                "bandwidthLimit",
                "circuitBreaker",
                "compression",
                "headers",
                "healthCheck",
                "loadBalancer",
                "proxyProtocol",
                "rateLimit",
                "requestBody",
                "responseOverride",
                "rewrite",
                "targetRefs",
                "timeout",
            ],
        ),
        (vec!["requestBody"], vec!["buffer", "maxBytes"]),
        (vec!["loadBalancer"], vec!["consistentHash", "type"]),
        (
            vec!["loadBalancer", "consistentHash"],
            vec!["cookie", "header", "type"],
        ),
        (
            vec!["circuitBreaker"],
            vec![
                "maxConnections",
                "maxParallelRequests",
                "maxParallelRetries",
                "maxPendingRequests",
            ],
        ),
        (
            vec!["healthCheck"],
            vec!["active", "panicThreshold", "passive"],
        ),
        (
            vec!["healthCheck", "active"],
            vec![
                "grpc",
                "healthyThreshold",
                "http",
                "interval",
                "timeout",
                "type",
                "unhealthyThreshold",
            ],
        ),
        (
            vec!["healthCheck", "active", "http"],
            vec!["expectedStatuses", "hostname", "path"],
        ),
        (
            vec!["healthCheck", "passive"],
            vec![
                "baseEjectionTime",
                "consecutive5XxErrors",
                "consecutiveGatewayErrors",
                "interval",
                "maxEjectionPercent",
            ],
        ),
    ] {
        assert_eq!(fields(defined(&crd, &path)), expected, "{path:?}");
    }
    assert_eq!(
        defined(&crd, &["loadBalancer", "type"])["enum"],
        json!(["LeastRequest", "RoundRobin", "Random", "ConsistentHash"]),
        "types of balancing"
    );
    assert_eq!(
        defined(&crd, &["loadBalancer", "consistentHash", "type"])["enum"],
        json!(["SourceIP", "Header", "Cookie"]),
        "types of hashes"
    );
    assert_eq!(
        defined(&crd, &["healthCheck", "active", "type"])["enum"],
        json!(["HTTP", "TCP", "GRPC"]),
        "types of checks"
    );
}
