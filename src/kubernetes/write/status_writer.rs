//! Writes: what waits is asked for when its turn comes, so that only the newest is written, a few at a time.

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
use gatewright_core::inputs::ObjectKey;

/// Writes at the same time. The API server's fairness gives a controller about as many seats.
const AT_ONCE: usize = 8;
/// How long after one write the next waits while objects are being written as fast as they may: what serves goes before
/// what tells of it.
const BEHIND_OBJECTS: Duration = Duration::from_millis(100);

/// How a write ended.
#[derive(Debug)]
pub struct Done {
    /// Of which object.
    pub key: ObjectKey,
    /// The object as it is now, or why it was not written.
    pub outcome: Result<Box<DynamicObject>, Failure>,
}

/// Writes statuses.
pub struct StatusWriter {
    client: Client,
    worker: Worker<ObjectKey, Done>,
    /// When the last one was begun.
    begun: Instant,
    /// What the definitions of the cluster do not have.
    undeclared: Undeclared,
}

impl StatusWriter {
    /// Nothing to write yet.
    pub fn new(client: Client) -> Self {
        Self { client, worker: Worker::new(AT_ONCE), begun: Instant::now(), undeclared: Undeclared::default() }
    }

    /// Whether objects are being written as fast as they may. A few statuses are all the same: a burst may take minutes.
    pub fn yield_to_objects(&mut self, busy: bool, now: Instant) {
        let turn = now.saturating_duration_since(self.begun) >= BEHIND_OBJECTS;
        self.worker.set_room(if busy { usize::from(turn) } else { AT_ONCE });
    }

    /// The status of an object is to be looked at, at `at` or before.
    pub fn want(&mut self, key: ObjectKey, at: Instant) {
        self.worker.want(key, at);
    }

    /// An object is gone.
    pub fn drop(&mut self, key: &ObjectKey) {
        self.worker.drop(key);
    }

    /// The next object whose turn it is, while there is room. [`StatusWriter::apply`] or [`StatusWriter::nothing`] must follow.
    pub fn take(&mut self, now: Instant) -> Option<ObjectKey> {
        self.worker.take(now)
    }

    /// There was nothing to write.
    pub fn nothing(&mut self, key: &ObjectKey) {
        self.worker.done(key);
    }

    /// A status document without what the definitions of the cluster do not have; `None` where the rest is there.
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

    /// Applies a status document.
    pub fn apply(&mut self, key: ObjectKey, resource: &ApiResource, document: Value) {
        let api = api(self.client.clone(), &key, resource);
        self.begun = Instant::now();
        self.worker.begin("status", &key.to_string(), async move {
            let params = PatchParams::apply(FIELD_MANAGER).force();
            let patch = Patch::Apply(&document);
            let outcome = in_time(api.patch_status(&key.name.name, &params, &patch)).await.map(Box::new);
            Done { key, outcome }
        });
    }

    /// Waits until a write has ended; `None` when the next object's turn has come.
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

    /// How many were begun, and how many failed, by class.
    pub(crate) fn figures(&self) -> Writes {
        self.worker.figures()
    }

    /// How many wait or run.
    pub fn pending(&self) -> usize {
        self.worker.pending()
    }

    /// Ends what is being written. Nothing more is begun.
    pub async fn stop(self) {
        self.worker.finish().await;
    }
}
