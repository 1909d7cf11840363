//! What one replica knows of a cluster, and what it does about it. One task owns it.

mod bodies;
mod certificates;
mod claims;
mod exposure;
mod isolated;
mod leading;
mod metrics;
mod objects;
mod slices;
mod statuses;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::{Instant, SystemTime};

use kube::Client;
use tracing::info;

use super::ahead::Ahead;
use super::claims::{Ended as RecordEnded, Entry};
use super::issuance::{self, Issuance};
use super::lease::Term;
use super::replicas::{self, Record, Replica, Replicas, Told};
use super::tenants::{self, Decided, Tenants};
use super::watch::{ObjectUpdate, WatchEvent};
use crate::expose::services::{self, Services};
use crate::isolated::IsolatedEnvoys;
use crate::secrets::body::Body;
use crate::secrets::references::{BodyRequest, References};
use crate::watch::observed::ObservedObject;
use crate::watch::sync::WatchSync;
use crate::write::status_writer::Done;
use certificates::Certificates;
use claims::Ownership;
use gatewright_control::event::{Event, Severity, WATCH};
use gatewright_control::{ControlPlane, Effects};
use gatewright_core::channel::Channel;
use gatewright_core::inputs::{Kind, ObjectChange, ObjectKey};
use gatewright_core::model::EnvoyFleet;
use gatewright_core::pipeline::Outcome;
use gatewright_core::tenancy;
use gatewright_core::translate::{Change, Fact};
use objects::Objects;
use statuses::Statuses;
use turns::{Afterwards, Waiting};

/// The kinds that are watched.
pub(crate) const KINDS: [Kind; 23] = [
    Kind::Namespace,
    Kind::TenantGateway,
    Kind::GatewayClass,
    Kind::GatewayParameters,
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::HTTPRoute,
    Kind::GRPCRoute,
    Kind::TLSRoute,
    Kind::TCPRoute,
    Kind::UDPRoute,
    Kind::ReferenceGrant,
    Kind::BackendTLSPolicy,
    Kind::XBackendTrafficPolicy,
    Kind::Service,
    Kind::Node,
    // Endpoints are compared with them.
    Kind::Pod,
    Kind::EndpointSlice,
    Kind::Secret,
    Kind::ConfigMap,
    Kind::ClusterTrustBundle,
    Kind::Issuer,
    Kind::Certificate,
];

/// The kinds that are watched where TenantGateways are carried out here, or by somebody else, and by what channel.
pub fn kinds(tenants: bool, channel: Channel) -> Vec<Kind> {
    let is_watched = |kind: &Kind| match kind {
        Kind::TenantGateway | Kind::Issuer | Kind::Certificate => tenants,
        Kind::ClusterTrustBundle | Kind::XBackendTrafficPolicy => channel == Channel::Experimental,
        _ => true,
    };
    KINDS.into_iter().filter(is_watched).collect()
}

/// The cluster, as we see it.
pub struct KubernetesRuntime {
    live: ControlPlane,
    view: WatchSync,
    objects: Objects,
    references: References,
    /// EndpointSlices that wait for pods.
    ahead: Ahead,
    waiting: Waiting,
    /// What TenantGateways lead to.
    tenants: Tenants,
    services: Services,
    /// Envoys of Gateways' own, where they may have some.
    isolated: Option<IsolatedEnvoys>,
    certificates: Certificates,
    statuses: Statuses,
    ownership: Ownership,
    replicas: Replicas,
    started: Instant,
    /// Whether the first complete view is served.
    serving: bool,
    /// Whether we hold the Lease since everything was compared.
    leading: bool,
}

impl KubernetesRuntime {
    /// Nothing seen yet.
    pub fn new(client: Client, controller: &str, replica: Replica, live: ControlPlane, issuance: Issuance) -> Self {
        Self {
            live,
            view: WatchSync::new(&KINDS),
            objects: Objects::default(),
            references: References::new(client.clone()),
            ahead: Ahead::default(),
            waiting: Waiting::default(),
            tenants: Tenants::new(client.clone()),
            services: Services::new(client.clone()),
            isolated: None,
            certificates: Certificates::new(issuance),
            statuses: Statuses::new(client.clone(), controller),
            ownership: Ownership::default(),
            replicas: Replicas::new(client, replica),
            started: Instant::now(),
            serving: false,
            leading: false,
        }
    }

    /// Watches these kinds only.
    pub fn watching(mut self, kinds: &[Kind]) -> Self {
        self.view = WatchSync::new(kinds);
        self
    }

