//! Every value of the chart as null and empty: it renders valid objects, or the schema refuses it
//! by its name.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use e2e::apiserver::manifests::documents;
use e2e::helm::{Helm, chart};
use serde_json::{Map, Value, json};

use super::read;

/// Values of other charts, and those whose schema is that of the configuration.
const OTHERS: [&str; 2] = ["configuration", "global"];

/// Returns the values of `values.yaml`.
pub(super) fn defaults() -> Result<Value> {
    documents(&read(&chart().join("values.yaml"))?)?
        .pop()
        .context("values")
}

/// Requires every value that the templates need: those whose default is not empty, and objects with
/// fields. Helm removes a value that is set to null.
pub(super) fn require(schema: &mut Value, defaults: &Value) {
    let Some(properties) = schema["properties"].as_object_mut() else {
        return;
    };
    let mut required: Vec<String> = Vec::new();
    for (name, property) in properties.iter_mut() {
        let has_fields = property["properties"]
            .as_object()
            .is_some_and(|fields| !fields.is_empty());
        let is_given = defaults.get(name).is_some_and(|value| !value.is_null());
        let is_needed = is_given && (has_fields || !is_empty(&defaults[name]));
        if is_needed && !admits_null(property) && name != "global" {
            required.push(name.clone());
        }
        if has_fields && !OTHERS.contains(&name.as_str()) {
            require(property, &defaults[name]);
        }
    }
    for other in schema["required"].as_array().into_iter().flatten() {
        required.extend(other.as_str().map(str::to_owned));
    }
    required.sort();
    required.dedup();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn admits_null(property: &Value) -> bool {
    let admits = |kind: &Value| {
        kind == "null"
            || kind
                .as_array()
                .is_some_and(|all| all.contains(&json!("null")))
    };
    admits(&property["type"])
        || property["anyOf"]
            .as_array()
            .is_some_and(|any| any.iter().any(|one| admits(&one["type"])))
}

/// Returns the empty value that a property admits, if there is one.
fn empty(property: &Value) -> Option<Value> {
    let is = |name: &str| {
        property["type"] == name
            || property["type"]
                .as_array()
                .is_some_and(|all| all.contains(&json!(name)))
    };
    let bounds = ["minLength", "minItems", "minProperties", "required"];
    if bounds.iter().any(|bound| !property[*bound].is_null()) {
        return None;
    }
    if property["enum"]
        .as_array()
        .is_some_and(|all| all.contains(&json!("")))
    {
        return Some(json!(""));
    }
    let pattern = property["pattern"].as_str();
    if is("string")
        && pattern.is_none_or(|pattern| pattern.starts_with("^(") && pattern.ends_with(")?$"))
    {
        return Some(json!(""));
    }
    if is("array") {
        return Some(json!([]));
    }
    let has_fields = property["properties"].is_object();
    (is("object") && !has_fields).then(|| json!({}))
}

/// A value: its path, its schema, and whether it must be there.
struct Key {
    path: Vec<String>,
    schema: Value,
    required: bool,
}

fn keys(schema: &Value, path: &[String], all: &mut Vec<Key>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = [path, std::slice::from_ref(name)].concat();
        let required = schema["required"]
            .as_array()
            .is_some_and(|all| all.contains(&json!(name)));
        all.push(Key {
            path: path.clone(),
            schema: property.clone(),
            required,
        });
        if !OTHERS.contains(&name.as_str()) {
            keys(property, &path, all);
        }
    }
}

fn all_keys() -> Result<Vec<Key>> {
    let schema: Value = serde_json::from_str(&read(&chart().join("values.schema.json"))?)?;
    let mut all = Vec::new();
    keys(&schema, &[], &mut all);
    Ok(all)
}

fn set(values: &mut Value, path: &[String], value: Value) {
    let mut at = values;
    for name in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[name.as_str()];
    }
    *at = value;
}

/// Values by which every template has something to render.
fn everything() -> Value {
    json!({
        "namespace": {"create": true},
        "priorityClass": {"create": true},
        "certificates": {"rbac": true},
        "roles": {"gatewayApi": true},
        "envoy": {"dedicated": {"enabled": true}},
        "isolated": {"enabled": true},
        "policies": {"enabled": true},
        "networkPolicy": {"envoys": {"enabled": true}},
        "metrics": {"authorization": true, "tlsSecretName": "probes"},
        "monitoring": {
            "podMonitor": {"enabled": true},
            "serviceMonitor": {"enabled": true},
            "envoys": {"enabled": true, "traffic": true},
            "prometheusRule": {"enabled": true},
            "dashboard": {"enabled": true},
        },
    })
}

