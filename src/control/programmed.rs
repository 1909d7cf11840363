//! Computes `Programmed`: merges the acknowledgements of connected Envoys into the translated
//! statuses. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds::{Generation, NodeProgress, Progress, View};

use crate::overtaken::Overtaken;
use gatewright_core::inputs::{ObjectKey, SetKey};
use gatewright_core::model::{Condition, ConditionType, EnvoyFleet, Reason, Status};
use gatewright_core::translate::{
    ListenerId, ListenerStatus, ObjectStatus, ParentKey, RouteKey, StatusBody, isolated_name,
};

/// The progress of the Envoys, or the reason for which something is not programmed.
type Verdict = Result<String, (Reason, String)>;

/// The number of Envoys that have the resources of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acks {
    /// The fleet of the Envoys; `None` where all Envoys serve everything.
    pub fleet: Option<EnvoyFleet>,
    /// The number of Envoys that have acknowledged the resources.
    pub done: usize,
    /// The number of connected Envoys.
    pub all: usize,
    /// The names of the others that are waited for.
    pub(crate) waited_for: Vec<Arc<str>>,
    /// The names of those that are waited for no longer, since others have overtaken them.
    pub(crate) left_behind: Vec<Arc<str>>,
}

impl Acks {
    /// Counts the Envoys that have acknowledged a publication.
    pub(crate) fn of(progress: &Progress, overtaken: &Overtaken, published: Generation) -> Self {
        let lacking = progress
            .nodes
            .iter()
            .filter(|node| node.acknowledged < published);
        let (left_behind, waited_for): (Vec<&NodeProgress>, Vec<&NodeProgress>) =
            lacking.partition(|node| overtaken.has_left_behind(node));
        let all = progress.nodes.len();
        let done = all - left_behind.len() - waited_for.len();
        fn names(nodes: Vec<&NodeProgress>) -> Vec<Arc<str>> {
            nodes.into_iter().map(|node| node.node.clone()).collect()
        }
        Self {
            fleet: None,
            done,
            all,
            waited_for: names(waited_for),
            left_behind: names(left_behind),
        }
    }

    /// Returns whether Envoys have the resources, and no other one is waited for.
    pub fn are_complete(&self) -> bool {
        self.done > 0 && self.waited_for.is_empty()
    }

    /// What they are once those that are waited for have acknowledged it.
    pub(crate) fn settled(self) -> Self {
        Self {
            done: self.done + self.waited_for.len(),
            waited_for: Vec::new(),
            ..self
        }
    }

    /// Returns the message for the condition.
    pub(crate) fn text(&self) -> String {
        match (self.all, &self.fleet) {
            (0, Some(EnvoyFleet::Dedicated)) => {
                "no Envoy of fleet Dedicated is connected: install the workload that the controller's envoys.dedicatedService names"
                    .to_owned()
            }
            (0, Some(EnvoyFleet::Isolated(gateway))) => format!(
                "no Envoy of this Gateway is connected: check Deployment {} in the controller's namespace",
                isolated_name(gateway)
            ),
            (0, _) => "no Envoy is connected".to_owned(),
            (all, _) => {
                let mut text = format!("acknowledged by {} of {all} Envoys", self.done);
                if let Some(names) = named(&self.waited_for) {
                    text += &format!(", not yet by {names}");
                }
                if let Some(names) = named(&self.left_behind) {
                    text += &format!("; {names} lacks for long what others have, and is not waited for");
                }
                text
            }
        }
    }
}

/// The acknowledgements and rejections of Envoys.
#[derive(Clone, Debug, Default)]
pub struct FleetAcks {
    /// The acknowledgements of the last publication about each object.
    pub acks: BTreeMap<ObjectKey, Acks>,
    /// The rejections of Envoys.
    pub rejected: Arc<RejectedObjects>,
}

/// The rejections of Envoys, with their messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedObjects {
    /// The messages by the listener that is not served because of them.
    pub listeners: BTreeMap<ListenerId, String>,
    /// The messages by the route that the rejected resource was made from.
    pub routes: BTreeMap<RouteKey, String>,
    /// The rejected secrets by the listener whose certificate they have.
    pub secrets: BTreeMap<ListenerId, RejectedSecret>,
}

/// A secret that Envoys of a view refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedSecret {
    /// The view.
    pub view: View,
    /// The name of the secret.
    pub name: String,
    /// Envoy's message.
    pub text: String,
}

impl FleetAcks {
    /// Merges the acknowledgements into the status of an object.
    pub fn add_acknowledgements(&self, key: &ObjectKey, status: &ObjectStatus) -> ObjectStatus {
        let mut status = status.clone();
        let verdict = verdict(&self.acks.get(key).cloned().unwrap_or_default());
        match &mut status.body {
            StatusBody::Class(_) | StatusBody::Policy(_) => {}
            StatusBody::Gateway(gateway) => {
                let parent = ParentKey::Gateway(key.name.clone());
                let rejected = self.listeners(&parent, &mut gateway.listeners, &verdict);
                programmed(&mut gateway.conditions, &rejected.map_or(verdict, Err));
            }
            StatusBody::ListenerSet(set) => {
                let parent = ParentKey::ListenerSet(SetKey {
                    name: key.name.clone(),
                    kind: set.kind,
                });
                let rejected = self.listeners(&parent, &mut set.listeners, &verdict);
                programmed(&mut set.conditions, &rejected.map_or(verdict, Err));
            }
            StatusBody::Route(route) => {
                let rejected = RouteKey::of(key).and_then(|route| self.rejected.routes.get(&route));
                for (_, conditions) in &mut route.parents {
                    if let Some(text) = rejected {
                        conditions.push(Condition {
                            kind: ConditionType::Programmed,
                            status: Status::False,
                            reason: Reason::Invalid,
                            message: text.clone(),
                        });
                    }
                }
            }
        }
        status
    }