    /// Gives Gateways Envoys of their own, made of the PodTemplate of this name in this namespace.
    pub fn isolating(mut self, client: Client, namespace: &str, template: &str) -> Self {
        self.isolated = Some(IsolatedEnvoys::new(client, namespace, template));
        self
    }

    /// What is served.
    pub fn live(&mut self) -> &mut ControlPlane {
        &mut self.live
    }

    /// Whether the first complete view is there, and is served.
    pub fn serving(&self) -> bool {
        self.serving
    }

    /// Whether the API server has told anything since the start.
    pub fn hears(&self) -> bool {
        self.view.is_heard()
    }

    /// Whether Envoys can be told what to serve. Without Gateways and routes there is nothing, and they keep what they have:
    /// definitions that are not there may be on their way back.
    pub fn knows_gateways(&mut self) -> bool {
        self.serving
            && self.knows_owners()
            && [Kind::GatewayClass, Kind::Gateway, Kind::HTTPRoute].iter().all(|kind| self.view.was_seen(*kind))
    }

    /// Takes in what a watch tells.
    pub fn take_in(&mut self, news: WatchEvent, term: Term) {
        let (kind, line) = match news {
            WatchEvent::Changed(updates) => {
                self.change(updates, term);
                self.begin(term);
                return;
            }
            WatchEvent::Complete(kind) => return self.in_turn(Afterwards::Whole(kind), term),
            WatchEvent::Trouble(kind, text) => (kind, self.view_not_whole(kind).trouble(kind, text)),
            WatchEvent::Missing(kind) => (kind, self.view_not_whole(kind).missing(kind)),
            WatchEvent::Listing(kind) => (kind, self.view_not_whole(kind).listing(kind)),
        };
        self.take_state(kind, line, term);
    }

    /// Takes in that more or less is known of a kind, if it is different from before.
    fn take_state(&mut self, kind: Kind, line: Option<String>, term: Term) {
        if let Some(line) = line {
            info!(event = WATCH, kind = kind.as_str(), "{line}");
            if kind == Kind::ListenerSet {
                self.waiting
                    .known
                    .push(tenancy::Change::Fact(tenancy::Fact::ListenerSets(!self.view.is_missing(kind))));
                self.apply(Vec::new(), term);
            }
            if self.serving {
                if kind == Kind::ClusterTrustBundle {
                    self.apply(vec![self.trust_bundles()], term);
                }
                self.look_at_kind(kind, term);
            }
        }
        self.begin(term);
    }

    fn change(&mut self, updates: Vec<ObjectUpdate>, term: Term) {
        let mut changes = Vec::with_capacity(updates.len());
        let mut requests: Vec<BodyRequest> = Vec::new();
        for update in updates {
            match update {
                ObjectUpdate::Put(object, seen) => {
                    let key = object.key();
                    self.objects.readable(&key);
                    requests.extend(self.references.put(&object));
                    if let Some(seen) = seen {
                        self.see(key, seen, term);
                    }
                    let asks = requests.iter().any(|request| matches!(request, BodyRequest::Fetch(_)));
                    if let Some(object) = self.references.defer(*object, asks) {
                        changes.extend(self.in_step(object));
                    }
                }
                ObjectUpdate::LiveObject(derived, held, existing) => {
                    self.waiting.known.push(tenancy::Change::Existing(derived.clone(), Some(existing)));
                    self.tenants.see(derived, held);
                }
                ObjectUpdate::Secret(name, version, ours) => {
                    requests.extend(self.references.there(ObjectKey::new(Kind::Secret, name), version, ours));
                }
                ObjectUpdate::ConfigMap(name, version) => {
                    requests.extend(self.references.there(ObjectKey::new(Kind::ConfigMap, name), version, false));
                }
                ObjectUpdate::Delete(key) if matches!(key.kind, Kind::Secret | Kind::ConfigMap) => {
                    requests.extend(self.references.gone(&key));
                }
                ObjectUpdate::Delete(key) => {
                    requests.extend(self.references.delete(&key));
                    self.objects.readable(&key);
                    self.forget(&key);
                    changes.push(Change::delete(key));
                }
                ObjectUpdate::Unreadable(key, why) => {
                    // What it said before does not hold any more.
                    requests.extend(self.references.delete(&key));
                    self.forget(&key);
                    if self.objects.unreadable(key.clone(), why.clone()) {
                        Event::Unreadable { object: key.clone(), why }.log(Severity::Debug);
                    }
                    changes.push(Change::delete(key));
                }
            }
        }
        let forgotten = self.request_bodies(requests);
        changes.extend(self.references.all_ready().into_iter().map(Change::put));
        self.waiting.known.extend(
            self.references.rekeyed().map(|(secret, ours)| tenancy::Change::Fact(tenancy::Fact::Keyed(secret, ours))),
        );
        self.queue(changes, term);
        for key in forgotten {
            self.forget_body(&key);
            self.in_turn(Afterwards::Forget(key), term);
        }
    }

