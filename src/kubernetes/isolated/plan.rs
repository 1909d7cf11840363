//! Plans the writes that bring the objects of a Gateway's own Envoys to the desired state. Pure.

use gatewright_core::model::ObjectName;
use gatewright_core::translate::DesiredEnvoys;
use serde_json::Value;

use super::documents::{document, first};
use super::{APPLIED, Held, Part};
use crate::managed_fields;

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Creates the object, if none of its name exists.
    Create(Part, Value),
    /// Applies the manifest over the object with this UID.
    Apply(Part, Value, String),
    /// Moves `spec.replicas` of the Deployment with this name and UID to another field manager, with its current value.
    LeaveReplicas(ObjectName, String),
    /// Deletes the object with this name and UID.
    Delete(Part, ObjectName, String),
}

/// Returns the writes for a Gateway that wants Envoys of its own, or the message of the conflict that prevents all of
/// them. `held` are the observed objects of that name.
pub(super) fn plan<'a>(
    desired: &DesiredEnvoys,
    template: &Value,
    held: impl Fn(Part) -> Option<&'a Held>,
) -> Result<Vec<Step>, String> {
    // Pods run as the account and are selected by the Service, so a conflict about one object prevents all writes.
    for part in Part::ALL {
        if held(part).is_some_and(|held| held.gateway.as_ref() != Some(&desired.gateway)) {
            return Err(format!(
                "{} {} belongs to another owner: remove it, or give the Gateway another name",
                part.kind(),
                desired.name
            ));
        }
    }
    let (mut unwanted, mut steps) = (Vec::new(), Vec::new());
    for part in Part::ALL {
        let (document, held) = (document(part, desired, template), held(part));
        match (document, held) {
            // The object is created again once its deletion has finished.
            (_, Some(held)) if held.going => {}
            (None, None) => {}
            (None, Some(held)) => unwanted.push((part, desired.name.clone(), held)),
            (Some(document), None) => steps.push(Step::Create(part, first(document, part, desired))),
            (Some(document), Some(held)) => {
                let is_same = document["metadata"]["annotations"][APPLIED] == held.applied;
                let leaves = part == Part::Deployment && says_replicas(&held.ours) && !says_replicas_of(&document);
                if leaves {
                    steps.push(Step::LeaveReplicas(desired.name.clone(), held.uid.clone()));
                }
                if leaves || !is_same || !is_ours(held, &document) {
                    steps.push(Step::Apply(part, document, held.uid.clone()));
                }
            }
        }
    }
    // The autoscaler is deleted first: otherwise two writers would set the number of pods.
    let mut all = removal(unwanted.into_iter());
    all.append(&mut steps);
    Ok(all)
}

/// Returns whether our field manager owns `spec.replicas`.
fn says_replicas(ours: &Value) -> bool {
    ours.pointer("/f:spec/f:replicas").is_some()
}

fn says_replicas_of(document: &Value) -> bool {
    document.pointer("/spec/replicas").is_some()
}

