//! The intents for Envoys of Gateways of fleet Isolated: a Deployment for each, in the namespace of
//! the installation.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use crate::rule::dedicated_envoys::behind;
use crate::rule::settings::Settings;
use gatewright_objects::inputs::{IsolatedParameters, SliceEndpoint};
use gatewright_objects::model::ObjectName;
use gatewright_objects::store::Store;

/// The prefix of the names of all objects for the Envoys of one Gateway.
pub const ISOLATED_PREFIX: &str = "gatewright-isolated-";

/// The Envoys that a Gateway is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredEnvoys {
    /// The name of their Deployment, ServiceAccount and Service.
    pub name: ObjectName,
    /// The Gateway.
    pub gateway: ObjectName,
    /// Their settings, where they differ from those of the installation.
    pub parameters: IsolatedParameters,
}

/// The name of a Gateway's own Envoys in the namespace of the installation: at most 63 characters,
/// and unique for the Gateway. The hash has 80 bits, since tenants choose the hashed text.
pub fn isolated_name(gateway: &ObjectName) -> String {
    let hash = Sha256::digest(gateway.to_string().as_bytes());
    let hash: String = hash
        .iter()
        .take(10)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let plain: String = gateway
        .name
        .chars()
        .map(|c| if c == '.' { '-' } else { c })
        .take(22)
        .collect();
    format!("{ISOLATED_PREFIX}{}-{hash}", plain.trim_end_matches('-'))
}