/// Switches, which other values exclude.
fn is_switch(key: &Key) -> bool {
    key.schema["type"] == "boolean" || key.path.last().is_some_and(|name| name == "tlsSecretName")
}

/// Writes files of values in which everything that may be is null, or empty; returns their paths by
/// name.
pub(super) fn extremes(folder: &Path) -> Result<BTreeMap<String, String>> {
    let defaults = defaults()?;
    let mut nothing = everything();
    let mut nulls = everything();
    for key in all_keys()?.iter().filter(|key| !is_switch(key)) {
        let has_fields = key.schema["properties"].is_object();
        // Helm removes what `values.yaml` has; of anything else the schema refuses null.
        let is_given = key.path.iter().try_fold(&defaults, |at, name| at.get(name));
        if !key.required && !has_fields && is_given.is_some() {
            set(&mut nulls, &key.path, Value::Null);
        }
        if let Some(empty) = empty(&key.schema)
            && key.path.last().is_none_or(|name| name != "volume")
        {
            set(&mut nothing, &key.path, empty);
        }
    }
    // Envoy's image has a tag or a digest.
    for image in ["/envoy", "/envoy/dedicated", "/isolated"] {
        let digest = json!({"tag": "", "digest": format!("sha256:{}", "a".repeat(64))});
        nothing.pointer_mut(image).context("values of Envoys")?["image"] = digest;
    }
    let mut files = BTreeMap::new();
    for (name, mut values) in [("all empty", nothing), ("all null", nulls)] {
        // Ours has no default, and is refused without.
        values["image"]["repository"] = json!("gatewright");
        let path = folder.join(format!("{name}.json"));
        std::fs::write(&path, values.to_string())?;
        files.insert(name.to_owned(), path.display().to_string());
    }
    Ok(files)
}

