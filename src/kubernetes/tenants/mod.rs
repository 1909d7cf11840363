//! Writes the derived objects of TenantGateways, labels of namespaces, and the statuses of
//! TenantGateways.
//!
//! Tenancy decides the desired state; here it is compared with the observed objects, and each
//! object that differs is written by itself, so that a rejected one does not affect the others. A
//! write is known only once it is watched.

mod event_recorder;
mod label;
mod outcome;
mod report;
mod states;
mod task;
#[cfg(test)]
mod tests;
mod transitions;
mod troubles;
mod undecided;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use tracing::info;

pub use event_recorder::EventRecorder;
pub use outcome::WriteOutcome;
pub use transitions::Watched;

use super::metrics::Writes;
use crate::adoption::Ownership;
use crate::defaults::SpecDefaults;
use crate::live_object::{LiveObject, derived, kind};
use crate::watch::observed::ObservedObject;
use crate::watch::sync::WatchSync;
use crate::write::conflict_backoff::WriteConflictBackoff;
use crate::write::object_write::{ObjectWrite, run};
use crate::write::request::failed;
use crate::write::worker::Worker;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::tenancy::{Delta, Derived, DerivedKind, Desired, Tenancy, names};
use report::Trouble;
use states::States;
use task::{Task, has_listeners};
use troubles::TenantTroubles;
use undecided::Undecided;

/// The maximum number of concurrent writes.
const AT_ONCE: usize = 8;
/// The minimum time between two writes of a Gateway or ListenerSet, so that a burst of routes
/// causes few writes: the API server compares all listeners with each other. After a slow write the
/// time is twice its duration.
const GAP: Duration = Duration::from_millis(250);
const LONGEST_GAP: Duration = Duration::from_secs(5);
/// Objects with more listeners than this are written two at a time: each occupies a processor of
/// the API server, and the work is lost if the request times out.
const LARGE: usize = 24;
const LARGE_AT_ONCE: usize = 2;
/// The debounce of the status of a TenantGateway: it has all of its listeners, and one event causes
/// several changes of it.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// The time that a status is delayed for other controllers that are about to act, so that it is
/// written once.
const TRANSIENT_DELAY: Duration = Duration::from_secs(2);
/// The number of equal writes in a row after which a write conflict is reported.
const FIGHT: u32 = 4;
/// The kinds whose views must be complete before anything is written, since the desired state
/// follows from them.
const SOURCES: [Kind; 9] = [
    Kind::TenantGateway,
    Kind::Namespace,
    Kind::GatewayClass,
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::XListenerSet,
    Kind::HTTPRoute,
    Kind::GRPCRoute,
    Kind::TLSRoute,
];

/// The inputs of the decision about a write.
#[derive(Clone, Copy)]
pub struct DecisionInputs<'a> {
    /// The desired state.
    pub tenancy: &'a Tenancy,
    /// The observed statuses and namespaces.
    pub seen: &'a BTreeMap<ObjectKey, Box<ObservedObject>>,
    /// The completeness of the view.
    pub view: &'a WatchSync,
}

/// The objects that tenancy has just decided about. The decisions themselves are read when they are
/// written.
pub struct Decided {
    objects: Vec<Derived>,
    namespaces: Vec<Arc<str>>,
    tenants: Vec<ObjectName>,
    /// The routes and other objects that claim hostnames.
    pub claims: BTreeSet<ObjectKey>,
}

impl Decided {
    /// Extracts them from the delta of tenancy.
    pub fn of(delta: &Delta) -> Self {
        Self {
            objects: delta.objects.keys().cloned().collect(),
            namespaces: delta.namespaces.keys().cloned().collect(),
            tenants: delta.tenants.keys().cloned().collect(),
            claims: delta
                .verdicts
                .keys()
                .map(|(claim, _)| claim.object())
                .collect(),
        }
    }
}

/// Writes the derived objects of TenantGateways.
pub struct Tenants {
    client: Client,
    held: BTreeMap<Derived, Box<LiveObject>>,
    /// The objects that were deleted while a write ran, whose answer may be older.
    deleted: BTreeSet<Derived>,
    /// The defaults of derived objects, as far as their schemas are known.
    defaults: SpecDefaults,
    undecided: Undecided,
    states: States,
    worker: Worker<Task, WriteOutcome>,
    conflict_backoff: WriteConflictBackoff<Task>,
    /// The problems that prevent writes, including write conflicts.
    troubles: TenantTroubles,
    /// The earliest time of the next write of each Gateway and ListenerSet.
    next_write: BTreeMap<Derived, Instant>,
    /// The large objects that are being written, and those that wait for them.
    large_running: BTreeSet<Task>,
    large_waiting: BTreeSet<Task>,
    /// The time since which the status of a TenantGateway is delayed for other controllers.
    transient_since: BTreeMap<ObjectName, Instant>,
    recorder: EventRecorder,
}

