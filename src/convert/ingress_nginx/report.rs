//! The report: a note on each setting, in the order of the source.

use std::collections::BTreeMap;

use serde_json::Value;

use super::annotations::ANNOTATIONS;
use super::keys::KEYS;
use super::row::Row;
use super::source::{Ingress, Keys, name_of};
use crate::convert::{Document, Note, Verdict};

/// The notes on the settings.
#[derive(Default)]
pub(super) struct Report {
    said: BTreeMap<usize, Vec<(String, Verdict, String)>>,
}

impl Report {
    /// Says what becomes of a setting of a document: once of each effect.
    pub(super) fn say(
        &mut self,
        document: usize,
        setting: &str,
        verdict: Verdict,
        text: impl Into<String>,
    ) {
        let line = (setting.to_owned(), verdict, text.into());
        let lines = self.said.entry(document).or_default();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }

    /// Says what becomes of an annotation, or of a key of the ConfigMap where there is no
    /// annotation. A key is for many Ingresses: its row says what becomes of it.
    pub(super) fn tell(
        &mut self,
        ingress: &Ingress,
        annotation: &str,
        verdict: Verdict,
        text: impl Into<String>,
    ) {
        if ingress.annotation(annotation).is_some() {
            self.say(ingress.document, annotation, verdict, text);
        }
    }

    /// Says the row of each annotation of which nothing is said yet.
    pub(super) fn annotations(&mut self, ingress: &Ingress) {
        self.rest(
            ingress.document,
            &ingress.annotations,
            ANNOTATIONS,
            "annotation",
        );
    }

    /// Says the row of each key of which nothing is said yet.
    pub(super) fn keys(&mut self, document: usize, keys: &Keys) {
        self.rest(document, keys, KEYS, "key");
    }

    fn rest(&mut self, document: usize, settings: &Keys, rows: &[Row], what: &str) {
        for (name, value) in settings {
            let lines = self.said.entry(document).or_default();
            if lines.iter().any(|(setting, ..)| setting == name) {
                continue;
            }
            match rows.iter().find(|row| row.name == name) {
                Some(row) => {
                    let (verdict, text) = row.of(value);
                    self.say(document, name, verdict, text);
                }
                None => {
                    let text = format!("ingress-nginx has no such {what}");
                    self.say(document, name, Verdict::NoEffect, text);
                }
            }
        }
    }

    /// All of it, in the order of the documents.
    pub(super) fn notes(self, documents: &[Document]) -> Vec<Note> {
        self.said
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
    if kind == "ingressclass" {
        return format!("{kind} {name}");
    }
    format!("{kind} {namespace}/{name}")
}
