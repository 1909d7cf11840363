//! Whose an existing object is that has the name of one that we make: ours, one of ours that has
//! lost its owner, or somebody else's. Pure.
//!
//! An object loses its owner reference by a restore from a backup, by a deletion of the owner
//! without cascade, or by an export to Git. It is taken over if it has no controlling owner, all
//! labels of what we would make, and either our field manager or the content that is wanted. The
//! name alone says nothing, since a tenant may write an object of that name.

use std::collections::BTreeMap;

use serde_json::Value;

/// The verdict on an existing object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The owner reference is the wanted one.
    Ours,
    /// It has lost its owner, and is taken over.
    Orphan,
    /// It belongs to another owner, or to nobody.
    Foreign,
}

/// What the verdict depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks<'a> {
    /// The UID of the controlling owner reference; empty where there is none.
    pub(crate) owner: &'a str,
    /// The labels.
    pub(crate) labels: &'a BTreeMap<String, String>,
    /// True if we applied the object.
    pub(crate) is_applied: bool,
}

/// Returns whose an object is, where this manifest is wanted. `is_as_wanted` compares its content.
pub(crate) fn judge(
    wanted: &Value,
    marks: Marks<'_>,
    is_as_wanted: impl FnOnce() -> bool,
) -> Ownership {
    let metadata = &wanted["metadata"];
    if !marks.owner.is_empty() {
        return if metadata["ownerReferences"][0]["uid"] == *marks.owner {
            Ownership::Ours
        } else {
            Ownership::Foreign
        };
    }
    let labels = metadata["labels"].as_object();
    let is_marked = labels.is_some_and(|labels| {
        !labels.is_empty()
            && labels.iter().all(|(label, value)| {
                marks
                    .labels
                    .get(label)
                    .is_some_and(|there| *value == **there)
            })
    });
    if is_marked && (marks.is_applied || is_as_wanted()) {
        Ownership::Orphan
    } else {
        Ownership::Foreign
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_taken_over_by_its_labels_and_manager_or_content_and_never_by_its_name() {
        let wanted = json!({"metadata": {"labels": {"by": "us", "of": "a"},
            "ownerReferences": [{"uid": "u-1", "controller": true}]}});
        let all: &[(&str, &str)] = &[("by", "us"), ("of", "a"), ("more", "x")];
        let none: &[(&str, &str)] = &[];
        let other: &[(&str, &str)] = &[("by", "us"), ("of", "b")];
        for (owner, labels, is_applied, is_as_wanted, verdict) in [
            ("u-1", none, false, false, Ownership::Ours),
            ("u-2", all, true, true, Ownership::Foreign),
            ("", all, true, false, Ownership::Orphan),
            ("", all, false, true, Ownership::Orphan),
            ("", all, false, false, Ownership::Foreign),
            ("", other, true, true, Ownership::Foreign),
            ("", none, true, true, Ownership::Foreign),
        ] {
            let labels = labels
                .iter()
                .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
                .collect();
            let marks = Marks {
                owner,
                labels: &labels,
                is_applied,
            };
            assert_eq!(
                judge(&wanted, marks, || is_as_wanted),
                verdict,
                "{owner:?} {labels:?} {is_applied} {is_as_wanted}"
            );
        }
        let unlabelled = json!({"metadata": {}});
        let marks = Marks {
            owner: "",
            labels: &BTreeMap::new(),
            is_applied: true,
        };
        assert_eq!(judge(&unlabelled, marks, || true), Ownership::Foreign);
    }
}