enum Decision {
    Nothing,
    Later(Instant),
    Write(ObjectWrite),
}

impl Tenants {
    /// Creates the writer without observed objects.
    pub fn new(client: Client) -> Self {
        Self {
            recorder: EventRecorder::new(client.clone()),
            client,
            held: BTreeMap::new(),
            deleted: BTreeSet::new(),
            defaults: SpecDefaults::default(),
            undecided: Undecided::default(),
            states: States::default(),
            worker: Worker::new(AT_ONCE),
            conflict_backoff: WriteConflictBackoff::default(),
            troubles: TenantTroubles::default(),
            next_write: BTreeMap::new(),
            large_running: BTreeSet::new(),
            large_waiting: BTreeSet::new(),
            transient_since: BTreeMap::new(),
        }
    }

    /// Takes in an object whose name may be that of a derived object.
    pub fn see(&mut self, derived: Derived, held: Box<LiveObject>) {
        if self
            .held
            .get(&derived)
            .is_none_or(|old| !old.is_version_of(&held))
        {
            self.held.insert(derived.clone(), held);
            self.want(Task::Object(derived));
        }
    }

    /// Takes in the deletion of an object.
    pub fn forget(&mut self, key: &ObjectKey) {
        let task = match derived(key) {
            Some(derived) => {
                if let Some(held) = self.held.remove(&derived) {
                    self.undecided.forget(held.owner(), &derived);
                }
                self.states.forget(&derived);
                self.next_write.remove(&derived);
                let task = Task::Object(derived.clone());
                if self.worker.is_running(&task) {
                    self.deleted.insert(derived);
                }
                // The object may be wanted, and is created again then.
                self.want(task.clone());
                task
            }
            None if key.kind == Kind::TenantGateway => {
                self.transient_since.remove(&key.name);
                Task::Status(key.name.clone())
            }
            None if key.kind == Kind::Namespace => Task::Label(key.name.name.clone()),
            None => return,
        };
        self.conflict_backoff.forget(&task);
        // The problem of a derived object is evaluated, and reported, when the object is compared.
        if !matches!(task, Task::Object(_)) {
            self.troubles.forget(&task);
            self.worker.drop(&task);
        }
    }

    /// Takes in the defaults of derived objects.
    pub(crate) fn take_defaults(&mut self, defaults: SpecDefaults) {
        self.defaults = defaults;
    }

    /// Queues the status of the TenantGateway that a change of the metadata or status of an object
    /// may affect.
    pub fn enqueue(&mut self, key: &ObjectKey, tenancy: &Tenancy) {
        match key.kind {
            Kind::TenantGateway => self.want(Task::Status(key.name.clone())),
            Kind::Gateway => self.want_status(
                &Derived {
                    kind: DerivedKind::Gateway,
                    name: key.name.clone(),
                },
                tenancy,
            ),
            Kind::ListenerSet if names::overflow_of(&key.name.name).is_some() => {
                self.want_status(
                    &Derived {
                        kind: DerivedKind::ListenerSet,
                        name: key.name.clone(),
                    },
                    tenancy,
                );
            }
            _ => {}
        }
    }

    /// Takes in the decisions of tenancy.
    pub fn take_in(&mut self, decided: &Decided, tenancy: &Tenancy) {
        for derived in &decided.objects {
            self.want(Task::Object(derived.clone()));
            self.want_status(derived, tenancy);
        }
        for namespace in &decided.namespaces {
            self.want(Task::Label(namespace.clone()));
        }
        for tenant in &decided.tenants {
            self.want(Task::Status(tenant.clone()));
        }
        if !decided.tenants.is_empty() {
            let mended = self
                .undecided
                .mended(|derived, owner| tenancy.decides(derived, owner));
            mended
                .into_iter()
                .for_each(|derived| self.want(Task::Object(derived)));
        }
    }

    /// Queues everything for one comparison with the observed objects.
    pub fn enqueue_all(&mut self, tenancy: &Tenancy) {
        let objects: BTreeSet<&Derived> =
            self.held.keys().chain(tenancy.objects().keys()).collect();
        let objects = objects
            .into_iter()
            .map(|derived| Task::Object(derived.clone()));
        let labels = tenancy
            .patches()
            .map(|(namespace, _)| Task::Label(namespace.clone()));
        let statuses = tenancy.tenants().map(|tenant| Task::Status(tenant.clone()));
        let all: Vec<Task> = objects.chain(labels).chain(statuses).collect();
        for task in all {
            self.want(task);
        }
    }

