//! The running state of the control plane: the engine, its publications, and their acknowledgement.
//! One task owns it.

use self::change_subject::{hosts, subject};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use xds::{Cache, Generation, NodeProgress, Rejection};

use crate::envoy_access::EnvoyAccess;
use crate::event::{Event, Events, Subject};
use crate::failure_reports::FailureReports;
use crate::fleet_views::{FleetViews, Generations, PerView, ViewId};
use crate::flood::Flood;
use crate::history::{Author, History, HistoryEntry, Outcome as HistoryOutcome};
use crate::lag::Lag;
use crate::metrics::{self, Connected, Program};
use crate::overtaken::Overtaken;
use crate::programmed::{Acks, FleetAcks};
use crate::publish;
use gatewright_core::external_name::ExternalName;
use gatewright_core::inputs::{Kind, ObjectChange, ObjectKey, SetKey};
use gatewright_core::model::{ObjectName, SecretName, Status};
use gatewright_core::pipeline::{Outcome, Pipeline, Written};
use gatewright_core::statuses::Context;
use gatewright_core::tenancy;
use gatewright_core::translate::{
    Change, Delta, DesiredEnvoys, Engine, ObjectStatus, ResourceKey, ServiceIntent, Settings,
};
use gatewright_envoy::Edge;

pub use self::owners::owner_rows;
use ack_progress::{AckProgress, Affected};
use complaints::Complaints;
use host_changes::HostChanges;
use recorder::{Recorded, Recorder};
use rejection_log::{LoggedRejection, RejectionLog};
use rejections::{RejectedKey, rejected_parts};
use states::States;

/// The maximum number of changes whose acknowledgement is still to be announced: without Envoys
/// none ever is.
const ANNOUNCED: usize = 256;

/// The engine, the xDS cache, and the state of publications.
pub struct ControlPlane {
    pipeline: Pipeline,
    cache: Cache,
    views: FleetViews,
    access: EnvoyAccess,
    /// The views of Gateways without own Envoys any more, which Envoys may still be connected to.
    leaving: BTreeSet<xds::View>,
    isolated_resources: publish::IsolatedResources,
    controller: String,
    edge: Edge,
    /// What Envoys of this replica report about backends.
    reports: FailureReports,
    floods: PerView<Flood>,
    /// The time for which Envoys of this replica have lacked a publication.
    lags: PerView<Lag>,
    /// The Envoys, of other replicas too, that others have overtaken.
    overtaken: PerView<Overtaken>,
    /// The last publication that affected each Gateway.
    published: BTreeMap<ObjectName, (ViewId, Generation)>,
    generations: Generations,
    /// The last transition time of each condition.
    since: Since,
    waiting: VecDeque<Announcement>,
    /// The history of changes.
    recorder: Recorder,
    /// The rejections that were logged.
    logged: RejectionLog,
    /// The conditions that were logged.
    complaints: Complaints,
    changes: u64,
    /// The progress of Envoys as statuses have it.
    acks: AckProgress,
    /// The resources that are not sent, since Envoy would reject them.
    withheld: BTreeMap<(ViewId, xds::Kind, String), Vec<Rejection>>,
    /// The progress and the rejections of Envoys at other replicas.
    others: (PerView<Vec<NodeProgress>>, Vec<Rejection>),
    /// The last states.
    states: States,
    /// The hostnames that changed lately.
    host_changes: HostChanges,
    /// The views that have Envoys.
    with_envoys: BTreeSet<ViewId>,
}

/// The present status of each condition and its transition time, by object and place.
type Since = BTreeMap<(ObjectKey, String), (Status, Timestamp)>;

