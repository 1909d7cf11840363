//! Discovery: the kinds that the API server serves, and their versions.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Request;
use kube::Client;
use kube::api::ApiResource;
use tokio::time::timeout;

use crate::REQUEST_TIMEOUT;
use gatewright_core::inputs::Kind;

/// The reason for which discovery failed.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The API server rejects our credentials.
    #[error("authentication at the API server failed: {0}")]
    Unknown(String),
    /// The API server is unreachable or answers with an error.
    #[error("the API server does not answer: {0}")]
    Unanswered(String),
}

/// The kinds that are served, each in the newest version that we can read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Served {
    kinds: BTreeMap<Kind, ApiResource>,
}

impl Served {
    /// Returns the resource by which a kind is requested; `None` while it is not served.
    pub fn resource(&self, kind: Kind) -> Option<&ApiResource> {
        self.kinds.get(&kind)
    }
}

/// Returns whether the API server reports that it is ready. A server that does not let us ask
/// counts as ready.
pub(crate) async fn is_ready(client: &Client) -> bool {
    let asked = Request::get("/readyz")
        .body(Vec::new())
        .expect("it has a path only");
    match timeout(REQUEST_TIMEOUT, client.request_text(asked)).await {
        Ok(Ok(_)) => true,
        Ok(Err(kube::Error::Api(status))) => matches!(status.code, 403 | 404),
        Ok(Err(_)) | Err(_) => false,
    }
}

async fn answer<T>(
    asked: impl Future<Output = kube::Result<T>>,
) -> Result<Option<T>, DiscoveryError> {
    match timeout(REQUEST_TIMEOUT, asked).await {
        Ok(Ok(answer)) => Ok(Some(answer)),
        Ok(Err(kube::Error::Api(status))) => match status.code {
            404 => Ok(None),
            401 | 403 => Err(DiscoveryError::Unknown(status.message)),
            _ => Err(DiscoveryError::Unanswered(status.message)),
        },
        Ok(Err(error)) => Err(DiscoveryError::Unanswered(error.to_string())),
        Err(_) => Err(DiscoveryError::Unanswered(format!(
            "nothing came within {REQUEST_TIMEOUT:?}"
        ))),
    }
}

/// Asks the API server which of these kinds it serves.
///
/// # Errors
/// When the server does not answer. An aggregated API group whose server is down is not an error:
/// it is none of ours.
pub async fn discover(client: &Client, wanted: &[Kind]) -> Result<Served, DiscoveryError> {
    let groups: BTreeSet<&str> = wanted.iter().map(|kind| kind.group()).collect();
    let mut served = Served::default();
    let all = answer(client.list_api_groups()).await?;
    let all = all.ok_or_else(|| DiscoveryError::Unanswered("it has no /apis".to_owned()))?;
    for group in groups {
        let found = all.groups.iter().find(|g| g.name == group);
        let versions: Vec<&str> = match group {
            "" => vec!["v1"],
            _ => found
                .map(|g| g.versions.iter().map(|v| v.version.as_str()).collect())
                .unwrap_or_default(),
        };
        for version in versions {
            let kinds: Vec<Kind> = wanted
                .iter()
                .copied()
                .filter(|k| k.group() == group && k.versions().contains(&version))
                .collect();
            if kinds.is_empty() {
                continue;
            }
            let resources = match group {
                "" => answer(client.list_core_api_resources(version)).await?,
                _ => answer(client.list_api_group_resources(&format!("{group}/{version}"))).await?,
            };
            // Otherwise the group disappeared between the two requests.
            let Some(resources) = resources else { continue };
            for kind in kinds {
                let Some(resource) = resources
                    .resources
                    .iter()
                    .find(|r| r.kind == kind.as_str() && plain(&r.name))
                else {
                    continue;
                };
                if served
                    .kinds
                    .get(&kind)
                    .is_some_and(|there| place(&there.version, &kind) <= place(version, &kind))
                {
                    continue;
                }
                let api_version = if group.is_empty() {
                    version.to_owned()
                } else {
                    format!("{group}/{version}")
                };
                served.kinds.insert(
                    kind,
                    ApiResource {
                        group: group.to_owned(),
                        version: version.to_owned(),
                        api_version,
                        kind: kind.as_str().to_owned(),
                        plural: resource.name.clone(),
                    },
                );
            }
        }
    }
    Ok(served)
}

fn plain(name: &str) -> bool {
    !name.contains('/')
}

fn place(version: &str, kind: &Kind) -> Option<usize> {
    kind.versions().iter().position(|v| *v == version)
}
