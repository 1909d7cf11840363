//! Plans the writes that bring the objects of a Gateway's own Envoys to the desired state. Pure.

use gatewright_core::model::ObjectName;
use gatewright_core::translate::DesiredEnvoys;
use serde_json::Value;

use super::documents::{document, first};
use super::watch::content;
use super::{APPLIED, IsolatedKind, Observed};
use crate::deviation::{Deviation, deviations};
use crate::managed_fields;

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Creates the object, if none of its name exists.
    Create(IsolatedKind, Value),
    /// Applies the manifest over the object with this UID.
    Apply(IsolatedKind, Value, String),
    /// Moves `spec.replicas` of the Deployment with this name and UID to another field manager,
    /// with its current value.
    LeaveReplicas(ObjectName, String),
    /// Deletes the object with this name and UID.
    Delete(IsolatedKind, ObjectName, String),
}

/// Returns the writes for a Gateway that wants Envoys of its own, or the message of the conflict
/// that prevents all of them. `observed` are the observed objects of that name.
pub(super) fn plan<'a>(
    desired: &DesiredEnvoys,
    template: &Value,
    observed: impl Fn(IsolatedKind) -> Option<&'a Observed>,
) -> Result<Vec<Step>, String> {
    // Pods run as the account and are selected by the Service, so a conflict about one object
    // prevents all writes.
    for kind in IsolatedKind::ALL {
        if observed(kind)
            .is_some_and(|observed| observed.gateway.as_ref() != Some(&desired.gateway))
        {
            return Err(format!(
                "{} {} belongs to another owner: remove it, or give the Gateway another name",
                kind.as_str(),
                desired.name
            ));
        }
    }
    let mut unwanted = Vec::new();
    let mut steps = Vec::new();
    for kind in IsolatedKind::ALL {
        let (document, observed) = (document(kind, desired, template), observed(kind));
        match (document, observed) {
            // The object is created again once its deletion has finished.
            (_, Some(observed)) if observed.deleting => {}
            (None, None) => {}
            (None, Some(observed)) => unwanted.push((kind, desired.name.clone(), observed)),
            (Some(document), None) => {
                steps.push(Step::Create(kind, first(document, kind, desired)))
            }
            (Some(document), Some(observed)) => {
                let is_same = document["metadata"]["annotations"][APPLIED] == observed.applied;
                let leaves = kind == IsolatedKind::Deployment
                    && says_replicas(&observed.ours)
                    && !says_replicas_of(&document);
                if leaves {
                    steps.push(Step::LeaveReplicas(
                        desired.name.clone(),
                        observed.uid.clone(),
                    ));
                }
                let is_as_desired = differences(kind, &document, &observed.content).is_empty();
                if leaves || !is_same || !is_as_desired || !is_ours(observed, &document) {
                    steps.push(Step::Apply(kind, document, observed.uid.clone()));
                }
            }
        }
    }
    // The autoscaler is deleted first: otherwise two writers would set the number of pods.
    let mut all = removal(unwanted.into_iter());
    all.append(&mut steps);
    Ok(all)
}

/// Returns the differences of an object's content from a manifest.
pub(super) fn differences(kind: IsolatedKind, document: &Value, there: &Value) -> Vec<Deviation> {
    deviations(&content(document), there, &|place| {
        may_have(kind, &place.fields)
    })
}

/// Returns whether an object may have a field that we do not write. The specification of the pods
/// is that of the PodTemplate, in which the API server has filled in the defaults.
fn may_have(kind: IsolatedKind, field: &str) -> bool {
    match kind {
        // Other controllers add Secrets that pods of ours do not mount.
        IsolatedKind::Account => matches!(field, "secrets" | "imagePullSecrets"),
        IsolatedKind::Service => field != "spec.externalName",
        IsolatedKind::Budget | IsolatedKind::Autoscaler => true,
        // A paused Deployment takes no change.
        IsolatedKind::Deployment => {
            field != "spec.paused"
                && (!field.starts_with("spec.template.spec.")
                    || field == "spec.template.spec.serviceAccount")
        }
    }
}

/// Returns whether our field manager owns `spec.replicas`.
fn says_replicas(ours: &Value) -> bool {
    ours.pointer("/f:spec/f:replicas").is_some()
}

fn says_replicas_of(document: &Value) -> bool {
    document.pointer("/spec/replicas").is_some()
}

