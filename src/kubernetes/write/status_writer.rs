//! Writes statuses: objects are queued, and the content is asked for when a write starts, so that
//! only the newest is written, a few at a time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, ApiResource, Patch, PatchParams};
use kube::core::{DynamicObject, ObjectMeta};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::metrics::Writes;
use crate::write::failure::Failure;
use crate::write::request::{api, edit, in_time, of_version};
use crate::write::status_lists::{agrees, removals};
use crate::write::undeclared::Undeclared;
use crate::write::worker::Worker;
use gatewright_core::inputs::{Kind, ObjectKey};

/// The maximum number of concurrent writes. API priority and fairness gives a controller about as
/// many seats.
const AT_ONCE: usize = 8;
/// The minimum time between two writes of statuses while the writer of objects is busy: objects
/// that serve go before statuses.
const BEHIND_OBJECTS: Duration = Duration::from_millis(100);

/// The longest time for which statuses wait for the record of ownership: a tenant may claim names
/// all the time.
const BEHIND_RECORD: Duration = Duration::from_secs(1);

/// The number of consecutive failures after which a status counts as failing: fields that a server
/// does not know are left out after the first one.
const IS_FAILING: u32 = 2;
/// The maximum number of failing statuses that are named.
const NAMED: usize = 5;

/// The outcome of a write.
#[derive(Debug)]
pub struct Done {
    /// The object.
    pub key: ObjectKey,
    /// The object as it is now, or the reason of the failure.
    pub outcome: Result<Box<DynamicObject>, Failure>,
}

/// The running writes of the record of ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordWrites {
    /// No write.
    Idle,
    /// Writes of new owners, while Envoys are served.
    NewOwners,
    /// Writes of the owners of the first start, for which all Envoys wait.
    FirstOwners,
}

/// The writer of statuses.
pub struct StatusWriter {
    client: Client,
    worker: Worker<ObjectKey, Done>,
    /// The start of the last write.
    begun: Instant,
    /// Since when the record of ownership has been written without a pause.
    recording: Option<Instant>,
    /// The fields that the definitions of the cluster do not have.
    undeclared: Undeclared,
    /// The last failure of each status that fails again and again.
    failing: BTreeMap<ObjectKey, String>,
}

impl StatusWriter {
    /// Creates the writer, with an empty queue.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            worker: Worker::new(AT_ONCE),
            begun: Instant::now(),
            recording: None,
            undeclared: Undeclared::default(),
            failing: BTreeMap::new(),
        }
    }

    /// Starts no write while the record of ownership is written: a hostname is served once its
    /// owner is recorded, and its status says so then. While the writer of objects is busy, the
    /// rate of statuses is reduced. It does not stop them, since a burst may take minutes.
    pub fn yield_to(&mut self, record: RecordWrites, is_busy: bool, now: Instant) {
        let is_recording = record != RecordWrites::Idle;
        self.recording = is_recording.then(|| self.recording.unwrap_or(now));
        let waits = self.recording.is_some_and(|since| {
            let is_first = record == RecordWrites::FirstOwners;
            is_first || now.saturating_duration_since(since) < BEHIND_RECORD
        });
        let turn = now.saturating_duration_since(self.begun) >= BEHIND_OBJECTS;
        self.worker.set_room(match (waits, is_busy) {
            (true, _) => 0,
            (false, true) => usize::from(turn),
            (false, false) => AT_ONCE,
        });
    }

    /// Queues the status of an object for the time `at`, or earlier.
    pub fn want(&mut self, key: ObjectKey, at: Instant) {
        self.worker.want(key, at);
    }

    /// Removes a deleted object from the queue.
    pub fn drop(&mut self, key: &ObjectKey) {
        self.failing.remove(key);
        self.worker.drop(key);
    }

    /// Returns the next object that is due, while there is room. [`StatusWriter::apply`] or
    /// [`StatusWriter::nothing`] must follow.
    pub fn take(&mut self, now: Instant) -> Option<ObjectKey> {
        self.worker.take(now)
    }

    /// Notes that nothing was to be written.
    pub fn nothing(&mut self, key: &ObjectKey) {
        self.failing.remove(key);
        self.worker.done(key);
    }

    /// A status document without what the definitions of the cluster do not have; `None` where the
    /// rest is there.
    pub(crate) fn declared(
        &mut self,
        key: &ObjectKey,
        mut document: Value,
        current: &Value,
        now: Instant,
    ) -> Option<Value> {
        let is_less = self.undeclared.leave_out(key.kind, &mut document, now);
        (!is_less || !agrees("", &document["status"], current)).then_some(document)
    }

    /// Takes in that the definitions have changed. Returns the kinds whose statuses lacked fields
    /// until now.
    pub(crate) fn definitions_changed(&mut self) -> Vec<Kind> {
        self.undeclared.forget()
    }

    /// Starts the apply of a status over `current`, the status in the version of the document.
    pub fn apply(
        &mut self,
        key: ObjectKey,
        resource: &ApiResource,
        document: Value,
        current: Value,
    ) {
        let api = api(self.client.clone(), &key, resource);
        self.begun = Instant::now();
        self.worker.begin("status", &key.to_string(), async move {
            let outcome = replace(&api, document, &current).await.map(Box::new);
            Done { key, outcome }
        });
    }

    /// Waits until a write has ended; `None` when a delayed one is due.
    pub async fn next(&mut self) -> Option<Done> {
        let done = self.worker.next().await?;
        match &done.outcome {
            Ok(_) => {
                self.failing.remove(&done.key);
                self.worker.done(&done.key);
            }
            Err(failure) => {
                if let Failure::Refused(said) = failure {
                    self.undeclared.learn(done.key.kind, said, Instant::now());
                }
                let before = self.worker.failed(&done.key, failure, Instant::now());
                if before >= IS_FAILING && !matches!(failure, Failure::Conflict | Failure::Gone) {
                    self.failing.insert(done.key.clone(), failure.to_string());
                }
            }
        }
        Some(done)
    }

    /// Returns messages about statuses whose writes fail again and again.
    pub(crate) fn pending_work(&self) -> impl Iterator<Item = String> {
        let rest = self.failing.len().saturating_sub(NAMED);
        let rest = (rest > 0).then(|| format!("{rest} more statuses cannot be written"));
        let named = self.failing.iter().take(NAMED);
        named
            .map(|(key, failure)| format!("the status of {key} cannot be written: {failure}"))
            .chain(rest)
    }

    /// Returns the number of writes that were started, and of failures by class.
    pub(crate) fn metrics(&self) -> Writes {
        self.worker.metrics()
    }

    /// Returns the number of statuses that are queued or being written.
    pub fn pending(&self) -> usize {
        self.worker.pending()
    }

    /// Waits for the writes in progress, and starts no more.
    pub async fn stop(self) {
        self.worker.finish().await;
    }
}

