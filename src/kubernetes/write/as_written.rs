//! The differences of an object from the manifest or patch that we want. Pure.
//!
//! Of a kind with a definition (CRD), the specification is compared with the manifest in which the
//! defaults of the schema are filled in: what another manager or an admission policy changed or
//! added is seen, whoever owns it. Of the metadata, the fields that we applied and still own are
//! compared: labels and annotations of others are theirs. While the schema is not known, the same
//! goes for the specification. Of the other kinds, which the API server fills in by code, a table
//! says which fields may be there.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::defaults::{DERIVED, Defaults, SpecDefaults};
use crate::deviation::{Deviation, deviations};
use crate::managed_fields;
use gatewright_core::inputs::Kind;

/// The fields of a Service that the API server fills in, or that the platform may set. Any other
/// field, such as `selector`, would change where requests go.
const OF_THE_PLATFORM: [&str; 17] = [
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
    "spec.ports.appProtocol",
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

/// Returns whether the kind of a manifest has a definition.
pub(crate) fn is_of_definition(document: &Value) -> bool {
    defined(document).is_some()
}

fn defined(document: &Value) -> Option<Kind> {
    DERIVED
        .into_iter()
        .find(|kind| document["kind"] == kind.as_str())
}

/// Returns the differences of an object from the manifest that was written.
pub(crate) fn differences(
    document: &Value,
    object: &DynamicObject,
    defaults: &SpecDefaults,
) -> Vec<Deviation> {
    if let Some(kind) = defined(document) {
        return applied(object, &managed_fields::of(object))
            .map(|ours| {
                let spec = &object.data["spec"];
                differences_of_applied(document, &ours, spec, defaults.of(kind))
            })
            .unwrap_or_default();
    }
    let meta = &object.metadata;
    let (mut wanted, mut there) = (content(document), content(&object.data));
    wanted["metadata"] = json!({"labels": document["metadata"]["labels"],
        "annotations": document["metadata"]["annotations"]});
    there["metadata"] = json!({"labels": meta.labels, "annotations": meta.annotations});
    let kind = document["kind"].as_str().unwrap_or_default();
    differences_of_content(kind, &wanted, &there)
}

/// Returns the fields of the metadata and the specification that we applied and still own, by its
/// managed fields; `None` where we never applied any.
pub(crate) fn applied(object: &DynamicObject, managed: &[Value]) -> Option<Value> {
    let meta = &object.metadata;
    let tree = managed_fields::ours(managed)?;
    let whole = json!({
        "metadata": {"labels": meta.labels, "annotations": meta.annotations,
            "ownerReferences": meta.owner_references},
        "spec": object.data["spec"],
    });
    Some(managed_fields::project(&whole, &tree))
}

/// Returns the differences of an object of a kind with a definition: `ours` are the fields that we
/// [`applied`], `spec` is its whole specification. `defaults` are those of the schema, if it is
/// known.
pub(crate) fn differences_of_applied(
    wanted: &Value,
    ours: &Value,
    spec: &Value,
    defaults: Option<&Defaults>,
) -> Vec<Deviation> {
    let meta = &wanted["metadata"];
    let fields = ["labels", "annotations", "ownerReferences"];
    let meta: Value = fields
        .into_iter()
        .map(|field| (field.to_owned(), meta[field].clone()))
        .collect();
    let mut all = deviations(
        &json!({"metadata": meta}),
        &json!({"metadata": ours["metadata"]}),
        &|_| false,
    );
    match defaults {
        Some(_) => all.extend(differences_of_spec(&wanted["spec"], spec, defaults)),
        None => {
            // The server filled in defaults in lists that are one field.
            all.extend(deviations(
                &json!({"spec": wanted["spec"]}),
                &json!({"spec": ours["spec"]}),
                &|place| place.is_in_atomic_list,
            ));
        }
    }
    all
}

/// Returns the differences of a specification, of which it is not known who wrote which field.
/// Without the defaults of the schema, any added field may be one.
pub(crate) fn differences_of_spec(
    wanted: &Value,
    spec: &Value,
    defaults: Option<&Defaults>,
) -> Vec<Deviation> {
    let mut filled = wanted.clone();
    if let Some(defaults) = defaults {
        defaults.fill(&mut filled);
    }
    deviations(&json!({"spec": filled}), &json!({"spec": spec}), &|_| {
        defaults.is_none()
    })
}

/// Returns the differences of labels and annotations from a patch of them.
pub(crate) fn differences_of_patch(patch: &Value, object: &DynamicObject) -> Vec<Deviation> {
    let mut wanted = patch.clone();
    if let Some(metadata) = wanted["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    let meta = &object.metadata;
    let there = json!({"metadata": {"labels": meta.labels, "annotations": meta.annotations}});
    deviations(&wanted, &there, &|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_of_labels_leaves_those_of_others() {
        fn labelled(labels: Value) -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "a", "labels": labels}}))
                .expect("an object")
        }
        let bare = labelled(json!({"theirs": "x"}));
        let stripped = json!({"metadata": {"resourceVersion": "7", "labels": {"l": null}, "annotations": {"a": null}}});
        assert_eq!(
            differences_of_patch(&stripped, &bare),
            [],
            "labels of others do not count"
        );
        assert_eq!(
            differences_of_patch(&stripped, &labelled(json!({"l": "x"}))).len(),
            1,
            "the label is there again"
        );
        let set = json!({"metadata": {"labels": {"l": "x"}, "annotations": {"a": "x"}}});
        assert_eq!(
            differences_of_patch(&set, &bare).len(),
            2,
            "label and annotation are missing"
        );
    }
}
