//! The engine: keeps what has been translated, and redoes only what a change touches.
//!
//! A change marks what it touches as dirty; dirty things are redone stage by stage, each by a pure function, and a
//! thing whose outcome is as before touches nothing further:
//!
//! ```text
//! object → parents → attachments → owners → claims on ports → resolved rules → units (frontend, hostname) → resources
//!                                                                                          └──────→ statuses
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::admission::WideListener;
use super::attach::{self, Attachment, Contribution, handed_out};
use super::challenge::ChallengeAnswers;
use super::claims::{Conflict, claims_of};
use super::counters::Counters;
use super::delta::{Change, Delta, ResourceKey};
use super::denied::EndpointPolicy;
use super::emit::Emitted;
use super::endpoints::Behind;
use super::exposure::ServiceIntent;
use super::fleet::Fleet;
use super::frontend_state::FrontendState;
use super::key::{ListenerId, ParentKey, RouteKey};
use super::limits::Quotas;
use super::ownership::{ListenersOf, Ownable, Recording, Register};
use super::parent::{self, Parent, Surroundings};
use super::policy::IssuerPolicy;
use super::resolve::{self, Resolution};
use super::secret_names::SniClaims;
use super::status::Reported;
use super::wanted_index::WantedIndex;
use crate::inputs::{Kind, ObjectKey};
use crate::limits::Limits;
use crate::model::{BackendId, ClusterId, FrontendId, Hostname, ObjectName, ServicePort};
use crate::multimap::MultiMap;
use crate::store::Store;

/// What an installation decides.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The controller name whose GatewayClasses are ours.
    pub controller: String,
    /// Addresses of Gateways that ask for none.
    pub default_addresses: Vec<IpAddr>,
    /// Where Envoys listen, instead of where Gateways are reached: something stands between, or the addresses are those of
    /// many machines.
    pub bind: Vec<IpAddr>,
    /// How Gateways are reached whose parameters do not say.
    pub fleet: Fleet,
    /// The Service that has all Envoys of the fleet behind it. Without it no Gateway gets a Service of its own.
    pub envoys: Option<ObjectName>,
    /// How much of everything one namespace may ask for.
    pub limits: Limits,
    /// Who writes the record of who owns which hostname.
    pub recording: Recording,
    /// For how many seconds a hostname of the shared fleet stays reserved for the namespace that gave it up.
    pub hold: u64,
    /// Whether creation times of objects are believed: an API server sets them, in a file anybody may write one.
    pub believes_creation_times: bool,
    /// Who may ask which issuer for which hostnames.
    pub issuers: IssuerPolicy,
    /// Which addresses endpoints may have.
    pub endpoints: EndpointPolicy,
    /// What tells this installation from others; in a cluster its Namespace does.
    pub installation: Arc<str>,
}

impl Settings {
    /// Every Gateway has addresses of its own; `default_addresses` if it asks for none. Every listener may ask every issuer.
    pub fn new(controller: &str, default_addresses: Vec<IpAddr>) -> Self {
        Self {
            controller: controller.to_owned(),
            default_addresses,
            bind: Vec::new(),
            fleet: Fleet::Own,
            envoys: None,
            limits: Limits::default(),
            recording: Recording::Here,
            hold: 0,
            believes_creation_times: true,
            issuers: IssuerPolicy::default(),
            endpoints: EndpointPolicy::default(),
            installation: Arc::default(),
        }
    }
}