    /// Merges the acknowledgements into listeners. Returns the reason for which their object is not
    /// programmed, if none of its listeners is because of rejections.
    fn listeners(
        &self,
        parent: &ParentKey,
        listeners: &mut [ListenerStatus],
        verdict: &Verdict,
    ) -> Option<(Reason, String)> {
        let mut first = None;
        for listener in listeners.iter_mut() {
            let rejected = if self.rejected.listeners.is_empty() {
                None
            } else {
                self.rejected.listeners.get(&id(parent, &listener.name))
            };
            match rejected {
                Some(text) => {
                    programmed(
                        &mut listener.conditions,
                        &Err((Reason::Invalid, text.clone())),
                    );
                    first.get_or_insert_with(|| (Reason::Invalid, text.clone()));
                }
                None => programmed(&mut listener.conditions, verdict),
            }
        }
        first.filter(|_| {
            !listeners.iter().any(|listener| {
                listener
                    .conditions
                    .iter()
                    .any(|c| c.kind == ConditionType::Programmed && c.status == Status::True)
            })
        })
    }
}

fn id(parent: &ParentKey, listener_name: &Arc<str>) -> ListenerId {
    ListenerId {
        parent: parent.clone(),
        name: listener_name.clone(),
    }
}

/// Names the first Envoy, and counts the others.
fn named(names: &[Arc<str>]) -> Option<String> {
    match names {
        [] => None,
        [one] => Some(one.to_string()),
        [first, others @ ..] => Some(format!("{first} and {} more", others.len())),
    }
}

fn verdict(acks: &Acks) -> Verdict {
    match acks.all {
        0 => Err((Reason::NoResources, acks.text())),
        _ if !acks.are_complete() => Err((Reason::Pending, acks.text())),
        _ => Ok(acks.text()),
    }
}

/// Sets `Programmed` by the verdict. A condition that translation made false is unchanged.
fn programmed(conditions: &mut [Condition], verdict: &Verdict) {
    for condition in conditions
        .iter_mut()
        .filter(|c| c.kind == ConditionType::Programmed && c.status == Status::True)
    {
        match verdict {
            Ok(text) => condition.message.clone_from(text),
            Err((reason, text)) => {
                condition.status = Status::False;
                condition.reason = *reason;
                condition.message.clone_from(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::inputs::Kind;
    use gatewright_core::model::ObjectName;
    use gatewright_core::translate::GatewayStatus;

    fn check(acks: Acks) -> (Status, Reason, String) {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "g"));
        let fleet = FleetAcks {
            acks: BTreeMap::from([(key.clone(), acks)]),
            ..FleetAcks::default()
        };
        let good = Condition {
            kind: ConditionType::Programmed,
            status: Status::True,
            reason: Reason::Programmed,
            message: String::new(),
        };
        let gateway = GatewayStatus {
            addresses: vec![],
            attached_listener_sets: 0,
            conditions: vec![good],
            listeners: vec![],
        };
        let status = fleet.add_acknowledgements(
            &key,
            &ObjectStatus {
                generation: 1,
                body: StatusBody::Gateway(gateway),
            },
        );
        let condition = status.conditions().next().expect("one condition").clone();
        (condition.status, condition.reason, condition.message)
    }

    #[test]
    fn programmed_is_what_envoys_acknowledged() {
        fn acks(done: usize, waited_for: &[&str], left_behind: &[&str]) -> Acks {
            Acks {
                fleet: None,
                done,
                all: done + waited_for.len() + left_behind.len(),
                waited_for: waited_for.iter().map(|name| Arc::from(*name)).collect(),
                left_behind: left_behind.iter().map(|name| Arc::from(*name)).collect(),
            }
        }
        assert_eq!(check(acks(0, &[], &[])).1, Reason::NoResources);
        fn pending(text: &str) -> (Status, Reason, String) {
            (Status::False, Reason::Pending, text.to_owned())
        }
        assert_eq!(
            check(acks(1, &["b"], &[])),
            pending("acknowledged by 1 of 2 Envoys, not yet by b")
        );
        assert_eq!(
            check(acks(1, &["b", "c"], &[])),
            pending("acknowledged by 1 of 3 Envoys, not yet by b and 1 more")
        );
        fn done(text: &str) -> (Status, Reason, String) {
            (Status::True, Reason::Programmed, text.to_owned())
        }
        assert_eq!(
            check(acks(2, &[], &[])),
            done("acknowledged by 2 of 2 Envoys")
        );
        let text = "acknowledged by 2 of 3 Envoys; c lacks for long what others have, and is not waited for";
        assert_eq!(check(acks(2, &[], &["c"])), done(text));
        assert_eq!(
            check(acks(0, &[], &["c"])).0,
            Status::False,
            "no Envoy has it"
        );
        let (_, reason, text) = check(Acks {
            fleet: Some(EnvoyFleet::Dedicated),
            ..Acks::default()
        });
        assert!(
            reason == Reason::NoResources && text.contains("envoys.dedicatedService"),
            "{text}"
        );
    }
}
