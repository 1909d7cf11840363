//! The manifests of a directory in a bundle, and the engine over them.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use gatewright_control::{StatusQuery, explain_tenants};
use gatewright_core::inputs::{Kind, Object, Secret, SecretError};
use gatewright_core::model::ObjectName;
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::statuses::{Selection, documents, is_ok};
use gatewright_core::tenancy;
use gatewright_core::translate::{Change, Question};
use serde_json::{Value, json};

use super::archive::Bundle;
use super::program::ANSWERS;
use crate::client::certificate_for_any_name;
use crate::configuration::Configuration;
use crate::manifest::{Safety, scan, values};
use crate::offline::AtOnce;
use crate::run::offline_settings;

/// The note about stand-ins for the content of Secrets.
const NOTE: &str = "the bundle has no content of Secrets: certificates and users are taken as valid, and endpoints as in the manifests";

/// Reads the documents of a directory: a List with what could not be read.
pub(super) fn read(directory: &Path) -> Result<Value> {
    std::fs::metadata(directory).with_context(|| directory.display().to_string())?;
    let (files, problems) = scan(directory, directory, Safety::Strict);
    let mut problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let mut items = Vec::new();
    for file in files {
        let name = file.display().to_string();
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => {
                problems.push(format!("{name}: {error}"));
                continue;
            }
        };
        match values(&name, &text) {
            Ok(documents) => {
                for (_, _, document) in documents {
                    flatten(document, &mut items);
                }
            }
            Err(why) => problems.push(why),
        }
    }
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items, "problems": problems}))
}

/// Adds an object, or those of a List.
fn flatten(document: Value, items: &mut Vec<Value>) {
    match document {
        Value::Null => {}
        Value::Object(mut list) if list.get("kind").is_some_and(|kind| kind == "List") => {
            if let Some(Value::Array(documents)) = list.remove("items") {
                for document in documents {
                    flatten(document, items);
                }
            }
        }
        document => items.push(document),
    }
}

impl Bundle {
    /// Explains a URL from the manifests of a program.
    ///
    /// # Errors
    /// When the bundle has none.
    pub fn explain(&self, question: &Question) -> Result<Value> {
        let pipeline = self.pipeline()?;
        let mut explanation = pipeline.engine().explain(question);
        explain_tenants(&pipeline, question, &mut explanation);
        explanation.leave_unasked("Envoys are not in a bundle");
        explanation.notes.push(NOTE.to_owned());
        Ok(serde_json::to_value(&explanation)?)
    }

    /// Returns the statuses of a program that a query asks for.
    ///
    /// # Errors
    /// When the bundle has none.
    pub fn status(&self, query: &StatusQuery) -> Result<Value> {
        let mut recorded = self.document("status.json")?;
        let pipeline = self.pipeline()?;
        let selection = Selection {
            not_ok: false,
            ..query.selection.clone()
        };
        let context = AtOnce {
            controller: String::new(),
            time: String::new(),
        };
        let selected: Vec<_> = documents(&pipeline, &context, &selection)
            .iter()
            .map(identity)
            .collect();
        let items = match recorded["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let items = items.into_iter().filter(|item| {
            (selection.is_everything() || selected.contains(&identity(item)))
                && (!query.selection.not_ok || !is_ok(item))
        });
        let mut answer = query.answer(items.collect(), pipeline.quota_uses());
        answer["notes"] = recorded["notes"].take();
        if answer["notes"].is_null() {
            answer["notes"] = json!([]);
        }
        Ok(answer)
    }

    /// Returns what a program answered to a question of the admin socket.
    ///
    /// # Errors
    /// When nobody asked it.
    pub fn answer(&self, question: &str) -> Result<Value> {
        let known = ANSWERS.into_iter().find(|(_, asked, _)| *asked == question);
        let (file, ..) = known.with_context(|| {
            format!(
                "a bundle has the answers to a command without arguments, and not to {question}"
            )
        })?;
        self.document(file)
    }

    /// The engine over the manifests, with stand-ins for the content of Secrets.
    fn pipeline(&self) -> Result<Pipeline> {
        let configuration = self.document("program.json")?["configuration"].take();
        // What was left out of it does not matter to the engine.
        let configuration: Configuration =
            serde_json::from_value(configuration).unwrap_or_default();
        let site = self.document("site.json")?;
        let items = site["items"].as_array().into_iter().flatten();
        let objects: Vec<Object> = items.filter_map(object).collect();
        let addresses = vec![std::net::Ipv4Addr::LOCALHOST.into()];
        let settings = offline_settings(&configuration, addresses);
        let tenancy = tenancy::Settings {
            listener_sets: true,
            ..configuration.tenancy_offline()
        };
        let mut pipeline = Pipeline::new(settings, tenancy, Written::Here);
        let now = SystemTime::now();
        // Their effects are looked up afterwards.
        let _ = pipeline.apply(objects.into_iter().map(Change::put).collect(), now);
        let store = pipeline.engine().store();
        let wants = pipeline.engine().wants().into_iter();
        let issued: Vec<Change> = wants
            .map(|(want, _)| want.secret)
            .chain(pipeline.tenancy().wants().keys().cloned())
            .filter(|secret| store.secret(secret).is_none())
            .map(|secret| Change::put(certificate_for_any_name(secret)))
            .collect();
        let _ = pipeline.apply(issued, now);
        Ok(pipeline)
    }
}

/// The object of a document; a Secret has a stand-in. What cannot be read is not served.
fn object(document: &Value) -> Option<Object> {
    if document["kind"] != Kind::Secret.as_str() {
        return Object::parse_written(document).ok();
    }
    let metadata = &document["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or("default");
    let name = ObjectName::new(namespace, metadata["name"].as_str()?);
    Some(if document["type"] == "kubernetes.io/tls" {
        certificate_for_any_name(name)
    } else {
        let why = "its content is not in the bundle".to_owned();
        Secret::without(name, SecretError::Unread(why)).into()
    })
}
/// The kind, namespace and name of a document.
fn identity(item: &Value) -> [Value; 3] {
    let metadata = &item["metadata"];
    [&item["kind"], &metadata["namespace"], &metadata["name"]].map(Value::clone)
}
