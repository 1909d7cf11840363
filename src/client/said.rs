//! What statuses say of an object that may not be read. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use gatewright_core::inputs::{Kind, ObjectKey, StatusList};
use gatewright_kubernetes::ObservedObject;

/// What is known of an object that may not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// True if an object that refers to it has been accepted, or its references resolved.
    pub(super) ok: bool,
    /// True if a status says that something is wrong with the reference.
    pub(super) is_refused: bool,
    /// The text for people.
    pub(super) text: String,
}

impl Said {
    /// Looks for the first status of the objects that refer to a target.
    pub(super) fn of<'a>(
        target: &ObjectKey,
        referrers: impl Iterator<Item = &'a ObjectKey>,
        controller: &str,
        observed: &BTreeMap<ObjectKey, Box<ObservedObject>>,
        now: Timestamp,
    ) -> Self {
        let mut nobody = None;
        for referrer in referrers {
            let status = observed.get(referrer).map(|seen| seen.status());
            let status = status.unwrap_or_default();
            let Some(condition) = condition(target, referrer, controller, &status) else {
                nobody.get_or_insert(referrer);
                continue;
            };
            return Self::by(target, referrer, condition, now);
        }
        let of = nobody.map_or_else(String::new, |referrer| format!(" of {referrer}"));
        Self {
            ok: false,
            is_refused: false,
            text: format!("{target}: you may not read it, and no status{of} says anything of it"),
        }
    }

    fn by(target: &ObjectKey, referrer: &ObjectKey, condition: &Value, now: Timestamp) -> Self {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let ok = text("status") == "True";
        let age = age(text("lastTransitionTime"), now);
        let what = match text("type") {
            "Accepted" => "that it accepted it",
            _ => "that its references resolved",
        };
        let says = if ok {
            format!("{what}{age}")
        } else {
            format!("{}{age}: {}", text("reason"), text("message"))
        };
        Self {
            ok,
            is_refused: !ok,
            text: format!("{target}: you may not read it; the status of {referrer} says {says}"),
        }
    }
}

/// The condition of an object that is about one that it refers to: whether a parent accepts it, or
/// whether its other references resolve.
fn condition<'a>(
    target: &ObjectKey,
    referrer: &ObjectKey,
    controller: &str,
    status: &'a Value,
) -> Option<&'a Value> {
    let is_parent = matches!(
        target.kind,
        Kind::Gateway | Kind::ListenerSet | Kind::XListenerSet | Kind::GatewayClass
    );
    let kind = if is_parent {
        "Accepted"
    } else {
        "ResolvedRefs"
    };
    let entries: Vec<&Value> = match referrer.kind.status()? {
        StatusList::Conditions => vec![status],
        StatusList::Parents => entries(status, "parents", controller)
            .filter(|entry| !is_parent || is_reference(&entry["parentRef"], target, referrer))
            .collect(),
        StatusList::Ancestors => entries(status, "ancestors", controller).collect(),
    };
    let conditions = entries
        .into_iter()
        .flat_map(|entry| entry["conditions"].as_array().into_iter().flatten())
        .filter(|condition| condition["type"] == kind);
    // What is wrong at one place is told rather than what is right at another.
    conditions.min_by_key(|condition| condition["status"] == "True")
}

/// The entries of a list of a status that a controller wrote.
fn entries<'a>(status: &'a Value, list: &str, controller: &str) -> impl Iterator<Item = &'a Value> {
    status[list]
        .as_array()
        .into_iter()
        .flatten()
        .filter(move |entry| entry["controllerName"] == controller)
}

/// Returns whether a `parentRef` of an object names a target.
fn is_reference(parent: &Value, target: &ObjectKey, referrer: &ObjectKey) -> bool {
    let text = |field: &str| parent[field].as_str();
    text("kind").unwrap_or(Kind::Gateway.as_str()) == target.kind.as_str()
        && text("name") == Some(&*target.name.name)
        && text("namespace").unwrap_or(&referrer.name.namespace) == &*target.name.namespace
}

/// The age of a time in RFC 3339, as the end of a sentence; empty if it is none.
fn age(at: &str, now: Timestamp) -> String {
    let Ok(at) = at.parse::<Timestamp>() else {
        return String::new();
    };
    let seconds = now.duration_since(at).as_secs().max(0);
    let (number, unit) = match seconds {
        0..60 => (seconds, "s"),
        60..3600 => (seconds / 60, "min"),
        3600..172_800 => (seconds / 3600, "h"),
        _ => (seconds / 86_400, "days"),
    };
    format!(" {number} {unit} ago")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use gatewright_core::model::ObjectName;

    const OURS: &str = "gatewright.io/gateway-controller";

    fn key(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new(kind, ObjectName::new(namespace, name))
    }

    /// What the status of the route `shop/web` says of Gateway `platform/edge`.
    fn said(entry: Value) -> Said {
        let route = key(Kind::HTTPRoute, "shop", "web");
        let object = json!({"metadata": {"name": "web"}, "status": {"parents": [entry]}});
        let object = serde_json::from_value(object).expect("an object");
        let seen = ObservedObject::new(&Arc::from("v1"), &object);
        let observed = BTreeMap::from([(route.clone(), Box::new(seen))]);
        let gateway = key(Kind::Gateway, "platform", "edge");
        Said::of(&gateway, [route].iter(), OURS, &observed, Timestamp::now())
    }

    fn entry(controller: &str, status: &str) -> Value {
        json!({"controllerName": controller, "parentRef": {"name": "edge", "namespace": "platform"},
            "conditions": [{"type": "Accepted", "status": status, "reason": "NotAllowedByListeners",
                "message": "no listener admits it"}]})
    }

    #[test]
    fn the_status_of_a_route_says_whether_a_gateway_accepted_it() {
        let accepted = said(entry(OURS, "True"));
        assert!(accepted.ok, "{}", accepted.text);
        let text = "gateway platform/edge: you may not read it; the status of httproute shop/web says that it accepted it";
        assert_eq!(accepted.text, text);
        let refused = said(entry(OURS, "False"));
        assert!(refused.is_refused, "{}", refused.text);
        assert!(
            refused
                .text
                .ends_with("says NotAllowedByListeners: no listener admits it"),
            "{}",
            refused.text
        );
    }

    #[test]
    fn another_controller_and_another_parent_say_nothing() {
        let mut other = entry(OURS, "True");
        other["parentRef"]["name"] = json!("other");
        for entry in [entry("example.org/other", "True"), other] {
            let nothing = said(entry);
            assert!(!nothing.ok && !nothing.is_refused, "{}", nothing.text);
        }
    }

    #[test]
    fn ages_are_in_the_largest_unit_that_says_enough() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().expect("a time");
        for (at, text) in [
            ("2026-11-29T11:59:50Z", " 10 s ago"),
            ("2026-11-29T11:58:00Z", " 2 min ago"),
            ("2026-11-28T12:00:00Z", " 24 h ago"),
            ("2026-11-19T12:00:00Z", " 10 days ago"),
            ("2026-11-29T12:00:09Z", " 0 s ago"),
            ("never", ""),
        ] {
            assert_eq!(age(at, now), text, "{at}");
        }
    }
}
