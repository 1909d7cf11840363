//! The summary of many statuses: what is wrong, and counts by kind and cause.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition_row::{ConditionRow, condition_rows};

/// The maximum number of conditions that a summary lists where not all of them are wrong: then
/// every condition fits a reader's eye.
const ALL_LISTED: usize = 100;
/// The maximum number of wrong conditions that a summary lists.
const WRONG_LISTED: usize = 25;
/// The maximum number of causes of a kind.
const CAUSES: usize = 20;

/// The conditions that a summary lists beside its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Every condition while there are few, else some of those that are wrong.
    Some,
    /// Every condition that is wrong.
    Wrong,
    /// Every condition.
    All,
}

/// The summary of statuses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The number of objects.
    pub objects: usize,
    /// The number of objects with a condition that is not as desired.
    pub not_ok: usize,
    /// Conditions, those that are wrong first.
    pub conditions: Vec<ConditionRow>,
    /// The number of wrong conditions that are not listed.
    pub omitted: usize,
    /// The counts by kind, sorted.
    pub kinds: Vec<KindCount>,
}

/// The number of objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindCount {
    /// The kind.
    pub kind: String,
    /// The number of its objects.
    pub objects: usize,
    /// The number of those with a condition that is not as desired.
    pub not_ok: usize,
    /// The reasons of these conditions, the most frequent first; at most twenty.
    pub causes: Vec<Cause>,
}

/// The number of objects of a kind with one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// The type of the condition.
    pub condition: String,
    /// Its reason.
    pub reason: String,
    /// The number of objects that have it.
    pub objects: usize,
}

/// The number of objects of a kind, while they are counted.
#[derive(Default)]
struct Count {
    objects: usize,
    not_ok: usize,
    causes: BTreeMap<(String, String), usize>,
}

/// Returns the summary of objects, given as documents with kind, metadata and status.
pub fn summary(items: &[Value], listed: Listed) -> Summary {
    let mut kinds: BTreeMap<String, Count> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut good = Vec::new();
    for item in items {
        let kind = item["kind"].as_str().unwrap_or_default();
        let count = kinds.entry(kind.to_lowercase()).or_default();
        let (ok, not_ok): (Vec<_>, Vec<_>) =
            condition_rows(item).into_iter().partition(|row| row.ok);
        count.objects += 1;
        count.not_ok += usize::from(!not_ok.is_empty());
        let mut causes: Vec<_> = not_ok
            .iter()
            .map(|row| (row.condition.clone(), row.reason.clone()))
            .collect();
        causes.sort();
        causes.dedup();
        for cause in causes {
            *count.causes.entry(cause).or_default() += 1;
        }
        wrong.extend(not_ok);
        if listed != Listed::Wrong && (listed == Listed::All || good.len() <= ALL_LISTED) {
            good.extend(ok);
        }
    }
    let all_wrong = wrong.len();
    let mut conditions = match listed {
        Listed::Some if all_wrong > WRONG_LISTED && all_wrong + good.len() > ALL_LISTED => {
            chosen(wrong)
        }
        Listed::Some | Listed::Wrong | Listed::All => wrong,
    };
    let omitted = all_wrong - conditions.len();
    if listed == Listed::All || all_wrong + good.len() <= ALL_LISTED {
        conditions.append(&mut good);
    }
    Summary {
        objects: items.len(),
        not_ok: kinds.values().map(|count| count.not_ok).sum(),
        conditions,
        omitted,
        kinds: kinds.into_iter().map(kind_count).collect(),
    }
}

fn kind_count((kind, count): (String, Count)) -> KindCount {
    let mut causes: Vec<Cause> = count
        .causes
        .into_iter()
        .map(|((condition, reason), objects)| Cause {
            condition,
            reason,
            objects,
        })
        .collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.objects));
    causes.truncate(CAUSES);
    KindCount {
        kind,
        objects: count.objects,
        not_ok: count.not_ok,
        causes,
    }
}

