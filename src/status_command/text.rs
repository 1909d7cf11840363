//! Statuses as people read them: causes first, then conditions, counts and quotas.

use gatewright_control::{HostHandshakes, StatusAnswer};
use gatewright_core::cost::Dimension;
use gatewright_core::statuses::{Cause, ConditionRow, KindCount, Selection, Summary};
use serde_json::Value;

use crate::table::{Tone, list, table, toned};

/// The column with the status of a condition.
const STATUS: usize = 2;

/// Returns the text for people.
pub(super) fn text(answer: &StatusAnswer, selection: &Selection) -> String {
    let StatusAnswer {
        summary,
        quotas,
        quotas_omitted,
        notes,
        handshakes,
        revision: _,
    } = answer;
    let mut text = headline(summary, selection);
    if !summary.causes.is_empty() || !summary.conditions.is_empty() {
        text.push('\n');
        text += &conditions(summary);
    }
    if summary.causes_omitted > 0 {
        text += &format!(
            "... and {} more causes: gatewright status --not-ok\n",
            summary.causes_omitted
        );
    }
    if summary.kinds.len() > 1 || !selection.is_of_objects() && summary.objects > 0 {
        text.push('\n');
        text += &table(&kind_rows(&summary.kinds));
    }
    if !quotas.is_empty() {
        text.push('\n');
        text += &table(&quota_rows(quotas));
    }
    if *quotas_omitted > 0 {
        text += &format!("... and {quotas_omitted} more namespaces: gatewright status -o wide\n");
    }
    if !handshakes.is_empty() {
        text.push('\n');
        text += &table(&handshake_rows(handshakes));
        let beyond = handshakes.len().saturating_sub(HANDSHAKES);
        if beyond > 0 {
            text += &format!("... and {beyond} more: gatewright status HOST\n");
        }
    }
    for note in notes {
        text += &format!("NOTE: {note}\n");
    }
    text
}

fn headline(summary: &Summary, selection: &Selection) -> String {
    let causes = match summary.causes.len() + summary.causes_omitted {
        0 | 1 => String::new(),
        causes => format!(", for {causes} causes"),
    };
    match (summary.objects, summary.not_ok) {
        (0, _) => "No object with a status is selected.\n".to_owned(),
        (all, 0) => format!("{} OK.\n", objects(all, "is", "are")),
        // An object is selected because it is wrong.
        (_, wrong) if selection.not_ok => format!("{} not OK.\n", objects(wrong, "is", "are")),
        (all, wrong) => format!("{wrong} of {} not OK{causes}.\n", objects(all, "is", "are")),
    }
}

/// Returns a number of objects with the verb.
fn objects(count: usize, one: &str, many: &str) -> String {
    if count == 1 {
        format!("1 object {one}")
    } else {
        format!("{count} objects {many}")
    }
}

/// Returns the table of causes and of conditions.
fn conditions(summary: &Summary) -> String {
    let heads = ["OBJECT", "CONDITION", "STATUS", "REASON", "MESSAGE"].map(str::to_owned);
    let causes = summary.causes.iter().map(cause_row);
    let conditions = summary.conditions.iter().map(condition_row);
    let rows: Vec<[String; 5]> = [heads]
        .into_iter()
        .chain(causes)
        .chain(conditions)
        .collect();
    toned(&rows, |row| {
        let tone = match &*rows[row][STATUS] {
            "Unknown" => Tone::Doubtful,
            _ => Tone::Bad,
        };
        let listed = row.checked_sub(1 + summary.causes.len());
        let is_wrong = listed.map_or(row > 0, |at| !summary.conditions[at].ok);
        is_wrong.then_some((STATUS, tone))
    })
}

fn cause_row(cause: &Cause) -> [String; 5] {
    let beyond = cause.count - cause.objects.len();
    [
        list(&cause.objects, beyond, cause.objects.len()),
        cause.condition.clone(),
        cause.status.clone(),
        cause.reason.clone(),
        cause.message.clone(),
    ]
}

fn condition_row(row: &ConditionRow) -> [String; 5] {
    [
        row.object.clone(),
        row.condition.clone(),
        row.status.clone(),
        row.reason.clone(),
        row.message.clone(),
    ]
}