#[test]
fn every_value_has_a_type() -> Result<()> {
    for Key { path, schema, .. } in all_keys()? {
        let has_type = ["type", "enum", "anyOf"]
            .iter()
            .any(|name| !schema[*name].is_null());
        assert!(has_type, "{} has no type in the schema", path.join("."));
    }
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn what_may_be_null_or_empty_renders_together() -> Result<()> {
    let helm = Helm::new(None)?;
    for (name, file) in extremes(helm.home())? {
        let objects = helm
            .template(&["-f", &file])
            .with_context(|| name.clone())?;
        assert!(objects.len() > 30, "{name}: {} objects", objects.len());
        for object in &objects {
            let of = format!("{name}: {} {}", object["kind"], object["metadata"]["name"]);
            let text = object.to_string();
            assert!(!text.contains("<nil>"), "{of}: {text}");
            let images = object.pointer("/spec/template/spec").into_iter();
            let images = images.chain(object.pointer("/template/spec"));
            for container in images.flat_map(super::hardened::containers) {
                let image = container["image"].as_str().unwrap_or_default();
                let is_whole = !image.contains(":@") && !image.ends_with(':');
                assert!(is_whole, "{of}: {image}");
            }
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn what_templates_need_is_refused_as_null_by_its_name() -> Result<()> {
    let helm = Helm::new(None)?;
    let file = helm.home().join("values.json");
    let needed: Vec<Key> = all_keys()?.into_iter().filter(|key| key.required).collect();
    assert!(needed.len() > 40, "{} values are needed", needed.len());
    for Key { path, .. } in needed {
        let mut values = json!({});
        set(&mut values, &path, Value::Null);
        std::fs::write(&file, values.to_string())?;
        let refused = helm.template(&["-f", &file.display().to_string()]);
        let name = path.join(".");
        let refused = format!("{:#}", refused.expect_err(&name));
        assert!(
            refused.contains("values don't meet the specifications"),
            "{name}: {refused}"
        );
        assert!(
            path.last()
                .is_some_and(|last| refused.contains(last.as_str())),
            "{name}: {refused}"
        );
    }
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn one_replica_can_be_drained_and_the_number_can_be_left_to_an_autoscaler() -> Result<()> {
    let helm = Helm::new(None)?;
    let rendered = |replicas: &str| {
        let set = format!(
            "envoy.dedicated.enabled=true,controller.replicas={replicas},envoy.dedicated.replicas={replicas}"
        );
        helm.template(&["--set", &set])
    };
    let of = |objects: &[Value], kind: &str| -> Vec<Value> {
        let found = objects.iter().filter(|object| object["kind"] == kind);
        found.map(|object| object["spec"].clone()).collect()
    };
    let single = of(&rendered("1")?, "PodDisruptionBudget");
    assert_eq!(single.len(), 2, "of the controller and of Envoys");
    for budget in single {
        assert_eq!(budget["maxUnavailable"], 1, "{budget}");
        assert!(budget["minAvailable"].is_null(), "{budget}");
    }
    let scaled = of(&rendered("null")?, "Deployment");
    assert_eq!(scaled.len(), 2, "the controller and Envoys");
    for deployment in scaled {
        assert!(deployment.get("replicas").is_none(), "{deployment}");
    }
    let more = "controller.podDisruptionBudget.minAvailable=50%";
    let budgets = of(&helm.template(&["--set", more])?, "PodDisruptionBudget");
    assert_eq!(
        budgets[0]["minAvailable"], "50%",
        "it is in place of the other"
    );
    assert!(budgets[0].get("maxUnavailable").is_none(), "{budgets:?}");
    for (set, why) in [
        (
            "controller.podDisruptionBudget.minAvailable=2",
            "controller.podDisruptionBudget.minAvailable: 2 of 2 pods lets no node be drained",
        ),
        (
            "envoy.kind=Deployment,envoy.podDisruptionBudget.maxUnavailable=0",
            "envoy.podDisruptionBudget.maxUnavailable: 0 lets no node be drained",
        ),
        (
            "envoy.kind=Deployment,envoy.autoscaling.enabled=true,envoy.podDisruptionBudget.minAvailable=2",
            "envoy.podDisruptionBudget.minAvailable: 2 of 2 pods lets no node be drained",
        ),
        (
            "envoy.kind=Deployment,envoy.autoscaling.enabled=true,envoy.autoscaling.minReplicas=11",
            "envoy.autoscaling: minReplicas (11) is maxReplicas (10) at most",
        ),
    ] {
        let refused = helm.template(&["--set", set]).err();
        let found = refused.is_some_and(|error| format!("{error:#}").contains(why));
        assert!(found, "{set}: {why}");
    }
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn envoys_are_scaled_where_that_is_said_and_nothing_else_sets_their_number() -> Result<()> {
    let helm = Helm::new(None)?;
    let example = chart().join("examples/autoscaled.yaml");
    let objects = helm.template(&["--values", &example.display().to_string()])?;
    let named = |kind: &str, name: &str| {
        let mut found = objects.iter();
        found.find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    };
    for name in ["gatewright-envoy", "gatewright-envoy-dedicated"] {
        let deployment = named("Deployment", name).context("a Deployment")?;
        assert!(deployment["spec"].get("replicas").is_none(), "{deployment}");
        assert!(named("DaemonSet", name).is_none());
        assert!(named("PodDisruptionBudget", name).is_some());
        let scaler = &named("HorizontalPodAutoscaler", name).context("an autoscaler")?["spec"];
        assert_eq!(scaler["scaleTargetRef"]["name"], name);
        assert_eq!(
            [&scaler["minReplicas"], &scaler["maxReplicas"]],
            [&json!(3), &json!(20)]
        );
        let cpu = &scaler["metrics"][0]["containerResource"];
        assert_eq!(cpu["target"]["averageUtilization"], 70, "{scaler}");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["name"], cpu["container"]);
        assert_eq!(scaler["metrics"][1]["type"], "Pods");
    }
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn a_label_of_several_values_stands_there_once() -> Result<()> {
    let helm = Helm::new(None)?;
    let set = "commonLabels.release=common,monitoring.podMonitor.enabled=true,monitoring.podMonitor.labels.release=own,\
        controller.podLabels.release=pods";
    let objects = helm.template(&["--set", set])?;
    let label = |kind: &str, at: &str| {
        let found = objects.iter().find(|object| object["kind"] == kind);
        found.and_then(|object| object.pointer(at)).cloned()
    };
    assert_eq!(
        label("PodMonitor", "/metadata/labels/release"),
        Some(json!("own"))
    );
    assert_eq!(
        label("Deployment", "/metadata/labels/release"),
        Some(json!("common"))
    );
    assert_eq!(
        label("Deployment", "/spec/template/metadata/labels/release"),
        Some(json!("pods"))
    );
    Ok(())
}