/// Keeps what has been translated.
pub struct Engine {
    pub(super) settings: Settings,
    pub(super) store: Store,
    pub(super) parents: BTreeMap<ParentKey, Parent>,
    pub(super) parents_by_secret: MultiMap<ObjectName, ParentKey>,
    pub(super) secrets_of: MultiMap<ParentKey, ObjectName>,
    pub(super) deadlines: BTreeSet<(SystemTime, ParentKey)>,
    pub(super) deadline_of: BTreeMap<ParentKey, SystemTime>,
    pub(super) accepted_sets: MultiMap<ObjectName, ObjectName>,
    pub(super) set_counted: BTreeMap<ObjectName, ObjectName>,
    pub(super) frontends: BTreeMap<FrontendId, FrontendState>,
    pub(super) sockets: MultiMap<(IpAddr, u16), (i64, FrontendId)>,
    pub(super) conflicts: BTreeMap<ListenerId, Conflict>,
    pub(super) attachments: BTreeMap<RouteKey, Vec<(usize, ParentKey, Attachment)>>,
    pub(super) attached: MultiMap<ListenerId, RouteKey>,
    /// For each listener and hostname, the routes that serve it, each with its own hostname that gave it.
    pub(super) contributions: MultiMap<(ListenerId, Hostname), (RouteKey, Hostname)>,
    /// Wildcard and catch-all listeners where somebody who is admitted may have narrower hostnames.
    pub(super) admitting: MultiMap<(Arc<ListenersOf>, Hostname), WideListener>,
    /// Hostnames that only routes of cert-manager's solvers give to a listener.
    pub(super) solved: MultiMap<ListenerId, Hostname>,
    pub(super) resolved: BTreeMap<RouteKey, Resolution>,
    pub(super) sni: BTreeMap<Hostname, SniClaims>,
    /// How the HTTP-01 challenges of hosts are answered, and where.
    pub(super) challenges: ChallengeAnswers,
    /// Which certificates issuers are to make.
    pub(super) wanted: WantedIndex,
    /// Who answers TLS-ALPN-01.
    pub(super) tls_challenges: Option<ServicePort>,
    /// Why certificates that were wanted are not there yet, by Secret.
    pub(super) troubles: BTreeMap<ObjectName, String>,
    /// Who is about to fill Secrets that listeners refer to.
    pub(super) awaited: BTreeMap<ObjectName, Arc<str>>,
    pub(super) emitted: HashMap<ResourceKey, Emitted>,
    pub(super) digest: u64,
    pub(super) backends: BTreeMap<BackendId, usize>,
    pub(super) behind: Behind,
    pub(super) reported: BTreeMap<ObjectKey, Reported>,
    /// The Services that Gateways of the dedicated fleet are to have, and who has which port of the Envoys.
    pub(super) exposed: BTreeMap<ObjectName, ServiceIntent>,
    pub(super) taken: MultiMap<u16, ObjectName>,
    /// Why Services of Gateways cannot be made or changed as they are to be.
    pub(super) unexposed: BTreeMap<ObjectName, String>,
    /// The same the other way round.
    pub(super) takes: MultiMap<ObjectName, u16>,
    /// Which objects of a namespace have what they ask for.
    pub(super) quotas: Quotas,
    /// Who owns what on addresses that namespaces share.
    pub(super) register: Register,
    pub(super) counters: Counters,
}

/// What has to be redone.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) parents: BTreeSet<ParentKey>,
    /// What may have another owner.
    pub(super) owned: BTreeSet<Ownable>,
    pub(super) claims: BTreeMap<FrontendId, BTreeSet<Hostname>>,
    pub(super) attachments: BTreeSet<RouteKey>,
    pub(super) routes: BTreeSet<RouteKey>,
    pub(super) units: BTreeSet<(FrontendId, Hostname)>,
    /// Hostnames whose certificates somebody else may keep the name of, each with the namespace that kept it before.
    pub(super) secret_names: BTreeMap<Hostname, Option<Arc<str>>>,
    /// The time, in milliseconds since the epoch.
    pub(super) now: u64,
    pub(super) tables: BTreeSet<(FrontendId, Option<Hostname>)>,
    pub(super) frontends: BTreeSet<FrontendId>,
    pub(super) endpoints: BTreeSet<ServicePort>,
    pub(super) assignments: BTreeSet<ClusterId>,
    pub(super) statuses: BTreeSet<ObjectKey>,
    pub(super) services: BTreeSet<ObjectName>,
    pub(super) wanting: BTreeSet<ParentKey>,
    pub(super) delta: Delta,
}

