//! The volumes of a pod as directories: Secrets, ConfigMaps, tokens and the downward API. Secrets
//! and ConfigMaps are updated when they change; a token is not renewed, since tests are shorter
//! than its lifetime.

use std::collections::BTreeMap;
use std::os::unix::fs::chown;
use std::path::Path;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, KeyToPath, Pod, Secret, ServiceAccount, Volume, VolumeProjection,
};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};

use super::mounted::mount;

/// Returns true if a volume changes while its pod runs.
pub(super) fn changes(volume: &Volume) -> bool {
    volume.secret.is_some() || volume.config_map.is_some() || volume.projected.is_some()
}

/// Writes a volume into a directory; returns false if an object that it needs does not exist yet.
pub(super) async fn fill(
    client: &Client,
    pod: &Pod,
    volume: &Volume,
    dir: &Path,
    user: u32,
) -> Result<bool> {
    std::fs::create_dir_all(dir)?;
    let namespace = pod.namespace().unwrap_or_default();
    if let Some(source) = &volume.secret {
        let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
        let name = source.secret_name.clone().unwrap_or_default();
        let Some(secret) = api.get_opt(&name).await? else {
            return Ok(source.optional == Some(true));
        };
        let data = secret
            .data
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key, value.0));
        mount(
            dir,
            &chosen(data, source.items.as_deref().unwrap_or_default()),
            Some(user),
        )?;
    } else if let Some(source) = &volume.config_map {
        let Some(data) = config_map(client, &namespace, &source.name).await? else {
            return Ok(false);
        };
        mount(
            dir,
            &chosen(data, source.items.as_deref().unwrap_or_default()),
            Some(user),
        )?;
    } else if let Some(source) = &volume.projected {
        let mut files = BTreeMap::new();
        for projection in source.sources.iter().flatten() {
            let Some(more) = project(client, pod, projection, dir).await? else {
                return Ok(false);
            };
            files.extend(more);
        }
        mount(dir, &files, Some(user))?;
    } else if volume.empty_dir.is_none() {
        bail!(
            "volume {}: none but secret, configMap, projected and emptyDir",
            volume.name
        );
    }
    chown(dir, Some(user), Some(user))?;
    Ok(true)
}

/// Returns the files of a projection; `None` if an object that it needs does not exist yet.
async fn project(
    client: &Client,
    pod: &Pod,
    projection: &VolumeProjection,
    dir: &Path,
) -> Result<Option<BTreeMap<String, Vec<u8>>>> {
    let namespace = pod.namespace().unwrap_or_default();
    let mut files = BTreeMap::new();
    if let Some(token) = &projection.service_account_token
        && let Ok(held) = std::fs::read(dir.join(&token.path))
    {
        files.insert(token.path.clone(), held);
    } else if let Some(token) = &projection.service_account_token {
        let account = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.clone())
            .unwrap_or_default();
        let api: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name_any()),
            uid: pod.uid(),
        };
        let spec = TokenRequestSpec {
            audiences: token.audience.clone().map(|audience| vec![audience]),
            bound_object_ref: Some(bound),
            expiration_seconds: token.expiration_seconds,
        };
        let request = TokenRequest {
            spec: Some(spec),
            ..TokenRequest::default()
        };
        let made = api
            .create_token_request(&account, &PostParams::default(), &request)
            .await?;
        let text = made
            .status
            .and_then(|status| status.token)
            .context("a token")?;
        files.insert(token.path.clone(), text.into_bytes());
    }
    if let Some(source) = &projection.config_map {
        let Some(data) = config_map(client, &namespace, &source.name).await? else {
            return Ok(None);
        };
        files.extend(chosen(data, source.items.as_deref().unwrap_or_default()));
    }
    for file in projection
        .downward_api
        .iter()
        .filter_map(|source| source.items.as_ref())
        .flatten()
    {
        let path = file
            .field_ref
            .as_ref()
            .map(|field| field.field_path.as_str())
            .unwrap_or_default();
        files.insert(file.path.clone(), field(pod, path)?.into_bytes());
    }
    Ok(Some(files))
}

/// Returns a field of a pod, as the downward API names it.
pub(super) fn field(pod: &Pod, path: &str) -> Result<String> {
    Ok(match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        other => match other
            .strip_prefix("metadata.labels['")
            .and_then(|rest| rest.strip_suffix("']"))
        {
            Some(label) => pod.labels().get(label).cloned().unwrap_or_default(),
            None => bail!("the downward API has no {other} here"),
        },
    })
}

async fn config_map(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Vec<(String, Vec<u8>)>>> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await?;
    let data = found.map(|map| map.data.unwrap_or_default().into_iter());
    Ok(data.map(|data| data.map(|(key, value)| (key, value.into_bytes())).collect()))
}

/// Returns the files of a volume: all keys, or the selected ones under their paths.
fn chosen(
    data: impl IntoIterator<Item = (String, Vec<u8>)>,
    items: &[KeyToPath],
) -> BTreeMap<String, Vec<u8>> {
    let path = |key: String| match items.iter().find(|item| item.key == key) {
        Some(item) => Some(item.path.clone()),
        None => items.is_empty().then_some(key),
    };
    data.into_iter()
        .filter_map(|(key, value)| Some((path(key)?, value)))
        .collect()
}
