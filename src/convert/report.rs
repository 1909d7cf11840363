//! The report: a note on each setting, in the order of the source.

use std::collections::BTreeMap;

use serde_json::Value;

use super::document::name_of;
use super::row::Row;
use super::{Document, Note, Verdict};

/// The kinds of objects that have no namespace.
const CLUSTER: [&str; 2] = ["ingressclass", "gatewayclass"];

/// The notes on the settings.
#[derive(Default)]
pub(super) struct Report {
    notes: BTreeMap<usize, Vec<(String, Verdict, String)>>,
}

impl Report {
    /// True if something is said of a setting of a document.
    pub(super) fn has(&self, document: usize, setting: &str) -> bool {
        let mut lines = self.notes.get(&document).into_iter().flatten();
        lines.any(|(name, ..)| name == setting)
    }

    /// Says what becomes of a setting of a document: once of each effect.
    pub(super) fn say(
        &mut self,
        document: usize,
        setting: &str,
        verdict: Verdict,
        text: impl Into<String>,
    ) {
        let line = (setting.to_owned(), verdict, text.into());
        let lines = self.notes.entry(document).or_default();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }

    /// Says the row of a setting of which nothing is said yet.
    pub(super) fn row(&mut self, document: usize, row: &Row, value: &str) {
        if !self.has(document, row.name) {
            let (verdict, text) = row.of(value);
            self.say(document, row.name, verdict, text);
        }
    }

    /// All of it, in the order of the documents.
    pub(super) fn notes(self, documents: &[Document]) -> Vec<Note> {
        self.notes
            .into_iter()
            .flat_map(|(index, lines)| {
                let document = &documents[index];
                lines.into_iter().map(|(setting, verdict, message)| Note {
                    file: document.file.clone(),
                    line: document.line,
                    object: object(&document.value),
                    setting,
                    verdict,
                    message,
                })
            })
            .collect()
    }
}

fn object(value: &Value) -> String {
    let (namespace, name) = name_of(value);
    let kind = value["kind"].as_str().unwrap_or_default().to_lowercase();
    if CLUSTER.contains(&kind.as_str()) {
        return format!("{kind} {name}");
    }
    format!("{kind} {namespace}/{name}")
}
