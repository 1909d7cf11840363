//! The manifests of `deploy/`, composed as kustomize does.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::apiserver::manifests::documents;

/// The folders of it with manifests that the chart renders; the first one is itself.
pub const RENDERED: [&str; 6] = [
    "",
    "certificates",
    "dedicated",
    "isolated",
    "policies",
    "roles-gateway-api",
];

/// Returns the path of the folder.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// Returns the objects of a kustomization, in its order: its `resources`, with its `images`. Other
/// fields are an error.
pub fn kustomized(folder: &Path) -> Result<Vec<Value>> {
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| name.to_owned());
    let index = documents(&read("kustomization.yaml")?)?
        .pop()
        .context("an index")?;
    let mut all = Vec::new();
    for (field, value) in index.as_object().context("an index is a mapping")? {
        match field.as_str() {
            "apiVersion" | "kind" | "images" => {}
            "resources" => {
                for name in value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                {
                    all.extend(documents(&read(name)?)?);
                }
            }
            other => anyhow::bail!("{other} of a kustomization is not known here"),
        }
    }
    all.iter_mut()
        .for_each(|object| rename_images(object, &index));
    Ok(all)
}

/// Sets the images of containers by a kustomization.
fn rename_images(object: &mut Value, index: &Value) {
    for path in ["/spec/template/spec", "/template/spec"] {
        for field in ["initContainers", "containers"] {
            let containers = object.pointer_mut(&format!("{path}/{field}"));
            for container in containers
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                for image in index["images"].as_array().into_iter().flatten() {
                    rename(container, image);
                }
            }
        }
    }
}

/// Returns the manifests of `deploy/` with a component: `dedicated`, for Envoys of fleet Dedicated
/// beside the shared ones, or `isolated`, for the right to make Envoys of fleet Isolated.
pub fn with_component(name: &str) -> Result<Vec<Value>> {
    let mut all = kustomized(&folder())?;
    let component = folder().join(name);
    let read =
        |name: &str| std::fs::read_to_string(component.join(name)).with_context(|| name.to_owned());
    let index = documents(&read("kustomization.yaml")?)?
        .pop()
        .context("an index")?;
    for name in index["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        all.extend(documents(&read(name)?)?);
    }
    for patch in index["patches"].as_array().into_iter().flatten() {
        let target = &patch["target"];
        let object = all
            .iter_mut()
            .find(|object| {
                object["kind"] == target["kind"] && object["metadata"]["name"] == target["name"]
            })
            .with_context(|| format!("nothing is patched by {patch}"))?;
        let steps = documents(patch["patch"].as_str().context("a patch")?)?
            .pop()
            .context("steps")?;
        for step in steps.as_array().into_iter().flatten() {
            let list = step["path"]
                .as_str()
                .and_then(|path| path.strip_suffix("/-"));
            let list = list
                .and_then(|path| object.pointer_mut(path))
                .and_then(Value::as_array_mut);
            match (step["op"].as_str(), list) {
                (Some("add"), Some(list)) => list.push(step["value"].clone()),
                _ => anyhow::bail!("{step} of a patch is not known here"),
            }
        }
    }
    Ok(all)
}

fn rename(container: &mut Value, image: &Value) {
    let held = container["image"].as_str().unwrap_or_default();
    let (name, tag) = held
        .split_once(':')
        .map_or((held, None), |(name, tag)| (name, Some(tag)));
    if image["name"] == name {
        let name = image["newName"].as_str().unwrap_or(name);
        let tag = image["newTag"]
            .as_str()
            .or(tag)
            .map(|tag| format!(":{tag}"));
        container["image"] = json!(format!("{name}{}", tag.unwrap_or_default()));
    }
}

/// Returns every manifest below a folder, with its path, without kustomizations, the chart with its
/// values, and what is for objects of other programs.
pub fn manifests(folder: &Path) -> Result<Vec<(PathBuf, Value)>> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    entries.sort();
    let mut all = Vec::new();
    for path in entries {
        let other = ["airgap", "chart", "gitops"];
        if other.into_iter().any(|folder| path.ends_with(folder)) {
            continue;
        }
        if path.is_dir() {
            all.extend(manifests(&path)?);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
            && path
                .file_name()
                .is_some_and(|name| name != "kustomization.yaml")
        {
            for object in documents(&std::fs::read_to_string(&path)?)? {
                all.push((path.clone(), object));
            }
        }
    }
    Ok(all)
}