/// A Gateway's own Envoys by address.
pub(crate) fn endpoints(
    gateway: &ObjectName,
    settings: &Settings,
    store: &Store,
) -> BTreeMap<IpAddr, SliceEndpoint> {
    let service = settings
        .isolated
        .as_ref()
        .map(|ours| ObjectName::new(ours.clone(), isolated_name(gateway)));
    service
        .map(|service| behind(&service, store))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::{Change, Engine, Fact, Fleet, Settings, StatusBody};
    use gatewright_objects::inputs::{Kind, Object, ObjectKey};
    use gatewright_objects::limits::{Limits, NamespaceLimits};
    use gatewright_objects::model::{Condition, ConditionType, Status};

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    fn parameters(namespace: &str, name: &str, spec: &Value) -> Change {
        put(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec}),
        )
    }

    fn gateway(name: &str, created: &str) -> Change {
        put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": name, "namespace": "a", "creationTimestamp": created}, "spec": {"gatewayClassName": "g",
                "infrastructure": {"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "name": "own"}},
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}),
        )
    }

    /// An engine with a Gateway, by these parameters of its class and its own.
    fn engine(isolated: bool, of_class: &Value, own: &Value) -> Engine {
        let limits = Limits {
            namespace: NamespaceLimits {
                isolated_gateways: 1,
                ..Limits::default().namespace
            },
            ..Limits::default()
        };
        let mut engine = Engine::new(Settings {
            fleet: Fleet::Shared,
            envoys: Some(ObjectName::new("ours", "envoy")),
            isolated: isolated.then(|| "ours".into()),
            limits,
            ..Settings::new("c", vec![[192, 0, 2, 1].into()])
        });
        let class = put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "g"}, "spec": {"controllerName": "c", "parametersRef":
                {"group": "gatewright.io", "kind": "GatewayParameters", "name": "p", "namespace": "ours"}}}),
        );
        let all = vec![
            parameters("ours", "p", of_class),
            parameters("a", "own", own),
            class,
            gateway("edge", "2026-01-01T00:00:00Z"),
        ];
        engine.apply(all, SystemTime::UNIX_EPOCH);
        engine
    }

    /// The message of a condition of an object that is not True.
    fn told(
        engine: &Engine,
        kind: Kind,
        name: ObjectName,
        condition: ConditionType,
    ) -> Option<String> {
        let status = engine
            .status(&ObjectKey::new(kind, name))
            .expect("it has a status");
        let conditions: Vec<Condition> = match status.body {
            StatusBody::Gateway(status) => status.conditions,
            StatusBody::Class(status) => status.conditions,
            other => panic!("{other:?}"),
        };
        let found = conditions
            .into_iter()
            .find(|found| found.kind == condition)
            .expect("it has one");
        (found.status != Status::True).then(|| format!("{:?}: {}", found.reason, found.message))
    }

    fn edge() -> ObjectName {
        ObjectName::new("a", "edge")
    }

    fn accepted(engine: &Engine) -> Option<String> {
        told(engine, Kind::Gateway, edge(), ConditionType::Accepted)
    }

    #[test]
    fn without_the_switch_neither_class_nor_gateway_is_accepted() {
        let engine = engine(false, &json!({"fleet": "Isolated"}), &json!({}));
        let class = told(
            &engine,
            Kind::GatewayClass,
            ObjectName::new("", "g"),
            ConditionType::Accepted,
        );
        for told in [class, accepted(&engine)] {
            let told = told.expect("it is refused");
            assert!(
                told.starts_with("InvalidParameters")
                    && told.contains("envoys.isolatedPodTemplate"),
                "{told}"
            );
        }
        assert!(engine.isolated_envoys().is_empty());
    }

    #[test]
    fn a_gateway_has_what_its_class_offers_and_no_more() {
        let isolated = json!({"fleet": "Isolated", "isolated": {"replicas": 3}});
        let by_class = json!({"isolated": {"maxReplicas": 3, "nodeSelector": {"pool": "edge"}}});
        for (of_class, own, refused) in [
            (
                json!({}),
                json!({"fleet": "Isolated"}),
                Some("not offered by the GatewayClass"),
            ),
            (
                json!({"isolated": {}}),
                isolated.clone(),
                Some("the GatewayClass admits 2"),
            ),
            (
                by_class.clone(),
                json!({"isolated": {"labels": {"a": "b"}}}),
                Some("spec.isolated.labels belongs to the"),
            ),
            (
                by_class.clone(),
                json!({"fleet": "Isolated", "isolated": {"autoscaling": {"maxReplicas": 4}}}),
                Some("spec.isolated.autoscaling.maxReplicas is 4, and the GatewayClass admits 3"),
            ),
            (
                by_class.clone(),
                json!({"fleet": "Isolated", "isolated": {"autoscaling": {"minReplicas": 3, "maxReplicas": 3}}}),
                None,
            ),
            (by_class.clone(), isolated, None),
        ] {
            let engine = engine(true, &of_class, &own);
            let told = accepted(&engine);
            match refused {
                Some(word) => assert!(
                    told.as_ref().is_some_and(|told| told.contains(word)),
                    "{own}: {told:?}"
                ),
                None => {
                    assert_eq!(told, None);
                    let Some(desired) = engine.isolated_envoys().get(&edge()) else {
                        panic!("it has Envoys of its own")
                    };
                    assert_eq!(
                        desired.parameters.count(),
                        3,
                        "the number is that of the class"
                    );
                    assert_eq!(
                        &*desired.name.namespace, "ours",
                        "the objects are in the installation's namespace"
                    );
                    assert!(desired.parameters.node_selector.is_some(), "of its class");
                }
            }
        }
    }

    #[test]
    fn a_namespace_has_as_many_as_it_may_and_what_is_in_the_way_is_told() {
        let isolated = json!({"fleet": "Isolated"});
        let mut engine = engine(true, &isolated, &json!({}));
        engine.apply(
            vec![gateway("newer", "2026-02-01T00:00:00Z")],
            SystemTime::UNIX_EPOCH,
        );
        let newer = ObjectName::new("a", "newer");
        let refused = told(
            &engine,
            Kind::Gateway,
            newer.clone(),
            ConditionType::Accepted,
        )
        .expect("one too many");
        assert!(
            refused.contains("limits.namespace.isolatedGateways 1"),
            "{refused}"
        );
        assert_eq!(engine.isolated_envoys().get(&newer), None);

        fn unmade(text: Option<&str>) -> Change {
            Change::Fact(Fact::EnvoysProblem(edge(), text.map(str::to_owned)))
        }
        fn programmed(engine: &Engine) -> String {
            told(engine, Kind::Gateway, edge(), ConditionType::Programmed).expect("not yet")
        }
        engine.apply(vec![unmade(Some("exceeded quota"))], SystemTime::UNIX_EPOCH);
        assert!(programmed(&engine).contains("exceeded quota"));
        engine.apply(vec![unmade(None)], SystemTime::UNIX_EPOCH);
        assert!(!programmed(&engine).contains("exceeded quota"));

        // The older one is deleted, and the newer one gets its Envoys.
        let gone = Change::delete(ObjectKey::new(Kind::Gateway, edge()));
        let delta = engine.apply(vec![gone], SystemTime::UNIX_EPOCH);
        assert_eq!(delta.envoys.get(&edge()), Some(&None));
        assert!(matches!(delta.envoys.get(&newer), Some(Some(_))));
    }

    /// Otherwise a namespace had more pods than the quota admits: those of refused Gateways, and of
    /// others in their place.
    #[test]
    fn a_gateway_that_is_refused_loses_its_envoys_and_gets_them_again() {
        let mut engine = engine(true, &json!({"fleet": "Isolated"}), &json!({}));
        fn apply(change: Change, engine: &mut Engine) -> Vec<(String, bool)> {
            let delta = engine.apply(vec![change], SystemTime::UNIX_EPOCH);
            let changed = delta
                .envoys
                .into_iter()
                .map(|(gateway, desired)| (gateway.to_string(), desired.is_some()));
            changed.collect::<Vec<_>>()
        }
        fn changed(all: &[(&str, bool)]) -> Vec<(String, bool)> {
            all.iter()
                .map(|(name, has)| ((*name).to_owned(), *has))
                .collect::<Vec<_>>()
        }
        let newer = put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "newer", "namespace": "a", "creationTimestamp": "2026-02-01T00:00:00Z"},
            "spec": {"gatewayClassName": "g", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}),
        );
        assert_eq!(apply(newer, &mut engine), changed(&[]), "one too many");
        let wrong = json!({"namedServices": "Allow"});
        assert_eq!(
            apply(parameters("a", "own", &wrong), &mut engine),
            changed(&[("a/edge", false), ("a/newer", true)])
        );
        let right = json!({});
        assert_eq!(
            apply(parameters("a", "own", &right), &mut engine),
            changed(&[("a/edge", true), ("a/newer", false)])
        );
        let class = ObjectKey::new(Kind::GatewayClass, ObjectName::new("", "g"));
        assert_eq!(
            apply(Change::delete(class), &mut engine),
            changed(&[("a/edge", false)])
        );
    }

    #[test]
    fn names_are_bounded_and_those_of_two_gateways_differ() {
        fn name(namespace: &str, name: &str) -> String {
            isolated_name(&ObjectName::new(namespace, name))
        }
        let long = "a.".repeat(120) + "b";
        for one in [
            name("a", "edge"),
            name("a", &long),
            name(&"n".repeat(63), &"-".repeat(60)),
        ] {
            assert!(one.len() <= 63 && one.starts_with(ISOLATED_PREFIX), "{one}");
            assert!(
                one.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'),
                "{one}"
            );
        }
        assert_eq!(
            name("a", "edge").len(),
            "gatewright-isolated-edge-".len() + 20
        );
        assert_ne!(name("a", "edge"), name("b", "edge"));
        assert_ne!(name("a", &long), name("a", &(long.clone() + "c")));
    }
}
