//! The runtime of a replica in a cluster: its view of the API server, the control plane, and the
//! writers. One task owns it.

mod awaited_owners;
mod bodies;
mod certificates;
mod claims;
mod exposure;
mod isolated;
mod leading;
mod metrics;
mod objects;
mod queue;
mod slices;
mod statuses;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::{Instant, SystemTime};

use kube::Client;
use tracing::info;

use super::ahead::Ahead;
use super::claims::{Claims, WorkerEvent as ClaimWorkerEvent};
use super::issuance::{self, Issuance};
use super::lease::Term;
use super::replicas::{self, Record, Replica, ReplicaEvent, Replicas};
use super::tenants::{self, Decided, Tenants};
use super::watch::{ObjectUpdate, WatchEvent};
use crate::class_finalizers::{ClassFinalizers, ClassWritten};
use crate::expose::services::{self, Services};
use crate::isolated::IsolatedEnvoys;
use crate::secrets::body::Body;
use crate::secrets::references::{BodyRequest, References};
use crate::watch::definitions::ServedDefinitions;
use crate::watch::last_heard::LastHeard;
use crate::watch::observed::ObservedObject;
use crate::watch::sync::WatchSync;
use crate::write::status_writer::{Done, RecordWrites};
use certificates::Certificates;
use claims::Ownership;
use gatewright_control::event::{Event, Severity, WATCH};
use gatewright_control::history::Author;
use gatewright_control::names::{FIRST_LOOKUPS, WantedNames};
use gatewright_control::{ControlPlane, Effects};
use gatewright_core::definitions::{BundleVersion, DefinedFields, Definitions};
use gatewright_core::inputs::{Kind, ObjectChange, ObjectKey};
use gatewright_core::model::{EnvoyFleet, TicketKeys};
use gatewright_core::pipeline::Outcome;
use gatewright_core::tenancy;
use gatewright_core::translate::{Change, Explanation, Fact, Question};
use objects::Objects;
use queue::{Afterwards, QueuedChanges};
use statuses::Statuses;

/// The state and the writers of one replica.
pub struct KubernetesRuntime {
    live: ControlPlane,
    view: WatchSync,
    /// Fields of the experimental channel, as the last answer of the API server has them; `None`
    /// before the first.
    fields: Option<DefinedFields>,
    /// The version of the definitions.
    bundle: BundleVersion,
    /// True until it is known whether there are keys of session tickets.
    awaits_ticket_keys: bool,
    /// The definitions that the translation knows.
    definitions: Option<Definitions>,
    heard: LastHeard,
    objects: Objects,
    references: References,
    /// The EndpointSlices that are held back until their pods are known.
    ahead: Ahead,
    queued: QueuedChanges,
    /// The writer of the derived objects of TenantGateways.
    tenants: Tenants,
    services: Services,
    classes: ClassFinalizers,
    /// The writer of Gateways' own Envoys; `None` where the installation has none.
    isolated: Option<IsolatedEnvoys>,
    certificates: Certificates,
    /// The names of Services that are looked up; `None` where none is.
    names: Option<WantedNames>,
    statuses: Statuses,
    ownership: Ownership,
    replicas: Replicas,
    started: Instant,
    /// True if the first complete view is served.
    serving: bool,
    /// The time since which it is.
    serving_since: Option<Instant>,
    /// True if we have held the Lease without interruption since everything was compared.
    leading: bool,
}

impl KubernetesRuntime {
    /// Creates the runtime with an empty view.
    pub fn new(
        client: Client,
        controller: &str,
        replica: Replica,
        live: ControlPlane,
        issuance: Issuance,
    ) -> Self {
        Self {
            live,
            view: WatchSync::new(Kind::ALL),
            fields: Some(DefinedFields::default()),
            bundle: BundleVersion::Unread,
            awaits_ticket_keys: false,
            definitions: None,
            heard: LastHeard::default(),
            objects: Objects::default(),
            references: References::new(client.clone()),
            ahead: Ahead::default(),
            queued: QueuedChanges::default(),
            tenants: Tenants::new(client.clone()),
            services: Services::new(client.clone()),
            classes: ClassFinalizers::new(client.clone(), controller),
            isolated: None,
            certificates: Certificates::new(issuance),
            names: None,
            statuses: Statuses::new(client.clone(), controller),
            ownership: Ownership::default(),
            replicas: Replicas::new(client, replica),
            started: Instant::now(),
            serving: false,
            serving_since: None,
            leading: false,
        }
    }

