//! `Programmed` over all replicas: each that does not write statuses keeps a record of what its Envoys acknowledged,
//! and the one that does sums up.
//!
//! A record is an annotation of a Lease of the replica's own that belongs to its pod and goes with it. It is written
//! when it says something else than before, at most twice a second: never in a steady state.

mod record;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatewright_core::model::EnvoyFleet;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::Config;
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::warn;
use xds::{Generation, NodeProgress, Rejection, View};

use record::Others;
pub(crate) use record::Record;

use super::FIELD_MANAGER;
use crate::REQUEST_TIMEOUT;
use crate::watch::peers::{self, follow};
use crate::write::failure::Failure;
use crate::write::request::{ended_or_due, in_time};

/// The least time between two records.
const PAUSE: Duration = Duration::from_millis(500);
const LABEL: &str = "app.kubernetes.io/component";
const COMPONENT: &str = "replica";
/// How the name of every such Lease begins.
const PREFIX: &str = "gatewright-replica-";
const ANNOTATION: &str = "gatewright.io/acknowledged";

/// Who a replica is.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The namespace of the Leases.
    pub namespace: String,
    /// Its name.
    pub identity: String,
    /// The UID of its pod, which the record goes with.
    pub pod: Option<String>,
}

/// What was seen of a replica's record: its name, and the record with its version, or that it is gone.
#[derive(Debug)]
pub struct Told(String, Option<(u64, Record)>);

/// The records of all replicas.
pub struct Replicas {
    client: Client,
    replica: Replica,
    others: Others,
    wanted: Option<Record>,
    written: Option<Record>,
    due: Option<Instant>,
    task: JoinSet<(Record, Result<(), Failure>)>,
    failures: u32,
    told: String,
}

impl Replicas {
    /// Nothing known.
    pub(super) fn new(client: Client, replica: Replica) -> Self {
        Self {
            client,
            replica,
            others: Others::default(),
            wanted: None,
            written: None,
            due: None,
            task: JoinSet::new(),
            failures: 0,
            told: String::new(),
        }
    }

    /// Takes in a record.
    pub(super) fn take_in(&mut self, told: Told) {
        let Told(name, record) = told;
        if name != self.replica.identity {
            self.others.set(&name, record);
        } else if self.task.is_empty() {
            // Ours, of a life before this one, or as it was just written.
            self.written = record.map(|(_, record)| record);
        }
    }

    /// The Envoys of others. See [`Others::nodes`].
    pub(super) fn nodes(
        &mut self,
        fleet: EnvoyFleet,
        own: &BTreeSet<Arc<str>>,
        generation: impl Fn(u64) -> Option<Generation>,
    ) -> Vec<NodeProgress> {
        self.others.nodes(fleet, own, generation)
    }

    /// What Envoys of others refused.
    pub(super) fn refused(&self, view: &View) -> Vec<Rejection> {
        self.others.refused(view)
    }

    /// Our own record is to say this from now on. A replica that never had an Envoy needs none.
    pub(super) fn publish(&mut self, record: Record) {
        if self.written.as_ref() == Some(&record) || self.written.is_none() && record.is_empty() {
            self.wanted = None;
        } else {
            self.wanted = Some(record);
            self.due.get_or_insert_with(|| Instant::now() + PAUSE);
        }
    }

    /// Waits until something is to be done or has ended, and does it.
    pub(super) async fn next(&mut self) {
        let due = self.due.filter(|_| self.wanted.is_some() && self.task.is_empty());
        match ended_or_due(&mut self.task, due).await {
            Some((record, outcome)) => self.take_ended(record, outcome),
            None => self.write(),
        }
    }

    fn write(&mut self) {
        self.due = None;
        let Some(record) = self.wanted.take() else { return };
        let (client, replica) = (self.client.clone(), self.replica.clone());
        self.task.spawn(async move {
            let outcome = in_time(apply(client, &replica, &record)).await;
            (record, outcome)
        });
    }

    fn take_ended(&mut self, record: Record, outcome: Result<(), Failure>) {
        match outcome {
            Ok(()) => {
                self.written = Some(record);
                self.failures = 0;
                self.told.clear();
                if self.wanted == self.written {
                    self.wanted = None;
                }
            }
            Err(failure) => {
                let text = failure.to_string();
                if self.told != text {
                    warn!("the record of what Envoys acknowledged: {text}");
                    self.told = text;
                }
                self.wanted.get_or_insert(record);
                self.due = failure.pause(self.failures).or(Some(REQUEST_TIMEOUT)).map(|pause| Instant::now() + pause);
                self.failures += 1;
                return;
            }
        }
        self.due = self.wanted.is_some().then(|| Instant::now() + PAUSE);
    }

    /// Ends what is being written.
    pub(super) async fn stop(mut self) {
        while self.task.join_next().await.is_some() {}
    }
}

async fn apply(client: Client, replica: &Replica, record: &Record) -> kube::Result<()> {
    let Replica { namespace, identity, pod } = replica;
    let name = format!("{PREFIX}{identity}");
    let text = serde_json::to_string(record).expect("a record is texts");
    let mut metadata = json!({
        "name": name, "namespace": namespace,
        "labels": {LABEL: COMPONENT, "app.kubernetes.io/name": "gatewright"}, "annotations": {ANNOTATION: text},
    });
    if let Some(uid) = pod {
        metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": identity, "uid": uid}]);
    }
    let document = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
        "spec": {"holderIdentity": identity}});
    let api: Api<Lease> = Api::namespaced(client, namespace);
    api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&document)).await.map(drop)
}

/// Watches the records of all replicas until the receiver is gone.
pub async fn watch(client: Client, namespace: String, out: mpsc::Sender<Told>) {
    let api: Api<Lease> = Api::namespaced(client, &namespace);
    let config = Config::default().labels(&format!("{LABEL}={COMPONENT}"));
    let tell = |told| match told {
        peers::Told::There(lease) => Some(self::told(&lease)),
        peers::Told::Gone(name) => Some(Told(name.strip_prefix(PREFIX)?.to_owned(), None)),
        peers::Told::Complete => None,
    };
    follow(api, config, "what other replicas record", out, tell).await;
}

fn told(lease: &Lease) -> Told {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
    let version = lease.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
    let record = lease.annotations().get(ANNOTATION).and_then(|text| serde_json::from_str(text).ok());
    Told(holder, record.map(|record| (version, record)))
}