    /// Takes in that the state of the view of a kind has changed.
    pub fn kind_changed(&mut self, kind: Kind, tenancy: &Tenancy) {
        if SOURCES.contains(&kind) || matches!(kind, Kind::Issuer | Kind::Certificate) {
            self.enqueue_all(tenancy);
        }
    }

    fn want(&mut self, task: Task) {
        let pause = if matches!(task, Task::Status(_)) {
            DEBOUNCE
        } else {
            Duration::ZERO
        };
        self.worker.want(task, Instant::now() + pause);
    }

    fn want_status(&mut self, derived: &Derived, tenancy: &Tenancy) {
        self.queue_status(tenancy.tenant_of(derived).cloned());
    }

    /// Starts the queued writes. Without the Lease they are dropped: the next lease holder compares
    /// everything when its term begins.
    pub fn write(&mut self, inputs: DecisionInputs<'_>, leads: bool) {
        let is_current = sources_are_current(inputs.view);
        while let Some(task) = self.worker.take(Instant::now()) {
            // Dropped here without a complete view; queued again when the view is complete.
            let decision = if leads && is_current {
                self.decide(&task, inputs)
            } else {
                Decision::Nothing
            };
            match decision {
                Decision::Nothing => self.worker.done(&task),
                Decision::Later(at) => {
                    self.worker.done(&task);
                    self.worker.want(task, at);
                }
                Decision::Write(write) if !self.has_room(&task, write.document()) => {
                    self.worker.done(&task);
                    self.large_waiting.insert(task);
                }
                Decision::Write(write) => self.begin(task, write, inputs.tenancy),
            }
        }
    }

    /// Returns whether the maximum number of writes is running.
    pub fn is_busy(&self) -> bool {
        self.worker.is_full()
    }

    /// Returns whether a write may start now, and counts it if so.
    fn has_room(&mut self, task: &Task, document: &serde_json::Value) -> bool {
        let listeners = document["spec"]["listeners"].as_array().map_or(0, Vec::len);
        if listeners <= LARGE {
            return true;
        }
        let room = self.large_running.len() < LARGE_AT_ONCE;
        if room {
            self.large_running.insert(task.clone());
        }
        room
    }

    fn begin(&mut self, task: Task, write: ObjectWrite, tenancy: &Tenancy) {
        let now = Instant::now();
        self.conflict_backoff.wrote(&task, write.document(), now);
        if self.conflict_backoff.times(&task) > FIGHT {
            let others = match &task {
                Task::Object(derived) => self
                    .held
                    .get(derived)
                    .map(|held| held.others())
                    .unwrap_or_default()
                    .join(", "),
                Task::Label(_) | Task::Status(_) => String::new(),
            };
            let who = if others.is_empty() {
                "another writer".to_owned()
            } else {
                others
            };
            let text = format!(
                "{task}: {who} keeps reverting what the controller writes: remove one of the two writers"
            );
            self.trouble(&task, ("ContestedByAnotherWriter", text), tenancy);
        }
        if let Task::Object(derived) = &task
            && has_listeners(derived)
        {
            self.next_write.insert(derived.clone(), now + GAP);
        }
        let kind = match write.label() {
            "create" | "apply" => "object",
            label => label,
        };
        let client = self.client.clone();
        let defaults = self.defaults.clone();
        let object = task.key().to_string();
        self.worker.begin(kind, &object, async move {
            let mut answers = Vec::new();
            let outcome = run(&client, vec![write], &defaults, &mut answers)
                .await
                .map(|()| answers.pop().map(Box::new));
            WriteOutcome {
                task,
                outcome,
                took: now.elapsed(),
            }
        });
    }

    fn decide(&mut self, task: &Task, inputs: DecisionInputs<'_>) -> Decision {
        let now = Instant::now();
        let decided = match task {
            Task::Label(namespace) => {
                let patch = inputs.tenancy.patch(namespace);
                let seen = inputs.seen.get(&task.key());
                let document = patch
                    .zip(seen)
                    .and_then(|(patch, seen)| label::patch(patch, &seen.version));
                document.map_or(Decision::Nothing, |document| {
                    Decision::Write(ObjectWrite::Label(task.key(), document))
                })
            }
            Task::Object(derived) => self.decide_object(derived, inputs, now),
            Task::Status(tenant) => self.decide_status(tenant, inputs, now),
        };
        let Decision::Write(write) = decided else {
            return decided;
        };
        self.conflict_backoff.undone(task, write.document(), now);
        match self
            .conflict_backoff
            .not_before(task, write.document(), now)
        {
            Some(at) => Decision::Later(at),
            None => Decision::Write(write),
        }
    }