    /// Restricts the watched kinds to these; `heard` is when their watches last had an event.
    pub fn watching(self, kinds: &[Kind], heard: LastHeard) -> Self {
        Self {
            view: WatchSync::new(kinds),
            heard,
            ..self
        }
    }

    /// Enables Gateways' own Envoys, made from the PodTemplate of this name in this namespace.
    pub fn isolating(mut self, client: Client, namespace: &str, template: &str) -> Self {
        self.isolated = Some(IsolatedEnvoys::new(client, namespace, template));
        self
    }

    /// Has names of Services of type ExternalName looked up.
    pub fn naming(self, names: WantedNames) -> Self {
        Self {
            names: Some(names),
            ..self
        }
    }

    /// Announces [`WatchEvent::Definitions`]: the statuses of classes wait for the first one, since
    /// it decides about features.
    pub fn awaiting_fields(self) -> Self {
        Self {
            fields: None,
            ..self
        }
    }

    /// Announces [`Self::take_ticket_keys`]: nothing is served before, since an Envoy that runs on
    /// would lose the filter chains of hosts with session tickets.
    pub fn awaiting_ticket_keys(self) -> Self {
        Self {
            awaits_ticket_keys: true,
            ..self
        }
    }

    /// Takes in the keys of session tickets, or that there are none yet.
    pub fn take_ticket_keys(&mut self, keys: Option<TicketKeys>, term: Term) {
        self.awaits_ticket_keys = false;
        self.apply(vec![Change::Fact(Fact::TicketKeys(keys))], term);
        self.begin(term);
    }

    /// Returns the control plane.
    pub fn live(&mut self) -> &mut ControlPlane {
        &mut self.live
    }

    /// Returns whether the first complete view is served.
    pub fn serving(&self) -> bool {
        self.serving
    }

    /// Returns whether the API server has answered for any kind since the start.
    pub fn has_answer(&self) -> bool {
        self.view.has_answer()
    }

    /// Returns whether nothing can be served, since the right to read a kind is missing.
    pub fn lacks_a_right(&self) -> bool {
        self.view.lacks_a_right()
    }

    /// Returns whether Envoys may be configured. While the definitions of Gateways and routes are
    /// missing, Envoys keep their configuration: the definitions may be about to be restored.
    pub fn knows_gateways(&mut self) -> bool {
        self.serving
            && self.knows_owners(Instant::now())
            && !self.awaits_names()
            && [Kind::GatewayClass, Kind::Gateway, Kind::HTTPRoute]
                .iter()
                .all(|kind| self.view.has_listed(*kind))
    }

    /// Returns whether names are being looked up for the first time since the start: without their
    /// addresses, Envoys would lose the endpoints that they have.
    fn awaits_names(&self) -> bool {
        self.live.engine().awaits_names()
            && self
                .serving_since
                .is_some_and(|since| since.elapsed() < FIRST_LOOKUPS)
    }

    /// Takes in an event of the watch.
    pub fn take_in(&mut self, news: WatchEvent, term: Term) {
        let (kind, line) = match news {
            WatchEvent::Changed(updates) => {
                self.change(updates, term);
                self.begin(term);
                return;
            }
            WatchEvent::Definitions(definitions) => {
                return self.take_definitions(definitions, term);
            }
            WatchEvent::Complete(kind) => return self.in_turn(Afterwards::Complete(kind), term),
            WatchEvent::Trouble(kind, trouble) => {
                (kind, self.view_not_complete(kind).trouble(kind, trouble))
            }
            WatchEvent::Missing(kind) => (kind, self.view_not_complete(kind).missing(kind)),
            WatchEvent::Listing(kind) => (kind, self.view_not_complete(kind).listing(kind)),
        };
        self.take_state(kind, line, term);
    }

