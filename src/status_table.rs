//! The tables of `gatewright status`: a row for each condition, and one for each namespace.

use gatewright_core::cost::Dimension;
use serde_json::Value;

use crate::table::table;

/// Returns the table of conditions, and that of quotas where a namespace uses some.
pub fn text(list: &Value) -> String {
    let quotas = quota_rows(list);
    let conditions = table(&rows(list));
    if quotas.len() > 1 {
        format!("{conditions}\n{}", table(&quotas))
    } else {
        conditions
    }
}

/// Returns the rows of a list of objects with their statuses, beginning with the heads of the
/// columns.
pub fn rows(list: &Value) -> Vec<[String; 5]> {
    let mut rows = vec![["OBJECT", "CONDITION", "STATUS", "REASON", "MESSAGE"].map(str::to_owned)];
    for item in all(&list["items"]) {
        let namespace = item["metadata"]["namespace"]
            .as_str()
            .map(|ns| format!("{ns}/"))
            .unwrap_or_default();
        let name = format!(
            "{} {namespace}{}",
            string(&item["kind"]).to_lowercase(),
            string(&item["metadata"]["name"])
        );
        let status = &item["status"];
        add(name.clone(), &status["conditions"], &mut rows);
        for listener in all(&status["listeners"]) {
            add(
                format!("{name} listener {}", string(&listener["name"])),
                &listener["conditions"],
                &mut rows,
            );
        }
        for parent in all(&status["parents"]) {
            let reference = &parent["parentRef"];
            let section = reference["sectionName"]
                .as_str()
                .map(|section| format!("/{section}"))
                .unwrap_or_default();
            add(
                format!("{name} at {}{section}", string(&reference["name"])),
                &parent["conditions"],
                &mut rows,
            );
        }
        for ancestor in all(&status["ancestors"]) {
            add(
                format!("{name} at {}", string(&ancestor["ancestorRef"]["name"])),
                &ancestor["conditions"],
                &mut rows,
            );
        }
    }
    rows
}

fn add(of: String, conditions: &Value, rows: &mut Vec<[String; 5]>) {
    for c in all(conditions) {
        rows.push([
            of.clone(),
            string(&c["type"]),
            string(&c["status"]),
            string(&c["reason"]),
            string(&c["message"]),
        ]);
    }
}

/// Returns the rows of what namespaces use of their quotas and what they may have, the fullest
/// first, beginning with the heads of the columns.
fn quota_rows(list: &Value) -> Vec<[String; 6]> {
    let heads = Dimension::ALL.map(|dimension| dimension.head().to_owned());
    std::iter::once(row("NAMESPACE".to_owned(), heads))
        .chain(all(&list["quotas"]).map(quota_row))
        .collect()
}

fn quota_row(of: &Value) -> [String; 6] {
    let amounts = Dimension::ALL.map(|dimension| {
        let quota = &of["quotas"][dimension.name()];
        let [used, limit] = ["used", "limit"].map(|field| quota[field].as_u64().unwrap_or(0));
        format!("{}/{}", dimension.number(used), dimension.number(limit))
    });
    row(string(&of["namespace"]), amounts)
}

fn row(first: String, others: [String; 5]) -> [String; 6] {
    let [a, b, c, d, e] = others;
    [first, a, b, c, d, e]
}

fn all(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_condition_of_an_object_its_listeners_parents_and_ancestors_has_a_row() {
        let conditions =
            json!([{"type": "Accepted", "status": "False", "reason": "Invalid", "message": "no"}]);
        fn object(kind: &str, status: Value) -> Value {
            json!({"kind": kind, "metadata": {"namespace": "a", "name": "x"}, "status": status})
        }
        let parent = json!({"name": "edge", "sectionName": "l"});
        let ancestor = json!({"name": "edge"});
        let list = json!({"items": [
            object("Gateway", json!({"conditions": conditions, "listeners": [{"name": "l", "conditions": conditions}]})),
            object("HTTPRoute", json!({"parents": [{"parentRef": parent, "conditions": conditions}]})),
            object("BackendTLSPolicy", json!({"ancestors": [{"ancestorRef": ancestor, "conditions": conditions}]})),
        ]});
        let rows = rows(&list);
        let objects: Vec<&str> = rows[1..].iter().map(|row| row[0].as_str()).collect();
        let expected = [
            "gateway a/x",
            "gateway a/x listener l",
            "httproute a/x at edge/l",
            "backendtlspolicy a/x at edge",
        ];
        assert_eq!(objects, expected);
        assert!(
            rows[1..]
                .iter()
                .all(|row| row[1..] == ["Accepted", "False", "Invalid", "no"])
        );
    }

    #[test]
    fn quotas_are_used_and_allowed_amounts_in_their_units() {
        fn quota(used: u64, limit: u64) -> Value {
            json!({"used": used, "limit": limit})
        }
        let quotas = json!({"envoy_bytes": quota((3 << 20) / 2, 256 << 20), "program_bytes": quota(1, 128 << 20),
            "clusters": quota(7, 4000), "filter_chains": quota(0, 64), "record_bytes": quota(2048, 4 << 20)});
        let rows = quota_rows(&json!({"quotas": [{"namespace": "shop", "quotas": quotas}]}));
        let expected = ["shop", "1.5/256", "0.1/128", "7/4000", "0/64", "2/4096"];
        assert_eq!(rows[1], expected, "a row of a namespace");
        assert_eq!(rows[0][1], "ENVOY MIB", "the head of a column");
    }
}