    fn forget(&mut self, key: &ObjectKey) {
        if let Some(derived) = crate::live_object::derived(key) {
            self.waiting.known.push(tenancy::Change::Existing(derived, None));
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
        // Somebody wrote to it, maybe over what we wrote.
        if self.leads(term) && self.serving && is_new {
            self.tenants.look_at(&key, self.live.pipeline().tenancy());
            if !matches!(key.kind, Kind::Namespace | Kind::TenantGateway) {
                self.statuses.writer.want(key, Instant::now());
            }
        }
    }

    /// Waits for what we asked the API server to do.
    pub async fn next(&mut self) -> Ended {
        let due = self.due();
        tokio::select! {
            fetched = self.references.next() => Ended(Request::Fetch(fetched)),
            written = self.statuses.writer.next() => Ended(Request::Write(written)),
            written = self.tenants.next() => Ended(Request::Tenants(written)),
            ended = self.services.next() => Ended(Request::Service(ended)),
            ended = Self::next_isolated(self.isolated.as_mut()) => Ended(Request::Isolated(ended)),
            told = self.certificates.issuance.next() => Ended(Request::Issued(told)),
            ended = self.replicas.next() => Ended(Request::Record(ended)),
            () = Self::until(due) => Ended(Request::Turn),
            () = Self::until_one_is_late(&self.ahead, self.view.is_whole(Kind::Pod)) => Ended(Request::Slices),
            ended = Self::next_claim(self.ownership.claims.as_mut()) => Ended(Request::Claims(ended)),
        }
    }

    /// Takes in how it ended.
    pub fn take_ended(&mut self, ended: Ended, term: Term) {
        match ended.0 {
            Request::Fetch(fetched) => self.take_body(fetched, term),
            Request::Write(written) => self.take_written(written),
            Request::Tenants(Some(written)) => self.tenants.take_written(written, self.live.pipeline().tenancy()),
            Request::Tenants(None) => {}
            Request::Service(ended) => self.take_service(ended, term),
            Request::Isolated(ended) => self.take_isolated(ended, term),
            Request::Issued(told) => self.take_issued(told, term),
            Request::Record(ended) => self.replicas.take_ended(ended, Instant::now()),
            Request::Slices => self.catch_up(term),
            Request::Turn => self.take_turn(term),
            Request::Claims(ended) => {
                let changes = self.ownership.claims.as_mut().map(|claims| claims.take_ended(ended)).unwrap_or_default();
                self.take_records(changes, term);
            }
        }
    }

    /// Whether the API server has ClusterTrustBundles, and they are watched.
    fn trust_bundles(&self) -> Change {
        Change::Fact(Fact::TrustBundles(!self.view.is_missing(Kind::ClusterTrustBundle)))
    }

    /// Begins to serve when the view is complete.
    fn begin(&mut self, term: Term) {
        if self.serving || !self.view.is_complete() || !self.knows_claims() {
            return;
        }
        self.serving = true;
        let mut early = std::mem::take(&mut self.waiting.early);
        info!("the view is complete: {} objects", early.len());
        early.push(self.trust_bundles());
        self.apply(early, term);
        self.note_undecided();
        if self.leads(term) {
            self.look_at_everything();
        }
    }

    /// Applies changes at once, or keeps them until the view is complete.
    pub fn apply(&mut self, changes: Vec<Change>, term: Term) {
        if !self.serving {
            self.waiting.early.extend(changes);
            return;
        }
        let changes = self.waiting.turns.overtaking(changes);
        // Services are compared with what is wanted once the store has them.
        for change in &changes {
            match change {
                Change::Object(ObjectChange::Put(object)) => self.services.see(object),
                Change::Object(ObjectChange::Delete(key)) => self.services.gone(key),
                _ => {}
            }
        }
        let secrets = certificates::secrets_of(&changes);
        let known = std::mem::take(&mut self.waiting.known);
        let (mut decided, may_write) = (None, self.leads(term));
        let record = &mut |outcome: &Outcome| {
            decided = may_write.then(|| (Decided::of(&outcome.tenancy), outcome.delta.records.clone()));
            Ok::<_, Infallible>(())
        };
        let effects = match self.live.apply(changes, known, record, SystemTime::now(), self.started.elapsed()) {
            Ok(effects) => effects,
            Err(never) => match never {},
        };
        let Effects { events, services, envoys, wanted } = effects;
        // A cluster is full of changes that lead to nothing: they stay at the severity for looking for causes.
        events.log(Severity::Debug);
        if let Some((decided, owned)) = decided {
            self.tenants.take_in(&decided, self.live.pipeline().tenancy());
            if let Some(claims) = &mut self.ownership.claims {
                claims.ask(decided.records.into_iter().map(Entry::Tenants));
                claims.ask(owned.into_keys().map(Entry::Addresses));
            }
            self.want(decided.claims);
        }
        self.services.take_in(services);
        if let Some(isolated) = &mut self.isolated {
            isolated.take_in(envoys);
        }
        self.certify(wanted, secrets, term);
        self.settle(term);
    }

    /// Does what time asks for: certificates begin and cease to be valid.
    pub fn tend(&mut self, term: Term) {
        self.live.tend(self.started.elapsed()).log(Severity::Debug);
        self.look_at_credentials();
        if self.live.pipeline().next_deadline().is_some_and(|deadline| deadline <= SystemTime::now()) {
            self.apply(Vec::new(), term);
        }
    }

    /// Takes in how many names Envoys of each view, at this replica, asked for that nobody has.
    pub fn asked_in_vain(&mut self) {
        self.live.all_asked_in_vain(self.started.elapsed()).log(Severity::Debug);
    }

    /// Takes in what another replica says of its Envoys.
    pub fn take_told(&mut self, told: Told, term: Term) {
        self.replicas.take_in(told);
        self.settle(term);
    }

    /// Looks at what Envoys said since the last time.
    pub fn settle(&mut self, term: Term) {
        let own = self.live.own_progress();
        let views = self.live.views();
        let nodes = views.each(|place| {
            let names = own[place].nodes.iter().map(|node| node.node.clone()).collect();
            let fleet = views.fleet(place).unwrap_or(EnvoyFleet::Shared);
            self.replicas.nodes(&fleet, &names, |state| self.live.generation_of(state, place))
        });
        let refused = self.replicas.refused(&views[views.shared()]);
        self.live.set_others(nodes, refused);
        // Whoever writes statuses knows its own Envoys.
        if !self.leads(term) && self.serving {
            let (state, since) = self.live.state();
            let record = Record::new(self.live.views(), (state, &since), &own);
            self.replicas.publish(record, Instant::now());
        }
        self.live.settled(self.started.elapsed()).log(Severity::Debug);
        self.statuses.count(self.live.connected());
        let touched = self.live.take_touched();
        if self.leads(term) && self.serving {
            self.want(touched);
        }
    }

    fn want(&mut self, keys: BTreeSet<ObjectKey>) {
        let now = Instant::now();
        for key in keys {
            self.statuses.writer.want(key, now);
        }
    }

    /// Begins the writes whose turn has come.
    pub fn write(&mut self, term: Term) {
        let may_write = self.leads(term) && self.serving;
        let known =
            tenants::Known { tenancy: self.live.pipeline().tenancy(), seen: self.objects.seen(), view: &self.view };
        if let Some(claims) = &mut self.ownership.claims {
            claims.write(self.live.pipeline(), may_write, Self::known_records(known.view));
        }
        self.tenants.write(known, may_write);
        self.statuses.writer.yield_to_objects(self.tenants.is_busy(), Instant::now());
        self.write_services(may_write, term);
        self.write_isolated(may_write, term);
        self.write_statuses(may_write);
        // Each replica has a record of its own.
        self.replicas.write(Instant::now());
    }

    /// Ends what is being written.
    pub async fn stop(self) {
        self.references.stop().await;
        self.statuses.stop().await;
        self.tenants.stop().await;
        self.services.stop().await;
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

/// What we asked for has ended, or a write's turn has come.
pub struct Ended(Request);

enum Request {
    Fetch(Option<(ObjectKey, Body)>),
    Write(Option<Done>),
    Tenants(Option<tenants::Written>),
    Service(services::Ended),
    Isolated(crate::isolated::Ended),
    Issued(issuance::Told),
    Record(Option<replicas::Written>),
    Slices,
    Turn,
    Claims(RecordEnded),
}
