//! Plans the writes that bring the objects of a Gateway's own Envoys to the desired state. Pure.

use gatewright_core::model::ObjectName;
use gatewright_core::translate::DesiredEnvoys;
use serde_json::Value;

use super::documents::{document, first};
use super::{APPLIED, IsolatedKind, Observed};
use crate::managed_fields;
use crate::write::as_written::{content, differences_of_content};
use crate::write::object_write::{Existing, ObjectWrite};

/// The field of a Deployment with the number of its pods.
const REPLICAS: &str = "/spec/replicas";

/// Returns the writes for a Gateway that wants Envoys of its own, or the message of the conflict
/// that prevents all of them. `observed` are the observed objects of that name.
pub(super) fn plan<'a>(
    desired: &DesiredEnvoys,
    template: &Value,
    observed: impl Fn(IsolatedKind) -> Option<&'a Observed>,
) -> Result<Vec<ObjectWrite>, String> {
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
                steps.push(ObjectWrite::Create(first(document, kind, desired)))
            }
            (Some(document), Some(observed)) => {
                let is_same = document["metadata"]["annotations"][APPLIED] == observed.applied;
                let leaves = kind == IsolatedKind::Deployment
                    && says_replicas(&observed.ours)
                    && !says_replicas_of(&document);
                if leaves {
                    let pods = existing(kind, desired.name.clone(), observed);
                    steps.push(ObjectWrite::HandOver(pods, REPLICAS));
                }
                let is_as_desired =
                    differences_of_content(kind.as_str(), &content(&document), &observed.content)
                        .is_empty();
                if leaves || !is_same || !is_as_desired || !is_ours(observed, &document) {
                    steps.push(ObjectWrite::Apply(document, observed.uid.clone()));
                }
            }
        }
    }
    // The autoscaler is deleted first: otherwise two writers would set the number of pods.
    let mut all = removal(unwanted.into_iter());
    all.append(&mut steps);
    Ok(all)
}

fn existing(kind: IsolatedKind, name: ObjectName, observed: &Observed) -> Existing {
    Existing {
        api_version: kind.api_version(),
        kind: kind.as_str(),
        name,
        uid: observed.uid.clone(),
        version: None,
    }
}

/// Returns whether our field manager owns `spec.replicas`.
fn says_replicas(ours: &Value) -> bool {
    ours.pointer("/f:spec/f:replicas").is_some()
}

fn says_replicas_of(document: &Value) -> bool {
    document.pointer(REPLICAS).is_some()
}

/// Returns whether all applied fields still belong to our field manager.
fn is_ours(observed: &Observed, document: &Value) -> bool {
    managed_fields::has(&observed.ours, &content(document))
}

