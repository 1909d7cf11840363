//! The certificate writer of one term: installs held certificates in Secrets that lack them,
//! withdraws lost ones, and publishes ConfigMaps. A newly issued certificate is written by the
//! storage instead, since its caller waits for that write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use acme::keeper::Stored;
use acme::storage::StorageError;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::IssuanceEvent;
use super::lost::{AllLost, Lost};
use super::published::{Notice, PublishedConfigMap};
use crate::storage::{ObjectStorage, class};
use crate::write::failure::Failure;
use crate::write::request::failed;
use crate::write::work_queue::Queued;
use crate::write::worker::{RequestCounts, Worker};
use gatewright_control::certificates::{CertificateManager, CertificateUpdate};
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;

/// The maximum number of concurrent writes.
const AT_ONCE: usize = 4;

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// Publishes a ConfigMap.
    Publish(Notice),
    /// Installs a held certificate in a Secret.
    Install(ObjectName),
    /// Withdraws a lost certificate from a Secret.
    Withdraw(ObjectName),
}

impl Queued for Task {
    fn namespace(&self) -> &str {
        match self {
            Task::Publish(_) => "",
            Task::Install(secret) | Task::Withdraw(secret) => &secret.namespace,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Publish(notice) => write!(f, "configmap {}", notice.name()),
            Task::Install(name) | Task::Withdraw(name) => write!(f, "secret {name}"),
        }
    }
}

/// The outcome of a write.
struct WriteOutcome {
    task: Task,
    outcome: Outcome,
}

enum Outcome {
    /// Returns the state of the ConfigMap to the writer.
    Published(Box<PublishedConfigMap>, Result<(), Failure>),
    Installed(Result<(), StorageError>),
    /// The flag says whether the certificate was in the Secret.
    Withdrawn(Lost, Result<bool, StorageError>),
}

/// Writes the updates of the certificate manager, and withdraws lost certificates.
pub(super) struct CertificateWriter {
    storage: Arc<ObjectStorage>,
    manager: Arc<CertificateManager>,
    worker: Worker<Task, WriteOutcome>,
    /// The ConfigMaps that are not being published right now.
    published: BTreeMap<Notice, PublishedConfigMap>,
    /// The held certificates to be installed.
    held: BTreeMap<ObjectName, Arc<Stored>>,
    /// The certificates to be withdrawn, and below those that have been.
    lost: AllLost,
    withdrawn: AllLost,
    /// The writes whose failure was logged.
    logged: BTreeSet<Task>,
}

impl CertificateWriter {
    /// Creates a writer with an empty queue.
    pub(super) fn new(
        storage: Arc<ObjectStorage>,
        manager: Arc<CertificateManager>,
        published: BTreeMap<Notice, PublishedConfigMap>,
        counts: RequestCounts,
    ) -> Self {
        Self {
            storage,
            manager,
            worker: Worker::counted_by(counts, AT_ONCE),
            published,
            held: BTreeMap::new(),
            lost: AllLost::new(),
            withdrawn: AllLost::new(),
            logged: BTreeSet::new(),
        }
    }

    /// Writes until the certificate manager ends.
    pub(super) async fn run(
        mut self,
        mut handed: mpsc::Receiver<Vec<CertificateUpdate>>,
        mut lost: watch::Receiver<AllLost>,
        out: &mpsc::Sender<IssuanceEvent>,
    ) {
        let mut changes = self.manager.changes();
        lost.mark_changed();
        loop {
            self.write(Instant::now());
            tokio::select! {
                updates = handed.recv() => {
                    let Some(updates) = updates else { return };
                    let troubles = self.take(updates, Instant::now());
                    if !troubles.is_empty() {
                        // The receiver may be shutting down.
                        let _ = out.send(IssuanceEvent::Troubles(troubles)).await;
                    }
                }
                // Never an error while running: the certificate manager holds the sender.
                _ = changes.changed() => self.publish(Instant::now()),
                Ok(()) = lost.changed() => {
                    let now = lost.borrow_and_update().clone();
                    self.withdraw(now, Instant::now());
                }
                ended = self.worker.next() => {
                    if let Some(ended) = ended {
                        self.take_outcome(ended, Instant::now());
                    }
                }
            }
        }
    }

