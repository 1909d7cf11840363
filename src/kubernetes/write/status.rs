//! Computes the status patch of an object: merges our conditions and parents into the observed
//! status. Pure.
//!
//! Only our own entries are written, and only when they differ, conditional on the resource version
//! that was read. Statuses are applied under our field manager, so that fields of other managers
//! are kept. The parents of a route are an atomic list to the server, so there the entries of other
//! controllers are written along.

use serde_json::{Value, json};

use super::status_lists::{
    agrees, by_field, foreign_conditions, keep_times, leave_out_conditions, reference,
};
use crate::watch::observed::ObservedObject;
use gatewright_core::inputs::{Kind, ObjectKey, StatusList};
use gatewright_core::status_maxima::{ANCESTORS, BACKEND_ANCESTORS, CONDITIONS, PARENTS};
use gatewright_core::tenancy::CONTROLLER;
use gatewright_core::translate::{ObjectStatus, StatusBody, add_to_message, status_document};

/// Our identity as a writer of statuses.
#[derive(Clone, Debug)]
pub struct StatusOwner<'a> {
    /// The controller name of our GatewayClass.
    pub controller: &'a str,
    /// The entries about a route's claims at Gateways of other controllers, and the generation that
    /// they were made from; `None` where TenantGateways are not implemented here, so that such
    /// entries are not ours.
    pub claims: Option<(Vec<Value>, i64)>,
    /// True if the other controllers had the time to write first: Cilium writes into the first
    /// entry of a parentRef, even if it belongs to another controller.
    pub alone: bool,
}

/// Returns whether an entry about claims waits for the controller of its Gateway. Cilium takes the
/// first entry of a parentRef for its own, whichever controller wrote it (`mergeStatusConditions`
/// of its routechecks, 1.20): so our entry comes after Cilium's, and an entry of ours that Cilium
/// wrote into is removed, so that Cilium adds its own.
pub(crate) fn waits(current: &Value, us: &StatusOwner<'_>) -> bool {
    let there = current["parents"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    us.claims
        .iter()
        .flat_map(|(entries, _)| entries)
        .any(|entry| turn(there, entry, us) == Turn::NotYet)
}

/// The place where an entry may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nowhere yet: the entry of the other controller has to come first.
    NotYet,
    /// At its present place.
    Here,
    /// At the end of the list.
    Last,
}

fn turn(there: &[Value], entry: &Value, us: &StatusOwner<'_>) -> Turn {
    fn of(one: &Value, entry: &Value) -> bool {
        reference(&one["parentRef"]) == reference(&entry["parentRef"])
    }
    let mine = there
        .iter()
        .position(|one| one["controllerName"] == CONTROLLER && of(one, entry));
    let theirs = there
        .iter()
        .position(|one| !is_ours(one, us) && of(one, entry));
    match (mine, theirs) {
        // Entries about routes that we serve ourselves are among our own.
        _ if entry["controllerName"] != CONTROLLER || us.controller == CONTROLLER => Turn::Here,
        (Some(mine), Some(theirs)) if mine < theirs => Turn::Last,
        (_, Some(_)) => Turn::Here,
        (Some(mine), None) if is_ours_alone(mine, there) => Turn::Here,
        (_, None) if us.alone => Turn::Here,
        (_, None) => Turn::NotYet,
    }
}

