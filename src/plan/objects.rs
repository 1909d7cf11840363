//! The conditions of objects that differ.

use std::collections::BTreeSet;

use gatewright_core::statuses::ConditionRow;
use serde::Serialize;

use super::world::World;

/// A condition that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectChange {
    /// The object and the place: `gateway a/x listener l`, `httproute a/x at edge/l`.
    pub object: String,
    /// The type of the condition.
    pub condition: String,
    /// The condition at present; `None` if the object or the place has none.
    pub before: Option<State>,
    /// The condition that will be written; `None` if there will be none.
    pub after: Option<State>,
}

/// The state of a condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
    /// True if the status is the desired one.
    pub ok: bool,
}

impl State {
    fn of(row: &ConditionRow) -> Self {
        Self {
            status: row.status.clone(),
            reason: row.reason.clone(),
            message: row.message.clone(),
            ok: row.ok,
        }
    }
}

impl ObjectChange {
    /// Returns whether something is wrong that was not, or is wrong for another reason.
    pub fn is_worse(&self) -> bool {
        let was_ok = self.before.as_ref().is_none_or(|state| state.ok);
        let is_ok = self.after.as_ref().is_none_or(|state| state.ok);
        !is_ok && (was_ok || self.reason(&self.before) != self.reason(&self.after))
    }

    /// Returns whether something was wrong, and is not any more.
    pub fn is_better(&self) -> bool {
        self.before.as_ref().is_some_and(|state| !state.ok)
            && self.after.as_ref().is_some_and(|state| state.ok)
    }

    fn reason<'a>(&self, state: &'a Option<State>) -> Option<&'a str> {
        state.as_ref().map(|state| &*state.reason)
    }
}

fn said(row: &ConditionRow) -> (&str, &str) {
    (&row.status, &row.reason)
}

/// Returns the conditions whose status or reason differs.
pub(super) fn changes(before: &World, after: &World) -> Vec<ObjectChange> {
    let (old, new) = (&before.conditions, &after.conditions);
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter_map(|key| {
            let (was, is) = (old.get(key), new.get(key));
            (was.map(said) != is.map(said)).then(|| ObjectChange {
                object: key.0.clone(),
                condition: key.1.clone(),
                before: was.map(State::of),
                after: is.map(State::of),
            })
        })
        .collect()
}
