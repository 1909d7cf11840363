//! `gatewright history`: a row for each change.

use anyhow::Result;

use gatewright_control::history::{
    ChangedObject, HistoryAnswer, HistoryEntry, HistoryQuery, Outcome,
};
use gatewright_kubernetes::reports::{ReportKind, ReportSpec};
use serde::Deserialize;
use serde_json::Value;

use crate::answer::{answer, show};
use crate::cli::{self, Output};
use crate::client::reports::report;
use crate::table::{list, table};

/// The number of names in a cell.
const NAMED: usize = 3;

/// Prints what changed.
///
/// # Errors
/// When no program answers, or the output cannot be written.
pub async fn run(options: &cli::History) -> Result<bool> {
    let cluster = &options.asking.cluster;
    if options.asking.is_asked(&options.program) {
        let spec = ReportSpec {
            about: options.what.clone(),
            since: options.since,
            until: options.until,
            ..ReportSpec::new(ReportKind::History, &cluster.installation)
        };
        let reply = report(&options.asking, options.namespace.as_deref(), spec).await?;
        return print(&reply, options.program.output);
    }
    let query = HistoryQuery {
        what: options.what.clone(),
        namespace: options.namespace.clone(),
        since: options.since,
        until: options.until,
    };
    let reply: Value = answer(&options.program, &query.path()).await?;
    print(&reply, options.program.output)
}

fn print(reply: &Value, output: Output) -> Result<bool> {
    show(reply, output, || {
        let most = if output == Output::Wide {
            usize::MAX
        } else {
            NAMED
        };
        Ok(text(&HistoryAnswer::deserialize(reply)?, most))
    })
}

/// Returns the table, and whether earlier changes are missing.
fn text(answer: &HistoryAnswer, most: usize) -> String {
    let HistoryAnswer { changes, forgotten } = answer;
    let mut text = if changes.is_empty() {
        "No change is remembered.\n".to_owned()
    } else {
        table(&rows(changes, most))
    };
    if let Some(forgotten) = forgotten {
        text += &format!("Not all changes until {forgotten:.0} are remembered.\n");
    }
    text
}

/// Returns the rows of changes, beginning with the heads of the columns.
fn rows(changes: &[HistoryEntry], most: usize) -> Vec<[String; 6]> {
    let heads = ["TIME", "CHANGE", "OBJECTS", "HOSTS", "RESULT", "ENVOYS"].map(str::to_owned);
    std::iter::once(heads)
        .chain(changes.iter().map(|of| row(of, most)))
        .collect()
}

fn row(of: &HistoryEntry, most: usize) -> [String; 6] {
    let objects: Vec<String> = of.objects.iter().map(object).collect();
    let mut hosts = list(&of.hosts, of.more_hosts, most);
    if of.together > 0 && !hosts.is_empty() {
        hosts += &format!(" (with {} other changes)", of.together);
    }
    let result = match (of.outcome, of.milliseconds) {
        (Outcome::NothingToSend, _) => "nothing to send".to_owned(),
        (Outcome::Waiting, _) => "waits for Envoys".to_owned(),
        (Outcome::Unknown, _) => "unknown".to_owned(),
        (Outcome::Acknowledged, took) => format!("acked in {} ms", took.unwrap_or_default()),
    };
    let envoys: Vec<String> = of
        .envoys
        .iter()
        .map(|time| format!("{} {} ms", time.envoy, time.milliseconds))
        .collect();
    [
        format!("{:.3}", of.at),
        of.kind.as_str().to_owned(),
        list(&objects, of.more_objects, most),
        hosts,
        result,
        list(&envoys, of.more_envoys, most),
    ]
}

/// Returns an object with its generation and field manager.
fn object(of: &ChangedObject) -> String {
    let generation = of
        .author
        .generation
        .map(|number| format!("generation {number}"));
    let manager = of.author.manager.as_ref().map(|name| format!("by {name}"));
    let author: Vec<String> = generation.into_iter().chain(manager).collect();
    if author.is_empty() {
        of.object.clone()
    } else {
        format!("{} ({})", of.object, author.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_a_row_with_who_when_and_how_long() {
        let answer: HistoryAnswer = serde_json::from_value(json!({"forgotten": null, "changes": [
            {"number": 7, "at": "2026-11-26T03:12:04.5Z", "kind": "route", "namespace": "a",
             "objects": [{"object": "httproute a/shop", "generation": 4, "manager": "kubectl"}],
             "hosts": ["shop.example.org"], "moreHosts": 2, "outcome": "Acknowledged", "milliseconds": 38,
             "envoys": [{"envoy": "e1", "milliseconds": 20}, {"envoy": "e2", "milliseconds": 38}]}]}))
        .expect("an answer");
        let rows = rows(&answer.changes, NAMED);
        let expected = [
            "2026-11-26T03:12:04.500Z",
            "route",
            "httproute a/shop (generation 4 by kubectl)",
            "shop.example.org and 2 more",
            "acked in 38 ms",
            "e1 20 ms, e2 38 ms",
        ];
        assert_eq!(rows[1], expected);
    }
}
