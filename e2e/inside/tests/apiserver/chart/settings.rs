//! The configuration as a value of the chart: its schema, without the fields that the chart sets
//! itself from its other values.

use gatewright::configuration;
use serde_json::Value;

/// Fields that the chart sets itself, by their paths.
const OF_THE_CHART: [&str; 10] = [
    "apiVersion",
    "kind",
    "namespaces",
    "metrics",
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
