//! What changed between two statuses of an object, for people who watch Events. Pure.

use serde_json::Value;

use gatewright_core::model::Reason;
use gatewright_core::statuses::is_desired;
use gatewright_core::translate::{BEING_ISSUED, NOT_ISSUED};

/// The maximum length of a note (`events.k8s.io/v1`, `note`), with room for what is added.
const NOTE: usize = 900;

/// The types of conditions whose transitions are told.
pub struct Watched {
    /// Those of an object, and of a route at its parents.
    pub object: &'static [&'static str],
    /// Those of listeners.
    pub listeners: &'static [&'static str],
}

impl Watched {
    /// Those of TenantGateways.
    pub const TENANT: Self = Self {
        object: &["Ready"],
        listeners: &[],
    };
    /// Those of routes.
    pub const ROUTE: Self = Self {
        object: &[
            "Accepted",
            "Programmed",
            "gatewright.io/CertificateWarning",
            "gatewright.io/HostnameWarning",
        ],
        listeners: &[],
    };
    /// Those of policies at their ancestors.
    pub const POLICY: Self = Self {
        object: &["Accepted"],
        listeners: &[],
    };
    /// Those of Gateways and ListenerSets.
    pub const GATEWAY: Self = Self {
        object: &["Accepted", "Programmed"],
        listeners: &[
            "Accepted",
            "Conflicted",
            "Programmed",
            "ResolvedRefs",
            "gatewright.io/CertificateWarning",
        ],
    };
}

/// One transition of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transition {
    /// The place of the condition: a parent or listener, and the type.
    pub place: String,
    /// True if the transition needs attention (`type: Warning`).
    pub warning: bool,
    /// The reason.
    pub reason: String,
    /// The text for people.
    pub note: String,
}

/// The state of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It is as desired.
    Good,
    /// It is about to be: Envoys or an issuer are at work.
    Pending,
    /// The same, of a certificate that is being issued.
    Issuing,
    /// It is as desired, and says what the object does not serve.
    Noted(String),
    /// It is not as desired, for a reason.
    Bad(String),
}

/// A condition with its place.
struct Placed<'a> {
    place: String,
    /// The object, parent or listener that has it.
    owner: String,
    /// The name of the listener, for people.
    listener: Option<&'a str>,
    condition: &'a Value,
}

/// Returns the transitions between two statuses: watched conditions whose state changed. A first
/// status without a problem has none.
pub(super) fn transitions(before: &Value, after: &Value, watched: &Watched) -> Vec<Transition> {
    let known = conditions(before, watched);
    let now = conditions(after, watched);
    let mut found: Vec<Transition> = Vec::new();
    for placed in &now {
        let old = known.iter().find(|known| known.place == placed.place);
        found.extend(transition(old, placed));
    }
    for gone in &known {
        let has_owner = now.iter().any(|placed| placed.owner == gone.owner);
        let is_gone = has_owner && !now.iter().any(|placed| placed.place == gone.place);
        if is_gone && matches!(state(gone.condition), State::Bad(_)) {
            found.push(Transition {
                place: gone.place.clone(),
                warning: false,
                reason: "Healed".to_owned(),
                note: note(
                    gone.listener,
                    &format!(
                        "no longer {}={} {}",
                        text(&gone.condition["type"]),
                        text(&gone.condition["status"]),
                        text(&gone.condition["reason"])
                    ),
                ),
            });
        }
    }
    let mut told: Vec<Transition> = Vec::new();
    for transition in found {
        let is_told = |other: &Transition| {
            (other.warning, &other.reason, &other.note)
                == (transition.warning, &transition.reason, &transition.note)
        };
        if !told.iter().any(is_told) {
            told.push(transition);
        }
    }
    told
}

/// Returns the transition of one condition, if it is one.
fn transition(old: Option<&Placed<'_>>, new: &Placed<'_>) -> Option<Transition> {
    let before = old.map_or(State::Good, |old| state(old.condition));
    let after = state(new.condition);
    if before == after {
        return None;
    }
    let (warning, reason, message) = match (&before, after) {
        (_, State::Pending | State::Issuing) => return None,
        (State::Noted(_), State::Good) => return None,
        (_, State::Noted(message)) => (false, text(&new.condition["reason"]).to_owned(), message),
        (State::Issuing, State::Good) => {
            let issued = "the certificate is issued".to_owned();
            (false, "CertificateIssued".to_owned(), issued)
        }
        (State::Bad(reason), State::Good) if reason == NOT_ISSUED_REASON => {
            let issued = "the certificate is issued".to_owned();
            (false, "CertificateIssued".to_owned(), issued)
        }
        (_, State::Good) => (
            false,
            text(&new.condition["reason"]).to_owned(),
            text(&new.condition["message"]).to_owned(),
        ),
        (_, State::Bad(reason)) => {
            let message = text(&new.condition["message"]).to_owned();
            (true, reason, message)
        }
    };
    Some(Transition {
        place: new.place.clone(),
        warning,
        reason,
        note: note(new.listener, &message),
    })
}

