//! `gatewright status --watch`: in place on a terminal, else a line for each condition that changes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use gatewright_control::{Form, StatusAnswer, StatusQuery};
use gatewright_core::statuses::{ConditionRow, Selection};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::sleep;

use super::text::text;
use crate::answer::{WATCH, for_terminal, show};
use crate::cli::{self, Output};
use crate::screen::Screen;
use crate::source::Source;

/// The longest time for which a program is asked only whether something has changed: a status may
/// also change since an Envoy is late.
const UNCHANGED: Duration = Duration::from_secs(15);

/// Prints statuses after every change, until it is interrupted.
pub(super) async fn watch(
    source: &Source,
    options: &cli::Status,
    mut query: StatusQuery,
) -> Result<bool> {
    let mut printer = Printer::of(options);
    let mut shown = Value::Null;
    let mut full = Instant::now();
    loop {
        let begin = Instant::now();
        let (reply, marks) = source.status(&options.program, &query).await?;
        for mark in marks.iter().filter(|_| shown.is_null()) {
            writeln!(io::stderr(), "? {mark}")?;
        }
        let is_full = query.unless.is_none() || reply["revision"] != shown["revision"];
        if is_full && differ(&shown, &reply) {
            let present = wrong_conditions(source, options, &query);
            printer.print(options, &query, &reply, present).await?;
            io::stdout().flush()?;
        }
        if is_full {
            full = begin;
            shown = reply;
        } else if reply["notes"] != shown["notes"] {
            query.unless = None;
            continue;
        }
        let revision = shown["revision"].as_str();
        let is_recent = full.elapsed() < UNCHANGED;
        query.unless = revision.filter(|_| is_recent).map(str::to_owned);
        // The main loop answers: it gets a tenth of its time.
        sleep(WATCH.max(10 * begin.elapsed())).await;
    }
}

/// How answers are printed one after the other.
enum Printer {
    /// In place.
    Screen(Screen),
    /// A text, and then lines about what has changed since these conditions were wrong.
    Lines(Option<BTreeMap<Place, ConditionRow>>),
    /// Documents.
    Documents,
}

impl Printer {
    fn of(options: &cli::Status) -> Self {
        match options.program.output {
            Output::Yaml | Output::Json => Self::Documents,
            Output::Table | Output::Wide => {
                Screen::of_terminal().map_or(Self::Lines(None), Self::Screen)
            }
        }
    }

    async fn print(
        &mut self,
        options: &cli::Status,
        query: &StatusQuery,
        reply: &Value,
        present: impl Future<Output = Result<BTreeMap<Place, ConditionRow>>>,
    ) -> Result<()> {
        let now = Timestamp::now();
        match self {
            Self::Documents | Self::Lines(None) => {
                show(reply, options.program.output, || written(reply, query))?;
            }
            Self::Screen(screen) => {
                screen.draw(&for_terminal(&format!(
                    "Since {now:.0}: {}",
                    written(reply, query)?
                )))?;
            }
            Self::Lines(Some(_)) => {}
        }
        if let Self::Lines(past) = self {
            let present = present.await?;
            if let Some(past) = past {
                let lines = differences(past, &present, now);
                io::stdout().write_all(for_terminal(&lines).as_bytes())?;
            }
            *past = Some(present);
        }
        Ok(())
    }
}

fn written(reply: &Value, query: &StatusQuery) -> Result<String> {
    let answer = StatusAnswer::deserialize(reply)?;
    Ok(text(&answer, &query.selection))
}

/// Returns whether two answers say something else.
fn differ(one: &Value, other: &Value) -> bool {
    content(one) != content(other)
}

/// An answer without the revision that it is of.
fn content(answer: &Value) -> Value {
    let mut content = answer.clone();
    content["revision"].take();
    content
}

/// An object with the place of a condition, and its type.
type Place = (String, String);

/// The conditions that are not as desired.
async fn wrong_conditions(
    source: &Source,
    options: &cli::Status,
    query: &StatusQuery,
) -> Result<BTreeMap<Place, ConditionRow>> {
    let query = StatusQuery {
        selection: Selection {
            not_ok: true,
            ..query.selection.clone()
        },
        form: Form::Summary,
        unless: None,
    };
    let (reply, _) = source.status(&options.program, &query).await?;
    let answer = StatusAnswer::deserialize(reply)?;
    let rows = answer.summary.conditions.into_iter();
    Ok(rows
        .map(|row| ((row.object.clone(), row.condition.clone()), row))
        .collect())
}

/// The lines about conditions that are otherwise than before.
fn differences(
    past: &BTreeMap<Place, ConditionRow>,
    present: &BTreeMap<Place, ConditionRow>,
    now: Timestamp,
) -> String {
    let changed = present
        .iter()
        .filter(|(place, row)| past.get(*place) != Some(row));
    let changed = changed.map(|((object, condition), row)| {
        format!(
            "{now:.0}  {object}  {condition}  {}  {}  {}\n",
            row.status, row.reason, row.message
        )
    });
    let mended = past.keys().filter(|place| !present.contains_key(*place));
    let mended = mended.map(|(object, condition)| format!("{now:.0}  {object}  {condition}  OK\n"));
    changed.chain(mended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(rows: &[(&str, &str)]) -> BTreeMap<Place, ConditionRow> {
        rows.iter()
            .map(|(object, message)| {
                let row = ConditionRow {
                    object: (*object).to_owned(),
                    namespace: "a".to_owned(),
                    kind: "HTTPRoute".to_owned(),
                    condition: "Accepted".to_owned(),
                    status: "False".to_owned(),
                    reason: "Reason".to_owned(),
                    message: (*message).to_owned(),
                    ok: false,
                };
                ((row.object.clone(), row.condition.clone()), row)
            })
            .collect()
    }

    #[test]
    fn a_line_is_of_a_condition_that_changed() {
        let past = wrong(&[("httproute a/x", "no"), ("httproute a/y", "no")]);
        let present = wrong(&[("httproute a/x", "no"), ("httproute a/z", "never")]);
        let lines = differences(&past, &present, Timestamp::UNIX_EPOCH);
        assert_eq!(
            lines,
            "1970-01-01T00:00:00Z  httproute a/z  Accepted  False  Reason  never\n\
             1970-01-01T00:00:00Z  httproute a/y  Accepted  OK\n"
        );
        assert!(differences(&past, &past, Timestamp::UNIX_EPOCH).is_empty());
    }
}
