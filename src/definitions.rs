//! The definitions of kinds, as JSON schemas: ours, and those of the Gateway API's release.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gatewright_core::inputs::{
    ACCESS_POLICY_CRD, CRD, DIRECT_RESPONSE_CRD, Kind, PARAMETERS_CRD, TRAFFIC_POLICY_CRD,
};
use gatewright_kubernetes::reports::REPORT_REQUEST_CRD;
use serde_json::{Map, Value, json};

use crate::schema;

/// The kinds that are read, with a definition of ours.
pub(crate) const OURS: [(Kind, &str); 5] = [
    (Kind::TrafficPolicy, TRAFFIC_POLICY_CRD),
    (Kind::AccessPolicy, ACCESS_POLICY_CRD),
    (Kind::DirectResponse, DIRECT_RESPONSE_CRD),
    (Kind::GatewayParameters, PARAMETERS_CRD),
    (Kind::TenantGateway, CRD),
];

/// The texts of all definitions of ours: ReportRequests are no input of the engines.
pub(crate) fn written() -> impl Iterator<Item = &'static str> {
    let of_inputs = OURS.iter().map(|(_, text)| *text);
    of_inputs.chain([REPORT_REQUEST_CRD])
}

/// The definitions of the Gateway API by kind, abridged to names and the schema of a version.
const GATEWAY_API: &str = include_str!("definitions.json");

/// A definition.
pub(crate) struct Definition {
    /// The plural of the kind, and its short names.
    pub(crate) names: Vec<String>,
    /// The JSON schema (draft 7): what the API server takes, without the rules that JSON schemas
    /// have no words for. A field that it does not have is a fault.
    pub(crate) schema: Value,
}

/// All definitions; they are read once.
pub(crate) static DEFINITIONS: LazyLock<BTreeMap<Kind, Definition>> = LazyLock::new(|| {
    let ours = OURS.iter().map(|(kind, text)| {
        let written = serde_yaml_ng::from_str(text).expect("a definition of ours is YAML");
        (*kind, definition(*kind, &abridged(&written)))
    });
    let mut others: Map<String, Value> =
        serde_json::from_str(GATEWAY_API).expect("generated text is JSON");
    let others = Kind::READ.iter().filter_map(|kind| {
        let written = others.remove(kind.as_str())?;
        Some((*kind, definition(*kind, &written)))
    });
    ours.chain(others).collect()
});

/// The path of the field of a kind that somebody may have meant by a path that it does not have.
pub(crate) fn instead(kind: &str, path: &str) -> Option<String> {
    let kind = Kind::READ.iter().find(|known| known.as_str() == kind)?;
    schema::instead(&DEFINITIONS.get(kind)?.schema, path)
}

/// What is kept of a CustomResourceDefinition: names, and the schema of its first version.
fn abridged(definition: &Value) -> Value {
    let names = &definition["spec"]["names"];
    let short = names["shortNames"].as_array().into_iter().flatten();
    let names: Vec<&Value> = short.chain([&names["plural"]]).collect();
    let mut schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    close(&mut schema);
    json!({"names": names, "schema": schema})
}

fn definition(kind: Kind, abridged: &Value) -> Definition {
    let mut schema = abridged["schema"].clone();
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!(kind.as_str());
    let versions: Vec<String> = kind
        .versions()
        .iter()
        .map(|version| format!("{}/{version}", kind.group()))
        .collect();
    let properties = &mut schema["properties"];
    properties["kind"] = json!({"type": "string", "const": kind.as_str()});
    properties["apiVersion"] = match &versions[..] {
        [version] => json!({"type": "string", "const": version}),
        versions => json!({"type": "string", "enum": versions}),
    };
    schema["required"] = json!(["apiVersion", "kind", "metadata", "spec"]);
    let names = abridged["names"].as_array().into_iter().flatten();
    Definition {
        names: names.filter_map(Value::as_str).map(str::to_owned).collect(),
        schema,
    }
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
    use std::fs;
    use std::path::Path;

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
        for (kind, Definition { schema, .. }) in &*DEFINITIONS {
            assert_eq!(schema["properties"]["kind"]["const"], kind.as_str());
            assert_eq!(
                schema["properties"]["spec"]["additionalProperties"], false,
                "{kind:?}: a misspelt field is a fault"
            );
            walk(schema, "", &mut |path, schema| {
                let names = schema.as_object().expect("an object").keys();
                let foreign: Vec<_> = names.filter(|name| name.starts_with("x-")).collect();
                assert!(foreign.is_empty(), "{kind:?}{path}: {foreign:?}");
            });
        }
    }

    #[test]
    fn every_kind_of_the_gateway_api_has_a_definition() {
        let gateway_api = Kind::READ
            .iter()
            .filter(|kind| kind.group().contains("networking"));
        for kind in gateway_api.filter(|kind| **kind != Kind::XListenerSet) {
            assert!(DEFINITIONS.contains_key(kind), "{kind:?}");
        }
        assert_eq!(
            instead("HTTPRoute", "spec.rules[1].backendRef").as_deref(),
            Some("spec.rules[1].backendRefs")
        );
    }

    /// With UPDATE=1 it is generated from the definitions that `e2e/tools install gateway-api` has.
    #[test]
    fn definitions_are_those_of_the_release() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let release = root.join(".tools/gateway-api/config/crd/experimental");
        let Ok(files) = fs::read_dir(&release) else {
            // The release is a tool, which a checkout need not have.
            return;
        };
        let mut all = BTreeMap::new();
        for file in files {
            let text = fs::read_to_string(file.expect("a file").path()).expect("it is read");
            let Ok(definition) = serde_yaml_ng::from_str::<Value>(&text) else {
                continue;
            };
            let kind = definition["spec"]["names"]["kind"].as_str();
            if let Some(kind) = Kind::READ.iter().find(|read| Some(read.as_str()) == kind) {
                all.insert(kind.as_str(), abridged(&definition));
            }
        }
        let lines = all
            .iter()
            .map(|(kind, definition)| format!("{}: {definition}", json!(kind)));
        let text = format!("{{\n{}\n}}\n", lines.collect::<Vec<_>>().join(",\n"));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(root.join("src/definitions.json"), text).expect("it is written");
        } else {
            assert!(text == GATEWAY_API, "run `make generate`");
        }
    }
}
