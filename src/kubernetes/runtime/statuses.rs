//! Writes statuses: computes the patch of each object, and when it is due.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use super::KubernetesRuntime;
use crate::tenants::{EventRecorder, Watched};
use crate::watch::observed::{ObservedObject, newer};
use crate::write::conflict_backoff::WriteConflictBackoff;
use crate::write::failure::Failure;
use crate::write::request::{failed, resource};
use crate::write::status::{self, StatusOwner};
use crate::write::status_writer::{Done, StatusWriter};
use gatewright_control::fleet_views::{PerView, ViewId};
use gatewright_control::programmed::Acks;
use gatewright_core::inputs::{Kind, ObjectKey, RouteKind};
use gatewright_core::statuses::{claims, refused};

/// The maximum time that a status is delayed until connected Envoys acknowledge, so that it is
/// written once.
const BEHIND: Duration = Duration::from_secs(2);
/// The time after the start that a status is delayed until Envoys connect.
const ABSENT: Duration = Duration::from_secs(10);
/// The time that a status is delayed after a change of the number of Envoys, shortly after the
/// start.
const COUNTING: Duration = Duration::from_secs(2);
/// The time that the status of a route is delayed after its claims have changed, so that the
/// controller of its Gateway writes first.
const OTHERS: Duration = Duration::from_millis(700);
/// The time after the start that the status of a class is delayed until the fields of the
/// definitions are known.
const FIELDS: Duration = Duration::from_secs(5);
/// The time after the start in which Envoys reconnect.
const FIRST: Duration = Duration::from_secs(30);

/// The maximum number of statuses that are decided before changes are taken in again: at a start
/// tens of thousands wait for Envoys.
const AT_A_TIME: usize = 100;

/// The writer of statuses.
pub(super) struct Statuses {
    /// Our controller name, which identifies our entries in statuses.
    controller: String,
    pub(super) writer: StatusWriter,
    recorder: EventRecorder,
    conflict_backoff: WriteConflictBackoff<ObjectKey>,
    /// The deadline of each status that is delayed for Envoys.
    held: BTreeMap<ObjectKey, Instant>,
    /// The refusals for which the status of an object has no room, as they were reported.
    without_room: BTreeMap<ObjectKey, Vec<String>>,
    /// The number of connected Envoys of each view that has had some, and the time since which it
    /// has not changed.
    counted: BTreeMap<ViewId, (usize, Instant)>,
}

impl Statuses {
    /// Creates the writer, with an empty queue.
    pub(super) fn new(client: Client, controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            writer: StatusWriter::new(client.clone()),
            recorder: EventRecorder::new(client),
            conflict_backoff: WriteConflictBackoff::default(),
            held: BTreeMap::new(),
            without_room: BTreeMap::new(),
            counted: BTreeMap::new(),
        }
    }

    /// Drops the state of an object that was deleted.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.held.remove(key);
        self.without_room.remove(key);
        self.writer.drop(key);
        self.conflict_backoff.forget(key);
    }

    /// Reports refusals for which the status of an object has no room, once for as long as they are
    /// the same.
    fn report_without_room(&mut self, key: &ObjectKey, uid: &str, refusals: Vec<String>) {
        if refusals.is_empty() {
            self.without_room.remove(key);
        } else if self.without_room.get(key) != Some(&refusals) {
            let text = format!(
                "{key}: its status has no room for our entries, since other controllers have all of it: {}",
                refusals.join("; ")
            );
            self.recorder.warn(key, uid, "NoRoomInStatus", &text);
            failed(key, "no_room", text);
            self.without_room.insert(key.clone(), refusals);
        }
    }

    /// Takes in the number of connected Envoys of each view.
    pub(super) fn count(&mut self, connected: &PerView<usize>) {
        let now = Instant::now();
        self.counted
            .retain(|view, _| connected.get(*view).is_some());
        for (view, connected) in connected.iter() {
            let before = self.counted.get(&view).map_or(0, |(before, _)| *before);
            if *connected != before {
                self.counted.insert(view, (*connected, now));
            }
        }
    }

    /// Waits for the writes in progress, and starts no more.
    pub(super) async fn stop(self) {
        self.writer.stop().await;
        self.recorder.stop().await;
    }
}

enum Decision {
    Nothing,
    Later(Instant),
    /// The patch to write now, and when to decide again: no event may come that would cause it.
    Write(Value, Option<Instant>),
}

/// Returns the conditions of a kind whose transitions become Events.
fn watched(kind: Kind) -> Option<&'static Watched> {
    match kind {
        Kind::Gateway | Kind::ListenerSet | Kind::XListenerSet => Some(&Watched::GATEWAY),
        kind if kind.is_policy() => Some(&Watched::POLICY),
        kind => RouteKind::of(kind).map(|_| &Watched::ROUTE),
    }
}

