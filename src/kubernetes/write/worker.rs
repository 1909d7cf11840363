//! The worker of everything that is asked of the API server: which object is next, how many requests run at the same time, how
//! long the next try waits after a failure, and how many there were. What a request is about is its user's business.
//!
//! It is for what is to be so in the end. ARCHITECTURE.md ("Writes to the API server") lists the requests that are not.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::metrics::Writes;
use crate::write::failure::Failure;
use crate::write::request::{begin, ended_or_due};
use crate::write::work_queue::WorkQueue;

/// Requests about objects `K`, with outcomes `T`.
pub(crate) struct Worker<K, T> {
    queue: WorkQueue<K>,
    running: JoinSet<T>,
    room: usize,
    counts: RequestCounts,
}

/// After this long a request is tried whose failure says that trying again is in vain: the namespace may come back.
const LAST_RESORT: Duration = Duration::from_secs(5);

/// How many requests were begun, and how many failed. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounts(Arc<Mutex<Writes>>);

impl RequestCounts {
    /// The counts until now.
    pub(crate) fn read(&self) -> Writes {
        self.0.lock().expect("nobody panics while holding it").clone()
    }

    fn count(&self, change: impl FnOnce(&mut Writes)) {
        change(&mut self.0.lock().expect("nobody panics while holding it"));
    }
}

impl<K: Ord + Clone, T: Send + 'static> Worker<K, T> {
    /// Nothing to do yet; at most `room` requests at the same time.
    pub(crate) fn new(room: usize) -> Self {
        Self::counted_by(RequestCounts::default(), room)
    }

    /// The same, of a task that ends before its counts do.
    pub(crate) fn counted_by(counts: RequestCounts, room: usize) -> Self {
        Self { queue: WorkQueue::default(), running: JoinSet::new(), room, counts }
    }

    /// How many requests were begun, by what they do, and how many failed, by class.
    pub(crate) fn figures(&self) -> Writes {
        self.counts.read()
    }

    /// How many requests may be begun at the same time from now on. Those that run go on.
    pub(crate) fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Whether as many requests run as may.
    pub(crate) fn is_full(&self) -> bool {
        self.running.len() >= self.room
    }

    /// An object is to be looked at, at `at` or before; see [`WorkQueue::want`].
    pub(crate) fn want(&mut self, key: K, at: Instant) {
        self.queue.want(key, at);
    }

    /// An object need not be looked at any more, and its failures are forgotten.
    pub(crate) fn drop(&mut self, key: &K) {
        self.queue.drop(key);
    }

    /// The next object whose turn it is, while there is room. [`Worker::begin`] or [`Worker::done`] must follow.
    pub(crate) fn take(&mut self, now: Instant) -> Option<K> {
        if self.is_full() { None } else { self.queue.take(now) }
    }

    /// Begins the request about an object that was taken.
    pub(crate) fn begin(
        &mut self,
        what: &'static str,
        object: &str,
        request: impl Future<Output = T> + Send + 'static,
    ) {
        self.begin_several(what, &[what], object, request);
    }

    /// Begins several requests about an object that was taken, one after the other. Each counts as the action that it is.
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
        begin(&mut self.running, what, &object, requests);
    }

    /// When the next object's turn comes.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.queue.next()
    }

    /// Waits until a request has ended; `None` when the next object's turn has come. After a request [`Worker::done`] or
    /// [`Worker::failed`] must follow.
    pub(crate) async fn next(&mut self) -> Option<T> {
        let due = self.due().filter(|_| !self.is_full());
        ended_or_due(&mut self.running, due).await
    }

    /// What was to be done about an object is done, or was nothing.
    pub(crate) fn done(&mut self, key: &K) {
        self.queue.done(key);
    }

    /// A request failed: it is tried again after the pause of its class, if that class is tried again. Returns how many failed
    /// before it in a row.
    pub(crate) fn failed(&mut self, key: &K, failure: &Failure, now: Instant) -> u32 {
        self.counts.count(|writes| *writes.failed.entry(failure.class()).or_default() += 1);
        let before = self.queue.failures(key);
        self.queue.failed(key, now, |failures| failure.pause(failures));
        before
    }

    /// The same where the request is due all the same: after a failure whose class is not tried again it is tried after
    /// [`LAST_RESORT`].
    pub(crate) fn failed_and_due(&mut self, key: &K, failure: &Failure, now: Instant) {
        self.failed(key, failure, now);
        if !self.is_wanted(key) {
            self.want(key.clone(), now + LAST_RESORT);
        }
    }

    /// How many requests about an object failed in a row.
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.queue.failures(key)
    }

    /// Whether an object waits, or is to be looked at again after what runs.
    pub(crate) fn is_wanted(&self, key: &K) -> bool {
        self.queue.is_wanted(key)
    }

    /// How many objects wait or run.
    pub(crate) fn pending(&self) -> usize {
        self.queue.waiting() + self.queue.running()
    }

    /// Ends what runs, in its own time. Nothing more is begun.
    pub(crate) async fn finish(mut self) {
        while self.running.join_next().await.is_some() {}
    }

    /// Ends what runs, at once.
    pub(crate) async fn abort(mut self) {
        self.running.shutdown().await;
    }
}
