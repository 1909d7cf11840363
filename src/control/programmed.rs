//! `Programmed`, truthfully: what the connected Envoys have acknowledged, laid over what was translated. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds::{Generation, Progress};

use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::{Condition, ConditionType, Reason, Status};
use gatewright_core::translate::{ListenerId, ListenerStatus, ObjectStatus, ParentKey, RouteKey, StatusBody};

/// How far the Envoys are, or why something is not programmed.
type Verdict = Result<String, (Reason, String)>;

/// What is known of the Envoys.
#[derive(Clone, Debug)]
pub struct FleetAcks {
    /// How far each connected Envoy is.
    pub progress: Progress,
    /// For objects that changed, the generation that published the change.
    pub published: BTreeMap<ObjectKey, Generation>,
    /// What Envoys refused.
    pub refused: Arc<Refused>,
}

/// What Envoys refused, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// By the listener that is not served for it.
    pub listeners: BTreeMap<ListenerId, String>,
    /// By the route it was made from.
    pub routes: BTreeMap<RouteKey, String>,
}

impl FleetAcks {
    /// What the cache tells, and nothing refused.
    pub fn new(progress: Progress) -> Self {
        Self { progress, published: BTreeMap::new(), refused: Arc::default() }
    }

    /// How many Envoys have acknowledged a generation, and how many there are.
    pub fn acknowledged(&self, generation: Generation) -> (usize, usize) {
        self.progress.acknowledged(generation)
    }

    /// Lays the acknowledgements over the status of an object.
    pub fn lay_over(&self, key: &ObjectKey, status: &ObjectStatus) -> ObjectStatus {
        let mut status = status.clone();
        let generation = self.published.get(key).copied().unwrap_or(0);
        let verdict = self.verdict(generation);
        match &mut status.body {
            StatusBody::Class(_) => {}
            StatusBody::Gateway(gateway) => {
                let parent = ParentKey::Gateway(key.name.clone());
                let refused = self.listeners(&parent, &mut gateway.listeners, &verdict);
                programmed(&mut gateway.conditions, &refused.map_or(verdict, Err));
            }
            StatusBody::ListenerSet(set) => {
                let parent = ParentKey::ListenerSet(key.name.clone());
                let refused = self.listeners(&parent, &mut set.listeners, &verdict);
                programmed(&mut set.conditions, &refused.map_or(verdict, Err));
            }
            StatusBody::Route(route) => {
                let refused = RouteKey::of(key).and_then(|route| self.refused.routes.get(&route));
                for (_, conditions) in &mut route.parents {
                    if let Some(text) = refused {
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

    fn verdict(&self, generation: Generation) -> Verdict {
        let (done, all) = self.acknowledged(generation);
        match (done, all) {
            (_, 0) => Err((Reason::NoResources, "no Envoy is connected".to_owned())),
            (done, all) if done < all => Err((Reason::Pending, format!("acknowledged by {done} of {all} Envoys"))),
            (done, all) => Ok(format!("acknowledged by {done} of {all} Envoys")),
        }
    }

    /// Lays the acknowledgements over listeners. Returns why their object is not programmed, when Envoys refused so much
    /// that none of its listeners is.
    fn listeners(
        &self,
        parent: &ParentKey,
        listeners: &mut [ListenerStatus],
        verdict: &Verdict,
    ) -> Option<(Reason, String)> {
        let mut first = None;
        for listener in listeners.iter_mut() {
            let id = || ListenerId { parent: parent.clone(), name: listener.name.clone() };
            let refused = if self.refused.listeners.is_empty() { None } else { self.refused.listeners.get(&id()) };
            match refused {
                Some(text) => {
                    programmed(&mut listener.conditions, &Err((Reason::Invalid, text.clone())));
                    first.get_or_insert_with(|| (Reason::Invalid, text.clone()));
                }
                None => programmed(&mut listener.conditions, verdict),
            }
        }
        let is_programmed = |c: &Condition| c.kind == ConditionType::Programmed && c.status == Status::True;
        first.filter(|_| !listeners.iter().any(|listener| listener.conditions.iter().any(is_programmed)))
    }
}

/// Only what was translated can be programmed: a condition that is false stays as it is.
fn programmed(conditions: &mut [Condition], verdict: &Verdict) {
    for condition in conditions.iter_mut().filter(|c| c.kind == ConditionType::Programmed && c.status == Status::True) {
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
    use xds::NodeProgress;

    use super::*;
    use gatewright_core::inputs::Kind;
    use gatewright_core::model::ObjectName;
    use gatewright_core::translate::GatewayStatus;

    fn check(acknowledged: &[Generation], published: Generation) -> (Status, Reason, String) {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "g"));
        let node = |acknowledged: &Generation| NodeProgress {
            node: "n".into(),
            identity: "i".into(),
            acknowledged: *acknowledged,
        };
        let nodes = acknowledged.iter().map(node).collect();
        let mut fleet = FleetAcks::new(Progress { published, nodes, rejections: Vec::new() });
        fleet.published.insert(key.clone(), published);
        let good = Condition {
            kind: ConditionType::Programmed,
            status: Status::True,
            reason: Reason::Programmed,
            message: String::new(),
        };
        let gateway =
            GatewayStatus { addresses: vec![], attached_listener_sets: 0, conditions: vec![good], listeners: vec![] };
        let status = fleet.lay_over(&key, &ObjectStatus { generation: 1, body: StatusBody::Gateway(gateway) });
        let condition = status.conditions().next().expect("one condition").clone();
        (condition.status, condition.reason, condition.message)
    }

    #[test]
    fn programmed_is_what_envoys_acknowledged() {
        assert_eq!(check(&[], 1).1, Reason::NoResources);
        assert_eq!(check(&[3, 5], 5), (Status::False, Reason::Pending, "acknowledged by 1 of 2 Envoys".into()));
        assert_eq!(check(&[5, 5], 5), (Status::True, Reason::Programmed, "acknowledged by 2 of 2 Envoys".into()));
    }
}
