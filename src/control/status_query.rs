//! A query for statuses: which objects, and whether as documents or as a summary. Pure.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::admin_query::path_with;
use crate::failed_handshakes::HostHandshakes;
use gatewright_core::cost::Dimension;
use gatewright_core::model::Hostname;
use gatewright_core::statuses::{Listed, Selection, Summary, summary};
use gatewright_core::translate::QuotaUse;

/// The number of namespaces whose quotas a summary has: the fullest.
const NAMESPACES: usize = 20;

/// A query for statuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusQuery {
    /// The objects.
    pub selection: Selection,
    /// The form of the answer.
    pub form: Form,
    /// The revision of an earlier answer: while it is the present one, nothing is computed.
    pub unless: Option<String>,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A list of documents with kind, metadata and status.
    #[default]
    Documents,
    /// Causes, counts, and some conditions: [`StatusAnswer`].
    Summary,
    /// The same with each condition, and the quotas of all namespaces.
    Wide,
}

/// An answer in the form of a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusAnswer {
    /// Conditions that are not as desired, and counts.
    pub summary: Summary,
    /// The use of quotas by namespaces, the fullest first.
    pub quotas: Vec<Value>,
    /// The number of namespaces that are not among them.
    pub quotas_omitted: usize,
    /// Notices for people.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The handshakes that failed with clients, which is no fault of an object; none of a cluster.
    #[serde(default)]
    pub handshakes: Vec<HostHandshakes>,
    /// What [`StatusQuery::unless`] names; empty of a cluster.
    #[serde(default)]
    pub revision: String,
}

/// The parameters of the query in a URL.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Parameters {
    object: Option<String>,
    namespace: Option<String>,
    host: Option<String>,
    not_ok: bool,
    summary: bool,
    wide: bool,
    unless: Option<String>,
}

impl TryFrom<Parameters> for StatusQuery {
    type Error = String;

    fn try_from(from: Parameters) -> Result<Self, String> {
        let Parameters {
            object,
            namespace,
            host,
            not_ok,
            summary,
            wide,
            unless,
        } = from;
        let mut selection = object
            .map(|object| Selection::of_object(&object))
            .transpose()?
            .unwrap_or_default();
        selection.namespace = namespace.or(selection.namespace);
        selection.host = host
            .map(|host| Hostname::parse(&host).map_err(|error| format!("{host:?}: {error}")))
            .transpose()?;
        selection.not_ok = not_ok;
        let form = match (wide, summary) {
            (true, _) => Form::Wide,
            (false, true) => Form::Summary,
            (false, false) => Form::Documents,
        };
        Ok(Self {
            selection,
            form,
            unless,
        })
    }
}

impl StatusQuery {
    /// Returns the path and query of its URL.
    pub fn path(&self) -> String {
        let Selection {
            kind,
            namespace,
            name,
            host,
            not_ok,
        } = &self.selection;
        let object = kind.map(|kind| match name {
            Some(name) => format!("{}/{name}", kind.as_str()),
            None => kind.as_str().to_owned(),
        });
        let host = host.as_ref().map(|host| host.as_str().to_owned());
        path_with(
            "/status",
            [
                ("object", object),
                ("namespace", namespace.clone()),
                ("host", host),
                ("notOk", not_ok.then(|| true.to_string())),
                ("summary", self.asks_for(Form::Summary)),
                ("wide", self.asks_for(Form::Wide)),
                ("unless", self.unless.clone()),
            ],
        )
    }

    fn asks_for(&self, form: Form) -> Option<String> {
        (self.form == form).then(|| true.to_string())
    }

    /// Returns what a summary lists one by one: all conditions of objects that are named, and those
    /// that are wrong where these are asked for.
    fn listed(&self) -> Listed {
        if self.selection.not_ok {
            Listed::Wrong
        } else if self.selection.is_of_objects() || self.form == Form::Wide {
            Listed::All
        } else {
            Listed::Few
        }
    }

    /// Returns the answer: the documents of the objects, and the quotas of namespaces.
    pub fn answer(&self, items: Vec<Value>, mut uses: Vec<QuotaUse>) -> Value {
        if let Some(namespace) = &self.selection.namespace {
            uses.retain(|of| *of.namespace == **namespace);
        }
        uses.sort_by_key(|of| (Reverse(of.fullness()), of.namespace.clone()));
        match self.form {
            Form::Documents => {
                let quotas: Vec<Value> = uses.iter().map(quotas).collect();
                json!({"apiVersion": "v1", "kind": "List", "items": items, "quotas": quotas})
            }
            Form::Summary | Form::Wide => {
                // Named objects are of more interest than what their namespaces use.
                if self.selection.is_of_objects() || self.selection.not_ok {
                    uses.clear();
                }
                let most = if self.form == Form::Wide {
                    uses.len()
                } else {
                    NAMESPACES
                };
                let answer = StatusAnswer {
                    summary: summary(&items, self.listed()),
                    quotas: uses.iter().take(most).map(quotas).collect(),
                    quotas_omitted: uses.len().saturating_sub(most),
                    ..StatusAnswer::default()
                };
                serde_json::to_value(answer).expect("strings and numbers")
            }
        }
    }
}

/// Returns what a namespace uses of its quotas and what it may have.
fn quotas(of: &QuotaUse) -> Value {
    let quotas: Map<String, Value> = Dimension::ALL
        .into_iter()
        .map(|dimension| {
            let (used, limit) = (of.used.of(dimension), of.allowed.of(dimension));
            (
                dimension.name().to_owned(),
                json!({"used": used, "limit": limit}),
            )
        })
        .collect();
    json!({"namespace": &*of.namespace, "quotas": quotas})
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::extract::Query;

    #[test]
    fn a_query_is_read_as_it_is_written() {
        let selection = Selection {
            namespace: Some("team a".to_owned()),
            host: Some(Hostname::parse("shop.example.org").expect("a hostname")),
            not_ok: true,
            ..Selection::of_object("httproute/shop").expect("an object")
        };
        for query in [
            StatusQuery {
                selection,
                form: Form::Summary,
                unless: Some("4-1f".to_owned()),
            },
            StatusQuery {
                form: Form::Wide,
                ..StatusQuery::default()
            },
            StatusQuery::default(),
        ] {
            let path = query.path();
            let uri = path.parse().expect("a URL");
            let Query(read) = Query::<Parameters>::try_from_uri(&uri).expect("parameters");
            assert_eq!(StatusQuery::try_from(read), Ok(query), "{path}");
        }
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        for (parameters, text) in [
            (
                Parameters {
                    object: Some("pod/x".to_owned()),
                    ..Parameters::default()
                },
                "\"pod\" is no kind with a status",
            ),
            (
                Parameters {
                    host: Some("a b".to_owned()),
                    ..Parameters::default()
                },
                "\"a b\"",
            ),
        ] {
            let error = StatusQuery::try_from(parameters).expect_err("it is wrong");
            assert!(error.starts_with(text), "{error}");
        }
    }
}
