//! Writes the CustomResourceDefinitions of this version to a cluster (`gatewright crds apply`).
//!
//! In: the definitions, and those that the cluster has. Out: what became of each. If one is
//! refused, none is written. It ends when the API server serves every field of them: until then it
//! removes new fields from objects without an error.

mod verdict;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::defaults::spec_schema;
use crate::watch::definitions::get;
use crate::write::failure::Failure;
use crate::write::request::in_time;

pub use verdict::{VERSION_ANNOTATION, Verdict};

/// The field manager of these writes.
const FIELD_MANAGER: &str = "gatewright-crds";

/// The time within which the API server must serve what was written.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// The interval at which it is asked.
const INTERVAL: Duration = Duration::from_millis(200);

/// What became of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The name of the definition.
    pub name: String,
    /// What was done.
    pub action: Action,
    /// The reason for which it was kept.
    pub note: Option<String>,
}

/// What was done with a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The cluster did not have it.
    Created,
    /// The cluster had another one.
    Updated,
    /// The cluster had it.
    Unchanged,
    /// That of the cluster stays.
    Kept,
}

/// The reason for which definitions could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// Objects are stored in a version that would be removed.
    #[error("{0}: {1}; nothing was changed")]
    Refused(String, String),
    /// The API server did not answer, or refused.
    #[error("{0}: {1}")]
    Request(String, Failure),
    /// It was written, and is not in use.
    #[error(
        "{name}: it was written, and the API server does not serve it within {SERVED_WITHIN:?}: {why}"
    )]
    NotServed {
        /// The name of the definition.
        name: String,
        /// What is missing.
        why: String,
    },
}

/// A definition of ours, and that of the cluster.
struct Pair<'a> {
    document: &'a Value,
    ours: CustomResourceDefinition,
    served: Option<CustomResourceDefinition>,
}

/// Writes definitions. In a dry run the API server judges them, and changes nothing.
///
/// # Errors
/// When one is refused, or the API server does not answer or does not serve them.
pub async fn apply(
    client: &Client,
    definitions: &[Value],
    is_dry_run: bool,
) -> Result<Vec<Outcome>, CrdError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut pairs = Vec::new();
    for document in definitions {
        pairs.push(Pair::read(&api, document).await?);
    }
    let verdicts = pairs
        .iter()
        .map(Pair::verdict)
        .collect::<Result<Vec<_>, _>>()?;
    let mut outcomes = Vec::new();
    for (pair, note) in pairs.iter().zip(verdicts) {
        let action = match note {
            Some(_) => Action::Kept,
            None => pair.write(&api, is_dry_run).await?,
        };
        let name = pair.ours.name_any();
        outcomes.push(Outcome { name, action, note });
    }
    if !is_dry_run {
        for (pair, outcome) in pairs.iter().zip(&outcomes) {
            if matches!(outcome.action, Action::Created | Action::Updated) {
                pair.until_served(client).await?;
            }
        }
    }
    Ok(outcomes)
}

impl<'a> Pair<'a> {
    async fn read(
        api: &Api<CustomResourceDefinition>,
        document: &'a Value,
    ) -> Result<Self, CrdError> {
        let ours: CustomResourceDefinition =
            serde_json::from_value(document.clone()).expect("a definition of ours is valid");
        let name = ours.name_any();
        let served = match in_time(api.get_opt(&name)).await {
            Ok(served) => served,
            Err(why) => return Err(CrdError::Request(name, why)),
        };
        Ok(Self {
            document,
            ours,
            served,
        })
    }

    /// The reason for which the definition of the cluster stays, if it does.
    fn verdict(&self) -> Result<Option<String>, CrdError> {
        match Verdict::of(&self.ours, self.served.as_ref()) {
            Verdict::Apply => Ok(None),
            Verdict::Keep(reason) => Ok(Some(reason)),
            Verdict::Refuse(reason) => Err(CrdError::Refused(self.ours.name_any(), reason)),
        }
    }

    async fn write(
        &self,
        api: &Api<CustomResourceDefinition>,
        is_dry_run: bool,
    ) -> Result<Action, CrdError> {
        let mut params = PatchParams::apply(FIELD_MANAGER).force();
        params.dry_run = is_dry_run;
        let name = self.ours.name_any();
        let patch = Patch::Apply(self.document);
        let written = in_time(api.patch(&name, &params, &patch))
            .await
            .map_err(|why| CrdError::Request(name.clone(), why))?;
        Ok(match &self.served {
            None => Action::Created,
            Some(served) if is_equal(served, &written) => Action::Unchanged,
            Some(_) => Action::Updated,
        })
    }

    /// Waits until the API server serves every field of the definition.
    async fn until_served(&self, client: &Client) -> Result<(), CrdError> {
        let deadline = Instant::now() + SERVED_WITHIN;
        let spec = &self.ours.spec;
        let address = format!("/openapi/v3/apis/{}/{}", spec.group, spec.versions[0].name);
        let ours = fields(
            &self.document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"],
        );
        loop {
            let why = match get(client, &address).await {
                Ok(document) => {
                    let served = spec_schema(&document, &spec.group, &spec.names.kind)
                        .map(fields)
                        .unwrap_or_default();
                    match ours.difference(&served).next() {
                        None => return Ok(()),
                        Some(missing) => format!("it does not have spec{missing}"),
                    }
                }
                Err(why) => why,
            };
            if Instant::now() > deadline {
                let name = self.ours.name_any();
                return Err(CrdError::NotServed { name, why });
            }
            sleep(INTERVAL).await;
        }
    }
}

/// Returns whether two states of a definition say the same.
fn is_equal(before: &CustomResourceDefinition, after: &CustomResourceDefinition) -> bool {
    before.spec == after.spec
        && before.annotations() == after.annotations()
        && before.labels() == after.labels()
}

/// Returns the paths of all fields below a schema, an item of a list as `[]`.
fn fields(schema: &Value) -> BTreeSet<String> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut paths = BTreeSet::new();
    for (name, schema) in properties {
        paths.insert(format!(".{name}"));
        paths.extend(fields(schema).iter().map(|path| format!(".{name}{path}")));
    }
    for (name, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(schema) = schema.get(name) {
            paths.extend(fields(schema).iter().map(|path| format!("{mark}{path}")));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_objects_lists_and_maps_are_found() {
        let inner = json!({"properties": {"port": {"type": "integer"}}});
        let schema = json!({"properties": {"a": inner, "b": {"items": inner}, "c": {"additionalProperties": inner}}});
        let paths: Vec<String> = fields(&schema).into_iter().collect();
        assert_eq!(
            paths,
            [".a", ".a.port", ".b", ".b[].port", ".c", ".c{}.port"]
        );
    }
}