    /// Takes in a change of the state of a kind; `line` is `None` where it has not changed.
    fn take_state(&mut self, kind: Kind, line: Option<String>, term: Term) {
        if let Some(line) = line {
            info!(event = WATCH, kind = kind.as_str(), "{line}");
            if kind == Kind::ListenerSet {
                self.queued
                    .known
                    .push(tenancy::Change::Fact(tenancy::Fact::ListenerSets(
                        !self.view.is_missing(kind),
                    )));
                self.apply(Vec::new(), term);
            }
            if self.serving {
                if kind == Kind::ClusterTrustBundle {
                    self.apply(vec![self.trust_bundles()], term);
                }
                self.tell_definitions(term);
                self.enqueue_kind(kind, term);
            }
        }
        self.begin(term);
    }

    fn change(&mut self, updates: Vec<ObjectUpdate>, term: Term) {
        let mut changes = Vec::with_capacity(updates.len());
        let mut requests: Vec<BodyRequest> = Vec::new();
        for update in updates {
            match update {
                ObjectUpdate::Put(object, seen, author) => {
                    let key = object.key();
                    self.note_arrival(&key, author);
                    self.objects.readable(&key);
                    requests.extend(self.references.put(&object));
                    if let Some(seen) = seen {
                        self.see(key, seen, term);
                    }
                    let asks = requests
                        .iter()
                        .any(|request| matches!(request, BodyRequest::Fetch(_)));
                    if let Some(object) = self.references.defer(*object, asks) {
                        changes.extend(self.in_step(object));
                    }
                }
                ObjectUpdate::LiveObject(derived, held, existing) => {
                    self.queued
                        .known
                        .push(tenancy::Change::Existing(derived.clone(), Some(existing)));
                    self.tenants.see(derived, held);
                }
                ObjectUpdate::Secret(name, version, ours) => {
                    requests.extend(self.references.there(
                        ObjectKey::new(Kind::Secret, name),
                        version,
                        ours,
                    ));
                }
                ObjectUpdate::AccessSecret(kind, name, version) => {
                    requests.extend(self.references.access_secret(kind, name, version));
                }
                ObjectUpdate::AccessSecretGone(kind, name) => {
                    requests.extend(self.references.access_secret_gone(kind, &name));
                }
                ObjectUpdate::ConfigMap(name, version) => {
                    requests.extend(self.references.there(
                        ObjectKey::new(Kind::ConfigMap, name),
                        version,
                        false,
                    ));
                }
                ObjectUpdate::Delete(key) if matches!(key.kind, Kind::Secret | Kind::ConfigMap) => {
                    requests.extend(self.references.gone(&key));
                }
                ObjectUpdate::Delete(key) => {
                    self.note_arrival(&key, Author::default());
                    requests.extend(self.references.delete(&key));
                    self.objects.readable(&key);
                    self.forget(&key);
                    changes.push(Change::delete(key));
                }
                ObjectUpdate::Unreadable(key, why) => {
                    // The last version that was readable is not valid any more.
                    requests.extend(self.references.delete(&key));
                    self.forget(&key);
                    if self.objects.unreadable(key.clone(), why.clone()) {
                        Event::Unreadable {
                            object: key.clone(),
                            why,
                        }
                        .log(Severity::Debug);
                    }
                    changes.push(Change::delete(key));
                }
            }
        }
        let forgotten = self.request_bodies(requests);
        changes.extend(self.references.take_ready().into_iter().map(Change::put));
        self.queued.known.extend(
            self.references
                .rekeyed()
                .map(|(secret, ours)| tenancy::Change::Fact(tenancy::Fact::Keyed(secret, ours))),
        );
        self.queue(changes, term);
        self.drop_in_turn(forgotten, term);
    }

    fn forget(&mut self, key: &ObjectKey) {
        if let Some(derived) = crate::live_object::derived(key) {
            self.queued
                .known
                .push(tenancy::Change::Existing(derived, None));
        }
        self.tenants.forget(key);
        if key.kind == Kind::EndpointSlice {
            self.ahead.forget(&key.name);
        }
        self.objects.forget(key);
        self.statuses.forget(key);
    }