    /// Queues the publication of all ConfigMaps.
    fn publish(&mut self, now: Instant) {
        for notice in [Notice::Challenges, Notice::Roots] {
            self.worker.want(Task::Publish(notice), now);
        }
    }

    /// Takes in updates of the certificate manager. Returns the reasons for which Secrets have no
    /// certificate yet.
    fn take(
        &mut self,
        updates: Vec<CertificateUpdate>,
        now: Instant,
    ) -> Vec<(ObjectName, Option<String>)> {
        self.publish(now);
        let mut troubles = Vec::new();
        for update in updates {
            match update {
                // A held certificate covers a name that was added later, or its Secret was deleted.
                CertificateUpdate::Certificate(name, Some(stored)) => {
                    self.held.insert(name.clone(), stored);
                    let task = Task::Install(name);
                    // A new update is tried at once, without the back-off of an earlier rejection.
                    self.forget(&task);
                    self.worker.want(task, now);
                }
                CertificateUpdate::Certificate(name, None) => {
                    self.held.remove(&name);
                    self.forget(&Task::Install(name));
                }
                CertificateUpdate::Trouble(secret, text) => troubles.push((secret, text)),
                // Challenges are published by ACME account.
                CertificateUpdate::Challenge(..) => {}
            }
        }
        troubles
    }

