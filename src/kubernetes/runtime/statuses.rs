//! Writes statuses: what is said of each object, and when its time has come.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use super::KubernetesRuntime;
use crate::tenants::EventRecorder;
use crate::watch::observed::{ObservedObject, newer};
use crate::write::conflict_backoff::WriteConflictBackoff;
use crate::write::failure::Failure;
use crate::write::request::{failed, resource};
use crate::write::status::{self, StatusOwner};
use crate::write::status_writer::{Done, StatusWriter};
use gatewright_control::programmed::Acks;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::statuses::{claims, refused};
use gatewright_core::tenancy::ClaimKey;

/// How long a status waits for Envoys that are connected to acknowledge, so that it is written once.
const BEHIND: Duration = Duration::from_secs(2);
/// How long after the start it waits for Envoys to find us.
const ABSENT: Duration = Duration::from_secs(10);
/// How long it waits, in the first time after the start, for the number of Envoys to settle.
const COUNTING: Duration = Duration::from_secs(2);
/// How long what a route is told of its claims waits for what the controller of its Gateway says, which comes first.
const OTHERS: Duration = Duration::from_millis(700);
/// The time after the start in which Envoys come back.
const FIRST: Duration = Duration::from_secs(30);

/// Statuses that are to be written.
pub(super) struct Statuses {
    /// The name by which our entries are known.
    controller: String,
    pub(super) writer: StatusWriter,
    recorder: EventRecorder,
    conflict_backoff: WriteConflictBackoff<ObjectKey>,
    /// Until when each may wait for Envoys.
    held: BTreeMap<ObjectKey, Instant>,
    /// How many Envoys were connected, and since when.
    counted: (usize, Instant),
}

impl Statuses {
    /// None to be written yet.
    pub(super) fn new(client: Client, controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            writer: StatusWriter::new(client.clone()),
            recorder: EventRecorder::new(client),
            conflict_backoff: WriteConflictBackoff::default(),
            held: BTreeMap::new(),
            counted: (0, Instant::now()),
        }
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.held.remove(key);
        self.writer.drop(key);
        self.conflict_backoff.forget(key);
    }

    /// Takes in how many Envoys are connected.
    pub(super) fn count(&mut self, connected: usize) {
        if connected != self.counted.0 {
            self.counted = (connected, Instant::now());
        }
    }

    /// Ends what is being written.
    pub(super) async fn stop(self) {
        self.writer.stop().await;
        self.recorder.stop().await;
    }
}

enum Decision {
    Nothing,
    Later(Instant),
    /// What to write now, and when there may be more to say: nothing need come that asks for it.
    Write(Value, Option<Instant>),
}

impl KubernetesRuntime {
    /// Begins the writes of statuses whose turn has come. Those of replicas that may not write are forgotten.
    pub(super) fn write_statuses(&mut self, may_write: bool) {
        while let Some(key) = self.statuses.writer.take(Instant::now()) {
            if !may_write {
                self.statuses.writer.nothing(&key);
                continue;
            }
            match self.decide(&key) {
                Decision::Nothing => {
                    self.statuses.held.remove(&key);
                    self.statuses.writer.nothing(&key);
                }
                Decision::Later(at) => {
                    self.statuses.writer.nothing(&key);
                    self.statuses.writer.want(key, at);
                }
                Decision::Write(document, more) => {
                    match more {
                        Some(at) => self.statuses.writer.want(key.clone(), at),
                        None => drop(self.statuses.held.remove(&key)),
                    }
                    let Some(seen) = self.objects.get(&key) else {
                        self.statuses.writer.nothing(&key);
                        continue;
                    };
                    let resource = resource(key.kind, &seen.api_version);
                    if ClaimKey::of(&key).is_some() {
                        self.statuses.recorder.note(
                            &key,
                            &seen.uid,
                            &seen.status(),
                            &document["status"],
                            &["Accepted"],
                        );
                    }
                    self.statuses.conflict_backoff.wrote(&key, &document, Instant::now());
                    if self.statuses.conflict_backoff.times(&key) == 5 {
                        let text = format!("{key}: somebody changes the status that we write back again and again");
                        failed(&key, "contested", text);
                    }
                    self.statuses.writer.apply(key, &resource, document);
                }
            }
        }
    }

    fn decide(&mut self, key: &ObjectKey) -> Decision {
        // What is known of a kind that is not whole may be of yesterday; it is looked at again when changes come.
        let seen = self.objects.get(key).filter(|_| self.view.is_whole(key.kind));
        let Some(seen) = seen else { return Decision::Nothing };
        let now = Instant::now();
        self.live.look_at(key);
        let mut said = self.live.laid_over(BTreeSet::from([key.clone()])).pop().and_then(|(_, status)| status);
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let tenancy = self.live.pipeline().tenancy();
        if let Some(status) = &mut said {
            refused(tenancy, key, status);
        }
        let claims = self.view.is_whole(Kind::TenantGateway).then(|| claims(tenancy, key, &time));
        let mut us = StatusOwner { controller: &self.statuses.controller, claims, alone: false };
        let current = seen.status();
        let waits =
            status::waits(&current, &us).then(|| *self.statuses.held.entry(key.clone()).or_insert(now + OTHERS));
        us.alone = waits.is_some_and(|until| until <= now);
        let more = waits.filter(|_| !us.alone);
        let Some(document) = status::patch(key, said.as_ref(), seen, &current, &us, &time) else {
            return more.map_or(Decision::Nothing, Decision::Later);
        };
        let Some(document) = self.statuses.writer.declared(key, document, &current, now) else {
            return more.map_or(Decision::Nothing, Decision::Later);
        };
        if matches!(key.kind, Kind::Gateway | Kind::ListenerSet)
            && let Some(at) = self.patience(key, now)
        {
            return Decision::Later(at);
        }
        match self.statuses.conflict_backoff.not_before(key, &document, now) {
            Some(at) => Decision::Later(at),
            None => Decision::Write(document, more),
        }
    }

    /// Until when the status of a Gateway waits for Envoys; `None` when it has waited enough.
    fn patience(&mut self, key: &ObjectKey, now: Instant) -> Option<Instant> {
        let Acks { done: acknowledged, all: connected, .. } = self.live.acknowledgement(key);
        let young = now.duration_since(self.started) < FIRST;
        let until = if connected == 0 {
            self.statuses.counted.1.max(self.started) + ABSENT
        } else if young && now < self.statuses.counted.1 + COUNTING {
            self.statuses.counted.1 + COUNTING
        } else if acknowledged < connected {
            *self.statuses.held.entry(key.clone()).or_insert(now + BEHIND)
        } else {
            return None;
        };
        (now < until).then_some(until)
    }

    /// Takes in how a write of a status ended.
    pub(super) fn take_written(&mut self, done: Option<Done>) {
        let Some(Done { key, outcome }) = done else { return };
        self.statuses.recorder.written(&key, outcome.is_ok());
        match outcome {
            Ok(object) => {
                if let Some(seen) = self.objects.get_mut(&key) {
                    let new = ObservedObject::new(&seen.api_version, &object);
                    // What the watch brought meanwhile is newer.
                    if newer(&new.version, &seen.version) {
                        *seen = new;
                        // The watch will bring nothing new: what depends on it is looked at now.
                        self.tenants.look_at(&key, self.live.pipeline().tenancy());
                    }
                }
            }
            Err(failure) => {
                self.statuses.conflict_backoff.failed(&key);
                if !matches!(failure, Failure::Conflict | Failure::Gone) {
                    failed(&key, failure.class(), format!("writing the status of {key}: {failure}"));
                }
            }
        }
    }
}