    fn see(&mut self, key: ObjectKey, seen: Box<ObservedObject>, term: Term) {
        let is_new = self.objects.see(key.clone(), seen);
        // The object was changed, maybe over our own write.
        if self.leads(term) && self.serving && is_new {
            self.tenants.enqueue(&key, self.live.pipeline().tenancy());
            if !matches!(key.kind, Kind::Namespace | Kind::TenantGateway) {
                self.statuses.writer.want(key, Instant::now());
            }
        }
    }

    /// Waits for the end of a request to the API server, or for a delayed one to be due.
    pub async fn next(&mut self) -> RuntimeEvent {
        let due = self.due();
        tokio::select! {
            fetched = self.references.next() => RuntimeEvent(Request::Fetch(fetched)),
            written = self.statuses.writer.next() => RuntimeEvent(Request::Write(written)),
            outcome = self.tenants.next() => RuntimeEvent(Request::Tenants(outcome)),
            event = self.services.next() => RuntimeEvent(Request::Service(event)),
            written = self.classes.next() => RuntimeEvent(Request::Class(written)),
            event = Self::next_isolated(self.isolated.as_mut()) => RuntimeEvent(Request::Isolated(event)),
            event = self.certificates.issuance.next() => RuntimeEvent(Request::Issued(event)),
            outcome = self.replicas.next() => RuntimeEvent(Request::Record(outcome)),
            () = Self::until(due) => RuntimeEvent(Request::Turn),
            () = Self::until_one_is_late(&self.ahead, self.view.is_current(Kind::Pod)) => RuntimeEvent(Request::Slices),
            event = Self::next_claim(self.ownership.claims.as_mut()) => RuntimeEvent(Request::Claims(event)),
        }
    }

    /// Takes in the outcome of a request.
    pub fn take_event(&mut self, event: RuntimeEvent, term: Term) {
        match event.0 {
            Request::Fetch(fetched) => self.take_body(fetched, term),
            Request::Write(written) => self.take_written(written),
            Request::Tenants(Some(outcome)) => self
                .tenants
                .take_outcome(outcome, self.live.pipeline().tenancy()),
            Request::Tenants(None) => {}
            Request::Service(event) => self.take_service(event, term),
            Request::Class(written) => self.classes.take_outcome(written),
            Request::Isolated(event) => self.take_isolated(event, term),
            Request::Issued(event) => self.take_issued(event, term),
            Request::Record(outcome) => self.replicas.take_outcome(outcome, Instant::now()),
            Request::Slices => self.catch_up(term),
            Request::Turn => self.take_turn(term),
            Request::Claims(event) => {
                let pipeline = self.live.pipeline();
                let changes = self
                    .ownership
                    .claims
                    .as_mut()
                    .map(|claims| claims.take_event(event, pipeline));
                let changes = changes.unwrap_or_default();
                self.take_records(changes, term);
            }
        }
    }

    /// Returns whether the API server serves ClusterTrustBundles, as a fact.
    fn trust_bundles(&self) -> Change {
        Change::Fact(Fact::TrustBundles(
            !self.view.is_missing(Kind::ClusterTrustBundle),
        ))
    }

    /// Takes in the served definitions: the fields and defaults in them, and that statuses may have
    /// more fields now.
    fn take_definitions(&mut self, served: ServedDefinitions, term: Term) {
        let is_first = self.fields.replace(served.fields).is_none();
        self.bundle = served.bundle;
        self.tell_definitions(term);
        self.tenants.take_defaults(served.defaults);
        let mut kinds = self.statuses.writer.definitions_changed();
        kinds.extend(is_first.then_some(Kind::GatewayClass));
        if self.serving && self.leads(term) {
            self.tenants.enqueue_all(self.live.pipeline().tenancy());
            kinds.into_iter().for_each(|kind| self.want_kind(kind));
        }
    }

