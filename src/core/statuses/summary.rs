//! The summary of many statuses: what is wrong by its causes, and counts by kind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cause::{Cause, causes};
use super::condition_row::{ConditionRow, condition_rows};

/// The maximum number of conditions that a summary lists unasked: they fit a reader's eye.
const FEW: usize = 100;
/// The maximum number of causes.
const CAUSES: usize = 25;

/// The conditions that a summary lists one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Those that are as desired while there are few; those that are wrong are grouped by cause.
    Few,
    /// Every condition that is wrong.
    Wrong,
    /// Every condition, those that are wrong first.
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
    /// Wrong conditions by cause, the most frequent first; none where each is listed.
    pub causes: Vec<Cause>,
    /// The number of causes that are not among them.
    pub causes_omitted: usize,
    /// Conditions that are listed one by one.
    pub conditions: Vec<ConditionRow>,
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
}

/// Returns the summary of objects, given as documents with kind, metadata and status.
pub fn summary(items: &[Value], listed: Listed) -> Summary {
    let mut kinds: BTreeMap<String, KindCount> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut good = Vec::new();
    for item in items {
        let kind = item["kind"].as_str().unwrap_or_default().to_lowercase();
        let count = kinds.entry(kind.clone()).or_insert_with(|| KindCount {
            kind,
            ..KindCount::default()
        });
        let (ok, not_ok): (Vec<_>, Vec<_>) =
            condition_rows(item).into_iter().partition(|row| row.ok);
        count.objects += 1;
        count.not_ok += usize::from(!not_ok.is_empty());
        wrong.extend(not_ok);
        match listed {
            Listed::All => good.extend(ok),
            Listed::Few if good.len() <= FEW => good.extend(ok),
            Listed::Few | Listed::Wrong => {}
        }
    }
    let is_few = wrong.len() + good.len() <= FEW;
    let mut causes = Vec::new();
    let conditions = match listed {
        Listed::Wrong => wrong,
        Listed::All => wrong.into_iter().chain(good).collect(),
        Listed::Few => {
            causes = self::causes(&wrong);
            if is_few { good } else { Vec::new() }
        }
    };
    let causes_omitted = causes.len().saturating_sub(CAUSES);
    causes.truncate(CAUSES);
    Summary {
        objects: items.len(),
        not_ok: kinds.values().map(|count| count.not_ok).sum(),
        causes,
        causes_omitted,
        conditions,
        kinds: kinds.into_values().collect(),
    }
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
        let found = summary(&items, Listed::Few);
        assert_eq!(found.objects, 11_001, "every object counts");
        assert_eq!(found.not_ok, 1_001, "an object counts once");
        let causes: Vec<_> = found
            .causes
            .iter()
            .map(|cause| (&*cause.reason, cause.count))
            .collect();
        assert_eq!(causes, [("BackendNotFound", 1_000), ("RefNotPermitted", 1)]);
        assert!(found.conditions.is_empty(), "none is listed by itself");
        let [kind] = &found.kinds[..] else {
            panic!("there is one kind: {:?}", found.kinds);
        };
        assert_eq!(kind.kind, "httproute", "the kind is named");
        let size = serde_json::to_string(&found).expect("JSON").len();
        assert!(size < 2_000, "{size} bytes are sent");
    }

    #[test]
    fn causes_have_an_end() {
        let reasons: Vec<String> = (0..60).map(|at| format!("Reason{at}")).collect();
        let items: Vec<Value> = reasons
            .iter()
            .enumerate()
            .map(|(at, reason)| route("a", at, Some(reason)))
            .collect();
        let found = summary(&items, Listed::Few);
        assert_eq!(found.causes.len(), CAUSES, "no more lines than fit");
        assert_eq!(found.causes_omitted, 60 - CAUSES, "the others are counted");
    }

    #[test]
    fn few_conditions_are_all_listed_beside_the_causes() {
        let items = [
            route("a", 0, None),
            route("b", 1, Some("BackendNotFound")),
            route("c", 2, None),
        ];
        let found = summary(&items, Listed::Few);
        assert_eq!(found.causes.len(), 1, "what is wrong");
        assert_eq!(found.conditions.len(), 5, "each of the others is listed");
        assert!(found.conditions.iter().all(|row| row.ok), "as they are");
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
            assert!(!found.conditions[0].ok, "{listed:?}: wrong ones are first");
            assert!(found.causes.is_empty(), "{listed:?}: each is listed");
        }
    }
}
