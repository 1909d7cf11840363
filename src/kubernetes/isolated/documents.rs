//! Renders the manifests of the objects of a Gateway's own Envoys: the PodTemplate of the
//! installation, with the overrides of the Gateway's parameters. Pure.

use gatewright_core::inputs::{Amounts, IsolatedParameters, MANAGED_BY, MANAGER};
use gatewright_core::translate::DesiredEnvoys;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{APPLIED, GATEWAY, IsolatedKind, NAME};

/// The labels of pods with the Gateway, which Prometheus makes a label of statistics.
const GATEWAY_NAMESPACE: &str = "gatewright.io/gateway-namespace";
const GATEWAY_NAME: &str = "gatewright.io/gateway-name";
/// The longest value of a label. A Gateway with a longer name has no label for it.
const LABEL_VALUE: usize = 63;

/// The container of a pod whose resources the parameters may set.
const ENVOY: &str = "envoy";

/// Returns the manifest of one object; `None` for an object that the Gateway should not have.
/// `template` is the field `template` of the PodTemplate.
pub(super) fn document(
    kind: IsolatedKind,
    desired: &DesiredEnvoys,
    template: &Value,
) -> Option<Value> {
    let mut document = json!({"apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": metadata(desired)});
    let name = &*desired.name.name;
    match kind {
        IsolatedKind::Account => document["automountServiceAccountToken"] = json!(false),
        IsolatedKind::Service => {
            // The first of the ports that Gateways are given: a headless Service without any port
            // is unusual.
            let ports =
                json!([{"name": "first", "port": 20_000, "targetPort": 20_000, "protocol": "TCP"}]);
            document["spec"] = json!({"type": "ClusterIP", "clusterIP": "None", "selector": {NAME: name},
                "ports": ports});
        }
        IsolatedKind::Budget => {
            document["spec"] =
                json!({"maxUnavailable": 1, "selector": {"matchLabels": {NAME: name}}})
        }
        IsolatedKind::Deployment => {
            document["spec"] = json!({
                "selector": {"matchLabels": {NAME: name}},
                // The new Envoy is ready before an old one terminates.
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": pods(desired, template),
            });
            // With an autoscaler the apply omits `replicas`: the autoscaler owns the field.
            if desired.parameters.autoscaling.is_none() {
                document["spec"]["replicas"] = json!(desired.parameters.count());
            }
        }
        IsolatedKind::Autoscaler => {
            let autoscaling = desired.parameters.autoscaling.as_ref()?;
            let target = json!({"type": "Utilization", "averageUtilization": autoscaling.target()});
            let resource = json!({"name": "cpu", "container": ENVOY, "target": target});
            let scaled = IsolatedKind::Deployment;
            document["spec"] = json!({
                "scaleTargetRef": {"apiVersion": scaled.api_version(), "kind": scaled.as_str(), "name": name},
                "minReplicas": autoscaling.least(),
                "maxReplicas": autoscaling.max_replicas,
                "metrics": [{"type": "ContainerResource", "containerResource": resource}],
            });
        }
    }
    let digest: String = Sha256::digest(document.to_string().as_bytes())
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    document["metadata"]["annotations"][APPLIED] = json!(digest);
    Some(document)
}

/// Returns the manifest that the object is created with: a Deployment with its initial number of
/// pods.
pub(super) fn first(mut document: Value, kind: IsolatedKind, desired: &DesiredEnvoys) -> Value {
    if kind == IsolatedKind::Deployment {
        document["spec"]["replicas"] = json!(desired.parameters.count());
    }
    document
}

fn metadata(desired: &DesiredEnvoys) -> Value {
    let namespace = &*desired.name.namespace;
    let name = &*desired.name.name;
    json!({
        "name": name, "namespace": namespace,
        "labels": {MANAGED_BY: MANAGER, NAME: name},
        "annotations": {GATEWAY: desired.gateway.to_string()},
    })
}

/// Returns the pod template: labels, service account, and the fields of the PodTemplate that the
/// parameters override.
fn pods(desired: &DesiredEnvoys, template: &Value) -> Value {
    let IsolatedParameters {
        replicas: _,
        autoscaling: _,
        max_replicas: _,
        resources,
        node_selector,
        tolerations,
        labels,
    } = &desired.parameters;
    let mut pods = json!({"metadata": {}, "spec": template["spec"]});
    for field in ["labels", "annotations"] {
        if let Value::Object(fields) = &template["metadata"][field] {
            pods["metadata"][field] = json!(fields);
        }
    }
    for (key, value) in labels {
        pods["metadata"]["labels"][key] = json!(value);
    }
    pods["metadata"]["labels"][NAME] = json!(&*desired.name.name);
    let gateway = &desired.gateway;
    for (label, name) in [
        (GATEWAY_NAMESPACE, &gateway.namespace),
        (GATEWAY_NAME, &gateway.name),
    ] {
        if name.len() <= LABEL_VALUE {
            pods["metadata"]["labels"][label] = json!(&**name);
        }
    }
    let spec = &mut pods["spec"];
    spec["serviceAccountName"] = json!(&*desired.name.name);
    // The deprecated name of the same field; the API server fills it in.
    if let Value::Object(spec) = spec {
        spec.remove("serviceAccount");
    }
    if let Some(selector) = node_selector {
        spec["nodeSelector"] = json!(selector);
    }
    if let Some(tolerations) = tolerations {
        spec["tolerations"] = json!(tolerations);
    }
    if let (Some(resources), Value::Array(containers)) = (resources, &mut spec["containers"])
        && let Some(envoy) = containers
            .iter_mut()
            .find(|container| container["name"] == ENVOY)
    {
        for (field, amounts) in [
            ("requests", &resources.requests),
            ("limits", &resources.limits),
        ] {
            let Amounts { cpu, memory } = amounts;
            for (name, amount) in [("cpu", cpu), ("memory", memory)] {
                if let Some(amount) = amount {
                    envoy["resources"][field][name] = json!(amount);
                }
            }
        }
    }
    pods
}

