//! The patch of the label and the annotation of a namespace. Pure.

use serde_json::{Value, json};

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
    }
}