    /// Replaces the set of certificates to be withdrawn.
    fn withdraw(&mut self, lost: AllLost, now: Instant) {
        self.withdrawn
            .retain(|name, withdrawn| lost.get(name) == Some(withdrawn));
        let others = self
            .lost
            .iter()
            .filter(|(name, before)| lost.get(*name) != Some(*before));
        for name in others.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.forget(&Task::Withdraw(name));
        }
        self.lost = lost;
        for name in self
            .lost
            .keys()
            .filter(|name| !self.withdrawn.contains_key(*name))
        {
            self.worker.want(Task::Withdraw(name.clone()), now);
        }
    }

    fn forget(&mut self, task: &Task) {
        self.worker.drop(task);
        self.logged.remove(task);
    }

    /// Starts the queued writes, up to the limit.
    fn write(&mut self, now: Instant) {
        while let Some(task) = self.worker.take(now) {
            let object = task.to_string();
            let storage = self.storage.clone();
            match &task {
                Task::Publish(notice) => {
                    let mut published = self
                        .published
                        .remove(notice)
                        .expect("one write of a ConfigMap at a time");
                    if published.is_current(&self.manager) {
                        self.published.insert(*notice, published);
                        self.worker.done(&task);
                        continue;
                    }
                    let manager = self.manager.clone();
                    self.worker.begin("publish", &object, async move {
                        let outcome = published.publish(&manager).await;
                        WriteOutcome {
                            task,
                            outcome: Outcome::Published(Box::new(published), outcome),
                        }
                    });
                }
                Task::Install(name) => {
                    let Some(stored) = self.held.get(name).cloned() else {
                        self.worker.done(&task);
                        continue;
                    };
                    let name = name.clone();
                    self.worker.begin("install", &object, async move {
                        let outcome = storage.install(&name, &stored).await;
                        WriteOutcome {
                            task,
                            outcome: Outcome::Installed(outcome),
                        }
                    });
                }
                Task::Withdraw(name) => {
                    let lost = self
                        .lost
                        .get(name)
                        .filter(|lost| self.withdrawn.get(name) != Some(*lost));
                    let Some(lost) = lost.cloned() else {
                        self.worker.done(&task);
                        continue;
                    };
                    let name = name.clone();
                    self.worker.begin("withdraw", &object, async move {
                        let outcome = storage.withdraw(&name, &lost.serial, &lost.why()).await;
                        WriteOutcome {
                            task,
                            outcome: Outcome::Withdrawn(lost, outcome),
                        }
                    });
                }
            }
        }
    }

    fn take_outcome(&mut self, WriteOutcome { task, outcome }: WriteOutcome, now: Instant) {
        let failure = match outcome {
            Outcome::Published(published, outcome) => {
                if let Task::Publish(notice) = task {
                    self.published.insert(notice, *published);
                }
                outcome
                    .err()
                    .map(|failure| (format!("{task}: {failure}"), failure))
            }
            Outcome::Installed(Err(error @ StorageError::Foreign { .. })) => {
                // The owner of the Secret has to release it; the certificate manager looks at it
                // then.
                warn!("{error}");
                None
            }
            Outcome::Installed(outcome) => outcome
                .err()
                .map(|error| (error.to_string(), class(&error))),
            Outcome::Withdrawn(lost, Ok(was_there)) => {
                if let Task::Withdraw(name) = &task {
                    if was_there {
                        info!(
                            "the certificate in secret {name} is withdrawn: {}",
                            lost.why()
                        );
                    }
                    self.withdrawn.insert(name.clone(), lost);
                }
                None
            }
            Outcome::Withdrawn(_, Err(error)) => Some((error.to_string(), class(&error))),
        };
        let Some((text, failure)) = failure else {
            self.worker.done(&task);
            self.logged.remove(&task);
            if let Task::Install(name) = &task
                && !self.worker.is_wanted(&task)
            {
                self.held.remove(name);
            }
            return;
        };
        if !matches!(failure, Failure::Conflict | Failure::Gone) && self.logged.insert(task.clone())
        {
            match &task {
                Task::Publish(_) => warn!("{text}"),
                Task::Install(name) | Task::Withdraw(name) => {
                    failed(
                        &ObjectKey::new(Kind::Secret, name.clone()),
                        failure.class(),
                        text,
                    );
                }
            }
        }
        let is_due = match &task {
            Task::Publish(_) => true,
            Task::Install(name) => self.held.contains_key(name),
            Task::Withdraw(name) => self.lost.contains_key(name),
        };
        if is_due {
            self.worker.failed_and_due(&task, &failure, now);
        } else {
            self.worker.failed(&task, &failure, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::time::Duration;

    use gatewright_control::certificates::{Authority, CertificateManagerConfig};
    use hyper::{Request, Response, StatusCode};
    use jiff::Timestamp;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::time::Instant as Clock;

    use super::*;

    /// A server: the requests that it received, and the status code by which it answers requests
    /// for single objects.
    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<(Vec<String>, u16)>>);

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let path = request.uri().path().to_owned();
                let is_list = path.ends_with("/secrets") || path.ends_with("/configmaps");
                let mut state = server.0.lock().expect("nobody panics");
                let code = if is_list && request.method() == "GET" {
                    200
                } else {
                    state.1
                };
                if !is_list || request.method() != "GET" {
                    state.0.push(format!("{} {path}", request.method()));
                }
                let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []});
                let reason = if code == 404 { "NotFound" } else { "" };
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                    "reason": reason, "message": "no", "metadata": {}});
                let answer: Value = if is_list { list } else { status };
                let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
                *response.status_mut() = StatusCode::from_u16(code).expect("a code");
                async move { Ok::<_, Infallible>(response) }
            });
            Client::new(service, "default")
        }

        fn answers(&self, code: u16) {
            self.0.lock().expect("nobody panics").1 = code;
        }

        fn take_asked(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().expect("nobody panics").0)
        }
    }

    /// Creates the writer of a term over this server.
    async fn writer(server: &Server) -> CertificateWriter {
        let term = watch::channel(Some(Clock::now() + Duration::from_secs(3600))).1;
        let storage = ObjectStorage::open(server.client(), "ours", term)
            .await
            .expect("nothing is there");
        let storage = Arc::new(storage);
        let authority = Authority::stored(storage.clone(), Timestamp::now())
            .await
            .expect("there is none");
        let config = CertificateManagerConfig {
            storage: storage.clone(),
            authority: Arc::new(authority),
            issuers: BTreeMap::new(),
            at_once: 1,
            places: None,
            secret_targets: Some(storage.clone()),
        };
        let manager = Arc::new(
            CertificateManager::open(config)
                .await
                .expect("it needs nothing"),
        );
        let published = PublishedConfigMap::all(&server.client(), "ours");
        CertificateWriter::new(storage, manager, published, RequestCounts::default())
    }

    /// Runs the writes that are due at `now`, and takes in their outcomes.
    async fn write(writer: &mut CertificateWriter, now: Instant) {
        writer.write(now);
        let ended = writer.worker.next().await.expect("it was due");
        writer.take_outcome(ended, now);
    }

    #[tokio::test]
    async fn a_withdrawal_that_fails_is_tried_again_by_its_class_until_nothing_is_to_be_withdrawn()
    {
        let server = Server::default();
        let mut writer = writer(&server).await;
        server.answers(503);
        server.take_asked();
        let name = ObjectName::new("a", "tls");
        fn lost_one(serial: &str, name: &ObjectName) -> BTreeMap<ObjectName, Lost> {
            AllLost::from([(name.clone(), Lost::of(&["a.example.org"], serial))])
        }
        let lost = lost_one("01", &name);
        let mut now = Instant::now();
        writer.withdraw(lost.clone(), now);
        for pause in [200, 400, 800] {
            write(&mut writer, now).await;
            assert_eq!(
                server.take_asked(),
                ["GET /api/v1/namespaces/a/secrets/tls"]
            );
            assert_eq!(
                writer.worker.due(),
                Some(now + Duration::from_millis(pause))
            );
            now += Duration::from_millis(pause);
        }
        let metrics = writer.worker.metrics();
        assert_eq!(metrics.begun["withdraw"], 3, "it is tried three times");
        assert_eq!(
            metrics.failed["unavailable"], 3,
            "each time the server is unavailable"
        );
        writer.withdraw(lost.clone(), now);
        let later = now + Duration::from_secs(1);
        writer.withdraw(lost_one("02", &name), later);
        assert_eq!(
            writer.worker.due(),
            Some(later),
            "another certificate has no failures yet"
        );
        writer.withdraw(lost.clone(), now);
        // The Secret does not exist: nothing to withdraw.
        server.answers(404);
        write(&mut writer, now).await;
        assert_eq!(writer.worker.due(), None, "nothing is due");
        assert_eq!(writer.withdrawn, lost, "what is withdrawn is kept");
        writer.withdraw(lost, now);
        assert_eq!(writer.worker.due(), None, "it is withdrawn");
        writer.withdraw(AllLost::new(), now);
        assert!(writer.withdrawn.is_empty() && writer.logged.is_empty());
    }

    /// Runs the writes that are due at `now`, all of them, and returns the requests.
    async fn write_all(
        writer: &mut CertificateWriter,
        server: &Server,
        now: Instant,
    ) -> Vec<String> {
        server.take_asked();
        writer.write(now);
        for _ in 0..writer.worker.pending() {
            let ended = writer.worker.next().await.expect("it runs");
            writer.take_outcome(ended, now);
        }
        let mut asked = server.take_asked();
        asked.sort();
        asked
    }

    #[tokio::test]
    async fn notices_are_read_once_and_written_when_they_say_something_else() {
        let server = Server::default();
        let mut writer = writer(&server).await;
        server.answers(404);
        let now = Instant::now();
        assert!(writer.take(Vec::new(), now).is_empty());
        let read = ["gatewright-challenges", "gatewright-internal-ca"]
            .map(|name| format!("GET /api/v1/namespaces/ours/configmaps/{name}"));
        assert_eq!(
            write_all(&mut writer, &server, now).await,
            read,
            "both are read"
        );
        writer.publish(now);
        assert!(
            write_all(&mut writer, &server, now).await.is_empty(),
            "both say what is wanted"
        );
        assert_eq!(writer.worker.metrics().begun, [("publish", 2)].into());
    }

    #[tokio::test]
    async fn a_notice_that_fails_keeps_no_other_back() {
        let server = Server::default();
        let mut writer = writer(&server).await;
        server.answers(503);
        let now = Instant::now();
        writer.publish(now);
        assert_eq!(
            write_all(&mut writer, &server, now).await.len(),
            2,
            "both are tried"
        );
        assert_eq!(
            writer.worker.metrics().failed["unavailable"],
            2,
            "both fail"
        );
        server.answers(404);
        let later = now + Duration::from_millis(200);
        assert_eq!(
            write_all(&mut writer, &server, later).await.len(),
            2,
            "both are tried again"
        );
        assert_eq!(writer.worker.due(), None, "nothing is left");
        assert_eq!(writer.logged.len(), 0, "nothing is left");
    }
}