/// The effects of a change beside the publication to Envoys. The caller carries out each of them.
#[must_use = "whoever drives the control plane carries out each of them"]
pub struct Effects {
    /// Events for the log.
    pub events: Events,
    /// The changed Services of Gateways; `None` for a Gateway that wants none.
    pub services: BTreeMap<ObjectName, Option<ServiceIntent>>,
    /// The changed own Envoys of Gateways; `None` for a Gateway that wants none.
    pub envoys: BTreeMap<ObjectName, Option<DesiredEnvoys>>,
    /// The Secrets whose wanted certificate may have changed.
    pub wanted: BTreeSet<ObjectName>,
    /// The changed names of Services of type ExternalName that are to be looked up; `None` for one
    /// that is not any more.
    pub names: BTreeMap<ObjectName, Option<ExternalName>>,
}

/// A change to be announced once it is acknowledged.
struct Announcement {
    subject: Subject,
    hosts: usize,
    /// The hostname, if the change affects only one.
    host: Option<String>,
    /// The generations that the change led to, one for each changed view.
    published: Vec<(ViewId, Generation)>,
    /// The time since the caller's origin.
    at: Duration,
    /// Its changes in the history.
    recorded: Recorded,
}

impl ControlPlane {
    /// Creates a control plane that serves nothing. Derived objects of TenantGateways are taken in
    /// at once.
    pub fn new(
        settings: Settings,
        tenancy: tenancy::Settings,
        cache: Cache,
        views: impl Into<FleetViews>,
    ) -> Self {
        let controller = settings.controller.clone();
        Self::over(
            controller,
            Pipeline::new(settings, tenancy, Written::Here),
            cache,
            views.into(),
        )
    }

    /// Creates a control plane that serves nothing. Objects come only from the watches of a
    /// cluster.
    pub fn in_cluster(
        settings: Settings,
        tenancy: tenancy::Settings,
        cache: Cache,
        views: impl Into<FleetViews>,
    ) -> Self {
        let controller = settings.controller.clone();
        Self::over(
            controller,
            Pipeline::new(settings, tenancy, Written::ToTheCluster),
            cache,
            views.into(),
        )
    }

    fn over(controller: String, pipeline: Pipeline, cache: Cache, views: FleetViews) -> Self {
        Self {
            controller,
            pipeline,
            cache,
            edge: Edge::DEFAULT,
            reports: FailureReports::default(),
            floods: views.each(|_| Flood::default()),
            lags: views.each(|_| Lag::default()),
            overtaken: views.each(|_| Overtaken::default()),
            published: BTreeMap::new(),
            generations: views.each(|_| 0),
            since: BTreeMap::new(),
            waiting: VecDeque::new(),
            recorder: Recorder::default(),
            logged: RejectionLog::default(),
            complaints: Complaints::default(),
            changes: 0,
            acks: AckProgress::new(views.each(|_| 0)),
            withheld: BTreeMap::new(),
            others: (views.each(|_| Vec::new()), Vec::new()),
            states: States::default(),
            host_changes: HostChanges::default(),
            with_envoys: BTreeSet::new(),
            access: EnvoyAccess::default(),
            leaving: BTreeSet::new(),
            isolated_resources: publish::IsolatedResources::default(),
            views,
        }
    }

    /// Sets an operator's limits of connections.
    #[must_use]
    pub fn within(mut self, edge: Edge) -> Self {
        self.edge = edge;
        self
    }

    /// Sets where the xDS server puts what Envoys report.
    #[must_use]
    pub fn reported(mut self, reports: FailureReports) -> Self {
        self.reports = reports;
        self
    }

    /// Sets the registry of Gateways' own Envoys that the xDS server admits.
    #[must_use]
    pub fn admitting(mut self, access: EnvoyAccess) -> Self {
        self.access = access;
        self
    }

    /// Sets the history of earlier runs, and where entries go to be stored: each when it is new,
    /// and when its outcome is known. An entry that finds no room there is not stored.
    #[must_use]
    pub fn remembering(mut self, history: History, store: mpsc::Sender<HistoryEntry>) -> Self {
        self.recorder.keep(history, store);
        self
    }