fn is_ours_alone(at: usize, there: &[Value]) -> bool {
    let conditions = there[at]["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    conditions
        .iter()
        .all(|condition| condition["type"] == "Accepted")
}

/// Returns whether an entry of a route's status is ours.
fn is_ours(entry: &Value, us: &StatusOwner<'_>) -> bool {
    let controller = &entry["controllerName"];
    controller == us.controller || us.claims.is_some() && controller == CONTROLLER
}

/// Returns the manifest to apply to the status subresource; `None` when nothing is to be changed.
/// `status` is `None` for an object that is not ours (any more).
///
/// `current` is the status of `seen`.
pub fn patch(
    key: &ObjectKey,
    status: Option<&ObjectStatus>,
    seen: &ObservedObject,
    current: &Value,
    us: &StatusOwner<'_>,
    now: &str,
) -> Option<Value> {
    let controller = us.controller;
    // The object has changed since it was translated, and its new status will follow.
    if status.is_some_and(|status| status.generation < seen.generation)
        || us
            .claims
            .as_ref()
            .is_some_and(|(_, generation)| *generation < seen.generation)
    {
        return None;
    }
    // The write is conditional on the resource version: a replica that was disconnected for a while
    // must not overwrite the status of a newer generation.
    let mut metadata =
        json!({"name": &*key.name.name, "uid": seen.uid, "resourceVersion": seen.version});
    if key.kind.namespaced() {
        metadata["namespace"] = json!(&*key.name.namespace);
    }
    let wanted = match (key.kind.status(), status) {
        (Some(StatusList::Parents), status) => {
            json!({"parents": parents(status, current, us, now)?})
        }
        (Some(StatusList::Ancestors), status) => {
            json!({"ancestors": ancestors(key.kind, status, current, controller, now)?})
        }
        (_, Some(status)) => {
            let mut wanted = status_document(status, controller, &|_, _| now.to_owned());
            beside_others(&mut wanted["conditions"], &current["conditions"]);
            for listener in wanted
                .get_mut("listeners")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                let there = by_field(&current["listeners"], "name", &listener["name"]);
                let there = there.map_or(&Value::Null, |there| &there["conditions"]);
                beside_others(&mut listener["conditions"], there);
            }
            if agrees("", &wanted, current) {
                return None;
            }
            wanted
        }
        // The new owner overwrites our status.
        (_, None) => return None,
    };
    Some(
        json!({"apiVersion": seen.api_version, "kind": key.kind.as_str(), "metadata": metadata, "status": wanted}),
    )
}

/// Makes conditions of ours fit beside those of other controllers, with the times of the present
/// ones.
fn beside_others(wanted: &mut Value, there: &Value) {
    leave_out_conditions(wanted, there);
    keep_times(wanted, there);
}

/// As [`beside_others`], for an entry of a list that the API server has as one field: what other
/// controllers wrote into the entry is written along.
fn with_others(entry: &mut Value, there: &Value) {
    beside_others(&mut entry["conditions"], &there["conditions"]);
    if let Some(conditions) = entry["conditions"].as_array_mut() {
        conditions.extend(foreign_conditions(&there["conditions"]).cloned());
    }
}

/// Returns the refusals among our entries for which a status has no room, since other controllers
/// have the rest of it.
pub(crate) fn without_room(
    kind: Kind,
    status: Option<&ObjectStatus>,
    current: &Value,
    us: &StatusOwner<'_>,
) -> Vec<String> {
    let left_out = match kind.status() {
        Some(StatusList::Ancestors) => merged_ancestors(kind, status, current, us.controller, "").1,
        Some(StatusList::Parents) => merged_parents(status, current, us, "").left_out,
        _ if foreign_conditions(&current["conditions"]).count() >= CONDITIONS => {
            let document =
                status.map(|status| status_document(status, us.controller, &|_, _| String::new()));
            document.into_iter().collect()
        }
        _ => Vec::new(),
    };
    let conditions = left_out
        .iter()
        .flat_map(|entry| entry["conditions"].as_array().into_iter().flatten());
    let refusals = conditions
        .filter(|condition| condition["type"] == "Accepted" && condition["status"] == "False");
    fn text(condition: &Value, field: &str) -> String {
        condition[field].as_str().unwrap_or_default().to_owned()
    }
    let refusals = refusals.map(|condition| {
        format!(
            "{}: {}",
            text(condition, "reason"),
            text(condition, "message")
        )
    });
    let mut refusals: Vec<String> = refusals.collect();
    refusals.dedup();
    refusals
}

/// The parents of a route with our own entries as desired.
struct MergedParents {
    all: Vec<Value>,
    /// True if they are equal already.
    is_as_before: bool,
    /// Our entries without room.
    left_out: Vec<Value>,
}

