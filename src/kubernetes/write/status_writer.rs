//! Writes statuses: objects are queued, and the content is asked for when a write starts, so that
//! only the newest is written, a few at a time.

use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{ApiResource, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::Value;

use crate::FIELD_MANAGER;
use crate::metrics::Writes;
use crate::write::failure::Failure;
use crate::write::request::{api, in_time};
use crate::write::status::agrees;
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
        self.worker.drop(key);
    }

    /// Returns the next object that is due, while there is room. [`StatusWriter::apply`] or
    /// [`StatusWriter::nothing`] must follow.
    pub fn take(&mut self, now: Instant) -> Option<ObjectKey> {
        self.worker.take(now)
    }

    /// Notes that nothing was to be written.
    pub fn nothing(&mut self, key: &ObjectKey) {
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

    /// Starts the apply of a status.
    pub fn apply(&mut self, key: ObjectKey, resource: &ApiResource, document: Value) {
        let api = api(self.client.clone(), &key, resource);
        self.begun = Instant::now();
        self.worker.begin("status", &key.to_string(), async move {
            let params = PatchParams::apply(FIELD_MANAGER).force();
            let patch = Patch::Apply(&document);
            let outcome = in_time(api.patch_status(&key.name.name, &params, &patch))
                .await
                .map(Box::new);
            Done { key, outcome }
        });
    }

    /// Waits until a write has ended; `None` when a delayed one is due.
    pub async fn next(&mut self) -> Option<Done> {
        let done = self.worker.next().await?;
        match &done.outcome {
            Ok(_) => self.worker.done(&done.key),
            Err(failure) => {
                if let Failure::Refused(said) = failure {
                    self.undeclared.learn(done.key.kind, said, Instant::now());
                }
                self.worker.failed(&done.key, failure, Instant::now());
            }
        }
        Some(done)
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
