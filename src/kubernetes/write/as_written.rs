//! The differences of an object that is made for a Gateway from its manifest. Pure.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::deviation::{Deviation, deviations};

/// The fields of a Service that the API server fills in, or that the platform may set. Any other
/// field, such as `selector`, would change where requests go.
const OF_THE_PLATFORM: [&str; 16] = [
    "spec.allocateLoadBalancerNodePorts",
    "spec.clusterIP",
    "spec.clusterIPs",
    "spec.externalIPs",
    "spec.externalTrafficPolicy",
    "spec.healthCheckNodePort",
    "spec.internalTrafficPolicy",
    "spec.ipFamilies",
    "spec.ipFamilyPolicy",
    "spec.loadBalancerClass",
    "spec.loadBalancerIP",
    "spec.loadBalancerSourceRanges",
    "spec.ports.nodePort",
    "spec.sessionAffinity",
    "spec.sessionAffinityConfig",
    "spec.trafficDistribution",
];

/// Returns whether an object may have a field that its manifest does not have: labels and
/// annotations are anybody's.
fn may_have(kind: &str, field: &str) -> bool {
    if field.starts_with("metadata.") {
        return true;
    }
    match kind {
        // Other controllers add Secrets that pods of ours do not mount.
        "ServiceAccount" => matches!(field, "secrets" | "imagePullSecrets"),
        "Service" => OF_THE_PLATFORM.contains(&field),
        "PodDisruptionBudget" | "HorizontalPodAutoscaler" => true,
        // A paused Deployment takes no change. The specification of the pods is that of the
        // PodTemplate, in which the API server has filled in the defaults.
        "Deployment" => {
            field != "spec.paused"
                && (!field.starts_with("spec.template.spec.")
                    || field == "spec.template.spec.serviceAccount")
        }
        _ => false,
    }
}

/// Returns an object without metadata and status.
pub(crate) fn content(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| {
        !matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status")
    });
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns the differences of a content, or of fields of it, from those of a manifest of this kind.
pub(crate) fn differences_of_content(kind: &str, wanted: &Value, there: &Value) -> Vec<Deviation> {
    deviations(wanted, there, &|place| may_have(kind, &place.fields))
}

/// Returns the differences of an object from the manifest that was written.
pub(crate) fn differences(document: &Value, object: &DynamicObject) -> Vec<Deviation> {
    let meta = &object.metadata;
    let (mut wanted, mut there) = (content(document), content(&object.data));
    wanted["metadata"] = json!({"labels": document["metadata"]["labels"],
        "annotations": document["metadata"]["annotations"]});
    there["metadata"] = json!({"labels": meta.labels, "annotations": meta.annotations});
    let kind = document["kind"].as_str().unwrap_or_default();
    differences_of_content(kind, &wanted, &there)
}