impl Engine {
    /// An engine that has seen nothing.
    pub fn new(settings: Settings) -> Self {
        Self {
            quotas: Quotas::new(&settings.limits),
            register: Register::new(settings.recording, settings.hold),
            store: Store::in_cluster(settings.envoys.as_ref().map(|envoys| envoys.namespace.clone())),
            behind: Behind::new(&settings.installation),
            settings,
            parents: BTreeMap::new(),
            parents_by_secret: MultiMap::default(),
            secrets_of: MultiMap::default(),
            deadlines: BTreeSet::new(),
            deadline_of: BTreeMap::new(),
            accepted_sets: MultiMap::default(),
            set_counted: BTreeMap::new(),
            frontends: BTreeMap::new(),
            sockets: MultiMap::default(),
            conflicts: BTreeMap::new(),
            attachments: BTreeMap::new(),
            attached: MultiMap::default(),
            contributions: MultiMap::default(),
            admitting: MultiMap::default(),
            solved: MultiMap::default(),
            resolved: BTreeMap::new(),
            sni: BTreeMap::new(),
            challenges: ChallengeAnswers::default(),
            wanted: WantedIndex::default(),
            tls_challenges: None,
            troubles: BTreeMap::new(),
            awaited: BTreeMap::new(),
            emitted: HashMap::new(),
            digest: 0,
            backends: BTreeMap::new(),
            reported: BTreeMap::new(),
            exposed: BTreeMap::new(),
            taken: MultiMap::default(),
            unexposed: BTreeMap::new(),
            takes: MultiMap::default(),
            counters: Counters::default(),
        }
    }

    /// Takes in changes and says what they lead to. `now` decides which certificates have expired.
    pub fn apply(&mut self, changes: Vec<Change>, now: SystemTime) -> Delta {
        let millis = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let mut dirty = Dirty { now: u64::try_from(millis).unwrap_or(u64::MAX), ..Dirty::default() };
        for change in changes {
            self.take_in(change, &mut dirty);
        }
        self.take_in_time(now, &mut dirty);
        // Gateways sort before ListenerSets, which depend on them.
        while let Some(key) = dirty.parents.pop_first() {
            self.evaluate(&key, now, &mut dirty);
        }
        while let Some(key) = dirty.attachments.pop_first() {
            self.attach(&key, &mut dirty);
        }
        self.settle_ownership(now, &mut dirty);
        while let Some((frontend, hostnames)) = dirty.claims.pop_first() {
            self.settle(&frontend, &hostnames, &mut dirty);
        }
        while let Some(key) = dirty.routes.pop_first() {
            self.resolve(&key, &mut dirty);
        }
        while !dirty.units.is_empty() || !dirty.secret_names.is_empty() {
            while let Some((frontend, hostname)) = dirty.units.pop_first() {
                self.compile_unit(&frontend, &hostname, &mut dirty);
            }
            self.settle_secret_names(&mut dirty);
        }
        while let Some((frontend, listener)) = dirty.tables.pop_first() {
            self.compile_table(&frontend, listener.as_ref(), &mut dirty);
        }
        while let Some(frontend) = dirty.frontends.pop_first() {
            self.compile_frontend(&frontend, &mut dirty);
        }
        while let Some(port) = dirty.endpoints.pop_first() {
            self.compile_endpoints(&port, &mut dirty);
        }
        while let Some(cluster) = dirty.assignments.pop_first() {
            self.compile_assignment(cluster, &mut dirty);
        }
        while let Some(gateway) = dirty.services.pop_first() {
            self.desire_service(&gateway, &mut dirty);
        }
        while let Some(key) = dirty.wanting.pop_first() {
            self.settle_wanted(&key, &mut dirty);
        }
        while let Some(key) = dirty.statuses.pop_first() {
            self.report(&key, &mut dirty);
        }
        dirty.delta
    }

