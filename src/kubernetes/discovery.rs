//! Which kinds the API server serves, and in which version.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use kube::api::ApiResource;

use crate::inputs::Kind;

/// The kinds that are served, each in the newest version that we read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Served(BTreeMap<Kind, ApiResource>);

impl Served {
    /// How a kind is asked for; `None` while it is not served.
    pub fn resource(&self, kind: Kind) -> Option<&ApiResource> {
        self.0.get(&kind)
    }
}

/// Asks the API server about these kinds.
///
/// # Errors
/// When it does not answer. A group that cannot be told now (an aggregated server that is down) is none of ours.
pub async fn discover(client: &Client, wanted: &[Kind]) -> Result<Served, kube::Error> {
    let groups: BTreeSet<&str> = wanted.iter().map(|kind| kind.group()).collect();
    let mut served: BTreeMap<Kind, ApiResource> = BTreeMap::new();
    let all = client.list_api_groups().await?;
    for group in groups {
        let found = all.groups.iter().find(|g| g.name == group);
        let versions: Vec<&str> = match group {
            "" => vec!["v1"],
            _ => found.map(|g| g.versions.iter().map(|v| v.version.as_str()).collect()).unwrap_or_default(),
        };
        for version in versions {
            let kinds: Vec<Kind> =
                wanted.iter().copied().filter(|k| k.group() == group && k.versions().contains(&version)).collect();
            if kinds.is_empty() {
                continue;
            }
            let resources = match group {
                "" => client.list_core_api_resources(version).await,
                _ => client.list_api_group_resources(&format!("{group}/{version}")).await,
            };
            let resources = match resources {
                Ok(resources) => resources,
                // It went between the two questions.
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                Err(error) => return Err(error),
            };
            for kind in kinds {
                let plain = |name: &str| !name.contains('/');
                let Some(resource) = resources.resources.iter().find(|r| r.kind == kind.as_str() && plain(&r.name))
                else {
                    continue;
                };
                let place = |version: &str| kind.versions().iter().position(|v| *v == version);
                if served.get(&kind).is_some_and(|there| place(&there.version) <= place(version)) {
                    continue;
                }
                let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
                served.insert(
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
    Ok(Served(served))
}