    /// Tells the translation which kinds and fields the API server has, if that changed.
    fn tell_definitions(&mut self, term: Term) {
        let missing = Kind::ALL
            .iter()
            .copied()
            .filter(|kind| self.view.is_missing(*kind))
            .collect();
        let definitions = Definitions {
            bundle: self.bundle.clone(),
            fields: self.fields.unwrap_or_default(),
            missing,
        };
        if self.serving && self.definitions.as_ref() != Some(&definitions) {
            self.definitions = Some(definitions.clone());
            self.apply(vec![Change::Fact(Fact::Definitions(definitions))], term);
        }
    }

    /// Starts to serve if the view is complete.
    fn begin(&mut self, term: Term) {
        let is_known = self.view.has_synced() && self.knows_claims() && !self.awaits_ticket_keys;
        if self.serving || !is_known {
            return;
        }
        self.serving = true;
        self.serving_since = Some(Instant::now());
        let mut early = std::mem::take(&mut self.queued.early);
        info!("the view is complete: {} objects", early.len());
        early.push(self.trust_bundles());
        self.apply(early, term);
        self.tell_definitions(term);
        self.note_undecided();
        if self.leads(term) {
            self.enqueue_all();
        }
    }

    /// Applies changes at once, or keeps them until the view is complete.
    pub fn apply(&mut self, changes: Vec<Change>, term: Term) {
        if !self.serving {
            self.queued.early.extend(changes);
            return;
        }
        let changes = self.queued.queue.take_urgent(changes);
        // Services are compared with the desired ones once the store has them.
        for change in &changes {
            match change {
                Change::Object(ObjectChange::Put(object)) => self.services.see(object),
                Change::Object(ObjectChange::Delete(key)) => self.services.gone(key),
                _ => {}
            }
        }
        self.classes.see(&changes);
        let secrets = certificates::secrets_of(&changes);
        let known = std::mem::take(&mut self.queued.known);
        let mut decided = None;
        let may_write = self.leads(term);
        let record = &mut |outcome: &Outcome| {
            decided = may_write.then(|| (Decided::of(&outcome.tenancy), outcome.records()));
            Ok::<_, Infallible>(())
        };
        let effects = match self.live.apply(
            changes,
            known,
            record,
            SystemTime::now(),
            self.started.elapsed(),
        ) {
            Ok(effects) => effects,
            Err(never) => match never {},
        };
        let Effects {
            events,
            services,
            envoys,
            wanted,
            names,
        } = effects;
        // Most changes in a cluster have no effect, so their events are logged at debug level.
        events.log(Severity::Debug);
        if let Some((decided, records)) = decided {
            self.tenants
                .take_in(&decided, self.live.pipeline().tenancy());
            if let Some(claims) = &mut self.ownership.claims {
                claims.ask(records.into_keys());
            }
            self.want(decided.claims);
        }
        self.services.take_in(services);
        if let Some(isolated) = &mut self.isolated {
            isolated.take_in(envoys);
        }
        if let Some(wanted_names) = &self.names {
            wanted_names.want(names);
        }
        self.certify(wanted, secrets, term);
        self.take_acknowledgements(term);
    }

    /// Does the time-dependent work: certificates become valid and expire.
    pub fn tick(&mut self, term: Term) {
        self.live.tick(self.started.elapsed()).log(Severity::Debug);
        if self.live.loses_patience(self.started.elapsed()) {
            self.take_acknowledgements(term);
        }
        self.refetch_credentials();
        if self
            .live
            .pipeline()
            .next_deadline()
            .is_some_and(|deadline| deadline <= SystemTime::now())
        {
            self.apply(Vec::new(), term);
        }
    }

    /// Counts the unknown resource names that Envoys of each view at this replica have subscribed
    /// to.
    pub fn count_unknown_names(&mut self) {
        self.live
            .count_all_unknown_names(self.started.elapsed())
            .log(Severity::Debug);
    }

    /// Takes in the record of another replica.
    pub fn take_replica_event(&mut self, event: ReplicaEvent, term: Term) {
        self.replicas.take_in(event);
        self.take_acknowledgements(term);
    }