/// Returns whether all applied fields still belong to our field manager.
fn is_ours(held: &Held, document: &Value) -> bool {
    let Some(fields) = document.as_object() else { return false };
    let said = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    managed_fields::has(&held.ours, &said.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Returns the steps that delete objects which are no longer wanted.
pub(super) fn removal<'a>(held: impl Iterator<Item = (Part, ObjectName, &'a Held)>) -> Vec<Step> {
    let there = held.filter(|(.., held)| !held.going);
    // The pods are deleted before the objects that they depend on.
    let mut steps: Vec<Step> = there.map(|(part, name, held)| Step::Delete(part, name, held.uid.clone())).collect();
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gatewright_core::inputs::{Autoscaling, IsolatedParameters};
    use gatewright_core::translate::isolated_name;
    use serde_json::json;

    use super::*;

    fn desired(replicas: u16) -> DesiredEnvoys {
        by(IsolatedParameters { replicas: Some(replicas), ..IsolatedParameters::default() })
    }

    fn by(parameters: IsolatedParameters) -> DesiredEnvoys {
        let gateway = ObjectName::new("a", "edge");
        DesiredEnvoys { name: ObjectName::new("ours", isolated_name(&gateway)), gateway, parameters }
    }

    fn template() -> Value {
        json!({"spec": {"containers": [{"name": "envoy", "image": "e"}]}})
    }

    /// The managed fields after an apply.
    fn tree(value: &Value) -> Value {
        match value {
            Value::Object(fields) => fields.iter().map(|(name, value)| (format!("f:{name}"), tree(value))).collect(),
            Value::Array(items) => {
                items.iter().map(|item| (format!("k:{}", json!({"name": item["name"]})), tree(item))).collect()
            }
            _ => json!({}),
        }
    }

    /// The observed objects after these steps.
    fn written(steps: &[Step]) -> BTreeMap<Part, Held> {
        let held = |step: &Step| match step {
            Step::Create(part, document) | Step::Apply(part, document, _) => {
                let applied = document["metadata"]["annotations"][APPLIED].as_str().expect("a digest").to_owned();
                let gateway = Some(ObjectName::new("a", "edge"));
                (*part, Held { uid: part.kind().to_owned(), gateway, applied, ours: tree(document), going: false })
            }
            Step::LeaveReplicas(..) | Step::Delete(..) => panic!("nothing goes"),
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
        // Another manager scaled the Deployment.
        let ours = &mut held.get_mut(&Part::Deployment).expect("it is there").ours;
        ours["f:spec"].as_object_mut().expect("fields").remove("f:replicas");
        only_pods(check(&held, &desired(2), &template()));
        // The Deployment is being deleted.
        held.get_mut(&Part::Deployment).expect("it is there").going = true;
        assert_eq!(check(&held, &desired(2), &template()), Ok(vec![]), "until it is gone");
    }

    #[test]
    fn the_number_of_pods_is_the_autoscalers_and_comes_back_from_it() {
        let autoscaling = Autoscaling { min_replicas: Some(1), max_replicas: 3, target_cpu: None };
        let scaled = by(IsolatedParameters { autoscaling: Some(autoscaling), ..IsolatedParameters::default() });
        let steps =
            |held: &BTreeMap<Part, Held>, desired: &DesiredEnvoys| check(held, desired, &template()).expect("ours");
        // From a fixed number to an autoscaler: the field is handed over before an apply omits it.
        let mut held = written(&steps(&BTreeMap::new(), &desired(2)));
        let [leave, pods, autoscaler] = &steps(&held, &scaled)[..] else { panic!("{:?}", steps(&held, &scaled)) };
        assert_eq!(*leave, Step::LeaveReplicas(scaled.name.clone(), "Deployment".to_owned()));
        let Step::Apply(Part::Deployment, document, _) = pods else { panic!("{pods:?}") };
        assert!(!says_replicas_of(document));
        assert!(matches!(autoscaler, Step::Create(Part::Autoscaler, _)));
        held.append(&mut written(&[pods.clone(), autoscaler.clone()]));
        assert_eq!(steps(&held, &scaled), []);
        // A new template does not set the number of pods.
        let newer = json!({"spec": {"containers": [{"name": "envoy", "image": "f"}]}});
        let applied = check(&held, &scaled, &newer).expect("ours");
        assert!(matches!(&applied[..], [Step::Apply(Part::Deployment, document, _)] if !says_replicas_of(document)));
        // Back to a fixed number: the autoscaler is deleted first.
        let back = steps(&held, &desired(2));
        let [Step::Delete(Part::Autoscaler, ..), Step::Apply(Part::Deployment, document, _)] = &back[..] else {
            panic!("{back:?}")
        };
        assert_eq!(document["spec"]["replicas"], 2);
        // From nothing: created with the minimum, which is handed over afterwards.
        let created = steps(&BTreeMap::new(), &scaled);
        let Step::Create(Part::Deployment, document) = &created[3] else { panic!("{created:?}") };
        assert_eq!((created.len(), &document["spec"]["replicas"]), (5, &json!(1)));
        let held = written(&created);
        assert!(matches!(&steps(&held, &scaled)[..], [Step::LeaveReplicas(..), Step::Apply(Part::Deployment, ..)]));
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