impl KubernetesRuntime {
    /// Starts queued writes of statuses, the others in the next turn. Without permission to write
    /// they are dropped.
    pub(super) fn write_statuses(&mut self, may_write: bool) {
        for _ in 0..AT_A_TIME {
            let Some(key) = self.statuses.writer.take(Instant::now()) else {
                return;
            };
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
                        None => {
                            self.statuses.held.remove(&key);
                        }
                    }
                    let Some(seen) = self.objects.get(&key) else {
                        self.statuses.writer.nothing(&key);
                        continue;
                    };
                    let resource = resource(key.kind, &seen.api_version);
                    let current = seen.status();
                    if let Some(watched) = watched(key.kind) {
                        self.statuses.recorder.note(
                            &key,
                            &seen.uid,
                            &current,
                            &document["status"],
                            watched,
                        );
                    }
                    self.statuses
                        .conflict_backoff
                        .wrote(&key, &document, Instant::now());
                    if self.statuses.conflict_backoff.times(&key) == 5 {
                        let text = format!(
                            "{key}: another controller keeps changing the status that we write"
                        );
                        failed(&key, "contested", text);
                    }
                    self.statuses
                        .writer
                        .apply(key, &resource, document, current);
                }
            }
        }
    }

    fn decide(&mut self, key: &ObjectKey) -> Decision {
        // The observed objects of an incomplete kind may be outdated; they are queued again when
        // changes arrive.
        let seen = self
            .objects
            .get(key)
            .filter(|_| self.view.is_current(key.kind));
        let Some(seen) = seen else {
            return Decision::Nothing;
        };
        let now = Instant::now();
        let (mut said, acks) = self.live.evaluate_status(key);
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let tenancy = self.live.pipeline().tenancy();
        if let Some(status) = &mut said {
            refused(tenancy, key, status);
        }
        let claims = self
            .view
            .is_current(Kind::TenantGateway)
            .then(|| claims(tenancy, key, &time));
        let mut us = StatusOwner {
            controller: &self.statuses.controller,
            claims,
            alone: false,
        };
        let current = seen.status();
        let waits = status::waits(&current, &us).then(|| {
            *self
                .statuses
                .held
                .entry(key.clone())
                .or_insert(now + OTHERS)
        });
        us.alone = waits.is_some_and(|until| until <= now);
        let more = waits.filter(|_| !us.alone);
        let refusals = status::without_room(key.kind, said.as_ref(), &current, &us);
        let document = status::patch(key, said.as_ref(), seen, &current, &us, &time);
        self.statuses.report_without_room(key, &seen.uid, refusals);
        let Some(document) = document else {
            return more.map_or(Decision::Nothing, Decision::Later);
        };
        let Some(document) = self.statuses.writer.declared(key, document, &current, now) else {
            return more.map_or(Decision::Nothing, Decision::Later);
        };
        if matches!(
            key.kind,
            Kind::Gateway | Kind::ListenerSet | Kind::XListenerSet
        ) && let Some(at) = self.patience(key, &acks, now)
        {
            return Decision::Later(at);
        }
        let until = self.started + FIELDS;
        if key.kind == Kind::GatewayClass && self.fields.is_none() && now < until {
            return Decision::Later(until);
        }
        match self
            .statuses
            .conflict_backoff
            .not_before(key, &document, now)
        {
            Some(at) => Decision::Later(at),
            None => Decision::Write(document, more),
        }
    }

    /// Returns until when the status of a Gateway, which is made from these acknowledgements, is
    /// delayed for Envoys; `None` when it is due. Envoys of other views do not matter.
    fn patience(&mut self, key: &ObjectKey, acks: &Acks, now: Instant) -> Option<Instant> {
        let young = now.duration_since(self.started) < FIRST;
        let counted = self
            .live
            .view_of(key)
            .and_then(|view| self.statuses.counted.get(&view));
        let counted = counted.map_or(self.started, |(_, since)| *since);
        let until = if acks.all == 0 {
            counted + ABSENT
        } else if young && now < counted + COUNTING {
            counted + COUNTING
        } else if !acks.are_complete() {
            *self
                .statuses
                .held
                .entry(key.clone())
                .or_insert(now + BEHIND)
        } else {
            return None;
        };
        (now < until).then_some(until)
    }

    /// Takes in the outcome of a write.
    pub(super) fn take_written(&mut self, done: Option<Done>) {
        let Some(Done { key, outcome }) = done else {
            return;
        };
        self.statuses.recorder.written(&key, outcome.is_ok());
        match outcome {
            Ok(object) => {
                if let Some(seen) = self.objects.get_mut(&key) {
                    let new = ObservedObject::new(&seen.api_version, &object);
                    // The watch may have delivered a newer version meanwhile.
                    if newer(&new.version, &seen.version) {
                        *seen = new;
                        // The watch will bring no newer version, so objects that depend on it are
                        // queued now.
                        self.tenants.enqueue(&key, self.live.pipeline().tenancy());
                    }
                }
            }
            Err(failure) => {
                self.statuses.conflict_backoff.failed(&key);
                if !matches!(failure, Failure::Conflict | Failure::Gone) {
                    failed(
                        &key,
                        failure.class(),
                        format!("writing the status of {key}: {failure}"),
                    );
                }
            }
        }
    }
}