    /// Returns the pipeline of tenancy and translation.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns the views of fleets.
    pub fn views(&self) -> &FleetViews {
        &self.views
    }

    /// Returns the engine of translation.
    pub fn engine(&self) -> &Engine {
        self.pipeline.engine()
    }

    /// Takes in changes and publishes the result. Returns the effects for the caller.
    ///
    /// # Errors
    /// When `record` fails, which stores the decisions for the next run: then nothing is published.
    pub fn apply<E>(
        &mut self,
        changes: Vec<Change>,
        known: Vec<tenancy::Change>,
        record: &mut dyn FnMut(&Outcome) -> Result<(), E>,
        now: SystemTime,
        at: Duration,
    ) -> Result<Effects, E> {
        let subject = subject(&changes);
        let is_start = self.publication() == 0;
        let store = self.pipeline.engine().store();
        let mut noted = self.recorder.note(&changes, store, is_start, (now, at));
        self.changes += changes.len() as u64;
        let touched_hosts = self.touched_hosts(&changes);
        let outcome = self.pipeline.apply_with(changes, known, now);
        self.acks.forget_attributed();
        record(&outcome)?;
        let mut delta = outcome.delta;
        let decided = delta.wants.keys().chain(outcome.tenancy.wants.keys());
        let wanted = decided.chain(&delta.refusal_changes).cloned().collect();
        let named = hosts(&delta);
        self.note_hosts(touched_hosts, (&named, &delta), now);
        let hosts = named.len();
        let host = named.first().filter(|_| hosts == 1).cloned();
        let has_effect = !delta.statuses.is_empty();
        let envoys = std::mem::take(&mut delta.envoys);
        self.make_views(&envoys);
        let changed = self.publish(&delta);
        self.states.note(self.engine().digest(), &changed);
        // Endpoints and certificates change without a change of anybody's configuration.
        let touched = delta
            .resources
            .keys()
            .filter(|key| !matches!(key, ResourceKey::Endpoints(_) | ResourceKey::Secret(_)))
            .filter_map(ResourceKey::frontend);
        let touched = touched.map(|id| &id.gateway);
        for gateway in touched.chain(&delta.gateways) {
            let fleet = self.engine().fleet_of(gateway);
            if let Some(view) = self.views.id(&fleet) {
                self.published
                    .insert(gateway.clone(), (view, self.generations[view]));
            }
            self.acks.wait_for(gateway.clone());
        }
        let mut events = Events::default();
        for (key, status) in &delta.statuses {
            events.extend(self.complaints.news(key, status.as_ref()));
        }
        if !is_start {
            noted.add_losses(&events, self.pipeline.engine().store());
        }
        let services = std::mem::take(&mut delta.services);
        let names = std::mem::take(&mut delta.names);
        self.acks.touch(delta.statuses.keys().cloned());
        events.extend(crate::tenants::complaints(&self.pipeline, &outcome.tenancy));
        for (key, status) in &delta.statuses {
            if status.is_none() {
                self.acks.forget(key);
                if key.kind == Kind::Gateway {
                    self.published.remove(&key.name);
                }
                let places = self.since.range((key.clone(), String::new())..);
                let places =
                    places.map_while(|(place, _)| (place.0 == *key).then(|| place.clone()));
                for place in places.collect::<Vec<_>>() {
                    self.since.remove(&place);
                }
            }
        }
        self.end_views(&envoys);
        let published: Vec<_> = changed
            .into_iter()
            .filter(|(view, _)| self.generations.get(*view).is_some())
            .collect();
        if published.is_empty() {
            if has_effect {
                let _ = self
                    .recorder
                    .record(noted, &named, HistoryOutcome::NothingToSend);
            }
            events.push(Event::Unchanged { subject });
        } else {
            let recorded = self.recorder.record(noted, &named, HistoryOutcome::Waiting);
            self.waiting.push_back(Announcement {
                recorded,
                subject,
                hosts,
                host,
                published,
                at,
            });
            if self.waiting.len() > ANNOUNCED
                && let Some(oldest) = self.waiting.pop_front()
            {
                self.recorder.given_up(&oldest.recorded);
            }
        }
        Ok(Effects {
            events,
            services,
            envoys,
            wanted,
            names,
        })
    }

