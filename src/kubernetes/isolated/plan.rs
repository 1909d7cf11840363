//! What has to be written so that a Gateway has the Envoys of its own that it is to have. Pure.

use gatewright_core::model::ObjectName;
use gatewright_core::translate::DesiredEnvoys;
use serde_json::Value;

use super::documents::document;
use super::{APPLIED, Held, Part};
use crate::managed_fields;

/// Something to write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Create this, if nothing is there.
    Create(Part, Value),
    /// Apply this over what is there with this UID.
    Apply(Part, Value, String),
    /// Delete what has this name and UID.
    Delete(Part, ObjectName, String),
}

/// What is to be done for a Gateway that is to have Envoys of its own; or what is in the way of all of it. `held` is what is there
/// under their name.
pub(super) fn plan<'a>(
    desired: &DesiredEnvoys,
    template: &Value,
    held: impl Fn(Part) -> Option<&'a Held>,
) -> Result<Vec<Step>, String> {
    // Pods run as the account and are found by the Service: with one that is somebody else's nothing is right.
    for part in Part::ALL {
        if held(part).is_some_and(|held| held.gateway.as_ref() != Some(&desired.gateway)) {
            return Err(format!(
                "{} {} is somebody else's: remove it, or give the Gateway another name",
                part.kind(),
                desired.name
            ));
        }
    }
    let step = |part| {
        let document = document(part, desired, template);
        match held(part) {
            None => Some(Step::Create(part, document)),
            // It is made anew once it is gone.
            Some(held) if held.going => None,
            Some(held) => {
                let is_same = document["metadata"]["annotations"][APPLIED] == held.applied;
                (!is_same || !is_ours(held, &document)).then(|| Step::Apply(part, document, held.uid.clone()))
            }
        }
    };
    Ok(Part::ALL.into_iter().filter_map(step).collect())
}

/// Whether nobody changed what we applied.
fn is_ours(held: &Held, document: &Value) -> bool {
    let Some(fields) = document.as_object() else { return false };
    let said = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    managed_fields::has(&held.ours, &said.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// What is to be done about objects that nobody wants any more.
pub(super) fn removal<'a>(held: impl Iterator<Item = (Part, ObjectName, &'a Held)>) -> Vec<Step> {
    let there = held.filter(|(.., held)| !held.going);
    // The pods end before what they need does.
    let mut steps: Vec<Step> = there.map(|(part, name, held)| Step::Delete(part, name, held.uid.clone())).collect();
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gatewright_core::inputs::IsolatedParameters;
    use gatewright_core::translate::isolated_name;
    use serde_json::json;

    use super::*;

    fn desired(replicas: u16) -> DesiredEnvoys {
        let gateway = ObjectName::new("a", "edge");
        let parameters = IsolatedParameters { replicas: Some(replicas), ..IsolatedParameters::default() };
        DesiredEnvoys { name: ObjectName::new("ours", isolated_name(&gateway)), gateway, parameters }
    }

    fn template() -> Value {
        json!({"spec": {"containers": [{"name": "envoy", "image": "e"}]}})
    }

    /// What we own after an apply.
    fn tree(value: &Value) -> Value {
        match value {
            Value::Object(fields) => fields.iter().map(|(name, value)| (format!("f:{name}"), tree(value))).collect(),
            Value::Array(items) => {
                items.iter().map(|item| (format!("k:{}", json!({"name": item["name"]})), tree(item))).collect()
            }
            _ => json!({}),
        }
    }

    /// What is there after these steps.
    fn written(steps: &[Step]) -> BTreeMap<Part, Held> {
        let held = |step: &Step| match step {
            Step::Create(part, document) | Step::Apply(part, document, _) => {
                let applied = document["metadata"]["annotations"][APPLIED].as_str().expect("a digest").to_owned();
                let gateway = Some(ObjectName::new("a", "edge"));
                (*part, Held { uid: part.kind().to_owned(), gateway, applied, ours: tree(document), going: false })
            }
            Step::Delete(..) => panic!("nothing goes"),
        };
        steps.iter().map(held).collect()
    }

    fn check(held: &BTreeMap<Part, Held>, desired: &DesiredEnvoys, template: &Value) -> Result<Vec<Step>, String> {
        plan(desired, template, |part| held.get(&part))
    }

    #[test]
    fn what_was_written_is_not_written_again_and_what_differs_is() {
        let steps = check(&BTreeMap::new(), &desired(2), &template()).expect("nothing is in the way");
        assert_eq!(steps.len(), 4);
        assert!(matches!(&steps[3], Step::Create(Part::Deployment, _)), "the pods come last");
        let mut held = written(&steps);
        assert_eq!(check(&held, &desired(2), &template()), Ok(vec![]));
        let only_pods = |steps: Result<Vec<Step>, String>| match steps.as_deref() {
            Ok([Step::Apply(Part::Deployment, document, uid)]) if uid == "Deployment" => document.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(only_pods(check(&held, &desired(3), &template()))["spec"]["replicas"], 3);
        let newer = json!({"spec": {"containers": [{"name": "envoy", "image": "f"}]}});
        only_pods(check(&held, &desired(2), &newer));
        // Somebody scaled it.
        let ours = &mut held.get_mut(&Part::Deployment).expect("it is there").ours;
        ours["f:spec"].as_object_mut().expect("fields").remove("f:replicas");
        only_pods(check(&held, &desired(2), &template()));
        // It is being deleted.
        held.get_mut(&Part::Deployment).expect("it is there").going = true;
        assert_eq!(check(&held, &desired(2), &template()), Ok(vec![]), "until it is gone");
    }

    #[test]
    fn beside_what_is_somebody_elses_nothing_is_written() {
        for part in Part::ALL {
            for gateway in [None, Some(ObjectName::new("b", "edge"))] {
                let held = BTreeMap::from([(part, Held { gateway, ..Held::default() })]);
                let told = check(&held, &desired(2), &template()).expect_err("it is in the way");
                assert!(told.contains(part.kind()) && told.contains("somebody else's"), "{told}");
            }
        }
    }

    #[test]
    fn what_nobody_wants_goes_by_its_uid_pods_first() {
        let held = written(&check(&BTreeMap::new(), &desired(2), &template()).expect("nothing is in the way"));
        let name = ObjectName::new("ours", "n");
        let steps = removal(held.iter().map(|(part, held)| (*part, name.clone(), held)));
        assert_eq!(steps.first(), Some(&Step::Delete(Part::Deployment, name, "Deployment".to_owned())));
        assert_eq!(steps.len(), 4);
        let going = Held { going: true, ..Held::default() };
        assert_eq!(removal([(Part::Account, ObjectName::new("ours", "n"), &going)].into_iter()), []);
    }
}
