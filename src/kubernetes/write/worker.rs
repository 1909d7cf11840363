//! The worker for requests to the API server: a work queue, a limit of concurrent requests,
//! back-off after failures, and counters. The content of the requests is up to the user of the
//! worker.
//!
//! It is for requests that converge to a desired state. docs/decisions/034-writes-by-one-worker.md
//! lists the requests that do not.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::metrics::Writes;
use crate::write::failure::Failure;
use crate::write::request::{begin, ended_or_due, limit_after, within};
use crate::write::work_queue::{Queued, WorkQueue};

/// The queue and the running requests about objects `K`, with outcomes `T`.
pub(crate) struct Worker<K, T> {
    queue: WorkQueue<K>,
    running: JoinSet<T>,
    room: usize,
    counts: RequestCounts,
    /// The consecutive failures of the object that was taken last.
    failures: u32,
    /// Shared with each running request that has a longer time limit.
    patient: Arc<()>,
}

/// The maximum number of concurrent requests with a longer time limit. They take no room of others,
/// since they wait for the admission webhooks of few objects.
const PATIENT: usize = 8;

/// The time until the retry of a request whose class of failure is not retried: a deleted namespace
/// may be created again.
const LAST_RESORT: Duration = Duration::from_secs(5);

/// Counters of started and failed requests. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounts(Arc<Mutex<Writes>>);

impl RequestCounts {
    /// Returns the counters so far.
    pub(crate) fn read(&self) -> Writes {
        self.0
            .lock()
            .expect("nobody panics while holding it")
            .clone()
    }

    fn count(&self, change: impl FnOnce(&mut Writes)) {
        change(&mut self.0.lock().expect("nobody panics while holding it"));
    }
}

impl<K: Queued, T: Send + 'static> Worker<K, T> {
    /// Creates a worker with an empty queue, and at most `room` concurrent requests.
    pub(crate) fn new(room: usize) -> Self {
        Self::counted_by(RequestCounts::default(), room)
    }

    /// As [`Self::new`], with counters that outlive the worker.
    pub(crate) fn counted_by(counts: RequestCounts, room: usize) -> Self {
        Self {
            queue: WorkQueue::default(),
            running: JoinSet::new(),
            room,
            counts,
            failures: 0,
            patient: Arc::default(),
        }
    }

    /// Returns the number of started requests by action, and of failures by class.
    pub(crate) fn metrics(&self) -> Writes {
        self.counts.read()
    }

    /// Sets the maximum number of concurrent requests. Running ones go on.
    pub(crate) fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Returns whether the maximum number of requests is running.
    pub(crate) fn is_full(&self) -> bool {
        self.running.len() >= self.room + self.patient()
    }

    /// Returns the number of running requests with a longer time limit.
    fn patient(&self) -> usize {
        Arc::strong_count(&self.patient) - 1
    }

    /// Returns whether no request is running.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Queues an object for the time `at`, or earlier; see [`WorkQueue::want`].
    pub(crate) fn want(&mut self, key: K, at: Instant) {
        self.queue.want(key, at);
    }

    /// Removes an object from the queue, and resets its failures.
    pub(crate) fn drop(&mut self, key: &K) {
        self.queue.drop(key);
    }

    /// Returns whether a request about an object is under way.
    pub(crate) fn is_running(&self, key: &K) -> bool {
        self.queue.is_running(key)
    }

    /// Returns the next object that is due, while there is room. [`Worker::begin`] or
    /// [`Worker::done`] must follow.
    pub(crate) fn take(&mut self, now: Instant) -> Option<K> {
        if self.is_full() {
            return None;
        }
        let key = self.queue.take(now)?;
        self.failures = self.queue.failures(&key);
        Some(key)
    }

    /// Starts the request about an object that was taken.
    pub(crate) fn begin(
        &mut self,
        what: &'static str,
        object: &str,
        request: impl Future<Output = T> + Send + 'static,
    ) {
        self.begin_several(what, &[what], object, request);
    }

    /// Starts several requests, in order, about an object that was taken. Each is counted by its
    /// action.
    pub(crate) fn begin_several(
        &mut self,
        what: &'static str,
        actions: &[&'static str],
        object: &str,
        requests: impl Future<Output = T> + Send + 'static,
    ) {
        self.counts.count(|writes| {
            for action in actions {
                *writes.begun.entry(action).or_default() += 1;
            }
        });
        let is_patient = self.failures > 0 && self.patient() < PATIENT;
        let patient = is_patient.then(|| self.patient.clone());
        let limit = limit_after(if is_patient { self.failures } else { 0 });
        begin(&mut self.running, what, &object, async move {
            let outcome = within(limit, requests).await;
            drop(patient);
            outcome
        });
    }

    /// Returns the time at which the next object is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.queue.next()
    }

    /// Waits until a request has ended; `None` when a queued object is due. After a request
    /// [`Worker::done`] or [`Worker::failed`] must follow.
    pub(crate) async fn next(&mut self) -> Option<T> {
        let due = self.due().filter(|_| !self.is_full());
        ended_or_due(&mut self.running, due).await
    }

    /// Notes that the work about an object succeeded, or was not needed.
    pub(crate) fn done(&mut self, key: &K) {
        self.queue.done(key);
    }

    /// Notes that a request failed: it is retried after the back-off of its class, if the class is
    /// retried. Returns the number of consecutive failures before it.
    pub(crate) fn failed(&mut self, key: &K, failure: &Failure, now: Instant) -> u32 {
        self.count_failure(failure);
        let before = self.queue.failures(key);
        self.queue
            .failed(key, now, |failures| failure.pause(failures));
        before
    }

    /// Counts a failure without a back-off: the next request about the object is another one.
    pub(crate) fn count_failure(&self, failure: &Failure) {
        self.counts
            .count(|writes| *writes.failed.entry(failure.class()).or_default() += 1);
    }

    /// As [`Self::failed`], but a request whose class is not retried is retried after
    /// [`LAST_RESORT`].
    pub(crate) fn failed_and_due(&mut self, key: &K, failure: &Failure, now: Instant) {
        self.failed(key, failure, now);
        if !self.is_wanted(key) {
            self.want(key.clone(), now + LAST_RESORT);
        }
    }

    /// Returns the number of consecutive failed requests about an object.
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.queue.failures(key)
    }

    /// Returns whether an object is queued, or is queued again while its request runs.
    pub(crate) fn is_wanted(&self, key: &K) -> bool {
        self.queue.is_wanted(key)
    }

    /// Returns the number of objects that are queued or running.
    pub(crate) fn pending(&self) -> usize {
        self.queue.waiting() + self.queue.running()
    }

    /// Waits for the running requests, and starts no more.
    pub(crate) async fn finish(mut self) {
        while self.running.join_next().await.is_some() {}
    }

    /// Aborts the running requests.
    pub(crate) async fn abort(mut self) {
        self.running.shutdown().await;
    }
}
