//! `gatewright status`: what is wrong by cause, and counts by kind, of a running program or of a
//! cluster.

mod text;
mod watch;

use std::io::{self, Write};

use anyhow::Result;
use gatewright_control::{Form, StatusAnswer, StatusQuery};
use gatewright_core::statuses::{Selection, is_ok};
use serde::Deserialize;
use serde_json::Value;

use self::text::text;
use self::watch::watch;
use crate::answer::show;
use crate::cli::{self, Output};
use crate::source::Source;

/// Prints statuses. Returns whether nothing is wrong.
///
/// # Errors
/// When no program answers, or the output cannot be written.
pub async fn run(options: &cli::Status) -> Result<bool> {
    let output = options.program.output;
    let query = StatusQuery {
        selection: options.selection(),
        form: match output {
            Output::Table => Form::Summary,
            Output::Wide => Form::Wide,
            Output::Yaml | Output::Json => Form::Documents,
        },
        unless: None,
    };
    let namespace = options.namespace.as_deref();
    let source = Source::of(&options.program, &options.cluster, namespace).await?;
    if options.watch {
        return watch(&source, options, query).await;
    }
    let (reply, marks) = source.status(&options.program, &query).await?;
    for mark in marks {
        writeln!(io::stderr(), "? {mark}")?;
    }
    show(&reply, output, || {
        Ok(text(&StatusAnswer::deserialize(&reply)?, &query.selection))
    })?;
    is_good(&reply, &query)
}

/// Returns whether nothing is wrong: objects are selected where they are named, each condition is
/// as desired, and no file is stale.
fn is_good(reply: &Value, query: &StatusQuery) -> Result<bool> {
    let selection = &query.selection;
    Ok(match query.form {
        Form::Summary | Form::Wide => is_answer_good(&StatusAnswer::deserialize(reply)?, selection),
        Form::Documents => is_list_good(reply, selection),
    })
}

fn is_answer_good(answer: &StatusAnswer, selection: &Selection) -> bool {
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

fn all(list: &Value) -> impl Iterator<Item = &Value> + Clone {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use gatewright_core::statuses::{Listed, summary};
    use serde_json::json;

    use super::*;

    pub(super) fn answer(accepted: &str) -> StatusAnswer {
        let conditions =
            json!([{"type": "Accepted", "status": accepted, "reason": "Reason", "message": "why"}]);
        let item = json!({"kind": "Gateway", "metadata": {"namespace": "a", "name": "x"},
            "status": {"conditions": conditions}});
        StatusAnswer {
            summary: summary(&[item], Listed::Few),
            ..StatusAnswer::default()
        }
    }

    #[test]
    fn an_object_that_is_not_there_and_a_stale_file_are_wrong() {
        let everything = Selection::default();
        assert!(
            !is_answer_good(&answer("False"), &everything),
            "it is wrong"
        );
        assert!(is_answer_good(&answer("True"), &everything), "nothing is");
        let none = StatusAnswer::default();
        assert!(is_answer_good(&none, &everything), "nothing is served");
        let one = Selection::of_object("gateway/x").expect("an object");
        assert!(!is_answer_good(&none, &one), "what is named is not there");
        assert!(
            !is_list_good(&json!({"items": []}), &one),
            "in a list neither"
        );
        let stale = StatusAnswer {
            notes: vec!["a file is stale".to_owned()],
            ..answer("True")
        };
        assert!(!is_answer_good(&stale, &everything), "a file is stale");
    }
}