/// Returns whether all applied fields still belong to our field manager.
fn is_ours(observed: &Observed, document: &Value) -> bool {
    let Some(fields) = document.as_object() else {
        return false;
    };
    let said = fields
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    managed_fields::has(
        &observed.ours,
        &said
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

/// Returns the steps that delete objects which are no longer wanted.
pub(super) fn removal<'a>(
    observed: impl Iterator<Item = (IsolatedKind, ObjectName, &'a Observed)>,
) -> Vec<Step> {
    let there = observed.filter(|(.., observed)| !observed.deleting);
    // The pods are deleted before the objects that they depend on.
    let mut steps: Vec<Step> = there
        .map(|(kind, name, observed)| Step::Delete(kind, name, observed.uid.clone()))
        .collect();
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
        by(IsolatedParameters {
            replicas: Some(replicas),
            ..IsolatedParameters::default()
        })
    }

    fn by(parameters: IsolatedParameters) -> DesiredEnvoys {
        let gateway = ObjectName::new("a", "edge");
        DesiredEnvoys {
            name: ObjectName::new("ours", isolated_name(&gateway)),
            gateway,
            parameters,
        }
    }

    fn template() -> Value {
        json!({"spec": {"containers": [{"name": "envoy", "image": "e"}]}})
    }

    /// The managed fields after an apply.
    fn tree(value: &Value) -> Value {
        match value {
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (format!("f:{name}"), tree(value)))
                .collect(),
            Value::Array(items) => items
                .iter()
                .map(|item| (format!("k:{}", json!({"name": item["name"]})), tree(item)))
                .collect(),
            _ => json!({}),
        }
    }

    /// The observed objects after these steps.
    fn written(steps: &[Step]) -> BTreeMap<IsolatedKind, Observed> {
        fn observed(step: &Step) -> (IsolatedKind, Observed) {
            match step {
                Step::Create(kind, document) | Step::Apply(kind, document, _) => {
                    let applied = document["metadata"]["annotations"][APPLIED]
                        .as_str()
                        .expect("a digest")
                        .to_owned();
                    let gateway = Some(ObjectName::new("a", "edge"));
                    (
                        *kind,
                        Observed {
                            uid: kind.as_str().to_owned(),
                            gateway,
                            applied,
                            ours: tree(document),
                            content: content(document),
                            deleting: false,
                        },
                    )
                }
                Step::LeaveReplicas(..) | Step::Delete(..) => panic!("nothing goes"),
            }
        }
        steps.iter().map(observed).collect()
    }

    fn check(
        observed: &BTreeMap<IsolatedKind, Observed>,
        desired: &DesiredEnvoys,
        template: &Value,
    ) -> Result<Vec<Step>, String> {
        plan(desired, template, |kind| observed.get(&kind))
    }

    #[test]
    fn an_equal_object_is_not_written_again_and_a_different_one_is() {
        let steps =
            check(&BTreeMap::new(), &desired(2), &template()).expect("nothing is in the way");
        assert_eq!(steps.len(), 4);
        assert!(
            matches!(&steps[3], Step::Create(IsolatedKind::Deployment, _)),
            "the pods come last"
        );
        let mut observed = written(&steps);
        assert_eq!(check(&observed, &desired(2), &template()), Ok(vec![]));
        fn only_pods(steps: Result<Vec<Step>, String>) -> Value {
            match steps.as_deref() {
                Ok([Step::Apply(IsolatedKind::Deployment, document, uid)])
                    if uid == "Deployment" =>
                {
                    document.clone()
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            only_pods(check(&observed, &desired(3), &template()))["spec"]["replicas"],
            3
        );
        let newer = json!({"spec": {"containers": [{"name": "envoy", "image": "f"}]}});
        only_pods(check(&observed, &desired(2), &newer));
        // Another manager scaled the Deployment.
        let ours = &mut observed
            .get_mut(&IsolatedKind::Deployment)
            .expect("it is there")
            .ours;
        let fields = ours["f:spec"].as_object_mut().expect("fields");
        let replicas = fields.remove("f:replicas").expect("we own it");
        only_pods(check(&observed, &desired(2), &template()));
        // An admission policy changed the pods, whoever owns the fields.
        let pods = observed
            .get_mut(&IsolatedKind::Deployment)
            .expect("it is there");
        pods.ours["f:spec"]["f:replicas"] = replicas;
        assert_eq!(
            check(&observed, &desired(2), &template()),
            Ok(vec![]),
            "all is right"
        );
        for (field, value) in [
            ("hostNetwork", json!(true)),
            ("containers", json!([{"name": "envoy", "image": "x"}])),
        ] {
            let mut changed = observed.clone();
            let pods = changed
                .get_mut(&IsolatedKind::Deployment)
                .expect("it is there");
            pods.content["spec"]["template"]["spec"][field] = value;
            only_pods(check(&changed, &desired(2), &template()));
        }
        // The Deployment is being deleted.
        observed
            .get_mut(&IsolatedKind::Deployment)
            .expect("it is there")
            .deleting = true;
        assert_eq!(
            check(&observed, &desired(2), &template()),
            Ok(vec![]),
            "until it is gone"
        );
    }

    #[test]
    fn the_number_of_pods_is_the_autoscalers_and_comes_back_from_it() {
        let autoscaling = Autoscaling {
            min_replicas: Some(1),
            max_replicas: 3,
            target_cpu: None,
        };
        let scaled = by(IsolatedParameters {
            autoscaling: Some(autoscaling),
            ..IsolatedParameters::default()
        });
        fn steps(
            observed: &BTreeMap<IsolatedKind, Observed>,
            desired: &DesiredEnvoys,
        ) -> Vec<Step> {
            check(observed, desired, &template()).expect("ours")
        }
        // From a fixed number to an autoscaler: the field is handed over before an apply omits it.
        let mut observed = written(&steps(&BTreeMap::new(), &desired(2)));
        let [leave, pods, autoscaler] = &steps(&observed, &scaled)[..] else {
            panic!("{:?}", steps(&observed, &scaled))
        };
        assert_eq!(
            *leave,
            Step::LeaveReplicas(scaled.name.clone(), "Deployment".to_owned())
        );
        let Step::Apply(IsolatedKind::Deployment, document, _) = pods else {
            panic!("{pods:?}")
        };
        assert!(!says_replicas_of(document));
        assert!(matches!(
            autoscaler,
            Step::Create(IsolatedKind::Autoscaler, _)
        ));
        observed.append(&mut written(&[pods.clone(), autoscaler.clone()]));
        assert_eq!(steps(&observed, &scaled), []);
        // A new template does not set the number of pods.
        let newer = json!({"spec": {"containers": [{"name": "envoy", "image": "f"}]}});
        let applied = check(&observed, &scaled, &newer).expect("ours");
        assert!(
            matches!(&applied[..], [Step::Apply(IsolatedKind::Deployment, document, _)] if !says_replicas_of(document))
        );
        // Back to a fixed number: the autoscaler is deleted first.
        let back = steps(&observed, &desired(2));
        let [
            Step::Delete(IsolatedKind::Autoscaler, ..),
            Step::Apply(IsolatedKind::Deployment, document, _),
        ] = &back[..]
        else {
            panic!("{back:?}")
        };
        assert_eq!(document["spec"]["replicas"], 2);
        // From nothing: created with the minimum, which is handed over afterwards.
        let created = steps(&BTreeMap::new(), &scaled);
        let Step::Create(IsolatedKind::Deployment, document) = &created[3] else {
            panic!("{created:?}")
        };
        assert_eq!(created.len(), 5, "every object is created");
        assert_eq!(
            document["spec"]["replicas"],
            json!(1),
            "the Deployment begins with one pod"
        );
        let observed = written(&created);
        assert!(matches!(
            &steps(&observed, &scaled)[..],
            [
                Step::LeaveReplicas(..),
                Step::Apply(IsolatedKind::Deployment, ..)
            ]
        ));
    }

    #[test]
    fn beside_what_is_somebody_elses_nothing_is_written() {
        for kind in IsolatedKind::ALL {
            for gateway in [None, Some(ObjectName::new("b", "edge"))] {
                let observed = BTreeMap::from([(
                    kind,
                    Observed {
                        gateway,
                        ..Observed::default()
                    },
                )]);
                let told =
                    check(&observed, &desired(2), &template()).expect_err("it is in the way");
                assert!(
                    told.contains(kind.as_str()) && told.contains("another owner"),
                    "{told}"
                );
            }
        }
    }

    #[test]
    fn unwanted_objects_are_deleted_by_uid_pods_first() {
        let observed = written(
            &check(&BTreeMap::new(), &desired(2), &template()).expect("nothing is in the way"),
        );
        let name = ObjectName::new("ours", "n");
        let steps = removal(
            observed
                .iter()
                .map(|(kind, observed)| (*kind, name.clone(), observed)),
        );
        assert_eq!(
            steps.first(),
            Some(&Step::Delete(
                IsolatedKind::Deployment,
                name,
                "Deployment".to_owned()
            ))
        );
        assert_eq!(steps.len(), 4);
        let deleting = Observed {
            deleting: true,
            ..Observed::default()
        };
        assert_eq!(
            removal(
                [(
                    IsolatedKind::Account,
                    ObjectName::new("ours", "n"),
                    &deleting
                )]
                .into_iter()
            ),
            []
        );
    }
}