/// Applies a status, and removes what the apply leaves over: items of lists that another field
/// manager owns as well. Where a part of an item would be left over, the API server refuses the
/// apply, so that the items have to be removed first.
async fn replace(
    api: &Api<DynamicObject>,
    mut document: Value,
    current: &Value,
) -> Result<DynamicObject, Failure> {
    match apply(api, &document).await {
        Ok(object) => {
            let left_over = removals(&document["status"], &object.data["status"]);
            if left_over.is_empty() {
                return Ok(object);
            }
            remove(api, &object.metadata, left_over).await
        }
        Err(Failure::Refused(text)) => {
            let left_over = removals(&document["status"], current);
            if left_over.is_empty() {
                return Err(Failure::Refused(text));
            }
            let version: ObjectMeta = serde_json::from_value(document["metadata"].clone())
                .expect("a document has the metadata of its object");
            let object = remove(api, &version, left_over).await?;
            document["metadata"]["resourceVersion"] = json!(object.metadata.resource_version);
            apply(api, &document).await
        }
        Err(failure) => Err(failure),
    }
}

async fn apply(api: &Api<DynamicObject>, document: &Value) -> Result<DynamicObject, Failure> {
    let name = document["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply(FIELD_MANAGER).force();
    in_time(api.patch_status(name, &params, &Patch::Apply(document))).await
}

/// Removes items of a status of this version of an object.
async fn remove(
    api: &Api<DynamicObject>,
    version: &ObjectMeta,
    operations: Vec<Value>,
) -> Result<DynamicObject, Failure> {
    let name = version.name.as_deref().unwrap_or_default();
    in_time(api.patch_status(name, &edit(), &of_version(version, operations))).await
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::ObjectName;
    use hyper::Response;
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn statuses_wait_for_the_record_and_not_for_ever() {
        let server = tower::service_fn(|_| {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
        });
        let mut writer = StatusWriter::new(Client::new(server, "default"));
        let now = Instant::now();
        let key = ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", "web"));
        writer.want(key.clone(), now);
        writer.yield_to(RecordWrites::NewOwners, false, now);
        assert_eq!(writer.take(now), None, "the record is written first");
        writer.yield_to(RecordWrites::Idle, false, now);
        assert_eq!(writer.take(now), Some(key.clone()), "the record is written");
        writer.nothing(&key);
        writer.want(key.clone(), now);
        for (record, after, taken) in [
            (RecordWrites::NewOwners, Duration::ZERO, None),
            (
                RecordWrites::NewOwners,
                BEHIND_RECORD - Duration::from_millis(1),
                None,
            ),
            (RecordWrites::FirstOwners, BEHIND_RECORD, None),
            (RecordWrites::NewOwners, BEHIND_RECORD, Some(key)),
        ] {
            writer.yield_to(record, false, now + after);
            assert_eq!(
                writer.take(now + after),
                taken,
                "after {after:?} of writes of the record: {record:?}"
            );
        }
    }
}