/// The reason of Events about certificates whose order failed.
const NOT_ISSUED_REASON: &str = "CertificateNotIssued";

fn state(condition: &Value) -> State {
    let (reason, message) = (text(&condition["reason"]), text(&condition["message"]));
    if is_desired(condition) && reason == Reason::NarrowerHostnames.as_str() {
        State::Noted(message.to_owned())
    } else if is_desired(condition) {
        State::Good
    } else if message.contains(NOT_ISSUED) {
        State::Bad(NOT_ISSUED_REASON.to_owned())
    } else if message.contains(BEING_ISSUED) {
        State::Issuing
    } else if reason == "Pending" {
        State::Pending
    } else {
        State::Bad(reason.to_owned())
    }
}

/// Returns the text about an object or its listener.
fn note(listener: Option<&str>, message: &str) -> String {
    let of = listener.map_or_else(String::new, |listener| format!("listener {listener}: "));
    (of + message).chars().take(NOTE).collect()
}

/// Returns the watched conditions of a status, of each parent of a route, each ancestor of a
/// policy, and each listener.
fn conditions<'a>(status: &'a Value, watched: &Watched) -> Vec<Placed<'a>> {
    let mut all = placed("", None, status, watched.object);
    for parent in status["parents"].as_array().into_iter().flatten() {
        // Fields that the server's defaults fill in are not part of the key.
        let place = ["namespace", "name", "sectionName"]
            .map(|field| text(&parent["parentRef"][field]))
            .join("/");
        let owner = format!("{} {place} ", parent["controllerName"]);
        all.extend(placed(&owner, None, parent, watched.object));
    }
    for ancestor in status["ancestors"].as_array().into_iter().flatten() {
        let place = ["kind", "namespace", "name", "sectionName"]
            .map(|field| text(&ancestor["ancestorRef"][field]))
            .join("/");
        let owner = format!("{} {place} ", ancestor["controllerName"]);
        all.extend(placed(&owner, None, ancestor, watched.object));
    }
    for listener in status["listeners"].as_array().into_iter().flatten() {
        let name = text(&listener["name"]);
        let owner = format!("listener {name} ");
        all.extend(placed(&owner, Some(name), listener, watched.listeners));
    }
    all
}

