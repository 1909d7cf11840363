//! Applies manifests, as `kubectl apply --server-side` does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::discovery::{Scope, pinned_kind};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{ApiServer, Definitions};

const LIMIT: Duration = Duration::from_secs(180);

/// The field manager of the test itself.
const USER: &str = "test";

impl ApiServer {
    /// Applies every document of a YAML text.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        for document in documents(yaml)? {
            self.put(document).await?;
        }
        Ok(())
    }

    /// Applies one object, taking over fields of other managers. For a pod or node its status as
    /// well: there is no kubelet.
    pub async fn put(&self, object: Value) -> Result<DynamicObject> {
        let status = object
            .get("status")
            .filter(|_| object["kind"] == "Pod" || object["kind"] == "Node");
        if object["kind"] == "Pod" {
            // kube-controller-manager does this in a real cluster.
            let metadata = json!({"name": "default", "namespace": object["metadata"]["namespace"]});
            self.apply_one(
                &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            )
            .await?;
        }
        let applied = self.apply_one(&object).await?;
        let Some(status) = status else {
            return Ok(applied);
        };
        let (api, name) = self.api_of(&object).await?;
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("the status of {object}"))
    }

    async fn apply_one(&self, object: &Value) -> Result<DynamicObject> {
        let (api, name) = self.api_of(object).await?;
        let params = PatchParams::apply(USER).force();
        api.patch(&name, &params, &Patch::Apply(object))
            .await
            .with_context(|| format!("applying {object}"))
    }

    /// Validates one object strictly by a dry run, without storing it.
    pub async fn dry_run(&self, object: Value) -> Result<DynamicObject> {
        let (api, name) = self.api_of(&object).await?;
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::apply(USER).force().validation_strict()
        };
        api.patch(&name, &params, &Patch::Apply(&object))
            .await
            .with_context(|| format!("applying {object}"))
    }

    /// Returns the API of an object, and its name.
    pub async fn api_of(&self, object: &Value) -> Result<(Api<DynamicObject>, String)> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let api_version =
            text("/apiVersion").with_context(|| format!("no apiVersion in {object}"))?;
        let kind = text("/kind").with_context(|| format!("no kind in {object}"))?;
        let name = text("/metadata/name")
            .with_context(|| format!("no name in {object}"))?
            .to_owned();
        let api = self
            .api(
                api_version,
                kind,
                text("/metadata/namespace").unwrap_or("default"),
            )
            .await?;
        Ok((api, name))
    }

    /// Returns the API of a kind, in a namespace if the kind is namespaced.
    pub async fn api(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
    ) -> Result<Api<DynamicObject>> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let wanted = GroupVersionKind::gvk(group, version, kind);
        let (resource, capabilities): (ApiResource, _) =
            pinned_kind(&self.client(), &wanted).await?;
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(self.client(), &resource),
            Scope::Namespaced => Api::namespaced_with(self.client(), namespace, &resource),
        })
    }

    /// Waits until an object satisfies a predicate, and returns it; a missing object is null.
    ///
    /// # Errors
    /// When it does not within the time limit.
    pub async fn until(
        &self,
        (api_version, kind, namespace): (&str, &str, &str),
        name: &str,
        limit: Duration,
        good: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let api = self.api(api_version, kind, namespace).await?;
        let deadline = Instant::now() + limit;
        loop {
            let found = api
                .get_opt(name)
                .await?
                .map(serde_json::to_value)
                .transpose()?
                .unwrap_or_default();
            if good(&found) {
                return Ok(found);
            }
            ensure!(
                Instant::now() < deadline,
                "{kind} {namespace}/{name} did not become as it should: {found:#}"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Installs further kinds, and waits until they are served. Most servers begin with those that
    /// they need ([`ApiServer::with`]), which takes less.
    pub async fn install(&self, definitions: Definitions) -> Result<()> {
        self.install_crds(&definitions.folder()?).await
    }

    /// Makes the server admit any spec of a kind, as a laxer or newer definition would, and waits
    /// until this object is admitted.
    pub async fn admit_anything(&self, definition: &str, object: Value) -> Result<()> {
        let api = self
            .api("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
            .await?;
        let mut versions = api.get(definition).await?.data["spec"]["versions"].clone();
        for version in versions.as_array_mut().into_iter().flatten() {
            let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            version["schema"]["openAPIV3Schema"]["properties"]["spec"] = anything;
        }
        let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
        api.patch(definition, &PatchParams::default(), &patch)
            .await?;
        let deadline = Instant::now() + LIMIT;
        while let Err(error) = self.put(object.clone()).await {
            ensure!(
                Instant::now() < deadline,
                "the laxer {definition} does not hold: {error:#}"
            );
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Applies every CustomResourceDefinition of a folder and waits until they are served.
    pub async fn install_crds(&self, folder: &Path) -> Result<()> {
        let mut names = Vec::new();
        for file in yaml_files(folder)? {
            for document in documents(&std::fs::read_to_string(&file)?)? {
                // Policies and kustomizations of the bundle are not needed by a test that starts
                // from nothing.
                if document["kind"] == "CustomResourceDefinition" {
                    names.push(
                        document["metadata"]["name"]
                            .as_str()
                            .context("a definition has a name")?
                            .to_owned(),
                    );
                    self.put(document).await?;
                }
            }
        }
        ensure!(!names.is_empty(), "no definitions in {}", folder.display());
        let definitions = self.definitions().await?;
        for name in names {
            self.until_served(&definitions, &name).await?;
        }
        Ok(())
    }

    async fn definitions(&self) -> Result<Api<DynamicObject>> {
        self.api("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
            .await
    }

    /// Waits until all kinds with a definition are served: a server that has just started is ready
    /// before.
    pub(super) async fn until_kinds_are_served(&self) -> Result<()> {
        let definitions = self.definitions().await?;
        for definition in definitions.list(&ListParams::default()).await? {
            let name = definition.metadata.name.as_deref().unwrap_or_default();
            self.until_served(&definitions, name).await?;
        }
        Ok(())
    }

    async fn until_served(&self, definitions: &Api<DynamicObject>, name: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while !self.serves(&definitions.get(name).await?).await {
            ensure!(Instant::now() < deadline, "{name} is not served");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// True if a definition is established, and discovery, which lags behind, has all its versions.
    async fn serves(&self, definition: &DynamicObject) -> bool {
        let conditions = definition.data["status"]["conditions"].as_array();
        let is_established = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
        let spec = &definition.data["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let versions = spec["versions"].as_array().into_iter().flatten();
        let kinds: Vec<GroupVersionKind> = versions
            .filter(|version| version["served"] == true)
            .map(|version| {
                GroupVersionKind::gvk(
                    &text(&spec["group"]),
                    &text(&version["name"]),
                    &text(&spec["names"]["kind"]),
                )
            })
            .collect();
        for kind in &kinds {
            if pinned_kind(&self.client(), kind).await.is_err() {
                return false;
            }
        }
        is_established
    }
}

/// The files of a folder that end with `.yaml`, sorted.
pub(super) fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The documents of a YAML text that are not empty.
pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(yaml) {
        let value = Value::deserialize(document).context("reading YAML")?;
        if !value.is_null() {
            all.push(value);
        }
    }
    Ok(all)
}