/// Returns the steps that delete objects which are no longer wanted.
pub(super) fn removal<'a>(
    observed: impl Iterator<Item = (IsolatedKind, ObjectName, &'a Observed)>,
) -> Vec<ObjectWrite> {
    let there = observed.filter(|(.., observed)| !observed.deleting);
    // The pods are deleted before the objects that they depend on.
    let mut steps: Vec<ObjectWrite> = there
        .map(|(kind, name, observed)| ObjectWrite::Delete(existing(kind, name, observed)))
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

    fn kind(document: &Value) -> IsolatedKind {
        let mut all = IsolatedKind::ALL.into_iter();
        all.find(|kind| document["kind"] == kind.as_str())
            .expect("one of ours")
    }

    /// The kind that a step creates or applies.
    fn kind_of(step: &ObjectWrite) -> Option<(&'static str, IsolatedKind)> {
        match step {
            ObjectWrite::Create(document) => Some(("create", kind(document))),
            ObjectWrite::Apply(document, _) => Some(("apply", kind(document))),
            _ => None,
        }
    }

    /// The observed objects after these steps.
    fn written(steps: &[ObjectWrite]) -> BTreeMap<IsolatedKind, Observed> {
        fn observed(step: &ObjectWrite) -> (IsolatedKind, Observed) {
            match step {
                ObjectWrite::Create(document) | ObjectWrite::Apply(document, _) => {
                    let kind = kind(document);
                    let applied = document["metadata"]["annotations"][APPLIED]
                        .as_str()
                        .expect("a digest")
                        .to_owned();
                    let gateway = Some(ObjectName::new("a", "edge"));
                    (
                        kind,
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
                _ => panic!("nothing goes"),
            }
        }
        steps.iter().map(observed).collect()
    }

    fn check(
        observed: &BTreeMap<IsolatedKind, Observed>,
        desired: &DesiredEnvoys,
        template: &Value,
    ) -> Result<Vec<ObjectWrite>, String> {
        plan(desired, template, |kind| observed.get(&kind))
    }

    #[test]
    fn an_equal_object_is_not_written_again_and_a_different_one_is() {
        let steps =
            check(&BTreeMap::new(), &desired(2), &template()).expect("nothing is in the way");
        assert_eq!(steps.len(), 4);
        assert_eq!(
            kind_of(&steps[3]),
            Some(("create", IsolatedKind::Deployment)),
            "the pods come last"
        );
        let mut observed = written(&steps);
        assert_eq!(check(&observed, &desired(2), &template()), Ok(vec![]));
        fn only_pods(steps: Result<Vec<ObjectWrite>, String>) -> Value {
            match steps.as_deref() {
                Ok([ObjectWrite::Apply(document, uid)]) if uid == "Deployment" => document.clone(),
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
        ) -> Vec<ObjectWrite> {
            check(observed, desired, &template()).expect("ours")
        }
        // From a fixed number to an autoscaler: the field is handed over before an apply omits it.
        let mut observed = written(&steps(&BTreeMap::new(), &desired(2)));
        let [leave, pods, autoscaler] = &steps(&observed, &scaled)[..] else {
            panic!("{:?}", steps(&observed, &scaled))
        };
        assert!(
            matches!(leave, ObjectWrite::HandOver(there, REPLICAS)
                if there.name == scaled.name && there.uid == "Deployment"),
            "{leave:?}"
        );
        assert_eq!(kind_of(pods), Some(("apply", IsolatedKind::Deployment)));
        let ObjectWrite::Apply(document, _) = pods else {
            panic!("{pods:?}")
        };
        assert!(!says_replicas_of(document));
        assert_eq!(
            kind_of(autoscaler),
            Some(("create", IsolatedKind::Autoscaler))
        );
        observed.append(&mut written(&[pods.clone(), autoscaler.clone()]));
        assert_eq!(steps(&observed, &scaled), []);
        // A new template does not set the number of pods.
        let newer = json!({"spec": {"containers": [{"name": "envoy", "image": "f"}]}});
        let applied = check(&observed, &scaled, &newer).expect("ours");
        assert!(matches!(&applied[..], [ObjectWrite::Apply(document, _)]
                if kind(document) == IsolatedKind::Deployment && !says_replicas_of(document)));
        // Back to a fixed number: the autoscaler is deleted first.
        let back = steps(&observed, &desired(2));
        let [
            ObjectWrite::Delete(autoscaler),
            ObjectWrite::Apply(document, _),
        ] = &back[..]
        else {
            panic!("{back:?}")
        };
        assert_eq!(autoscaler.kind, IsolatedKind::Autoscaler.as_str());
        assert_eq!(kind(document), IsolatedKind::Deployment);
        assert_eq!(document["spec"]["replicas"], 2);
        // From nothing: created with the minimum, which is handed over afterwards.
        let created = steps(&BTreeMap::new(), &scaled);
        let ObjectWrite::Create(document) = &created[3] else {
            panic!("{created:?}")
        };
        assert_eq!(kind(document), IsolatedKind::Deployment);
        assert_eq!(created.len(), 5, "every object is created");
        assert_eq!(
            document["spec"]["replicas"],
            json!(1),
            "the Deployment begins with one pod"
        );
        let observed = written(&created);
        assert!(matches!(
            &steps(&observed, &scaled)[..],
            [ObjectWrite::HandOver(..), ObjectWrite::Apply(..)]
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
        assert!(
            matches!(steps.first(), Some(ObjectWrite::Delete(there))
                if there.kind == "Deployment" && there.name == name && there.uid == "Deployment"),
            "{steps:?}"
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