/// Returns the parents of a route with our own entries as desired; `None` when they are equal
/// already.
fn parents(
    status: Option<&ObjectStatus>,
    current: &Value,
    us: &StatusOwner<'_>,
    now: &str,
) -> Option<Vec<Value>> {
    let merged = merged_parents(status, current, us, now);
    (!merged.is_as_before).then_some(merged.all)
}

fn merged_parents(
    status: Option<&ObjectStatus>,
    current: &Value,
    us: &StatusOwner<'_>,
    now: &str,
) -> MergedParents {
    let mut own: Vec<Value> = match status {
        Some(status) if matches!(status.body, StatusBody::Route(_)) => {
            match status_document(status, us.controller, &|_, _| now.to_owned())["parents"].take() {
                Value::Array(parents) => parents,
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    };
    let there = current["parents"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut moved = false;
    let mut entries = claim_entries(there, us, own.len());
    let mut left_out: Vec<Value> = entries.without_room.drain(..).cloned().collect();
    for entry in entries.with_room {
        let turn = turn(there, entry, us);
        moved |= turn == Turn::Last;
        if turn != Turn::NotYet {
            own.push(entry.clone());
        }
    }
    let ours = |entry: &Value| is_ours(entry, us);
    let others = there.iter().filter(|entry| !ours(entry)).count();
    let count = others + own.len();
    let mut served: Vec<&mut Value> = own
        .iter_mut()
        .filter(|entry| entry["controllerName"] == us.controller)
        .collect();
    if count > PARENTS {
        tell_maximum(
            served.iter_mut().map(|entry| &mut **entry),
            "parents",
            PARENTS,
            count,
        );
    }
    for entry in served {
        if let Some(there) = there.iter().find(|there| same(there, entry)) {
            with_others(entry, there);
        }
    }
    // The order is kept, since moved entries would be a change to their readers.
    let mut all = Vec::new();
    for entry in there {
        if !ours(entry) {
            all.push(entry.clone());
        } else if let Some(at) = own.iter().position(|one| same(one, entry)) {
            keep_times(&mut own[at]["conditions"], &entry["conditions"]);
            if turn(there, &own[at], us) == Turn::Here {
                all.push(own.remove(at));
            }
        }
    }
    all.append(&mut own);
    left_out.extend(all.split_off(PARENTS.min(all.len())));
    let is_as_before = !moved && agree(&all, there);
    MergedParents {
        all,
        is_as_before,
        left_out,
    }
}

fn same(a: &Value, b: &Value) -> bool {
    a["controllerName"] == b["controllerName"]
        && reference(&a["parentRef"]) == reference(&b["parentRef"])
}

/// Returns whether the entries of a list are the present ones.
fn agree(wanted: &[Value], there: &[Value]) -> bool {
    wanted.len() == there.len()
        && wanted
            .iter()
            .zip(there)
            .all(|(wanted, there)| agrees("", wanted, there))
}

/// Says in our entries of a list that it has no room for all of them.
fn tell_maximum<'a>(
    own: impl Iterator<Item = &'a mut Value>,
    list: &str,
    maximum: usize,
    count: usize,
) {
    let text = format!("status.{list} has room for {maximum} of {count} items");
    for entry in own {
        if let Some(conditions) = entry["conditions"].as_array_mut() {
            add_to_message(conditions, &text);
        }
    }
}

/// Returns the ancestors of a policy with our own entries as desired; `None` when they are equal
/// already. Entries of other controllers keep their places. If there is no room for all of ours,
/// the first ones are written: the policy is applied at all ancestors, since without it the
/// connections to backends would be unprotected.
fn ancestors(
    kind: Kind,
    status: Option<&ObjectStatus>,
    current: &Value,
    controller: &str,
    now: &str,
) -> Option<Vec<Value>> {
    let (all, _) = merged_ancestors(kind, status, current, controller, now);
    let there = current["ancestors"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    (!agree(&all, there)).then_some(all)
}

/// Returns the ancestors, and our entries without room.
fn merged_ancestors(
    kind: Kind,
    status: Option<&ObjectStatus>,
    current: &Value,
    controller: &str,
    now: &str,
) -> (Vec<Value>, Vec<Value>) {
    let document = status.map(|status| status_document(status, controller, &|_, _| now.to_owned()));
    let mut own = match document.map(|mut document| document["ancestors"].take()) {
        Some(Value::Array(ancestors)) => ancestors,
        _ => Vec::new(),
    };
    let there = current["ancestors"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let others = there
        .iter()
        .filter(|entry| entry["controllerName"] != controller)
        .count();
    let maximum = match kind {
        Kind::XBackend => BACKEND_ANCESTORS,
        _ => ANCESTORS,
    };
    let count = others + own.len();
    if count > maximum {
        tell_maximum(own.iter_mut(), "ancestors", maximum, count);
    }
    let left_out = own.split_off(maximum.saturating_sub(others).min(own.len()));
    let mut all = Vec::new();
    for entry in there {
        let of = |one: &Value| reference(&one["ancestorRef"]) == reference(&entry["ancestorRef"]);
        if entry["controllerName"] != controller {
            all.push(entry.clone());
        } else if let Some(at) = own.iter().position(of) {
            with_others(&mut own[at], entry);
            all.push(own.remove(at));
        }
    }
    all.append(&mut own);
    all.truncate(maximum);
    (all, left_out)
}

/// The entries about claims at Gateways of other controllers.
struct ClaimEntries<'a> {
    with_room: Vec<&'a Value>,
    without_room: Vec<&'a Value>,
}

/// Returns the entries about claims, with room as far as there is some: each other controller has
/// to write an entry of its own, without which the route is not served. Rejections come first.
fn claim_entries<'a>(there: &[Value], us: &'a StatusOwner<'_>, own: usize) -> ClaimEntries<'a> {
    let entries = us.claims.as_ref().map_or(&[][..], |(entries, _)| entries);
    let others = there
        .iter()
        .filter(|entry| !is_ours(entry, us))
        .count()
        .max(entries.len());
    let room = PARENTS.saturating_sub(own + others);
    if entries.len() <= room {
        return ClaimEntries {
            with_room: entries.iter().collect(),
            without_room: Vec::new(),
        };
    }
    let (good, bad): (Vec<&Value>, Vec<&Value>) = entries.iter().partition(|entry| is_good(entry));
    let mut with_room: Vec<&Value> = bad.into_iter().chain(good).collect();
    let without_room = with_room.split_off(room);
    ClaimEntries {
        with_room,
        without_room,
    }
}

fn is_good(entry: &Value) -> bool {
    entry["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .all(|condition| condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;

    use super::*;
    use gatewright_core::inputs::{Object, ParentRef};
    use gatewright_core::model::{Condition, ConditionType, ObjectName, Reason, Status};
    use gatewright_core::translate::{
        ClassStatus, GatewayStatus, ListenerStatus, PolicyStatus, RouteStatus,
    };

    const US: &str = "gatewright.io/gateway-controller";
    const NOW: &str = "2026-01-02T03:04:05Z";

    fn seen(generation: i64, status: Value) -> ObservedObject {
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": "x", "namespace": "a", "uid": "u", "resourceVersion": "7", "generation": generation},
            "status": status,
        }))
        .expect("an object");
        ObservedObject::new(&"gateway.networking.k8s.io/v1".into(), &object)
    }

    fn accepted(status: Status) -> Condition {
        Condition {
            kind: ConditionType::Accepted,
            status,
            reason: Reason::Accepted,
            message: "m".into(),
        }
    }

    fn gateway(conditions: Vec<Condition>) -> ObjectStatus {
        let listener = ListenerStatus {
            name: "l".into(),
            port: 80,
            supported_kinds: vec![("gateway.networking.k8s.io", "HTTPRoute")],
            attached_routes: 1,
            conditions: conditions.clone(),
        };
        let body = GatewayStatus {
            addresses: vec![],
            attached_listener_sets: 0,
            conditions,
            listeners: vec![listener],
        };
        ObjectStatus {
            generation: 2,
            body: StatusBody::Gateway(body),
        }
    }

    fn check(kind: Kind, status: Option<&ObjectStatus>, seen: &ObservedObject) -> Option<Value> {
        let us = StatusOwner {
            controller: US,
            claims: None,
            alone: true,
        };
        patch(
            &ObjectKey::new(kind, ObjectName::new("a", "x")),
            status,
            seen,
            &seen.status(),
            &us,
            NOW,
        )
    }

    #[test]
    fn an_equal_status_is_not_written_again_and_times_are_kept() {
        let status = gateway(vec![accepted(Status::True)]);
        let first = check(Kind::Gateway, Some(&status), &seen(2, Value::Null))
            .expect("nothing is there yet");
        assert_eq!(first["status"]["conditions"][0]["observedGeneration"], 2);
        assert_eq!(first["metadata"]["resourceVersion"], "7");
        let mut held = first["status"].clone();
        assert_eq!(
            check(Kind::Gateway, Some(&status), &seen(2, held.clone())),
            None
        );
        // Other managers add conditions, and the server adds defaults.
        held["conditions"]
            .as_array_mut()
            .expect("a list")
            .push(json!({"type": "Theirs", "status": "True"}));
        held["listeners"][0]["supportedKinds"][0]["more"] = json!(1);
        for list in ["/conditions/0", "/listeners/0/conditions/0"] {
            held.pointer_mut(list).expect("there")["lastTransitionTime"] =
                json!("2020-01-01T00:00:00Z");
        }
        assert_eq!(
            check(Kind::Gateway, Some(&status), &seen(2, held.clone())),
            None
        );
        // The message of one listener's condition changes: times are kept.
        held["listeners"][0]["conditions"][0]["message"] = json!("edited by hand");
        let again = check(Kind::Gateway, Some(&status), &seen(2, held)).expect("a difference");
        assert_eq!(
            again["status"]["conditions"]
                .as_array()
                .expect("a list")
                .len(),
            1,
            "theirs are not ours to write"
        );
        assert_eq!(
            again["status"]["listeners"][0]["conditions"][0]["lastTransitionTime"],
            "2020-01-01T00:00:00Z"
        );
    }

    #[test]
    fn a_changed_condition_has_a_new_time_and_a_stale_one_goes() {
        let status = gateway(vec![accepted(Status::True)]);
        let mut held =
            check(Kind::Gateway, Some(&status), &seen(2, Value::Null)).expect("new")["status"]
                .take();
        held["conditions"][0]["lastTransitionTime"] = json!("2020-01-01T00:00:00Z");
        let worse = gateway(vec![accepted(Status::False)]);
        let written =
            check(Kind::Gateway, Some(&worse), &seen(2, held.clone())).expect("a difference");
        assert_eq!(
            written["status"]["conditions"][0]["lastTransitionTime"],
            NOW
        );
        held["conditions"]
            .as_array_mut()
            .expect("a list")
            .push(json!({"type": "Conflicted", "status": "True"}));
        assert!(check(Kind::Gateway, Some(&status), &seen(2, held)).is_some());
    }

    #[test]
    fn a_class_has_conditions_and_features_only() {
        let status = ObjectStatus {
            generation: 2,
            body: StatusBody::Class(ClassStatus {
                conditions: vec![accepted(Status::True)],
                features: Vec::new(),
            }),
        };
        let written = check(Kind::GatewayClass, Some(&status), &seen(2, Value::Null)).expect("new");
        assert_eq!(
            written["status"].as_object().map(serde_json::Map::len),
            Some(2),
            "{written}"
        );
    }

    #[test]
    fn a_generation_is_never_lowered() {
        let status = gateway(vec![accepted(Status::True)]);
        assert_eq!(
            check(Kind::Gateway, Some(&status), &seen(3, Value::Null)),
            None
        );
    }

    fn route(parents: &[&str]) -> ObjectStatus {
        let read = Object::parse(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "x"}, "spec": {"rules": [{}],
                "parentRefs": parents.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()}}),
        );
        let Ok(Object::Route(read)) = read else {
            panic!("a route")
        };
        let parents: Vec<(ParentRef, Vec<Condition>)> = read
            .parents
            .iter()
            .map(|parent| (parent.clone(), vec![accepted(Status::True)]))
            .collect();
        ObjectStatus {
            generation: 2,
            body: StatusBody::Route(RouteStatus { parents }),
        }
    }

    #[test]
    fn the_controllers_of_other_gateways_have_room_for_an_entry_of_each() {
        let key = ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", "x"));
        fn entry(controller: &str, name: usize, good: bool) -> Value {
            let status = if good { "True" } else { "False" };
            json!({"controllerName": controller, "parentRef": {"name": format!("g{name}")},
                "conditions": [{"type": "Accepted", "status": status, "lastTransitionTime": NOW}]})
        }
        // The last entry is a rejection.
        fn claims(count: usize) -> Vec<Value> {
            (0..count)
                .map(|n| entry(CONTROLLER, n, n + 1 < count))
                .collect::<Vec<_>>()
        }
        for (count, ours) in [(1, 1), (16, 16), (17, 15), (31, 1), (32, 0)] {
            let us = StatusOwner {
                controller: US,
                claims: Some((claims(count), 2)),
                alone: true,
            };
            let nothing = seen(2, json!({}));
            let written = patch(&key, None, &nothing, &nothing.status(), &us, NOW);
            let parents = written
                .map(|written| written["status"]["parents"].clone())
                .unwrap_or_default();
            let parents = parents.as_array().cloned().unwrap_or_default();
            assert_eq!(parents.len(), ours, "{count} parents");
            let untold = without_room(key.kind, None, &nothing.status(), &us);
            assert_eq!(
                untold.len(),
                usize::from(ours == 0),
                "{count} parents: a refusal without an entry"
            );
            let refused = entry(CONTROLLER, count - 1, false);
            assert!(
                ours == 0 || parents.contains(&refused),
                "{count} parents: the refusal is told"
            );
            // Together with the entries of the other controllers they fit, and nothing is to be
            // written any more.
            let theirs = (0..count).map(|n| entry("io.cilium/x", n, true));
            let all: Vec<Value> = theirs.chain(parents).collect();
            assert!(all.len() <= PARENTS);
            let held = seen(2, json!({"parents": all}));
            assert_eq!(
                patch(&key, None, &held, &held.status(), &us, NOW),
                None,
                "{count} parents"
            );
        }
    }

    #[test]
    fn parents_of_others_are_kept_where_they_are() {
        let theirs = json!({"controllerName": "example.org/x", "parentRef": {"name": "g"}, "conditions": []});
        fn ours(name: &str) -> Value {
            json!({"controllerName": US, "conditions": [],
                "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name}})
        }
        let held = seen(2, json!({"parents": [ours("old"), theirs, ours("g")]}));
        let written =
            check(Kind::HTTPRoute, Some(&route(&["g", "h"])), &held).expect("a difference");
        assert_eq!(written["metadata"]["resourceVersion"], "7");
        let names: Vec<_> = written["status"]["parents"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|entry| format!("{} {}", entry["controllerName"], entry["parentRef"]["name"]))
            .collect();
        assert_eq!(
            names,
            [
                "\"example.org/x\" \"g\"",
                &format!("{:?} \"g\"", US),
                &format!("{:?} \"h\"", US)
            ]
        );
        let settled = seen(2, written["status"].clone());
        assert_eq!(
            check(Kind::HTTPRoute, Some(&route(&["g", "h"])), &settled),
            None
        );
        // A route that left us loses our entries, and only those.
        let left = check(Kind::HTTPRoute, None, &settled).expect("a difference");
        assert_eq!(left["status"]["parents"], json!([theirs]));
        assert_eq!(
            check(Kind::HTTPRoute, None, &seen(2, left["status"].clone())),
            None
        );
        assert_eq!(
            check(Kind::HTTPRoute, None, &seen(2, Value::Null)),
            None,
            "no route of others is touched"
        );
    }

    #[test]
    fn parents_without_room_beside_those_of_others_are_told() {
        let theirs = |number| {
            json!({"controllerName": "example.org/x", "conditions": [],
                "parentRef": {"name": format!("t{number}")}})
        };
        let theirs: Vec<Value> = (0..31).map(theirs).collect();
        let held = seen(2, json!({"parents": theirs}));
        let status = route(&["g", "h"]);
        let written = check(Kind::HTTPRoute, Some(&status), &held).expect("a difference");
        let parents = written["status"]["parents"].as_array().expect("a list");
        assert_eq!(parents.len(), PARENTS, "there are as many as fit");
        assert_eq!(
            parents[31]["conditions"][0]["message"],
            "m; status.parents has room for 32 of 33 items"
        );
        assert_eq!(
            check(
                Kind::HTTPRoute,
                Some(&status),
                &seen(2, written["status"].clone())
            ),
            None,
            "it is not written again"
        );
    }

    fn ancestor(gateway: String) -> (ObjectKey, Vec<Condition>) {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", gateway));
        (key, vec![accepted(Status::True)])
    }

    #[test]
    fn ancestors_of_others_are_kept_and_ours_are_as_many_as_fit() {
        fn policy(gateways: usize) -> ObjectStatus {
            let names = (0..gateways).map(|number| format!("g{number:02}"));
            let body = PolicyStatus {
                ancestors: names.map(ancestor).collect(),
            };
            ObjectStatus {
                generation: 2,
                body: StatusBody::Policy(body),
            }
        }
        let theirs = json!({"controllerName": "example.org/x", "ancestorRef": {"name": "g"}, "conditions": []});
        let held = seen(2, json!({"ancestors": [theirs]}));
        let written =
            check(Kind::BackendTLSPolicy, Some(&policy(20)), &held).expect("a difference");
        let ancestors = written["status"]["ancestors"].as_array().expect("a list");
        assert_eq!(ancestors.len(), ANCESTORS, "there are as many as fit");
        assert_eq!(
            ancestors[1]["conditions"][0]["message"],
            "m; status.ancestors has room for 16 of 21 items"
        );
        let backends = check(Kind::XBackend, Some(&policy(40)), &held).expect("a difference");
        let ancestors_of_backend = backends["status"]["ancestors"].as_array();
        assert_eq!(
            ancestors_of_backend.map(Vec::len),
            Some(BACKEND_ANCESTORS),
            "its definition has more room"
        );
        assert_eq!(ancestors[0], theirs, "those of others come first");
        assert_eq!(ancestors[1]["ancestorRef"]["name"], "g00");
        let settled = seen(2, written["status"].clone());
        assert_eq!(
            check(Kind::BackendTLSPolicy, Some(&policy(20)), &settled),
            None,
            "it is not written again"
        );
        // A Gateway that comes before those that are told of takes the place of the last one.
        let mut more = policy(20);
        let StatusBody::Policy(body) = &mut more.body else {
            panic!("a policy's")
        };
        body.ancestors.insert(0, ancestor("first".to_owned()));
        let written = check(Kind::BackendTLSPolicy, Some(&more), &settled).expect("a difference");
        let names: Vec<_> = written["status"]["ancestors"]
            .as_array()
            .into_iter()
            .flatten()
            .collect();
        fn has(name: &str, names: &[&Value]) -> bool {
            names
                .iter()
                .any(|entry| entry["ancestorRef"]["name"] == name)
        }
        assert!(
            names.len() == ANCESTORS
                && has("first", &names)
                && has("g13", &names)
                && !has("g14", &names),
            "{names:?}"
        );
        let left = check(Kind::BackendTLSPolicy, None, &settled).expect("a difference");
        assert_eq!(left["status"]["ancestors"], json!([theirs]));
        assert_eq!(
            check(
                Kind::BackendTLSPolicy,
                None,
                &seen(2, left["status"].clone())
            ),
            None
        );
        assert_eq!(
            check(Kind::BackendTLSPolicy, None, &seen(2, Value::Null)),
            None
        );
    }

    /// Cozystack's controller leaves entries behind; where TenantGateways are implemented here,
    /// they are ours.
    #[test]
    fn statuses_of_claims_are_ours_where_tenant_gateways_are() {
        fn told(name: &str, status: &str) -> Value {
            json!({"controllerName": CONTROLLER, "parentRef": {"name": name}, "conditions": [
                {"type": "Accepted", "status": status, "lastTransitionTime": NOW}]})
        }
        let held = seen(
            2,
            json!({"parents": [told("stale", "True"), told("g", "True")]}),
        );
        let key = ObjectKey::new(Kind::GRPCRoute, ObjectName::new("a", "x"));
        fn check(
            claims: Option<(Vec<Value>, i64)>,
            key: &ObjectKey,
            held: &ObservedObject,
        ) -> Option<Value> {
            patch(
                key,
                None,
                held,
                &held.status(),
                &StatusOwner {
                    controller: US,
                    claims,
                    alone: true,
                },
                NOW,
            )
        }
        assert_eq!(check(None, &key, &held), None);
        let written =
            check(Some((vec![told("g", "False")], 2)), &key, &held).expect("a difference");
        assert_eq!(written["status"]["parents"], json!([told("g", "False")]));
        assert_eq!(
            check(Some((vec![told("g", "False")], 1)), &key, &held),
            None,
            "the verdict is older than the route"
        );
        assert_eq!(
            check(
                Some((vec![told("stale", "True"), told("g", "True")], 2)),
                &key,
                &held
            ),
            None
        );
    }

    /// Cilium 1.20 writes into the first entry of its parentRef, whichever controller wrote it.
    #[test]
    fn statuses_of_claims_follow_those_of_the_controller_of_the_gateway() {
        fn entry(controller: &str, kinds: &[&str]) -> Value {
            let conditions: Vec<Value> = kinds
                .iter()
                .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": NOW}))
                .collect();
            json!({"controllerName": controller, "parentRef": {"name": "g"}, "conditions": conditions})
        }
        let theirs = entry("io.cilium/x", &["Accepted", "ResolvedRefs"]);
        let ours = entry(CONTROLLER, &["Accepted"]);
        let taken = entry(CONTROLLER, &["Accepted", "ResolvedRefs"]);
        let key = ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", "x"));
        for (there, alone, waiting, written) in [
            // The entry of the other controller has time to come first.
            (vec![], false, true, None),
            (vec![], true, false, Some(vec![&ours])),
            (vec![&theirs], false, false, Some(vec![&theirs, &ours])),
            // An entry that the other controller wrote into is removed.
            (vec![&taken], false, true, Some(vec![])),
            (vec![&taken], true, false, Some(vec![&ours])),
            (
                vec![&taken, &theirs],
                false,
                false,
                Some(vec![&theirs, &ours]),
            ),
            (
                vec![&ours, &theirs],
                false,
                false,
                Some(vec![&theirs, &ours]),
            ),
            (vec![&theirs, &ours], false, false, None),
            // If the other controller writes nothing, our entry stays.
            (vec![&ours], false, false, None),
        ] {
            let held = seen(2, json!({"parents": there}));
            let us = StatusOwner {
                controller: US,
                claims: Some((vec![ours.clone()], 2)),
                alone,
            };
            assert_eq!(waits(&held.status(), &us), waiting, "{there:?}");
            let document = patch(&key, None, &held, &held.status(), &us, NOW);
            assert_eq!(
                document.map(|d| d["status"]["parents"].clone()),
                written.map(|w| json!(w)),
                "{there:?} {alone}"
            );
        }
    }
}