/// Chooses some wrong conditions: of each cause in each namespace the first, then the second, so
/// that a namespace with thousands hides no other. They stay in their order.
fn chosen(wrong: Vec<ConditionRow>) -> Vec<ConditionRow> {
    let mut seen: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    let mut ranked = Vec::with_capacity(wrong.len());
    for (at, row) in wrong.iter().enumerate() {
        let rank = seen
            .entry((&row.namespace, &row.condition, &row.reason))
            .or_default();
        ranked.push((*rank, at));
        *rank += 1;
    }
    ranked.sort_unstable();
    ranked.truncate(WRONG_LISTED);
    let kept: std::collections::BTreeSet<usize> = ranked.into_iter().map(|(_, at)| at).collect();
    wrong
        .into_iter()
        .enumerate()
        .filter_map(|(at, row)| kept.contains(&at).then_some(row))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A route with an accepted parent, whose references are resolved or have a reason why not.
    fn route(namespace: &str, name: usize, reason: Option<&str>) -> Value {
        let status = if reason.is_some() { "False" } else { "True" };
        json!({"kind": "HTTPRoute", "metadata": {"namespace": namespace, "name": format!("r{name}")},
            "status": {"parents": [{"parentRef": {"name": "edge"}, "conditions": [
                {"type": "Accepted", "status": "True", "reason": "Accepted"},
                {"type": "ResolvedRefs", "status": status, "reason": reason.unwrap_or("ResolvedRefs")}]}]}})
    }

    #[test]
    fn ten_thousand_hosts_are_a_few_lines_with_what_is_wrong_first() {
        let mut items: Vec<Value> = (0..10_000).map(|at| route("a", at, None)).collect();
        items.extend((0..1_000).map(|at| route("loud", at, Some("BackendNotFound"))));
        items.push(route("quiet", 0, Some("RefNotPermitted")));
        let found = summary(&items, Listed::Some);
        assert_eq!(found.objects, 11_001, "every object counts");
        assert_eq!(found.not_ok, 1_001, "an object counts once");
        assert_eq!(
            found.conditions.len(),
            WRONG_LISTED,
            "no more lines than fit"
        );
        assert_eq!(
            found.omitted,
            1_001 - WRONG_LISTED,
            "the others are counted"
        );
        assert!(
            found.conditions.iter().any(|row| row.namespace == "quiet"),
            "a namespace with a thousand hides no other"
        );
        assert!(
            found.conditions.iter().all(|row| !row.ok),
            "none is as desired"
        );
        let [kind] = &found.kinds[..] else {
            panic!("there is one kind: {:?}", found.kinds);
        };
        assert_eq!(kind.kind, "httproute", "the kind is named");
        let causes: Vec<_> = kind
            .causes
            .iter()
            .map(|cause| (&*cause.reason, cause.objects))
            .collect();
        assert_eq!(causes, [("BackendNotFound", 1_000), ("RefNotPermitted", 1)]);
        let size = serde_json::to_string(&found).expect("JSON").len();
        assert!(size < 10_000, "{size} bytes are sent");
    }

    #[test]
    fn few_conditions_are_all_listed_the_wrong_ones_first() {
        let items = [
            route("a", 0, None),
            route("b", 1, Some("BackendNotFound")),
            route("c", 2, None),
        ];
        let found = summary(&items, Listed::Some);
        assert_eq!(found.conditions.len(), 6, "each is listed");
        assert!(!found.conditions[0].ok, "the wrong one is first");
        assert!(
            found.conditions[1..].iter().all(|row| row.ok),
            "the others follow"
        );
        let wrong = summary(&items, Listed::Wrong);
        assert_eq!(wrong.conditions.len(), 1, "only the wrong one");
        assert_eq!(wrong.not_ok, 1, "it is counted");
    }

    #[test]
    fn what_is_asked_for_in_full_has_no_limit() {
        let items: Vec<Value> = (0..500).map(|at| route("a", at, Some("X"))).collect();
        for (listed, expected) in [(Listed::All, 1_000), (Listed::Wrong, 500)] {
            let found = summary(&items, listed);
            assert_eq!(found.conditions.len(), expected, "{listed:?}");
            assert_eq!(found.omitted, 0, "{listed:?}");
        }
    }
}
