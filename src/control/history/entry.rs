//! One change in the history.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ChangeKind;

/// The maximum number of objects, hosts and Envoys of a change that are named.
pub(crate) const NAMED: usize = 16;

/// Who wrote a version of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// `metadata.generation`; `None` where an object has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The field manager of the newest write beside those of statuses; `None` where that is not
    /// known, as in standalone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
}

/// An object, or a fact of ours, that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedObject {
    /// The object as `httproute team-a/shop`, or a text about a fact.
    pub object: String,
    /// Who wrote it.
    #[serde(flatten)]
    pub author: Author,
}

/// The time that an Envoy took to acknowledge a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvoyTime {
    /// The name of the Envoy.
    pub envoy: Arc<str>,
    /// Milliseconds from the arrival of the change.
    pub milliseconds: u64,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It changed statuses, and nothing that Envoys have.
    NothingToSend,
    /// Envoys have not acknowledged it yet.
    Waiting,
    /// All Envoys that it concerns have acknowledged it.
    Acknowledged,
    /// It is not known whether Envoys have acknowledged it: too many changes waited.
    Unknown,
}

/// One change: of one kind, of objects of one namespace, published to Envoys in one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The number of the change, in the order in which they came.
    pub number: u64,
    /// When the change arrived.
    pub at: Timestamp,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The namespace of the objects; empty for objects without one.
    pub namespace: Arc<str>,
    /// The objects; at most 16.
    pub objects: Vec<ChangedObject>,
    /// The number of objects that are not named.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_objects: usize,
    /// The hostnames whose resources changed in the step, at most 16: first those that the objects
    /// name, then others, each sorted.
    pub hosts: Vec<String>,
    /// The number of hostnames that the objects name, also of those beyond 16.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub named_hosts: usize,
    /// The number of hostnames that are not named.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_hosts: usize,
    /// The number of other changes of the step: its hostnames may be theirs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub together: usize,
    /// Its outcome.
    pub outcome: Outcome,
    /// Milliseconds from the arrival to the last acknowledgement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<u64>,
    /// The Envoys that acknowledged it, in that order; at most 16, the slowest.
    pub envoys: Vec<EnvoyTime>,
    /// The number of Envoys that are not named.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_envoys: usize,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl HistoryEntry {
    /// Creates a change without objects, of which nothing came yet.
    pub(crate) fn new(namespace: Arc<str>, kind: ChangeKind, at: Timestamp) -> Self {
        Self {
            number: 0,
            at,
            kind,
            namespace,
            objects: Vec::new(),
            more_objects: 0,
            hosts: Vec::new(),
            named_hosts: 0,
            more_hosts: 0,
            together: 0,
            outcome: Outcome::Waiting,
            milliseconds: None,
            envoys: Vec::new(),
            more_envoys: 0,
        }
    }

    /// Returns about how many bytes the change takes.
    pub(crate) fn bytes(&self) -> usize {
        fn of_object(object: &ChangedObject) -> usize {
            let manager = object.author.manager.as_ref().map_or(0, String::len);
            size_of::<ChangedObject>() + object.object.len() + manager
        }
        let objects: usize = self.objects.iter().map(of_object).sum();
        let hosts: usize = self
            .hosts
            .iter()
            .map(|host| size_of::<String>() + host.len())
            .sum();
        size_of::<Self>() + objects + hosts + self.envoys.len() * size_of::<EnvoyTime>()
    }
}

/// Returns a duration in milliseconds.
pub(crate) fn milliseconds(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}