    /// The objects that were seen.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What is served, in one number: engines that were told the same have the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How much work was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn take_in(&mut self, change: Change, dirty: &mut Dirty) {
        let (key, replaced) = match change {
            Change::Put(mut object) => {
                self.store.share(&mut object);
                (object.key(), self.store.put(object))
            }
            Change::Delete(key) => {
                let replaced = self.store.delete(&key);
                (key, replaced)
            }
            Change::Challenge(asked, answer) => return self.set_challenge(asked, answer, dirty),
            Change::TlsChallenges(service) => return self.set_tls_challenges(service, dirty),
            Change::Trouble(secret, text) => return self.set_trouble(secret, text, dirty),
            Change::Awaited(secret, by) => return self.set_awaited(secret, by, dirty),
            Change::Unexposed(gateway, text) => return self.set_unexposed(gateway, text, dirty),
            Change::Recorded(what, owner) => return self.take_record(what, owner, dirty),
        };
        let Some(replaced) = replaced else { return };
        self.note_extent(&key, dirty);
        self.touch_addresses(&replaced.addresses, dirty);
        let name = &key.name;
        match key.kind {
            Kind::Namespace => {
                let namespace = &name.name;
                dirty.parents.extend(self.store.gateways_in(namespace).into_iter().map(ParentKey::Gateway));
                dirty.parents.extend(self.store.sets_in(namespace).into_iter().map(ParentKey::ListenerSet));
                dirty.attachments.extend(self.store.routes_in(namespace));
                // A label may let it have names below somebody else's wildcard.
                dirty.owned.extend(self.register.denied(namespace).cloned());
                self.touch_namespace(namespace, dirty);
            }
            Kind::GatewayClass => {
                self.touch_class(name, dirty);
            }
            Kind::GatewayParameters => self.touch_parameters(name, dirty),
            Kind::Gateway => {
                dirty.parents.insert(ParentKey::Gateway(name.clone()));
                dirty.statuses.insert(key);
            }
            Kind::ListenerSet => {
                dirty.parents.insert(ParentKey::ListenerSet(name.clone()));
                dirty.statuses.insert(key);
            }
            Kind::HTTPRoute | Kind::GRPCRoute | Kind::TLSRoute => {
                let route = RouteKey::of(&key).expect("these are kinds of routes");
                self.touch_route(&route, dirty);
            }
            Kind::ReferenceGrant => {
                dirty.parents.extend(self.store.parents_across.of(&name.namespace).cloned());
                dirty.routes.extend(self.store.routes_across.of(&name.namespace).cloned());
            }
            Kind::Service => {
                dirty.routes.extend(self.store.routes_by_service.of(name).cloned());
                self.touch_endpoints(name, dirty);
                self.touch_exposure(name, replaced.exposure.as_deref(), dirty);
                self.touch_fleet(name, dirty);
            }
            Kind::EndpointSlice => {
                for service in replaced.service.into_iter().chain(self.store.service_of_slice(name)) {
                    self.touch_endpoints(&service, dirty);
                    self.touch_envoys(&service, dirty);
                }
            }
            Kind::Secret => dirty.parents.extend(self.parents_by_secret.of(name).cloned()),
            // Whoever lists their addresses is touched above.
            Kind::Pod | Kind::Node => {}
            Kind::ConfigMap | Kind::TenantGateway | Kind::Issuer | Kind::Certificate => {}
        }
    }

    fn set_trouble(&mut self, secret: ObjectName, text: Option<String>, dirty: &mut Dirty) {
        dirty.statuses.extend(self.parents_by_secret.of(&secret).map(ParentKey::object));
        match text {
            Some(text) => self.troubles.insert(secret, text),
            None => self.troubles.remove(&secret),
        };
    }

    fn set_awaited(&mut self, secret: ObjectName, by: Option<Arc<str>>, dirty: &mut Dirty) {
        dirty.statuses.extend(self.parents_by_secret.of(&secret).map(ParentKey::object));
        match by {
            Some(by) => drop(self.awaited.insert(secret, by)),
            None => drop(self.awaited.remove(&secret)),
        }
    }

    fn touch_route(&self, key: &RouteKey, dirty: &mut Dirty) {
        dirty.attachments.insert(key.clone());
        dirty.routes.insert(key.clone());
        dirty.statuses.insert(key.object());
    }

    /// Evaluates a Gateway or ListenerSet and claims what its listeners want.
    fn evaluate(&mut self, key: &ParentKey, now: SystemTime, dirty: &mut Dirty) {
        self.counters.parents += 1;
        let around = Surroundings { store: &self.store, settings: &self.settings, now };
        let new = match key {
            ParentKey::Gateway(name) => self
                .store
                .gateway(name)
                .filter(|gateway| self.is_ours(&gateway.class))
                .map(|gateway| parent::gateway(gateway, &around)),
            ParentKey::ListenerSet(name) => self.store.listener_set(name).and_then(|set| {
                let gateway = set.parent.as_ref()?;
                let base = self.parents.get(&ParentKey::Gateway(gateway.clone()))?;
                Some(parent::listener_set(set, self.store.gateway(gateway)?, base, &around))
            }),
        };
        let new = self.within_limits(key, new, dirty);
        if let ParentKey::Gateway(name) = key {
            // What a Gateway admits and where it stands is seen by the ListenerSets that extend it, and rarely changes.
            let seen_by_sets = |parent: &Parent| (parent.accepted.clone(), parent.stand.clone());
            if self.parents.get(key).map(seen_by_sets) != new.as_ref().map(seen_by_sets) {
                dirty.parents.extend(self.store.sets_by_gateway.of(name).cloned().map(ParentKey::ListenerSet));
            }
            self.bind(name, dirty);
            self.touch_rivals(name, dirty);
        }
        self.watch_secrets(key, new.as_ref());
        self.note_deadline(key, now);
        let old = self.parents.get(key).cloned();
        if old == new {
            return;
        }
        dirty.statuses.insert(key.object());
        self.claim(old.as_ref(), new.as_ref(), dirty);
        if old.as_ref().map(|parent| &parent.accepted) != new.as_ref().map(|parent| &parent.accepted) {
            dirty.attachments.extend(self.store.gated_by_parent.of(key).cloned());
        }
        self.touch_attached(key, old.as_ref(), new.as_ref(), dirty);
        self.touch_slashes(old.as_ref(), new.as_ref(), dirty);
        self.note_admitting(old.as_ref(), new.as_ref(), dirty);
        match new {
            Some(new) => self.parents.insert(key.clone(), new),
            None => self.parents.remove(key),
        };
        dirty.wanting.insert(key.clone());
    }

    /// Whether a GatewayClass is there and names our controller.
    pub(super) fn is_ours(&self, class: &str) -> bool {
        self.store.class(class).is_some_and(|c| c.controller == self.settings.controller)
    }

    fn watch_secrets(&mut self, key: &ParentKey, new: Option<&Parent>) {
        let listeners = match key {
            ParentKey::Gateway(name) => self.store.gateway(name).map(|g| g.listeners.as_slice()),
            ParentKey::ListenerSet(name) => self.store.listener_set(name).map(|s| s.listeners.as_slice()),
        };
        let written = listeners.unwrap_or_default().iter().filter_map(|l| l.tls.as_ref());
        let written = written.flat_map(|tls| &tls.certificates).map(|r| r.name.clone());
        let issued = new.into_iter().flat_map(|parent| &parent.listeners).filter_map(|l| l.served.secret().cloned());
        let wanted: BTreeSet<ObjectName> = written.chain(issued).filter(|_| new.is_some()).collect();
        let held: BTreeSet<ObjectName> = self.secrets_of.of(key).cloned().collect();
        for secret in held.difference(&wanted) {
            self.parents_by_secret.remove(secret, key);
            self.secrets_of.remove(key, secret);
        }
        for secret in wanted.difference(&held) {
            self.parents_by_secret.insert(secret.clone(), key.clone());
            self.secrets_of.insert(key.clone(), secret.clone());
        }
    }

    /// Turns the difference between two evaluations of one parent into claims.
    fn claim(&mut self, old: Option<&Parent>, new: Option<&Parent>, dirty: &mut Dirty) {
        let before = old.map(claims_of).unwrap_or_default();
        let after = new.map(claims_of).unwrap_or_default();
        for (place, (claim, _)) in &before {
            if after.get(place).is_none_or(|(other, _)| other != claim) {
                self.conflicts.remove(&claim.listener);
                // What the listener served so far, looked at while it is still known.
                dirty.units.extend(self.names_of(&claim.listener).map(|name| (place.0.clone(), name.clone())));
                let next = after.get(place).map(|(claim, _)| claim.clone());
                self.set_claim(&place.0, place.1.clone(), next, dirty);
            }
        }
        for (place, (claim, _)) in after.iter().filter(|(place, _)| !before.contains_key(place)) {
            self.set_claim(&place.0, place.1.clone(), Some(claim.clone()), dirty);
        }
        // A listener whose certificate or options changed serves the same names with other content.
        for (place, (claim, content)) in &after {
            let Some((_, old)) = before.get(place).filter(|(_, old)| old != content) else { continue };
            dirty.units.insert((place.0.clone(), claim.hostname.clone()));
            if !claim.hostname.is_exact() && !old.makes_the_chain_of(content) {
                self.touch_under(&place.0, &claim.hostname, dirty);
            }
        }
    }

    /// Attaches a route to its parents and hands its hostnames to their listeners.
    fn attach(&mut self, key: &RouteKey, dirty: &mut Dirty) {
        self.counters.attachments += 1;
        let mut new = Vec::new();
        if let Some(route) = self.store.route(key) {
            new.reserve_exact(route.parents.len());
            for (index, reference) in route.parents.iter().enumerate() {
                let parent = crate::store::parent_key(reference, &key.name.namespace);
                let Some(parent) = parent.and_then(|parent| self.parents.get(&parent)) else { continue };
                // What a grant attaches to beside the parent that is named.
                let mut reached = crate::store::reached(&parent.key, route.gate(index));
                reached.retain(|other| *other != parent.key);
                let reached = reached.iter().filter_map(|other| self.parents.get(other));
                for parent in std::iter::once(parent).chain(reached) {
                    let attachment = attach::attach(route, index, parent, &self.store);
                    new.push((index, parent.key.clone(), attachment));
                }
            }
        }
        let old = self.attachments.remove(key).unwrap_or_default();
        if old != new {
            dirty.statuses.insert(key.object());
            let before = handed_out(key, &old);
            let after = handed_out(key, &new);
            for (listener, hostname, entry) in before.difference(&after) {
                self.contribute(listener, hostname, entry, false, dirty);
            }
            for (listener, hostname, entry) in after.difference(&before) {
                self.contribute(listener, hostname, entry, true, dirty);
            }
            let listeners = |all: &BTreeSet<Contribution>| -> BTreeSet<ListenerId> {
                all.iter().map(|(listener, ..)| listener.clone()).collect()
            };
            let (before, after) = (listeners(&before), listeners(&after));
            dirty.statuses.extend(before.symmetric_difference(&after).map(|listener| listener.parent.object()));
            self.claim_for_route(key, &old, &new, dirty);
            let given = handed_out(key, &new);
            if !new.is_empty() {
                self.attachments.insert(key.clone(), new);
            }
            for listener in before.union(&after) {
                self.note_attached(key, listener, dirty);
            }
            return self.note_given(given, dirty);
        }
        let given = handed_out(key, &new);
        if !new.is_empty() {
            self.attachments.insert(key.clone(), new);
        }
        self.note_given(given, dirty);
    }

    /// Looks at the hostnames that a route gives to listeners: a label makes it a solver's.
    fn note_given(&mut self, given: BTreeSet<Contribution>, dirty: &mut Dirty) {
        for (listener, hostname, _) in given {
            self.note_solvers(&listener, &hostname, dirty);
        }
    }

    fn contribute(
        &mut self,
        listener: &ListenerId,
        hostname: &Hostname,
        entry: &(RouteKey, Hostname),
        there: bool,
        dirty: &mut Dirty,
    ) {
        let key = (listener.clone(), hostname.clone());
        if there {
            self.contributions.insert(key, entry.clone());
        } else {
            self.contributions.remove(&key, entry);
        }
        self.note_solvers(listener, hostname, dirty);
        if let Some(id) = self.frontend_of(listener) {
            self.touch_solved(&id, listener, hostname, dirty);
            self.touch_kept(&id, listener, hostname, &entry.0, dirty);
            dirty.units.insert((id, hostname.clone()));
        }
    }

    /// Looks up what a route's rules refer to.
    fn resolve(&mut self, key: &RouteKey, dirty: &mut Dirty) {
        self.counters.routes += 1;
        let new = self.store.route(key).map(|route| {
            let resolved = resolve::resolve(route, &self.store, &self.settings.limits);
            Resolution::of(self.of_namespace(key, route, resolved))
        });
        let old = match &new {
            Some(new) => self.resolved.insert(key.clone(), new.clone()),
            None => self.resolved.remove(key),
        };
        if old != new {
            dirty.statuses.insert(key.object());
            let attachments = self.attachments.get(key).map(Vec::as_slice).unwrap_or_default();
            for (listener, hostname, _) in handed_out(key, attachments) {
                // Only accepted routes count (Gateway API, `ListenerStatus.attachedRoutes`).
                self.note_attached(key, &listener, dirty);
                if let Some(id) = self.frontend_of(&listener) {
                    self.touch_solved(&id, &listener, &hostname, dirty);
                    self.touch_kept(&id, &listener, &hostname, key, dirty);
                    dirty.units.insert((id, hostname));
                }
            }
        }
    }
}
