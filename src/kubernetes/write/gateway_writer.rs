//! The writer of objects that are made for Gateways: a queue of Gateways, the writes of each in
//! order, and the problems of each. What a Gateway's objects should be is up to the user.

use std::time::Instant;

use kube::Client;
use kube::core::DynamicObject;
use tracing::debug;

use super::failure::Failure;
use super::gateway_troubles::GatewayTroubles;
use super::object_write::{ObjectWrite, run};
use super::worker::Worker;
use super::written::{Moment, Written};
use crate::defaults::SpecDefaults;
use crate::metrics::Writes;
use gatewright_core::model::ObjectName;
use gatewright_core::translate::{Change, Fact};

/// The maximum number of Gateways that are written at the same time.
const AT_ONCE: usize = 4;

/// The queue and the running writes, with answers `T` about objects `K`.
pub(crate) struct GatewayWriter<K, T> {
    client: Client,
    /// The name of the writes in traces and logs.
    what: &'static str,
    /// Reads an object as the watch does.
    read: fn(DynamicObject) -> Option<(K, T)>,
    /// The objects that the watch has not brought since they were written.
    written: Written<K, T>,
    worker: Worker<ObjectName, Done<K, T>>,
    troubles: GatewayTroubles,
}

/// The writes that a Gateway needs.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// The writes, in order.
    pub(crate) writes: Vec<ObjectWrite>,
    /// The conflict that prevents others.
    pub(crate) trouble: Option<String>,
    /// What a rejection is about, for messages; empty where the message says it.
    pub(crate) subject: String,
}

/// The outcome of the writes for one Gateway.
struct Done<K, T> {
    gateway: ObjectName,
    outcome: Result<(), Failure>,
    /// The objects as the API server answered, and when the writes began.
    answers: Vec<(K, T)>,
    begun: Moment,
    trouble: Option<String>,
    subject: String,
}

/// The outcome of the writes for one Gateway; `None` when a delayed retry is due.
pub(crate) struct WriterEvent<K, T>(Option<Done<K, T>>);

impl<K: Ord + Clone + Send + 'static, T: Send + 'static> GatewayWriter<K, T> {
    /// Creates the writer with an empty queue. `fact` tells the engine of a problem.
    pub(crate) fn new(
        client: Client,
        what: &'static str,
        fact: fn(ObjectName, Option<String>) -> Fact,
        read: fn(DynamicObject) -> Option<(K, T)>,
    ) -> Self {
        Self {
            client,
            what,
            read,
            written: Written::default(),
            worker: Worker::new(AT_ONCE),
            troubles: GatewayTroubles::new(fact),
        }
    }

    /// Queues a Gateway for comparison.
    pub(crate) fn want(&mut self, gateway: ObjectName) {
        self.worker.want(gateway, Instant::now());
    }

    /// Queues a Gateway whose desired objects changed: at once, without the back-off of an earlier
    /// rejection.
    pub(crate) fn want_anew(&mut self, gateway: ObjectName) {
        self.worker.drop(&gateway);
        self.want(gateway);
    }

    /// Notes an event of the watch about an object.
    pub(crate) fn hear(&mut self, key: &K) {
        self.written.hear(key, !self.worker.is_idle());
    }

    /// Returns an object as it was written last, if the watch has not brought it yet.
    pub(crate) fn written(&self, key: &K) -> Option<&T> {
        self.written.get(key)
    }

    /// Returns the next Gateway that is due, while there is room; [`Self::begin`] must follow.
    /// Without the right to write, Gateways leave the queue: all are queued when it comes back.
    pub(crate) fn take(&mut self, may_write: bool) -> Option<ObjectName> {
        let now = Instant::now();
        self.written.expire(now);
        loop {
            let gateway = self.worker.take(now)?;
            if may_write {
                return Some(gateway);
            }
            self.worker.done(&gateway);
        }
    }

    /// Starts the writes of a Gateway.
    pub(crate) fn begin(&mut self, gateway: ObjectName, planned: Planned) {
        let Planned {
            writes,
            trouble,
            subject,
        } = planned;
        if writes.is_empty() {
            self.succeeded(&gateway, trouble);
            return;
        }
        let actions: Vec<&'static str> = writes.iter().map(ObjectWrite::label).collect();
        let (client, read) = (self.client.clone(), self.read);
        let begun = self.written.begin(self.worker.is_idle());
        let object = format!("gateway {gateway}");
        self.worker
            .begin_several(self.what, &actions, &object, async move {
                let mut answers = Vec::new();
                let outcome = run(&client, writes, &SpecDefaults::default(), &mut answers).await;
                Done {
                    gateway,
                    outcome,
                    answers: answers.into_iter().filter_map(read).collect(),
                    begun,
                    trouble,
                    subject,
                }
            });
    }

    /// Waits until a write has ended or a delayed retry is due.
    pub(crate) async fn next(&mut self) -> WriterEvent<K, T> {
        WriterEvent(self.worker.next().await)
    }

    /// Takes in the outcome of a write.
    pub(crate) fn take_event(&mut self, event: WriterEvent<K, T>) {
        let Some(done) = event.0 else { return };
        let (gateway, now) = (done.gateway, Instant::now());
        for (key, object) in done.answers {
            self.written.answered(key, object, done.begun, now);
        }
        let Err(failure) = done.outcome else {
            self.succeeded(&gateway, done.trouble);
            return;
        };
        match &failure {
            // A person has to act on this failure.
            Failure::Refused(_) | Failure::Contested(_) | Failure::Forbidden(_) => {
                let text = if done.subject.is_empty() {
                    failure.to_string()
                } else {
                    format!("{}: {failure}", done.subject)
                };
                self.troubles.tell(&gateway, failure.class(), Some(text));
            }
            Failure::Unavailable(text) => debug!("{} of gateway {gateway}: {text}", self.what),
            Failure::Conflict | Failure::Gone | Failure::Throttled(_) => {}
        }
        self.worker.failed(&gateway, &failure, now);
    }

    fn succeeded(&mut self, gateway: &ObjectName, trouble: Option<String>) {
        self.worker.done(gateway);
        self.troubles.tell(gateway, "conflict", trouble);
    }

    /// Takes the facts for the engine since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<Change> {
        self.troubles.take_news()
    }

    /// Returns counters of writes, and the number of Gateways with a reported problem.
    pub(crate) fn metrics(&self) -> (Writes, usize) {
        (self.worker.metrics(), self.troubles.count())
    }

    /// Waits for the writes in progress, and starts no more.
    pub(crate) async fn stop(self) {
        self.worker.finish().await;
    }

    /// Returns the number of Gateways that are queued or written.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        self.worker.pending()
    }

    /// Returns whether a Gateway is queued.
    #[cfg(test)]
    pub(crate) fn is_wanted(&self, gateway: &ObjectName) -> bool {
        self.worker.is_wanted(gateway)
    }
}