fn kind_rows(kinds: &[KindCount]) -> Vec<[String; 3]> {
    let heads = ["KIND", "OBJECTS", "NOT OK"].map(str::to_owned);
    let rows = kinds.iter().map(|kind| {
        [
            kind.kind.clone(),
            kind.objects.to_string(),
            kind.not_ok.to_string(),
        ]
    });
    std::iter::once(heads).chain(rows).collect()
}

/// The most rows of handshakes.
const HANDSHAKES: usize = 5;

fn handshake_rows(handshakes: &[HostHandshakes]) -> Vec<[String; 4]> {
    let heads = ["FAILED HANDSHAKES", "COUNT", "LAST", "REASON"].map(str::to_owned);
    let rows = handshakes.iter().take(HANDSHAKES).map(|failed| {
        [
            failed.host.clone(),
            failed.count.to_string(),
            format!("{} s ago", failed.seconds_ago),
            format!("{}: {}", failed.reason, failed.message),
        ]
    });
    std::iter::once(heads).chain(rows).collect()
}

/// The columns of the table of quotas: the namespace, and each dimension.
const COLUMNS: usize = 1 + Dimension::ALL.len();

/// Returns the rows of what namespaces use of their quotas and what they may have, the fullest
/// first, beginning with the heads of the columns.
fn quota_rows(quotas: &[Value]) -> Vec<[String; COLUMNS]> {
    let heads = Dimension::ALL.map(|dimension| dimension.head().to_owned());
    std::iter::once(row("NAMESPACE".to_owned(), heads))
        .chain(quotas.iter().map(quota_row))
        .collect()
}

fn quota_row(of: &Value) -> [String; COLUMNS] {
    let amounts = Dimension::ALL.map(|dimension| {
        let quota = &of["quotas"][dimension.name()];
        let [used, limit] = ["used", "limit"].map(|field| quota[field].as_u64().unwrap_or(0));
        format!("{}/{}", dimension.number(used), dimension.number(limit))
    });
    row(
        of["namespace"].as_str().unwrap_or_default().to_owned(),
        amounts,
    )
}

fn row(first: String, others: [String; COLUMNS - 1]) -> [String; COLUMNS] {
    let [a, b, c, d, e, f] = others;
    [first, a, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::answer;
    use super::*;

    #[test]
    fn what_is_wrong_is_first_and_counts_follow() {
        let text = text(&answer("False"), &Selection::default());
        let expected = "1 of 1 object is not OK.\n\n\
            OBJECT       CONDITION  STATUS  REASON  MESSAGE\n\
            gateway a/x  Accepted   False   Reason  why\n\n\
            KIND     OBJECTS  NOT OK\n\
            gateway  1        1\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_cause_is_a_row_with_some_of_its_objects() {
        let cause = Cause {
            condition: "ResolvedRefs".to_owned(),
            status: "False".to_owned(),
            reason: "BackendNotFound".to_owned(),
            message: "no Service".to_owned(),
            count: 9_000,
            objects: ["httproute a/x", "httproute b/x", "httproute c/x"]
                .map(str::to_owned)
                .into(),
        };
        let row = cause_row(&cause);
        assert_eq!(
            row[0],
            "httproute a/x, httproute b/x, httproute c/x and 8997 more"
        );
    }

    #[test]
    fn quotas_are_used_and_allowed_amounts_in_their_units() {
        fn quota(used: u64, limit: u64) -> Value {
            json!({"used": used, "limit": limit})
        }
        let quotas = json!({"envoy_bytes": quota((3 << 20) / 2, 256 << 20), "program_bytes": quota(1, 128 << 20),
            "clusters": quota(7, 4000), "filter_chains": quota(0, 64),
            "shared_table_bytes": quota(0, 16 << 20), "record_bytes": quota(2048, 4 << 20)});
        let rows = quota_rows(&[json!({"namespace": "shop", "quotas": quotas})]);
        let expected = [
            "shop", "1.5/256", "0.1/128", "7/4000", "0/64", "0/16", "2/4096",
        ];
        assert_eq!(rows[1], expected, "a row of a namespace");
        assert_eq!(rows[0][1], "ENVOY MIB", "the head of a column");
    }
}