    /// Takes in the total number of unknown names that Envoys of one view have subscribed to.
    /// Returns events for the log.
    pub fn count_unknown_names(&mut self, id: ViewId, total: u64, at: Duration) -> Events {
        // The Gateway of the view may be deleted.
        if self.generations.get(id).is_none() || !self.floods[id].asked(total, at) {
            return Events::default();
        }
        self.publish_listeners(id, true);
        Some(Event::FloodBegan).into()
    }

    /// Takes in these totals of all views.
    pub fn count_all_unknown_names(&mut self, at: Duration) -> Events {
        let totals: Vec<_> = self
            .views
            .iter()
            .map(|(id, view)| (id, self.cache.unknown(view)))
            .collect();
        let mut events = Events::default();
        for (id, total) in totals {
            events.append(self.count_unknown_names(id, total, at));
        }
        events
    }

    /// Does the time-dependent work. Returns events for the log.
    pub fn tick(&mut self, at: Duration) -> Events {
        let ended: Vec<ViewId> = self
            .floods
            .iter_mut()
            .filter_map(|(id, flood)| flood.ends(at).then_some(id))
            .collect();
        for id in &ended {
            self.publish_listeners(*id, false);
        }
        let cache = &self.cache;
        self.leaving.retain(|view| !cache.remove(view));
        let mut events = Events::default();
        ended.iter().for_each(|_| events.push(Event::FloodEnded));
        events
    }

    fn publish_listeners(&mut self, id: ViewId, listed: bool) {
        let update = self.tls_listeners(id, listed);
        self.generations[id] = self.cache.publish(&self.views[id], update);
    }

    /// Returns the TLS listeners of a view.
    fn tls_listeners(&self, id: ViewId, listed: bool) -> xds::Update {
        let mut frontends = self.engine().tls_frontends(listed);
        frontends.retain(|frontend| self.views.id(&frontend.id.fleet()) == Some(id));
        publish::listeners(&frontends, &self.edge)
    }

    /// Returns events about acknowledgements and rejections since the last call.
    pub fn acknowledgement_events(&mut self, at: Duration) -> Events {
        let own = self.own_progress();
        self.note_lags(&own, at);
        let progress = self.with_others(own);
        self.note_overtaken(&progress, at);
        let mut events = Events::default();
        let rejected = self
            .rejections(&progress)
            .map(|r| (LoggedRejection::of(r), RejectedKey::of(r)))
            .collect();
        let nodes = progress
            .values()
            .flat_map(|progress| &progress.nodes)
            .map(|node| &*node.node)
            .collect();
        let changes = self.changed_rejections(rejected, &nodes, at);
        let with_envoys: BTreeSet<ViewId> = progress
            .iter()
            .filter(|(_, progress)| !progress.nodes.is_empty())
            .map(|(view, _)| view)
            .collect();
        // Without an Envoy no host of a view is served.
        let is_other = self.with_envoys != with_envoys;
        self.with_envoys = with_envoys;
        if !changes.is_empty() || is_other {
            self.host_changes.note_all(SystemTime::UNIX_EPOCH);
        }
        events.extend(changes);
        let recorder = &mut self.recorder;
        self.waiting.retain_mut(|waiting| {
            let recorded = &mut waiting.recorded;
            recorder.progressed(recorded, &waiting.published, &progress, at);
            let published = waiting.published.iter();
            let acks = published.filter_map(|(view, made)| {
                Some((progress.get(*view)?, self.overtaken.get(*view)?, *made))
            });
            let acks: Vec<Acks> = acks
                .map(|(progress, overtaken, made)| Acks::of(progress, overtaken, made))
                .collect();
            let envoys: usize = acks.iter().map(|acks| acks.done).sum();
            let is_done =
                envoys > 0 && acks.iter().all(|acks| acks.all == 0 || acks.are_complete());
            if is_done {
                recorder.acknowledged(&waiting.recorded, at);
                events.push(Event::Acknowledged {
                    subject: waiting.subject.clone(),
                    hosts: waiting.hosts,
                    host: waiting.host.clone(),
                    envoys,
                    generation: waiting
                        .published
                        .iter()
                        .map(|(_, made)| *made)
                        .max()
                        .unwrap_or_default(),
                    took: at.saturating_sub(waiting.at),
                });
            }
            !is_done
        });
        events
    }

