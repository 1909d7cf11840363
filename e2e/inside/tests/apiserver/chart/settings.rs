//! The configuration as a value of the chart: its schema, without the fields that the chart sets
//! itself from its other values.

use anyhow::{Context, Result};
use e2e::apiserver::manifests::documents;
use e2e::deploy::folder;
use gatewright::configuration;
use serde_json::{Value, json};

/// Fields that the chart sets itself, by their paths, and those of a directory of manifests.
const OF_THE_CHART: [&str; 11] = [
    "apiVersion",
    "kind",
    "namespaces",
    "metrics",
    "manifests",
    "envoys.service",
    "envoys.dedicatedService",
    "envoys.isolatedPodTemplate",
    "envoys.credentials",
    "envoys.trafficMetrics",
    "envoys.statistics",
];

/// Returns the schema of the value.
pub(super) fn schema() -> Value {
    let mut schema = configuration::schema();
    for path in OF_THE_CHART {
        let mut names: Vec<&str> = path.split('.').collect();
        let last = names.pop().expect("a path");
        let mut at = &mut schema;
        for name in names {
            at = &mut at["properties"][name];
        }
        let removed = at["properties"]
            .as_object_mut()
            .expect("fields")
            .remove(last);
        assert!(removed.is_some(), "{path} is no field");
        // The default of an object has all of its fields.
        at.as_object_mut().expect("a schema").remove("default");
    }
    let fields = schema.as_object_mut().expect("a schema");
    for name in ["$schema", "title"] {
        fields.remove(name);
    }
    without_defaults(&mut schema);
    schema["description"] =
        "The configuration of the installation, without what the chart sets itself \
        (docs/reference/configuration.md)"
            .into();
    schema
}

/// Returns the schema of the parameters of a GatewayClass: that of GatewayParameters, whose API
/// server drops unknown fields silently.
pub(super) fn parameters() -> Result<Value> {
    let file = folder().join("crds/gatewright.io_gatewayparameters.yaml");
    let definition = documents(&std::fs::read_to_string(file)?)?
        .pop()
        .context("a definition")?;
    let spec = definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
        .context("the schema of the spec")?;
    let mut schema = spec.clone();
    closed(&mut schema);
    schema["description"] = "The spec of its GatewayParameters (docs/fleets.md)".into();
    Ok(schema)
}

/// Makes a schema of a definition one of JSON: without what only an API server knows, and closed.
fn closed(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        return;
    };
    if fields
        .get("x-kubernetes-int-or-string")
        .is_some_and(|is| is == true)
    {
        fields.insert("type".to_owned(), json!(["integer", "string"]));
    }
    fields.retain(|name, _| {
        !name.starts_with("x-kubernetes-") && name != "description" && name != "format"
    });
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(closed);
        fields
            .entry("additionalProperties")
            .or_insert(Value::Bool(false));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(name) {
            closed(inner);
        }
    }
}

/// Helm does not use them, and they repeat the document at every level.
fn without_defaults(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("default").is_some_and(Value::is_object) {
                fields.remove("default");
            }
            fields.values_mut().for_each(without_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(without_defaults),
        _ => {}
    }
}

/// Removes the fields that the chart sets itself from a configuration.
pub(super) fn leave_out(configuration: &mut Value) {
    for path in OF_THE_CHART {
        let mut names: Vec<&str> = path.split('.').collect();
        let last = names.pop().expect("a path");
        let mut at = &mut *configuration;
        for name in names {
            at = &mut at[name];
        }
        at.as_object_mut().expect("fields").remove(last);
    }
}
