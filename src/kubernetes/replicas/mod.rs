//! Aggregates `Programmed` over all replicas: each replica that does not write statuses publishes a
//! record of the acknowledgements of its Envoys, and the lease holder sums them up.
//!
//! A record is an annotation of a Lease of the replica's own, which belongs to its pod and is
//! garbage-collected with it. It is written when it has changed, at most twice a second: never in a
//! steady state.

mod record;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatewright_core::model::EnvoyFleet;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::Config;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::warn;

use gatewright_control::event::LEASE;
use gatewright_control::fleet_views::FleetViews;
use xds::{Generation, NodeProgress, Rejection};

use record::Others;
pub(crate) use record::Record;

use super::FIELD_MANAGER;
use crate::metrics::Writes;
use crate::watch::peers::{PeerEvent, follow};
use crate::write::conflict_backoff::WriteConflictBackoff;
use crate::write::failure::Failure;
use crate::write::request::in_time;
use crate::write::worker::Worker;

/// The minimum time between two writes of the record.
const PAUSE: Duration = Duration::from_millis(500);
const LABEL: &str = "app.kubernetes.io/component";
const COMPONENT: &str = "replica";
/// The name prefix of these Leases.
const PREFIX: &str = "gatewright-replica-";
const ANNOTATION: &str = "gatewright.io/acknowledged";

/// The identity of a replica.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The namespace of the Leases.
    pub namespace: String,
    /// The name of the replica.
    pub identity: String,
    /// The UID of its pod, which becomes the owner reference of the record.
    pub pod: Option<String>,
}

/// An event of the watch: the name of a replica, and its record with the version, or `None` after a
/// deletion.
#[derive(Debug)]
pub struct ReplicaEvent(String, Option<(u64, Record)>);

/// The records of all replicas, with the writer of our own.
pub struct Replicas {
    client: Client,
    replica: Replica,
    others: Others,
    /// The desired content of our record; `None` while it needs none.
    wanted: Option<Record>,
    /// The content of our record as last read or written.
    written: Option<Record>,
    worker: Worker<(), WriteOutcome>,
    conflict_backoff: WriteConflictBackoff<()>,
    /// The error of the last failed write, as last logged.
    logged: String,
}

/// The outcome of a write of our record.
pub(super) struct WriteOutcome {
    record: Record,
    outcome: Result<(), Failure>,
}

impl Replicas {
    /// Creates the state in which no record is known.
    pub(super) fn new(client: Client, replica: Replica) -> Self {
        Self {
            client,
            replica,
            others: Others::default(),
            wanted: None,
            written: None,
            worker: Worker::new(1),
            conflict_backoff: WriteConflictBackoff::default(),
            logged: String::new(),
        }
    }

    /// Takes in an event of the watch.
    pub(super) fn take_in(&mut self, event: ReplicaEvent) {
        let ReplicaEvent(name, record) = event;
        if name != self.replica.identity {
            self.others.set(&name, record);
        } else if self.worker.is_idle() {
            // Our own record: of an earlier process, or as it was just written.
            self.written = record.map(|(_, record)| record);
        }
    }

    /// Returns the Envoys of other replicas. See [`Others::nodes`].
    pub(super) fn nodes(
        &mut self,
        fleet: &EnvoyFleet,
        own: &BTreeSet<Arc<str>>,
        generation: impl Fn(u64) -> Option<Generation>,
    ) -> Vec<NodeProgress> {
        self.others.nodes(fleet, own, generation)
    }

    /// Returns the rejections by Envoys of other replicas, each in its view.
    pub(super) fn refused(&self, views: &FleetViews) -> Vec<Rejection> {
        self.others.refused(views)
    }

    /// Sets the desired content of our record. A replica that never had an Envoy needs no record.
    pub(super) fn publish(&mut self, record: Record, now: Instant) {
        let is_needed = self.written.is_some() || !record.is_empty();
        self.wanted = Some(record).filter(|_| is_needed);
        if self.is_behind() {
            self.worker.want((), now + PAUSE);
        }
    }

    /// Returns whether our record differs from its desired content.
    fn is_behind(&self) -> bool {
        self.wanted.is_some() && self.wanted != self.written
    }