    fn decide_object(
        &mut self,
        derived: &Derived,
        inputs: DecisionInputs<'_>,
        now: Instant,
    ) -> Decision {
        let task = Task::Object(derived.clone());
        let wanted = inputs.tenancy.objects().get(derived).map(Desired::document);
        let kind = kind(derived.kind);
        if !inputs.view.is_current(kind) {
            if wanted.is_some() && inputs.view.is_missing(kind) {
                let text = format!(
                    "{task}: {} is not served by this API server: install its definition",
                    kind.as_str()
                );
                self.trouble(&task, ("KindNotServed", text), inputs.tenancy);
            }
            return Decision::Nothing;
        }
        if wanted.is_none() && !knows_wants(inputs.view) {
            return Decision::Nothing;
        }
        if self.is_being_orphaned(derived, wanted.as_ref(), inputs.seen) {
            return Decision::Nothing;
        }
        if let Some(text) = self.foreign(derived, wanted.as_ref(), inputs.tenancy) {
            self.trouble(&task, ("ForeignObject", text), inputs.tenancy);
            return Decision::Nothing;
        }
        let Some(write) = self.step(derived, wanted.as_ref(), inputs.tenancy) else {
            if let Some(held) = self.held.get_mut(derived) {
                match &wanted {
                    Some(wanted) => held.keep_digest(wanted, self.defaults.of(kind)),
                    None if held.is_ours() && !inputs.tenancy.decides(derived, held.owner()) => {
                        self.undecided.note(held.owner(), derived);
                    }
                    None => {}
                }
            }
            return self
                .heal(&task, inputs.tenancy, now)
                .map_or(Decision::Nothing, Decision::Later);
        };
        match self.next_write.get(derived).filter(|at| **at > now) {
            Some(at) => Decision::Later(*at),
            None => Decision::Write(write),
        }
    }

    fn decide_status(
        &mut self,
        tenant: &ObjectName,
        inputs: DecisionInputs<'_>,
        now: Instant,
    ) -> Decision {
        let key = Task::Status(tenant.clone()).key();
        let Some(seen) = inputs.seen.get(&key) else {
            return Decision::Nothing;
        };
        let before = seen.status();
        let stands = report::stands(seen, &before);
        let (status, due) = self.states.asked(inputs.seen, stands, now, |look| {
            inputs.tenancy.status(tenant, look)
        });
        if let Some(due) = due {
            self.worker.want(Task::Status(tenant.clone()), due);
        }
        let Some(mut status) = status else {
            return Decision::Nothing;
        };
        let troubles: Vec<Trouble> = self.troubles.of(tenant).cloned().collect();
        report::lay_troubles(&mut status, &troubles);
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Some(document) = report::patch(tenant, &status, seen, &before, &time) else {
            self.transient_since.remove(tenant);
            return Decision::Nothing;
        };
        if report::is_transient(&status) || self.is_behind(tenant, inputs.tenancy) {
            let until =
                *self.transient_since.entry(tenant.clone()).or_insert(now) + TRANSIENT_DELAY;
            if now < until {
                return Decision::Later(until);
            }
        }
        self.recorder.note(
            &key,
            &seen.uid,
            &before,
            &document["status"],
            &Watched::TENANT,
        );
        Decision::Write(ObjectWrite::Status(key, document))
    }

    /// Returns whether a Gateway is queued for a write, so that its status is about to be outdated.
    fn is_behind(&self, tenant: &ObjectName, tenancy: &Tenancy) -> bool {
        let gateway = Derived {
            kind: DerivedKind::Gateway,
            name: tenant.clone(),
        };
        let wanted = tenancy.objects().get(&gateway).map(Desired::document);
        self.step(&gateway, wanted.as_ref(), tenancy).is_some()
    }

    /// Returns whether an object without an owner is one whose owner is just being deleted without
    /// cascade: with an owner reference it would be deleted along.
    fn is_being_orphaned(
        &self,
        derived: &Derived,
        wanted: Option<&serde_json::Value>,
        seen: &BTreeMap<ObjectKey, Box<ObservedObject>>,
    ) -> bool {
        let (Some(held), Some(wanted)) = (self.held.get(derived), wanted) else {
            return false;
        };
        if !held.owner().is_empty() {
            return false;
        }
        let owner = &wanted["metadata"]["ownerReferences"][0];
        let name = owner["name"].as_str().unwrap_or_default();
        let key = if owner["kind"] == Kind::Namespace.as_str() {
            ObjectKey::new(Kind::Namespace, ObjectName::new("", name))
        } else {
            let name = ObjectName::new(derived.name.namespace.clone(), name);
            ObjectKey::new(Kind::TenantGateway, name)
        };
        seen.get(&key).is_none_or(|owner| owner.is_deleting)
    }

