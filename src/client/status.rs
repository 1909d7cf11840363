//! The statuses that the API server has, of the objects that the controller serves.

use std::collections::BTreeMap;
use std::time::SystemTime;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ClusterView;
use super::stand_ins::StandIns;
use gatewright_control::StatusQuery;
use gatewright_core::inputs::{ObjectKey, StatusList};
use gatewright_core::model::Status;
use gatewright_core::statuses::{Context, Selection, documents, is_ok};
use gatewright_core::translate::ObjectStatus;

impl ClusterView {
    /// Answers a query for statuses, in the form of a running program: the objects that the
    /// controller serves, with the statuses that it wrote. What namespaces use of their quotas is
    /// known only to a user who may read everything.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn status(&self, query: &StatusQuery) -> Result<Value> {
        let stand_ins = StandIns::new(
            |key| self.view.objects.get(key),
            &self.unread,
            self.controller(),
            None,
        );
        let pipeline = self.pipeline(stand_ins.objects).await?;
        let selection = Selection {
            not_ok: false,
            ..query.selection.clone()
        };
        let context = Served {
            controller: self.controller(),
            now: Timestamp::try_from(SystemTime::now()).unwrap_or_default(),
        };
        let keys = self.view.observed.keys().map(|key| {
            let of = (key.kind.as_str(), &*key.name.namespace, &*key.name.name);
            (of, key)
        });
        let keys: BTreeMap<(&str, &str, &str), &ObjectKey> = keys.collect();
        let written = documents(&pipeline, &context, &selection)
            .into_iter()
            .filter_map(|mut document| {
                // There is none of a stand-in.
                let key = keys.get(&names(&document))?;
                document["status"] = self.status_of(key);
                Some(document)
            })
            .filter(|document| !query.selection.not_ok || !is_ok(document));
        let uses = if self.view.is_complete() {
            pipeline.quota_uses()
        } else {
            Vec::new()
        };
        Ok(query.answer(written.collect(), uses))
    }

    /// The status of an object with the entries of the controller alone; one that says so if the
    /// controller has not written any.
    pub(super) fn status_of(&self, key: &ObjectKey) -> Value {
        let mut status = self.view.observed[key].status();
        let list = match key.kind.status() {
            Some(StatusList::Parents) => "parents",
            Some(StatusList::Ancestors) => "ancestors",
            Some(StatusList::Conditions) | None if has_items(&status["conditions"]) => {
                return status;
            }
            Some(StatusList::Conditions) | None => return nothing_written(),
        };
        if let Some(entries) = status[list].as_array_mut() {
            entries.retain(|entry| entry["controllerName"] == self.controller());
        }
        if has_items(&status[list]) {
            status
        } else {
            nothing_written()
        }
    }
}

/// Kind, namespace and name of the object of a document.
fn names(document: &Value) -> (&str, &str, &str) {
    fn text(value: &Value) -> &str {
        value.as_str().unwrap_or_default()
    }
    let metadata = &document["metadata"];
    (
        text(&document["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"]),
    )
}

fn has_items(list: &Value) -> bool {
    list.as_array().is_some_and(|items| !items.is_empty())
}

fn nothing_written() -> Value {
    json!({"conditions": [{"type": "Accepted", "status": "Unknown", "reason": "Pending",
        "message": "the controller has not written a status yet"}]})
}

/// Which objects are served: their computed statuses are not shown.
struct Served<'a> {
    controller: &'a str,
    now: Timestamp,
}

impl Context for Served<'_> {
    fn controller(&self) -> &str {
        self.controller
    }

    fn add_acknowledgements(&self, _: &ObjectKey, status: &ObjectStatus) -> ObjectStatus {
        status.clone()
    }

    fn since(&self, _: &ObjectKey, _: &str, _: Status) -> String {
        self.now.to_string()
    }
}
