//! Notes on annotations and keys.

use super::annotations::ANNOTATIONS;
use super::keys::KEYS;
use super::source::Ingress;
use crate::convert::Verdict;
use crate::convert::objects::Keys;
use crate::convert::report::Report;
use crate::convert::row::Row;

impl Report {
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
            if let Some(row) = rows.iter().find(|row| row.name == name) {
                self.row(document, row, value);
            } else if !self.has(document, name) {
                let text = format!("ingress-nginx has no such {what}");
                self.say(document, name, Verdict::NoEffect, text);
            }
        }
    }
}