    /// Takes in the acknowledgements and rejections of Envoys since the last call.
    pub fn take_acknowledgements(&mut self, term: Term) {
        let own = self.live.own_progress();
        let views = self.live.views();
        let nodes = views.each(|view| {
            let names = own[view]
                .nodes
                .iter()
                .map(|node| node.node.clone())
                .collect();
            let fleet = views.fleet(view).unwrap_or(EnvoyFleet::Shared);
            self.replicas
                .nodes(&fleet, &names, |state| self.live.generation_of(state, view))
        });
        let refused = self.replicas.refused(views);
        self.live.set_others(nodes, refused);
        // The lease holder knows the progress of its own Envoys, so it publishes no record.
        if !self.leads(term) && self.serving {
            let (state, since) = self.live.state();
            let record = Record::new(self.live.views(), (state, &since), &own);
            self.replicas.publish(record, Instant::now());
        }
        self.live
            .acknowledgement_events(self.started.elapsed())
            .log(Severity::Debug);
        self.statuses.count(&self.live.connected());
        let touched = self.live.take_touched();
        if self.leads(term) && self.serving {
            self.certificates
                .issuance
                .refuse(self.live.rejected_certificates());
            self.want(touched);
        }
    }

    /// Explains a URL. Only the lease holder knows the Envoys of all replicas.
    pub fn explain(&mut self, question: &Question, term: Term) -> Explanation {
        let knows_all = self.leads(term);
        self.live.explain(question, knows_all)
    }

    /// Notes that an object has arrived. Those of the first view are applied together.
    fn note_arrival(&mut self, key: &ObjectKey, author: Author) {
        if self.serving {
            let at = self.started.elapsed();
            self.live.note_arrival(key.clone(), author, at);
        }
    }

    fn want(&mut self, keys: BTreeSet<ObjectKey>) {
        let now = Instant::now();
        for key in keys {
            self.statuses.writer.want(key, now);
        }
    }

    /// Starts the queued writes of all writers.
    pub fn write(&mut self, term: Term) {
        self.apply_records(term);
        let may_write = self.leads(term) && self.serving;
        let inputs = tenants::DecisionInputs {
            tenancy: self.live.pipeline().tenancy(),
            seen: self.objects.seen(),
            view: &self.view,
        };
        if let Some(claims) = &mut self.ownership.claims {
            claims.write(
                self.live.pipeline(),
                may_write,
                Self::complete_inputs(inputs.view),
            );
        }
        self.tenants.write(inputs, may_write);
        let now = Instant::now();
        let claims = self.ownership.claims.as_ref();
        let record = if !claims.is_some_and(Claims::is_writing) {
            RecordWrites::Idle
        } else if self.awaits_owners() {
            RecordWrites::FirstOwners
        } else {
            RecordWrites::NewOwners
        };
        let is_busy = self.tenants.is_busy();
        self.statuses.writer.yield_to(record, is_busy, now);
        self.write_services(may_write, term);
        self.write_isolated(may_write, term);
        self.write_statuses(may_write);
        // Every replica writes its own record, with or without the Lease.
        self.replicas.write(now);
    }

    /// Waits for the writes in progress, and starts no more.
    pub async fn stop(self) {
        self.references.stop().await;
        self.statuses.stop().await;
        self.tenants.stop().await;
        self.services.stop().await;
        self.classes.stop().await;
        if let Some(isolated) = self.isolated {
            isolated.stop().await;
        }
        self.certificates.stop().await;
        self.replicas.stop().await;
        if let Some(claims) = self.ownership.claims {
            claims.stop().await;
        }
    }
}

/// The end of a request to the API server, or a delayed one that is due.
pub struct RuntimeEvent(Request);

enum Request {
    Fetch(Option<(ObjectKey, Body)>),
    Write(Option<Done>),
    Tenants(Option<tenants::WriteOutcome>),
    Service(services::WorkerEvent),
    Class(Option<ClassWritten>),
    Isolated(crate::isolated::WorkerEvent),
    Issued(issuance::IssuanceEvent),
    Record(Option<replicas::WriteOutcome>),
    Slices,
    Turn,
    Claims(ClaimWorkerEvent),
}