    /// Starts the write of our record, if it is due.
    pub(super) fn write(&mut self, now: Instant) {
        if self.worker.take(now).is_none() {
            return;
        }
        let Some(record) = self.wanted.clone().filter(|_| self.is_behind()) else {
            self.worker.done(&());
            return;
        };
        let document = document(&self.replica, &record);
        let content = json!({"record": record});
        if let Some(at) = self.conflict_backoff.not_before(&(), &content, now) {
            self.worker.done(&());
            self.worker.want((), at);
            return;
        }
        self.conflict_backoff.wrote(&(), &content, now);
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.replica.namespace);
        let name = name(&self.replica);
        let object = format!("lease {}/{name}", self.replica.namespace);
        self.worker.begin("replica", &object, async move {
            let params = PatchParams::apply(FIELD_MANAGER).force();
            let outcome = in_time(api.patch(&name, &params, &Patch::Apply(&document)))
                .await
                .map(drop);
            WriteOutcome { record, outcome }
        });
    }

    /// Waits until a write has ended; `None` when a delayed write is due.
    pub(super) async fn next(&mut self) -> Option<WriteOutcome> {
        self.worker.next().await
    }

    /// Takes in the outcome of a write.
    pub(super) fn take_outcome(&mut self, written: Option<WriteOutcome>, now: Instant) {
        let Some(WriteOutcome { record, outcome }) = written else {
            return;
        };
        let Err(failure) = outcome else {
            self.worker.done(&());
            self.written = Some(record);
            self.logged.clear();
            return;
        };
        let text = failure.to_string();
        if self.logged != text {
            let object = format!("lease {}/{}", self.replica.namespace, name(&self.replica));
            warn!(
                event = LEASE,
                object,
                identity = self.replica.identity,
                "{object}: {text}; other replicas do not know what Envoys here have acknowledged"
            );
            self.logged = text;
        }
        self.conflict_backoff.failed(&());
        self.worker.failed_and_due(&(), &failure, now);
    }

    /// Returns the number of writes that were started, and of failures by class.
    pub(super) fn metrics(&self) -> Writes {
        self.worker.metrics()
    }

    /// Waits for the write in progress, and starts no more.
    pub(super) async fn stop(self) {
        self.worker.finish().await;
    }
}

/// Returns the name of a replica's Lease.
fn name(replica: &Replica) -> String {
    format!("{PREFIX}{}", replica.identity)
}

/// Returns the Lease with a record.
fn document(replica: &Replica, record: &Record) -> Value {
    let Replica {
        namespace,
        identity,
        pod,
    } = replica;
    let text = serde_json::to_string(record).expect("a record is texts");
    let mut metadata = json!({
        "name": name(replica), "namespace": namespace,
        "labels": {LABEL: COMPONENT, "app.kubernetes.io/name": "gatewright"}, "annotations": {ANNOTATION: text},
    });
    if let Some(uid) = pod {
        metadata["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": identity, "uid": uid}]);
    }
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
        "spec": {"holderIdentity": identity}})
}

/// Watches the records of all replicas until the receiver is dropped.
pub async fn watch(client: Client, namespace: String, out: mpsc::Sender<ReplicaEvent>) {
    let api: Api<Lease> = Api::namespaced(client, &namespace);
    let config = Config::default().labels(&format!("{LABEL}={COMPONENT}"));
    follow(
        api,
        config,
        "what other replicas record",
        out,
        |event| match event {
            PeerEvent::Applied(lease) => Some(replica_event(&lease)),
            PeerEvent::Deleted(name) => {
                Some(ReplicaEvent(name.strip_prefix(PREFIX)?.to_owned(), None))
            }
            PeerEvent::Synced => None,
        },
    )
    .await;
}

