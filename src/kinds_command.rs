//! `gatewright kinds`: the kinds that are read, and the fields of those whose definitions are ours.

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, Result, bail};
use gatewright_core::inputs::{
    ACCESS_POLICY_CRD, CRD, DIRECT_RESPONSE_CRD, Kind, PARAMETERS_CRD, TRAFFIC_POLICY_CRD,
};
use serde_json::{Map, Value, json};

use crate::cli::KindsVerb;
use crate::schema::{self, nearest};
use crate::table::table;

/// The kinds with a definition of ours.
const DEFINITIONS: [(Kind, &str); 5] = [
    (Kind::TrafficPolicy, TRAFFIC_POLICY_CRD),
    (Kind::AccessPolicy, ACCESS_POLICY_CRD),
    (Kind::DirectResponse, DIRECT_RESPONSE_CRD),
    (Kind::GatewayParameters, PARAMETERS_CRD),
    (Kind::TenantGateway, CRD),
];

/// Runs the command.
///
/// # Errors
/// When there is no such kind or field, or a file cannot be written.
pub fn run(verb: Option<&KindsVerb>) -> Result<bool> {
    match verb {
        None | Some(KindsVerb::List) => io::stdout().write_all(list().as_bytes())?,
        Some(KindsVerb::Explain { field }) => {
            let (kind, path) = field.split_once('.').unwrap_or((field, ""));
            let (kind, definition) = definition(kind)?;
            let schema = schema(kind, definition)?;
            let name = kind.as_str();
            let text = schema::explain(&schema, name, path).with_context(|| name.to_owned())?;
            io::stdout().write_all(text.as_bytes())?;
        }
        Some(KindsVerb::Schema {
            into: Some(dir), ..
        }) => {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            for (kind, definition) in DEFINITIONS {
                let file = dir.join(format!("{}.json", kind.as_str().to_lowercase()));
                fs::write(&file, text(kind, definition)?)
                    .with_context(|| file.display().to_string())?;
                writeln!(io::stdout(), "{}", file.display())?;
            }
        }
        Some(KindsVerb::Schema { kind, .. }) => {
            let (kind, definition) = definition(kind.as_deref().unwrap_or_default())?;
            io::stdout().write_all(text(kind, definition)?.as_bytes())?;
        }
    }
    Ok(true)
}

/// The kinds that are read, each with its versions.
fn list() -> String {
    let head = ["KIND", "APIVERSION", "NOTE"].map(str::to_owned);
    let rows = Kind::READ.iter().copied().map(|kind| {
        let versions = kind.versions().join(", ");
        let versions = match kind.group() {
            "" => versions,
            group => format!("{group}/{versions}"),
        };
        let is_ours = DEFINITIONS.iter().any(|(ours, _)| *ours == kind);
        let note = match (is_ours, kind.is_experimental()) {
            (true, _) => "ours: gatewright kinds explain",
            (false, true) => "experimental channel",
            (false, false) => "",
        };
        [kind.as_str().to_owned(), versions, note.to_owned()]
    });
    let rows: Vec<_> = [head].into_iter().chain(rows).collect();
    table(&rows)
}

/// The kind that a person names, with its definition.
fn definition(name: &str) -> Result<(Kind, &'static str)> {
    let names = DEFINITIONS.iter().map(|(kind, _)| kind.as_str());
    let name = name.to_lowercase();
    for (kind, definition) in DEFINITIONS {
        if kind.as_str().to_lowercase() == name || is_named(definition, &name)? {
            return Ok((kind, definition));
        }
    }
    if let Some(instead) = nearest(&name, names.clone()) {
        bail!("{name}: no such kind: did you mean {instead}?");
    }
    let names: Vec<_> = names.collect();
    bail!(
        "{name}: no kind with a definition of ours, which are {}; `kubectl explain` has the others",
        names.join(", ")
    );
}