fn placed<'a>(
    owner: &str,
    listener: Option<&'a str>,
    value: &'a Value,
    kinds: &[&str],
) -> Vec<Placed<'a>> {
    let all = value["conditions"].as_array().into_iter().flatten();
    all.filter(|condition| kinds.contains(&text(&condition["type"])))
        .map(|condition| Placed {
            place: format!("{owner}{}", text(&condition["type"])),
            owner: owner.to_owned(),
            listener,
            condition,
        })
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(kind: &str, value: &str, reason: &str, message: &str) -> Value {
        json!({"type": kind, "status": value, "reason": reason, "message": message})
    }

    fn status(value: &str, reason: &str) -> Value {
        json!({"conditions": [condition("Ready", value, reason, "m")]})
    }

    fn reasons(before: &Value, after: &Value, watched: &Watched) -> Vec<(bool, String)> {
        transitions(before, after, watched)
            .into_iter()
            .map(|transition| (transition.warning, transition.reason))
            .collect()
    }

    #[test]
    fn a_transition_is_told_once_and_a_good_beginning_is_none() {
        let good = status("True", "Reconciled");
        let bad = status("False", "ListenersNotReady");
        fn ready(before: &Value, after: &Value) -> Vec<(bool, String)> {
            reasons(before, after, &Watched::TENANT)
        }
        assert_eq!(ready(&Value::Null, &good), []);
        assert_eq!(
            ready(&Value::Null, &bad),
            [(true, "ListenersNotReady".to_owned())]
        );
        assert_eq!(ready(&bad, &good), [(false, "Reconciled".to_owned())]);
        assert_eq!(ready(&bad, &bad), []);
        assert_eq!(
            ready(&bad, &status("False", "ReconcileError")),
            [(true, "ReconcileError".to_owned())]
        );
    }

    /// A status of a route with these conditions at parents of these names.
    fn parents(of: &[(&str, &[Value])]) -> Value {
        let parents: Vec<Value> = of
            .iter()
            .map(
                |(name, conditions)| json!({"parentRef": {"name": name}, "conditions": conditions}),
            )
            .collect();
        json!({"parents": parents})
    }

    #[test]
    fn each_parent_of_a_route_has_its_own() {
        let good = [condition("Accepted", "True", "Accepted", "")];
        let lost = [condition("Accepted", "False", "HostnameConflict", "m")];
        let before = parents(&[("a", &good)]);
        let after = parents(&[("a", &good), ("b", &lost)]);
        assert_eq!(
            reasons(&before, &after, &Watched::ROUTE),
            [(true, "HostnameConflict".to_owned())]
        );
        assert_eq!(
            reasons(&after, &before, &Watched::ROUTE),
            [],
            "a parent that is gone heals nothing"
        );
    }

    #[test]
    fn a_route_that_an_envoy_refused_heals_when_the_condition_is_gone() {
        let accepted = condition("Accepted", "True", "Accepted", "");
        let refused = condition("Programmed", "False", "Invalid", "refused by Envoy");
        let good = parents(&[("a", std::slice::from_ref(&accepted))]);
        let bad = parents(&[("a", &[accepted, refused])]);
        assert_eq!(
            reasons(&good, &bad, &Watched::ROUTE),
            [(true, "Invalid".to_owned())]
        );
        let healed = transitions(&bad, &good, &Watched::ROUTE);
        assert_eq!(healed.len(), 1, "{healed:?}");
        assert_eq!(healed[0].reason, "Healed", "the reason");
        assert_eq!(healed[0].note, "no longer Programmed=False Invalid");
        assert!(!healed[0].warning, "it is good news");
    }

    /// A status of a Gateway with a listener that has these conditions.
    fn listener(conditions: &[Value]) -> Value {
        json!({"conditions": [], "listeners": [{"name": "l", "conditions": conditions}]})
    }

    #[test]
    fn a_certificate_is_issued_fails_and_ends() {
        let issuing = format!("the certificate for a.example.org{BEING_ISSUED}acme");
        let failing = format!("the certificate for a.example.org{NOT_ISSUED}acme yet: no");
        let again = format!("the certificate for a.example.org{NOT_ISSUED}acme yet: never");
        let waits =
            |message: &str| listener(&[condition("Programmed", "False", "Pending", message)]);
        let good = listener(&[condition("Programmed", "True", "Programmed", "by 1 of 1")]);
        let unrenewed = listener(&[
            condition("Programmed", "True", "Programmed", "by 1 of 1"),
            condition(
                "gatewright.io/CertificateWarning",
                "True",
                "CertificateNotRenewed",
                "the certificate in Secret a/b ends at 2026-12-01, and its renewal fails: no",
            ),
        ]);
        let ending = listener(&[
            condition("Programmed", "True", "Programmed", "by 1 of 1"),
            condition(
                "gatewright.io/CertificateWarning",
                "True",
                "CertificateExpiring",
                "soon",
            ),
        ]);
        for (before, after, expected) in [
            (Value::Null, waits(&issuing), None),
            (
                waits(&issuing),
                waits(&failing),
                Some((true, "CertificateNotIssued")),
            ),
            (waits(&failing), waits(&again), None),
            (
                waits(&again),
                good.clone(),
                Some((false, "CertificateIssued")),
            ),
            (
                waits(&issuing),
                good.clone(),
                Some((false, "CertificateIssued")),
            ),
            (
                good.clone(),
                ending.clone(),
                Some((true, "CertificateExpiring")),
            ),
            (ending, good.clone(), Some((false, "Healed"))),
            (
                good.clone(),
                unrenewed.clone(),
                Some((true, "CertificateNotRenewed")),
            ),
            (unrenewed.clone(), unrenewed.clone(), None),
            (unrenewed, good.clone(), Some((false, "Healed"))),
            (good, waits("acknowledged by 1 of 2 Envoys"), None),
        ] {
            let expected: Vec<(bool, String)> = expected
                .map(|(warning, reason)| (warning, reason.to_owned()))
                .into_iter()
                .collect();
            let told = reasons(&before, &after, &Watched::GATEWAY);
            assert_eq!(told, expected, "{before} {after}");
        }
    }

    #[test]
    fn a_gateway_that_becomes_programmed_is_told_and_what_is_equal_is_told_once() {
        fn of(value: &str, reason: &str) -> Value {
            let both = [condition("Programmed", value, reason, "m")];
            json!({"conditions": both, "listeners": []})
        }
        assert_eq!(
            reasons(
                &of("Unknown", "Pending"),
                &of("True", "Programmed"),
                &Watched::GATEWAY
            ),
            [(false, "Programmed".to_owned())]
        );
        let both = [
            condition("Programmed", "False", "Invalid", "no"),
            condition("ResolvedRefs", "False", "Invalid", "no"),
        ];
        let told = transitions(&Value::Null, &listener(&both), &Watched::GATEWAY);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].note, "listener l: no", "the listener is named");
    }
}