fn replica_event(lease: &Lease) -> ReplicaEvent {
    let holder = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.holder_identity.clone())
        .unwrap_or_default();
    let version = lease
        .resource_version()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default();
    let record = lease
        .annotations()
        .get(ANNOTATION)
        .and_then(|text| serde_json::from_str(text).ok());
    ReplicaEvent(holder, record.map(|record| (version, record)))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use hyper::{Request, Response, StatusCode};
    use kube::client::Body;
    use xds::{Progress, View};

    use super::*;

    /// A record of one Envoy in this state.
    fn record(state: u64) -> Record {
        let views = FleetViews::from(View::new("v"));
        let node = NodeProgress {
            node: Arc::from("e"),
            identity: Arc::from("i"),
            acknowledged: 1,
        };
        let progress = views.each(|_| Progress {
            published: 1,
            nodes: vec![node.clone()],
            rejections: Vec::new(),
        });
        Record::new(&views, (state, &views.each(|_| 1)), &progress)
    }

    /// The records of a replica at a server that answers with `code`, and the number of requests.
    fn replicas(code: u16) -> (Replicas, Arc<Mutex<usize>>) {
        let asked = Arc::new(Mutex::new(0));
        let count = asked.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            *count.lock().expect("nobody panics") += 1;
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "message": "no", "metadata": {}});
            let answer = if code == 200 { lease } else { status };
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).expect("a code");
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        let replica = Replica {
            namespace: "n".into(),
            identity: "me".into(),
            pod: None,
        };
        (
            Replicas::new(Client::new(service, "default"), replica),
            asked,
        )
    }

    /// Runs the writes that are due at `now`, and takes in their outcomes.
    async fn write(replicas: &mut Replicas, now: Instant) {
        replicas.write(now);
        if !replicas.worker.is_idle() {
            let written = replicas.worker.next().await;
            replicas.take_outcome(written, now);
        }
    }

    #[tokio::test]
    async fn many_changes_are_one_write_and_nothing_new_is_none() {
        let (mut replicas, asked) = replicas(200);
        let now = Instant::now();
        replicas.publish(Record::default(), now);
        assert_eq!(replicas.worker.due(), None, "there never was an Envoy");
        replicas.publish(record(1), now);
        replicas.publish(record(2), now);
        write(&mut replicas, now).await;
        assert_eq!(
            *asked.lock().expect("nobody panics"),
            0,
            "it waits for more of the same"
        );
        write(&mut replicas, now + PAUSE).await;
        assert_eq!(
            *asked.lock().expect("nobody panics"),
            1,
            "there is one write"
        );
        assert_eq!(
            replicas.written.clone(),
            Some(record(2)),
            "it writes the newest record"
        );
        replicas.publish(record(2), now + PAUSE);
        assert_eq!(replicas.worker.due(), None, "it says so already");
        replicas.publish(record(3), now + PAUSE);
        replicas.publish(record(2), now + PAUSE);
        write(&mut replicas, now + PAUSE * 2).await;
        assert_eq!(
            *asked.lock().expect("nobody panics"),
            1,
            "nothing new is written"
        );
        assert_eq!(
            replicas.metrics().begun["replica"],
            1,
            "one write was begun"
        );
    }

    #[tokio::test]
    async fn a_failure_waits_as_its_class_does_and_is_counted() {
        for (code, class, pauses) in [
            (409, "conflict", [50, 100, 200]),
            (422, "refused", [1000, 2000, 4000]),
            (503, "unavailable", [200, 400, 800]),
            // The namespace may be created again.
            (404, "gone", [5000, 5000, 5000]),
        ] {
            let (mut replicas, asked) = replicas(code);
            let mut now = Instant::now();
            replicas.publish(record(1), now);
            now += PAUSE;
            for pause in pauses {
                write(&mut replicas, now).await;
                if class != "gone" {
                    // New content does not shorten the back-off.
                    replicas.publish(record(2), now);
                }
                assert_eq!(
                    replicas.worker.due(),
                    Some(now + Duration::from_millis(pause)),
                    "{class}"
                );
                now += Duration::from_millis(pause);
            }
            assert_eq!(*asked.lock().expect("nobody panics"), 3);
            assert_eq!(replicas.metrics().failed, [(class, 3)].into());
        }
    }

    #[tokio::test]
    async fn a_record_that_another_takes_away_is_written_ever_more_rarely() {
        let (mut replicas, asked) = replicas(200);
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..5 {
            replicas.publish(record(1), now);
            let due = loop {
                let due = replicas.worker.due().expect("it is wanted");
                let before = *asked.lock().expect("nobody panics");
                write(&mut replicas, due).await;
                if *asked.lock().expect("nobody panics") > before {
                    break due;
                }
            };
            pauses.push(due.duration_since(now).as_millis());
            now = due;
            replicas.take_in(ReplicaEvent("me".into(), None));
        }
        assert_eq!(pauses, [500, 500, 1000, 2000, 4000]);
    }
}