#[cfg(test)]
mod tests {
    use gatewright_core::inputs::{Object, Resources, Toleration};
    use gatewright_core::model::ObjectName;
    use gatewright_core::translate::isolated_name;

    use super::*;

    fn template() -> Value {
        json!({"metadata": {"labels": {"app.kubernetes.io/component": "envoy-isolated"}}, "spec": {
        "serviceAccountName": "x", "serviceAccount": "x", "automountServiceAccountToken": false,
        "nodeSelector": {"pool": "any"},
        "containers": [
            {"name": "envoy", "image": "e", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}},
            {"name": "drain", "image": "g", "resources": {"limits": {"memory": "64Mi"}}},
        ]}})
    }

    fn desired(parameters: Value) -> DesiredEnvoys {
        let gateway = ObjectName::new("a", "edge");
        let parameters = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "a", "name": "p"}, "spec": {"isolated": parameters}});
        let Ok(Object::GatewayParameters(parameters)) = Object::parse(parameters) else {
            panic!("it is right")
        };
        let parameters = parameters
            .spec
            .expect("it is right")
            .isolated
            .expect("it is said");
        DesiredEnvoys {
            name: ObjectName::new("ours", isolated_name(&gateway)),
            gateway,
            parameters,
        }
    }

    #[test]
    fn pods_are_those_of_the_template_but_for_what_a_class_says() {
        fn made(parameters: Value) -> Value {
            document(IsolatedKind::Deployment, &desired(parameters), &template())
                .expect("there are always pods")
        }
        let plain = made(json!({}));
        let name = isolated_name(&ObjectName::new("a", "edge"));
        assert_eq!(plain["spec"]["replicas"], 2);
        let pod = &plain["spec"]["template"];
        assert_eq!(pod["spec"]["serviceAccountName"], *name);
        assert_eq!(pod["spec"]["serviceAccount"], Value::Null);
        assert_eq!(pod["spec"]["containers"], template()["spec"]["containers"]);
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app.kubernetes.io/component": "envoy-isolated", NAME: name, GATEWAY_NAMESPACE: "a", GATEWAY_NAME: "edge"})
        );
        assert_eq!(
            plain["spec"]["selector"]["matchLabels"],
            json!({NAME: name})
        );

        let long = DesiredEnvoys {
            gateway: ObjectName::new("a", "e".repeat(LABEL_VALUE + 1)),
            ..desired(json!({}))
        };
        let labels = &pods(&long, &template())["metadata"]["labels"];
        assert!(
            labels[GATEWAY_NAME].is_null(),
            "no value of a label: {labels}"
        );

        let said = json!({"replicas": 3, "labels": {"team": "a"}, "nodeSelector": {"pool": "edge"},
            "tolerations": [{"key": "edge", "operator": "Exists"}],
            "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "2Gi"}}});
        let more = made(said);
        let pod = &more["spec"]["template"];
        assert_eq!(
            more["spec"]["replicas"],
            json!(3),
            "the number is the class's"
        );
        assert_eq!(
            pod["metadata"]["labels"]["team"],
            json!("a"),
            "the label is the class's"
        );
        assert_eq!(pod["spec"]["nodeSelector"], json!({"pool": "edge"}));
        assert_eq!(
            pod["spec"]["tolerations"],
            json!([{"key": "edge", "operator": "Exists"}])
        );
        let resources =
            json!({"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}});
        assert_eq!(pod["spec"]["containers"][0]["resources"], resources);
        assert_eq!(
            pod["spec"]["containers"][1],
            template()["spec"]["containers"][1],
            "of Envoy alone"
        );
        fn applied(document: &Value) -> Value {
            document["metadata"]["annotations"][APPLIED].clone()
        }
        assert_ne!(applied(&plain), applied(&more));
        assert_eq!(applied(&plain), applied(&made(json!({}))));
        let scaled = json!({"autoscaling": {"minReplicas": 3, "maxReplicas": 6}});
        let of = IsolatedKind::Autoscaler;
        assert_eq!(made(scaled.clone())["spec"]["replicas"], Value::Null);
        assert_eq!(
            first(
                made(scaled.clone()),
                IsolatedKind::Deployment,
                &desired(scaled.clone())
            )["spec"]["replicas"],
            3
        );
        let autoscaler = document(of, &desired(scaled), &template()).expect("it is asked for");
        assert_eq!(
            autoscaler["spec"]["minReplicas"],
            json!(3),
            "the least number is the class's"
        );
        assert_eq!(
            autoscaler["spec"]["maxReplicas"],
            json!(6),
            "the greatest number is the class's"
        );
        assert_eq!(
            document(of, &desired(json!({"replicas": 3})), &template()),
            None
        );
        // The types serialize to the fields of the Kubernetes API.
        let toleration = Toleration {
            key: None,
            operator: None,
            value: None,
            effect: None,
            toleration_seconds: Some(3),
        };
        assert_eq!(json!(toleration), json!({"tolerationSeconds": 3}));
        assert_eq!(json!(Resources::default()), json!({}));
    }
}
