//! Whether a definition of this version may take the place of the one that a cluster has. Pure.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use semver::Version;

/// The annotation of our definitions with the version of the program that they belong to.
pub const VERSION_ANNOTATION: &str = "gatewright.io/version";

/// The API groups of which every definition is ours.
const OUR_GROUPS: [&str; 1] = ["gatewright.io"];

/// What becomes of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is written.
    Apply,
    /// The one of the cluster stays, for this reason.
    Keep(String),
    /// Nothing may be written, for this reason.
    Refuse(String),
}

impl Verdict {
    /// Judges the definition of the cluster, if there is one.
    pub(super) fn of(
        ours: &CustomResourceDefinition,
        served: Option<&CustomResourceDefinition>,
    ) -> Self {
        let Some(served) = served else {
            return Self::Apply;
        };
        let version = version(served);
        if version.is_none() && !OUR_GROUPS.contains(&&*served.spec.group) {
            return Self::Keep(format!(
                "it is not of Gatewright: it has no annotation {VERSION_ANNOTATION}"
            ));
        }
        if let Some(version) = version.filter(|version| is_newer(version, ours)) {
            return Self::Keep(format!("it is of version {version}, which is newer"));
        }
        match lost_versions(ours, served)[..] {
            [] => Self::Apply,
            ref lost => Self::Refuse(format!(
                "objects are stored in {}, which this version of Gatewright does not have: write them \
                 in a newer version, and remove the old one from status.storedVersions",
                lost.join(", ")
            )),
        }
    }
}

fn version(definition: &CustomResourceDefinition) -> Option<&str> {
    let version = definition.annotations().get(VERSION_ANNOTATION)?;
    Some(version)
}

/// Returns whether a version is newer than that of a definition of ours. What is no version is not.
fn is_newer(served: &str, ours: &CustomResourceDefinition) -> bool {
    let ours = version(ours).and_then(|version| Version::parse(version).ok());
    match (Version::parse(served), ours) {
        (Ok(served), Some(ours)) => served > ours,
        _ => false,
    }
}

/// Returns the versions in which objects may be stored, and that a definition of ours lacks.
fn lost_versions<'a>(
    ours: &CustomResourceDefinition,
    served: &'a CustomResourceDefinition,
) -> Vec<&'a str> {
    let stored = served
        .status
        .iter()
        .flat_map(|status| &status.stored_versions);
    let versions = ours.spec.versions.iter();
    let kept: Vec<&str> = versions.map(|version| &*version.name).collect();
    stored
        .flatten()
        .map(String::as_str)
        .filter(|name| !kept.contains(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(group: &str, version: Option<&str>, stored: &str) -> CustomResourceDefinition {
        let annotations = version.map(|version| json!({ VERSION_ANNOTATION: version }));
        let definition = json!({
            "metadata": {"name": format!("things.{group}"), "annotations": annotations},
            "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
                "versions": [{"name": stored, "served": true, "storage": true}]},
            "status": {"storedVersions": [stored]}});
        serde_json::from_value(definition).expect("a definition")
    }

    fn verdict(served: &CustomResourceDefinition) -> Verdict {
        let ours = definition(&served.spec.group, Some("0.10.0"), "v1alpha1");
        Verdict::of(&ours, Some(served))
    }

    #[test]
    fn a_missing_or_older_definition_is_written() {
        let ours = definition("gatewright.io", Some("0.10.0"), "v1alpha1");
        assert_eq!(Verdict::of(&ours, None), Verdict::Apply);
        for version in [
            None,
            Some("0.9.1"),
            Some("0.10.0-rc.1"),
            Some("0.10.0"),
            Some("first"),
        ] {
            let served = definition("gatewright.io", version, "v1alpha1");
            assert_eq!(verdict(&served), Verdict::Apply, "{version:?}");
        }
    }

    #[test]
    fn a_newer_definition_stays() {
        let served = definition("gatewright.io", Some("0.10.1"), "v1alpha1");
        let Verdict::Keep(reason) = verdict(&served) else {
            panic!("it stays");
        };
        assert!(reason.contains("0.10.1"), "{reason}");
    }

    #[test]
    fn a_definition_of_somebody_else_stays() {
        let foreign = definition("gateway.cozystack.io", None, "v1alpha1");
        assert!(matches!(verdict(&foreign), Verdict::Keep(_)));
        let ours = definition("gateway.cozystack.io", Some("0.9.0"), "v1alpha1");
        assert_eq!(verdict(&ours), Verdict::Apply);
    }

    #[test]
    fn a_version_with_stored_objects_is_not_removed() {
        let Verdict::Refuse(reason) = verdict(&definition("gatewright.io", None, "v1alpha0"))
        else {
            panic!("it is refused");
        };
        assert!(reason.contains("stored in v1alpha0"), "{reason}");
    }
}
