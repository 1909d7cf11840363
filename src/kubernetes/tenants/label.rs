//! The patch of the label and the annotation of a namespace. Pure.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::deviation::{Deviation, deviations};
use gatewright_core::tenancy::{ATTACHED_BY, GATEWAY_LABEL, Patch};

/// Returns a merge patch that is conditional on the resource version of the decision; `None` where
/// nothing is to be changed.
pub(super) fn patch(wanted: &Patch, version: &str) -> Option<Value> {
    let mut metadata = json!({"resourceVersion": version});
    match wanted {
        Patch::Leave => return None,
        Patch::Set(gateway) => {
            metadata["labels"] = json!({GATEWAY_LABEL: **gateway});
            metadata["annotations"] = json!({ATTACHED_BY: **gateway});
        }
        Patch::Strip => {
            metadata["labels"] = json!({GATEWAY_LABEL: null});
            metadata["annotations"] = json!({ATTACHED_BY: null});
        }
        // The label has another owner since, so only the annotation is removed.
        Patch::Disown => metadata["annotations"] = json!({ATTACHED_BY: null}),
    }
    Some(json!({"metadata": metadata}))
}

/// Returns the differences between a patch and the namespace that it made.
pub(super) fn differences(patch: &Value, namespace: &DynamicObject) -> Vec<Deviation> {
    let mut wanted = patch.clone();
    if let Some(metadata) = wanted["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    let meta = &namespace.metadata;
    let there = json!({"metadata": {"labels": meta.labels, "annotations": meta.annotations}});
    deviations(&wanted, &there, &|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_is_taken_away() {
        let disowned = patch(&Patch::Disown, "7").expect("a patch");
        assert_eq!(
            disowned,
            json!({"metadata": {"resourceVersion": "7", "annotations": {ATTACHED_BY: null}}})
        );
        assert_eq!(patch(&Patch::Leave, "7"), None);
        let set = patch(&Patch::Set("tenant-a".into()), "7").expect("a patch");
        assert_eq!(set["metadata"]["labels"][GATEWAY_LABEL], "tenant-a");
        let stripped = patch(&Patch::Strip, "7").expect("a patch");
        assert_eq!(stripped["metadata"]["labels"], json!({GATEWAY_LABEL: null}));
        fn namespace(labels: Value) -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "a", "labels": labels}}))
                .expect("an object")
        }
        let bare = namespace(json!({"theirs": "x"}));
        let labelled = namespace(json!({GATEWAY_LABEL: "tenant-a"}));
        assert_eq!(
            differences(&stripped, &bare),
            [],
            "labels of others do not count"
        );
        assert_eq!(
            differences(&stripped, &labelled).len(),
            1,
            "the label is there again"
        );
        assert_eq!(
            differences(&set, &bare).len(),
            2,
            "label and annotation are missing"
        );
    }
}