/// True for the plural of a kind, and for its short names.
fn is_named(definition: &str, name: &str) -> Result<bool> {
    let definition: Value = serde_yaml_ng::from_str(definition)?;
    let names = &definition["spec"]["names"];
    let short = names["shortNames"].as_array().into_iter().flatten();
    Ok(short.chain([&names["plural"]]).any(|one| one == name))
}

/// The JSON schema of a kind, as a file.
fn text(kind: Kind, definition: &str) -> Result<String> {
    Ok(serde_json::to_string_pretty(&schema(kind, definition)?)? + "\n")
}

/// The JSON schema (draft 7) of a kind: what the API server takes, without the rules that JSON
/// schemas have no words for. A field that it does not have is a fault.
fn schema(kind: Kind, definition: &str) -> Result<Value> {
    let mut definition: Value = serde_yaml_ng::from_str(definition)?;
    let version = definition.pointer_mut("/spec/versions/0");
    let version = version.context("a definition has a version")?;
    let mut schema = version["schema"]["openAPIV3Schema"].take();
    close(&mut schema);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!(kind.as_str());
    let properties = &mut schema["properties"];
    properties["kind"] = json!({"type": "string", "const": kind.as_str()});
    properties["apiVersion"] = json!({"type": "string", "const": kind.api_version()});
    schema["required"] = json!(["apiVersion", "kind", "metadata", "spec"]);
    Ok(schema)
}

/// Removes the words of Kubernetes, and has objects admit no fields but their own.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_open = fields.contains_key("x-kubernetes-preserve-unknown-fields");
            if fields.remove("x-kubernetes-int-or-string").is_some() {
                fields.insert(
                    "anyOf".to_owned(),
                    json!([{"type": "integer"}, {"type": "string"}]),
                );
            }
            fields.retain(|name, _| !name.starts_with("x-kubernetes-"));
            if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
                properties.values_mut().for_each(close);
                if !is_open {
                    fields.insert("additionalProperties".to_owned(), json!(false));
                }
            }
            below(fields);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Closes the schemas of items, values and choices.
fn below(fields: &mut Map<String, Value>) {
    for name in ["items", "additionalProperties", "anyOf", "oneOf", "allOf"] {
        if let Some(schema) = fields.get_mut(name) {
            close(schema);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls a function with every schema below a schema, and its path.
    fn walk(schema: &Value, path: &str, each: &mut impl FnMut(&str, &Value)) {
        each(path, schema);
        let fields = schema.as_object().into_iter().flatten();
        for (name, field) in fields.filter(|(_, field)| field.is_object()) {
            walk(field, &format!("{path}/{name}"), each);
        }
    }

    #[test]
    fn schemas_are_closed_and_have_no_words_of_kubernetes() {
        for (kind, definition) in DEFINITIONS {
            let schema = schema(kind, definition).expect("a schema");
            assert_eq!(schema["properties"]["kind"]["const"], kind.as_str());
            assert_eq!(
                schema["properties"]["spec"]["additionalProperties"], false,
                "{kind:?}: a misspelt field is a fault"
            );
            walk(&schema, "", &mut |path, schema| {
                let names = schema.as_object().expect("an object").keys();
                let foreign: Vec<_> = names.filter(|name| name.starts_with("x-")).collect();
                assert!(foreign.is_empty(), "{kind:?}{path}: {foreign:?}");
            });
        }
    }

    #[test]
    fn a_kind_is_found_by_what_people_write() {
        for name in ["trafficpolicy", "TrafficPolicies", "gwtp"] {
            let found = definition(name).expect("there is one");
            assert_eq!(found.0, Kind::TrafficPolicy, "{name}");
        }
        let error = definition("trafficpolizy").expect_err("no kind");
        assert!(error.to_string().contains("did you mean TrafficPolicy?"));
        let error = definition("httproute").expect_err("not ours");
        assert!(error.to_string().contains("kubectl explain"), "{error}");
    }
}
