//! Conditions from verdicts: of one, and of a Gateway or ListenerSet from those of its listeners.

use crate::key::{ParentKey, Verdict};
use crate::state::parent::Parent;
use gatewright_objects::model::{Condition, ConditionType, Reason, Status};
use gatewright_objects::status::ListenerStatus;

/// Converts a verdict into a condition; `good` is the reason if it holds.
pub(crate) fn condition(kind: ConditionType, verdict: Verdict, good: Reason) -> Condition {
    match verdict {
        Ok(()) => Condition {
            kind,
            status: Status::True,
            reason: good,
            message: String::new(),
        },
        // A listener that was not evaluated is neither accepted nor refused
        // (`ListenerReasonPending`).
        Err((reason @ Reason::Pending, message)) if kind == ConditionType::Accepted => Condition {
            kind,
            status: Status::Unknown,
            reason,
            message,
        },
        Err((reason, message)) => Condition {
            kind,
            status: Status::False,
            reason,
            message,
        },
    }
}

/// `Accepted` with `Programmed`, which is unknown while it is unknown whether the object is
/// accepted.
pub(crate) fn with_programmed(accepted: Condition, programmed: Verdict) -> Vec<Condition> {
    let mut programmed = condition(ConditionType::Programmed, programmed, Reason::Programmed);
    if accepted.status == Status::Unknown {
        programmed.status = Status::Unknown;
    }
    vec![accepted, programmed]
}

/// `Accepted` of a Gateway or ListenerSet, from its own verdict and its listeners' (Gateway API:
/// `GatewayReasonListenersNotValid`): true if at least one listener is valid, and unknown while one
/// may become valid. In a ListenerSet a listener that has nothing to serve because of its
/// references is not valid either (conformance test `ListenerSetReferenceGrant`).
pub(crate) fn listeners_verdict(parent: &Parent, listeners: &[ListenerStatus]) -> Condition {
    if let Err(error) = &parent.accepted {
        return condition(
            ConditionType::Accepted,
            Err(error.clone()),
            Reason::Accepted,
        );
    }
    let is_set = matches!(parent.key, ParentKey::ListenerSet(_));
    let others: Vec<&ListenerStatus> = listeners.iter().filter(|l| !is_valid(l, &is_set)).collect();
    let (pending, invalid): (Vec<&ListenerStatus>, Vec<_>) = others
        .iter()
        .partition(|l| has(l, ConditionType::Accepted, Status::Unknown));
    let mut accepted = condition(ConditionType::Accepted, Ok(()), Reason::Accepted);
    if !invalid.is_empty() {
        accepted.reason = Reason::ListenersNotValid;
        accepted.message = format!("listeners that are not valid: {}", names(&invalid));
    }
    if others.len() == listeners.len() && pending.is_empty() {
        accepted.status = Status::False;
    } else if others.len() == listeners.len() {
        let text = format!(
            "listeners whose hostnames or ports are being recorded: {}",
            names(&pending)
        );
        accepted.message = if invalid.is_empty() {
            text
        } else {
            format!("{text}; {}", accepted.message)
        };
        accepted.status = Status::Unknown;
        accepted.reason = Reason::Pending;
    }
    accepted
}

fn has(l: &ListenerStatus, kind: ConditionType, status: Status) -> bool {
    l.conditions
        .iter()
        .any(|c| c.kind == kind && c.status == status)
}

fn is_valid(l: &&ListenerStatus, is_set: &bool) -> bool {
    has(l, ConditionType::Accepted, Status::True)
        && (!*is_set
            || has(l, ConditionType::ResolvedRefs, Status::True)
            || has(l, ConditionType::Programmed, Status::True))
}

fn names(all: &[&ListenerStatus]) -> String {
    all.iter().map(|l| &*l.name).collect::<Vec<_>>().join(", ")
}

/// `Programmed` of an accepted Gateway or ListenerSet: true if one of its listeners is programmed.
pub(crate) fn any_programmed(listeners: &[ListenerStatus], reason: Reason) -> Verdict {
    let mut pending = false;
    for condition in listeners
        .iter()
        .flat_map(|l| &l.conditions)
        .filter(|c| c.kind == ConditionType::Programmed)
    {
        match condition.status {
            Status::True => return Ok(()),
            _ => pending |= condition.reason == Reason::Pending,
        }
    }
    Err((
        if pending { Reason::Pending } else { reason },
        "no listener is programmed".to_owned(),
    ))
}
