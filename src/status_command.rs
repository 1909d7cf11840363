//! `gatewright status`: what is wrong, counts by kind and cause, and a row for each namespace.

use std::io::{self, Write};
use std::time::Instant;

use anyhow::Result;
use gatewright_control::{Form, StatusAnswer, StatusQuery};
use gatewright_core::cost::Dimension;
use gatewright_core::statuses::{ConditionRow, KindCount, Selection, is_ok};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::sleep;

use crate::answer::{WATCH, answer, show};
use crate::cli::{self, Output};
use crate::client::ClusterView;
use crate::table::table;

/// Prints statuses. Returns whether nothing is wrong.
///
/// # Errors
/// When no program answers, or the output cannot be written.
pub async fn run(options: &cli::Status) -> Result<bool> {
    let mut selection = options.object.clone().unwrap_or_default();
    if options.namespace.is_some() {
        selection.namespace.clone_from(&options.namespace);
    }
    selection.host.clone_from(&options.host);
    selection.not_ok = options.not_ok;
    let form = match options.program.output {
        Output::Table => Form::Summary,
        Output::Yaml | Output::Json => Form::Documents,
    };
    let query = StatusQuery { selection, form };
    let mut shown = None;
    loop {
        let asked = Instant::now();
        let reply: Value = if options.cluster.is_asked() {
            let namespace = options.namespace.as_deref();
            let view = ClusterView::read(&options.cluster, namespace).await?;
            for mark in view.marks().iter().filter(|_| shown.is_none()) {
                writeln!(io::stderr(), "? {mark}")?;
            }
            view.status(&query).await?
        } else {
            answer(&options.program, &query.path()).await?
        };
        let took = asked.elapsed();
        let selection = &query.selection;
        if shown.as_ref() != Some(&reply) {
            show(&reply, options.program.output, || {
                Ok(text(&StatusAnswer::deserialize(&reply)?, selection))
            })?;
        }
        let good = match query.form {
            Form::Summary => is_good(&StatusAnswer::deserialize(&reply)?, selection),
            Form::Documents => is_list_good(&reply, selection),
        };
        if !options.watch {
            return Ok(good);
        }
        shown = Some(reply);
        // The main loop answers: it gets a tenth of its time.
        sleep(WATCH.max(10 * took)).await;
    }
}

/// Returns the text for people.
fn text(answer: &StatusAnswer, selection: &Selection) -> String {
    let StatusAnswer {
        summary,
        quotas,
        quotas_omitted,
        notes,
    } = answer;
    let mut text = match (summary.objects, summary.not_ok) {
        (0, _) => "No object with a status is selected.\n".to_owned(),
        (all, 0) => format!("{} OK.\n", objects(all, "is", "are")),
        // An object is selected because it is wrong.
        (_, wrong) if selection.not_ok => format!("{} not OK.\n", objects(wrong, "is", "are")),
        (all, wrong) => format!("{wrong} of {} not OK.\n", objects(all, "is", "are")),
    };
    if !summary.conditions.is_empty() {
        text.push('\n');
        text += &table(&condition_rows(&summary.conditions));
    }
    if summary.omitted > 0 {
        text += &format!(
            "... and {} more that are not as desired: gatewright status --not-ok\n",
            summary.omitted
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
        text += &format!("... and {quotas_omitted} more namespaces: gatewright status -o json\n");
    }
    for note in notes {
        text += &format!("NOTE: {note}\n");
    }
    text
}

/// Returns whether nothing is wrong: objects are selected where they are named, each condition is
/// as desired, and no file is stale.
fn is_good(answer: &StatusAnswer, selection: &Selection) -> bool {
    is_found(answer.summary.objects, selection)
        && answer.summary.not_ok == 0
        && answer.notes.is_empty()
}

/// Returns the same for a list of documents.
fn is_list_good(list: &Value, selection: &Selection) -> bool {
    let mut items = all(&list["items"]);
    is_found(items.clone().count(), selection)
        && items.all(is_ok)
        && all(&list["notes"]).next().is_none()
}

/// Returns whether there are objects of the selection, where it names some.
fn is_found(objects: usize, selection: &Selection) -> bool {
    objects > 0 || selection.not_ok || selection.name.is_none() && selection.host.is_none()
}

/// Returns a number of objects with the verb.
fn objects(count: usize, one: &str, many: &str) -> String {
    if count == 1 {
        format!("1 object {one}")
    } else {
        format!("{count} objects {many}")
    }
}

fn condition_rows(conditions: &[ConditionRow]) -> Vec<[String; 5]> {
    let heads = ["OBJECT", "CONDITION", "STATUS", "REASON", "MESSAGE"].map(str::to_owned);
    let rows = conditions.iter().map(|row| {
        [
            row.object.clone(),
            row.condition.clone(),
            row.status.clone(),
            row.reason.clone(),
            row.message.clone(),
        ]
    });
    std::iter::once(heads).chain(rows).collect()
}

fn kind_rows(kinds: &[KindCount]) -> Vec<[String; 4]> {
    let heads = ["KIND", "OBJECTS", "NOT OK", "CAUSES"].map(str::to_owned);
    let rows = kinds.iter().map(|kind| {
        let causes: Vec<String> = kind
            .causes
            .iter()
            .map(|cause| format!("{} {}: {}", cause.condition, cause.reason, cause.objects))
            .collect();
        [
            kind.kind.clone(),
            kind.objects.to_string(),
            kind.not_ok.to_string(),
            causes.join(", "),
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

fn all(list: &Value) -> impl Iterator<Item = &Value> + Clone {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use gatewright_core::statuses::{Listed, summary};
    use serde_json::json;

    use super::*;

    fn answer(accepted: &str) -> StatusAnswer {
        let conditions =
            json!([{"type": "Accepted", "status": accepted, "reason": "Reason", "message": "why"}]);
        let item = json!({"kind": "Gateway", "metadata": {"namespace": "a", "name": "x"},
            "status": {"conditions": conditions}});
        StatusAnswer {
            summary: summary(&[item], Listed::Some),
            ..StatusAnswer::default()
        }
    }

    #[test]
    fn what_is_wrong_is_first_and_counts_follow() {
        let everything = Selection::default();
        let wrong = answer("False");
        let text = text(&wrong, &everything);
        let expected = "1 of 1 object is not OK.\n\n\
            OBJECT       CONDITION  STATUS  REASON  MESSAGE\n\
            gateway a/x  Accepted   False   Reason  why\n\n\
            KIND     OBJECTS  NOT OK  CAUSES\n\
            gateway  1        1       Accepted Reason: 1\n";
        assert_eq!(text, expected);
        assert!(!is_good(&wrong, &everything), "it is wrong");
        assert!(is_good(&answer("True"), &everything), "nothing is");
    }

    #[test]
    fn an_object_that_is_not_there_and_a_stale_file_are_wrong() {
        let none = StatusAnswer::default();
        assert!(is_good(&none, &Selection::default()), "nothing is served");
        let one = Selection::of_object("gateway/x").expect("an object");
        assert!(!is_good(&none, &one), "what is named is not there");
        assert!(
            !is_list_good(&json!({"items": []}), &one),
            "in a list neither"
        );
        let stale = StatusAnswer {
            notes: vec!["a file is stale".to_owned()],
            ..answer("True")
        };
        assert!(!is_good(&stale, &Selection::default()), "a file is stale");
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