    /// Returns the objects whose status may have changed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<ObjectKey> {
        let progress = self.progress();
        let connected = self.views.each(|view| progress[view].nodes.len());
        let rejected = rejected_parts(self.rejections(&progress));
        if let Affected::All = self.acks.note(connected, rejected) {
            self.touch_all();
        }
        let acknowledged: Vec<ObjectName> = self
            .acks
            .awaited()
            .filter(|gateway| self.acks_of(gateway, &progress).are_complete())
            .cloned()
            .collect();
        for gateway in acknowledged {
            let sets = self.pipeline.engine().store().sets_of(&gateway);
            let sets = sets.map(SetKey::object);
            self.acks.acknowledge(gateway.clone(), sets);
        }
        self.acks.take()
    }

    /// Notes that every status may have changed.
    fn touch_all(&mut self) {
        let statuses = self.pipeline.engine().statuses();
        self.acks.touch(statuses.map(|(key, _)| key.clone()));
    }

    /// Returns the status of an object, including the progress of Envoys, and the acknowledgements
    /// that it is made from; `None` for an object that is not ours.
    ///
    /// If it lacks acknowledgements, it is among the touched ones once they arrive. An Envoy that
    /// has just connected may need long for publications that others acknowledged before.
    pub fn evaluate_status(&mut self, key: &ObjectKey) -> (Option<ObjectStatus>, Acks) {
        let acks = self.acknowledgement(key);
        self.await_acknowledgements(key, &acks);
        let mut fleet = self.fleet();
        fleet.acks = BTreeMap::from([(key.clone(), acks.clone())]);
        (self.status(key, &fleet), acks)
    }

    fn await_acknowledgements(&mut self, key: &ObjectKey, acks: &Acks) {
        let Some(gateway) = self.gateway_of(key).cloned() else {
            return;
        };
        if acks.are_complete() {
            return;
        }
        // The connection of the first Envoy touches everything.
        if acks.all > 0 {
            self.acks.wait_for(gateway);
        }
        if SetKey::of(key).is_some() {
            self.acks.doubt(key.clone());
        }
    }

    /// Returns the present rejections of Envoys, without acknowledgements.
    fn fleet(&mut self) -> FleetAcks {
        let progress = self.progress();
        let rejected = rejected_parts(self.rejections(&progress));
        let attributed = self.acks.attributed(&rejected).unwrap_or_else(|| {
            let attributed = Arc::new(self.attributed(&rejected));
            self.acks.attribute(rejected, attributed.clone());
            attributed
        });
        FleetAcks {
            rejected: attributed,
            ..FleetAcks::default()
        }
    }

    /// Returns the Gateway that an object is, or extends.
    fn gateway_of<'a>(&'a self, key: &'a ObjectKey) -> Option<&'a ObjectName> {
        match key.kind {
            Kind::Gateway => Some(&key.name),
            _ => self
                .engine()
                .store()
                .listener_set(&SetKey::of(key)?)
                .and_then(|set| set.parent.as_ref()),
        }
    }

    /// Returns the state of each Envoy, as JSON.
    pub fn clients(&self) -> Value {
        let progress = self.progress();
        let rejections: Vec<Value> = self
            .rejections(&progress)
            .map(|r| {
                json!({
                    "node": &*r.node, "type": format!("{:?}", r.kind), "name": &*r.name,
                    "virtualHost": r.part.as_ref().map(|part| &*part.virtual_host),
                    "route": r.part.as_ref().map(|part| &*part.route),
                    "version": &*r.version, "text": &*r.text,
                })
            })
            .collect();
        let nodes: Vec<&NodeProgress> = progress
            .values()
            .flat_map(|progress| &progress.nodes)
            .collect();
        json!({
            "published": self.publication(),
            "envoys": nodes,
            "rejections": rejections,
            "views": self.cache.debug(),
        })
    }

    /// Notes that an object has arrived and is about to be queued, and who wrote it. The time is
    /// that from which its propagation is measured.
    pub fn note_arrival(&mut self, key: ObjectKey, author: Author, at: Duration) {
        self.recorder.arrived(key, author, at);
    }

    /// Returns the metrics and `others`, in the text format of Prometheus.
    pub fn metrics(&self, mut others: Vec<Box<dyn Collector>>, at: Duration) -> String {
        others.push(Box::new(self.recorder.propagation.clone()));
        let progress = self.progress();
        let (good, bad) = self.engine().good_and_bad();
        let program = Program {
            changes: self.changes,
            work: self.engine().counters(),
            connected: self
                .views
                .iter()
                .map(|(id, view)| {
                    let Acks {
                        done,
                        all,
                        left_behind,
                        ..
                    } = self.acks_of_view(id, &progress);
                    let (view, age) = (view.name().to_owned(), self.lags[id].age(at));
                    Connected {
                        view,
                        all,
                        behind: all - done,
                        left_behind: left_behind.len(),
                        age,
                    }
                })
                .collect(),
            quarantined: self.rejections(&progress).count(),
            good,
            bad,
            ends: self.engine().certificate_ends(SystemTime::now()),
            quotas: self.pipeline.quota_uses(),
            // Tests of the pure parts run without a runtime.
            tasks: tokio::runtime::Handle::try_current()
                .map_or(0, |runtime| runtime.metrics().num_alive_tasks()),
        };
        metrics::text(program, &self.cache, others)
    }

    fn status(&self, key: &ObjectKey, fleet: &FleetAcks) -> Option<ObjectStatus> {
        self.engine()
            .status(key)
            .map(|status| fleet.add_acknowledgements(key, &status))
    }
}

