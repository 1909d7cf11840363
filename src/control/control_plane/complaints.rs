//! Conditions that need attention, each logged once for as long as it holds.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::event::Event;
use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::Condition;
use gatewright_core::translate::ObjectStatus;

/// The digests of present conditions that need attention, by object. Objects without any have no
/// entry.
#[derive(Default)]
pub(super) struct Complaints(BTreeMap<ObjectKey, Vec<u64>>);

impl Complaints {
    /// Takes in an object's status. Returns events of its conditions that need attention and are
    /// new.
    pub(super) fn news(&mut self, key: &ObjectKey, status: Option<&ObjectStatus>) -> Vec<Event> {
        let now = complaints(key, status);
        if now.is_empty() {
            self.0.remove(key);
            return now;
        }
        let before = self
            .0
            .insert(key.clone(), now.iter().map(digest).collect())
            .unwrap_or_default();
        now.into_iter()
            .filter(|event| !before.contains(&digest(event)))
            .collect()
    }
}

fn digest(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    event.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Returns events of the conditions of an object that need attention.
fn complaints(key: &ObjectKey, status: Option<&ObjectStatus>) -> Vec<Event> {
    let Some(status) = status.filter(|status| !status.is_healthy()) else {
        return Vec::new();
    };
    let mut found: Vec<(&Condition, Vec<String>)> = Vec::new();
    for (listener, condition) in status
        .conditions_of_listeners()
        .filter(|(_, condition)| !condition.is_healthy())
    {
        let same = found.iter_mut().find(|(other, listeners)| {
            *other == condition && listeners.is_empty() == listener.is_none()
        });
        match same {
            Some((_, listeners)) => listeners.extend(listener.map(str::to_owned)),
            None => found.push((condition, listener.map(str::to_owned).into_iter().collect())),
        }
    }
    found
        .into_iter()
        .map(|(c, listeners)| Event::Condition {
            object: key.clone(),
            listeners,
            generation: status.generation,
            condition: c.kind.to_string(),
            status: format!("{:?}", c.status),
            reason: c.reason.as_str().to_owned(),
            message: c.message.to_string(),
            frozen: false,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::inputs::Kind;
    use gatewright_core::model::{ConditionType, ObjectName, Reason, Status};
    use gatewright_core::translate::{GatewayStatus, ListenerStatus, StatusBody};

    #[test]
    fn listeners_with_the_same_trouble_are_one_event_that_names_them() {
        fn bad(message: &str) -> Condition {
            Condition {
                kind: ConditionType::Programmed,
                status: Status::False,
                reason: Reason::Invalid,
                message: message.to_owned(),
            }
        }
        fn listener(name: &str, message: &str) -> ListenerStatus {
            ListenerStatus {
                name: name.into(),
                port: 80,
                supported_kinds: Vec::new(),
                attached_routes: 0,
                conditions: vec![bad(message)],
            }
        }
        let listeners = vec![
            listener("a", "no"),
            listener("b", "never"),
            listener("c", "no"),
        ];
        let body = StatusBody::Gateway(GatewayStatus {
            attached_listener_sets: 0,
            conditions: vec![bad("no")],
            listeners,
            addresses: Vec::new(),
        });
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("infra", "edge"));
        let told: Vec<String> = complaints(
            &key,
            Some(&ObjectStatus {
                generation: 1,
                body,
            }),
        )
        .iter()
        .map(ToString::to_string)
        .collect();
        assert_eq!(
            told,
            [
                "gateway infra/edge: Programmed=False Invalid: no",
                "gateway infra/edge: listeners a, c: Programmed=False Invalid: no",
                "gateway infra/edge: listener b: Programmed=False Invalid: never",
            ]
        );
    }
}