    /// Returns why an existing object without an owner is not taken over, if it is not.
    fn foreign(
        &self,
        derived: &Derived,
        wanted: Option<&serde_json::Value>,
        tenancy: &Tenancy,
    ) -> Option<String> {
        let (held, wanted) = (self.held.get(derived)?, wanted?);
        let defaults = self.defaults.of(kind(derived.kind));
        if held.ownership(wanted, defaults) != Ownership::Foreign {
            return None;
        }
        let difference = held.deviation_of_orphan(wanted, defaults);
        let difference = difference.map_or_else(
            || "it lacks labels".to_owned(),
            |difference| difference.to_string(),
        );
        let tenant = tenancy.tenant_of(derived)?;
        Some(format!(
            "{} {} is not owned by TenantGateway {tenant}, and is not what would be made for it: {difference}: delete it",
            derived.kind.as_str(),
            derived.name
        ))
    }

    /// Returns the write that brings an object to the desired state, if it needs one.
    fn step(
        &self,
        derived: &Derived,
        wanted: Option<&serde_json::Value>,
        tenancy: &Tenancy,
    ) -> Option<ObjectWrite> {
        LiveObject::step(
            derived,
            self.held.get(derived).map(Box::as_ref),
            wanted,
            &|uid| tenancy.decides(derived, uid),
            self.defaults.of(kind(derived.kind)),
        )
    }

    fn tenant_of(&self, task: &Task, tenancy: &Tenancy) -> Option<ObjectName> {
        match task {
            Task::Object(derived) => tenancy.tenant_of(derived).cloned(),
            Task::Status(tenant) => Some(tenant.clone()),
            Task::Label(namespace) => tenancy.attaching(namespace).next().cloned(),
        }
    }

    /// Reports a problem in the status of the TenantGateway that the object belongs to.
    fn trouble(&mut self, task: &Task, (reason, text): (&'static str, String), tenancy: &Tenancy) {
        let tenant = self.tenant_of(task, tenancy);
        let of_one_host = match (task, &tenant) {
            (
                Task::Object(Derived {
                    kind: DerivedKind::Certificate,
                    name,
                }),
                Some(tenant),
            ) => *name.name != *names::wildcard_certificate(&tenant.name),
            _ => false,
        };
        let trouble = Trouble {
            reason,
            text,
            of_one_host,
        };
        let text = trouble.text.clone();
        if self.troubles.note(task, tenant.clone(), trouble) {
            failed(&task.key(), reason, text);
            self.queue_status(tenant);
        }
    }

    fn queue_status(&mut self, tenant: Option<ObjectName>) {
        if let Some(tenant) = tenant {
            self.want(Task::Status(tenant));
        }
    }

    /// Removes the reported problem, or returns when to check again: during a write conflict the
    /// object is right now and then.
    fn heal(&mut self, task: &Task, tenancy: &Tenancy, now: Instant) -> Option<Instant> {
        if !self.troubles.is_in(task) {
            return None;
        }
        let over = self
            .conflict_backoff
            .over(task)
            .filter(|over| self.conflict_backoff.times(task) > FIGHT && *over > now);
        if over.is_none() {
            self.troubles.forget(task);
            info!("{task}: as it should be");
            self.queue_status(self.tenant_of(task, tenancy));
        }
        over
    }

    /// Waits until a write has ended or a delayed one is due.
    pub async fn next(&mut self) -> Option<WriteOutcome> {
        self.worker.next().await
    }

    /// Returns counters of writes, and the number of objects with a reported problem.
    pub(super) fn metrics(&self) -> (Writes, usize) {
        (self.worker.metrics(), self.troubles.len())
    }

    /// Waits for the writes in progress, and starts no more.
    pub async fn stop(self) {
        self.worker.finish().await;
        self.recorder.stop().await;
    }
}

/// Returns whether the view of all kinds that the desired state depends on is complete.
pub(super) fn sources_are_current(view: &WatchSync) -> bool {
    SOURCES
        .iter()
        .all(|kind| view.is_current(*kind) || view.is_missing(*kind))
}

/// Returns whether unwanted objects may be deleted: without all TenantGateways, and their routes,
/// the desired state is not known.
pub(super) fn knows_wants(view: &WatchSync) -> bool {
    [Kind::TenantGateway, Kind::HTTPRoute]
        .into_iter()
        .all(|kind| view.is_current(kind))
}