/// The acknowledgements of Envoys, and the transition times of conditions.
struct Clock<'a> {
    fleet: FleetAcks,
    controller: &'a str,
    now: Timestamp,
    since: RefCell<&'a mut Since>,
}

impl Context for Clock<'_> {
    fn controller(&self) -> &str {
        self.controller
    }

    fn add_acknowledgements(&self, key: &ObjectKey, status: &ObjectStatus) -> ObjectStatus {
        self.fleet.add_acknowledgements(key, status)
    }

    fn since(&self, key: &ObjectKey, place: &str, status: Status) -> String {
        transition_time(&mut self.since.borrow_mut(), (key, place), status, self.now)
    }
}

/// Returns the time since which a condition has a status, and notes it.
fn transition_time(
    since: &mut Since,
    (key, place): (&ObjectKey, &str),
    status: Status,
    now: Timestamp,
) -> String {
    let entry = since
        .entry((key.clone(), place.to_owned()))
        .or_insert((status, now));
    if entry.0 != status {
        *entry = (status, now);
    }
    entry.1.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

mod ack_progress;
mod acknowledgements;
mod brought_certificates;
mod change_subject;
mod complaints;
mod explain;
mod history;
mod host_changes;
mod hosts;
mod own_views;
mod owners;
mod recorder;
mod rejected_certificates;
mod rejection_log;
mod rejections;
mod states;
mod statuses;
#[cfg(test)]
mod tests;
