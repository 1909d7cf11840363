//! The running state: the engine, what was published of it, and who acknowledged what. One task owns it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use serde_json::{Value, json};
use xds::{Cache, Generation, NodeProgress, Rejection};

use crate::envoy_access::EnvoyAccess;
use crate::event::{Event, Events, Subject};
use crate::fleet_views::{FleetViews, Generations, PerView, Place};
use crate::flood::Flood;
use crate::lag::Lag;
use crate::metrics::{self, Connected, Program};
use crate::programmed::{Acks, FleetAcks, Refused};
use crate::publish;
use gatewright_core::inputs::{Kind, ObjectChange, ObjectKey};
use gatewright_core::model::{ObjectName, SecretName, Status};
use gatewright_core::pipeline::{Outcome, Pipeline, Written};
use gatewright_core::statuses::{Context, documents};
use gatewright_core::tenancy;
use gatewright_core::translate::{
    Change, Delta, Engine, EnvoysIntent, Explanation, Fact, Link, ObjectStatus, Question, ResourceKey, RouteKey,
    ServiceIntent, Settings,
};
use gatewright_envoy::Edge;

use complaints::Complaints;
use refusals::{Refusal, Refusals, place, refusals};
use states::States;

/// So many changes wait to be told once they are acknowledged: without Envoys none ever is.
const ANNOUNCED: usize = 256;

/// What is served and by whom.
pub struct ControlPlane {
    pipeline: Pipeline,
    cache: Cache,
    views: FleetViews,
    access: EnvoyAccess,
    /// Views that Envoys may still be connected to, of Gateways that have none of their own any more.
    leaving: BTreeSet<xds::View>,
    apart: publish::ShownApart,
    controller: String,
    edge: Edge,
    floods: PerView<Flood>,
    /// For how long Envoys of this replica have lacked something.
    lags: PerView<Lag>,
    /// The last publications that touched a Gateway.
    published: BTreeMap<ObjectName, (Place, Generation)>,
    generations: Generations,
    /// When each condition last changed its status.
    since: Since,
    waiting: VecDeque<Announcement>,
    /// Refusals that were told already.
    told: BTreeSet<Refusal>,
    /// Conditions that were.
    complaints: Complaints,
    changes: u64,
    /// Objects whose status may be different from when it was last asked for.
    touched: BTreeSet<ObjectKey>,
    /// What is not sent because Envoy would refuse it.
    withheld: BTreeMap<(Place, xds::Kind, String), Vec<Rejection>>,
    /// What other replicas told.
    others: (PerView<Vec<NodeProgress>>, Vec<Rejection>),
    /// The last states.
    states: States,
    /// Gateways of which not every Envoy has acknowledged everything.
    awaited: BTreeSet<ObjectName>,
    /// ListenerSets that were looked at while that was so. The others say what they said before, and will again.
    in_doubt: BTreeSet<ObjectKey>,
    /// How many Envoys were connected, and what was refused, when last looked at.
    known: (PerView<usize>, Refusals),
    /// What was refused, and whose it is as things stand: looked up once for all statuses that may tell of it.
    refused: Option<(Refusals, Arc<Refused>)>,
}

/// When each condition took its present status, by object and place.
type Since = BTreeMap<(ObjectKey, String), (Status, Timestamp)>;

/// What a change leads to beside what Envoys are sent. Whoever drives the control plane carries out each of them.
#[must_use = "whoever drives the control plane carries out each of them"]
pub struct Effects {
    /// For the log.
    pub events: Events,
    /// The Services that Gateways are to have, where that is different; `None` for none.
    pub services: BTreeMap<ObjectName, Option<ServiceIntent>>,
    /// The Envoys that Gateways are to have for themselves, where that is different; `None` for none.
    pub envoys: BTreeMap<ObjectName, Option<EnvoysIntent>>,
    /// Secrets for which another certificate may be wanted.
    pub wanted: BTreeSet<ObjectName>,
}

/// A change that is to be told when it is acknowledged.
struct Announcement {
    subject: Subject,
    hosts: usize,
    /// The hostname, where it is one.
    host: Option<String>,
    /// The generations that came of it, one for each view that changed.
    published: Vec<(Place, Generation)>,
    /// Time since an origin of the caller's.
    at: Duration,
}

impl ControlPlane {
    /// Nothing served yet. What TenantGateways lead to is taken in at once.
    pub fn new(settings: Settings, tenancy: tenancy::Settings, cache: Cache, views: impl Into<FleetViews>) -> Self {
        let controller = settings.controller.clone();
        Self::over(controller, Pipeline::new(settings, tenancy, Written::Here), cache, views.into())
    }

    /// Nothing served yet. Objects come from a cluster, and only from there.
    pub fn in_cluster(
        settings: Settings,
        tenancy: tenancy::Settings,
        cache: Cache,
        views: impl Into<FleetViews>,
    ) -> Self {
        let controller = settings.controller.clone();
        Self::over(controller, Pipeline::new(settings, tenancy, Written::ToTheCluster), cache, views.into())
    }

    fn over(controller: String, pipeline: Pipeline, cache: Cache, views: FleetViews) -> Self {
        Self {
            controller,
            pipeline,
            cache,
            edge: Edge::DEFAULT,
            floods: views.each(|_| Flood::default()),
            lags: views.each(|_| Lag::default()),
            published: BTreeMap::new(),
            generations: views.each(|_| 0),
            since: BTreeMap::new(),
            waiting: VecDeque::new(),
            told: BTreeSet::new(),
            complaints: Complaints::default(),
            changes: 0,
            touched: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            withheld: BTreeMap::new(),
            others: (views.each(|_| Vec::new()), Vec::new()),
            states: States::default(),
            awaited: BTreeSet::new(),
            known: (views.each(|_| 0), Refusals::new()),
            refused: None,
            access: EnvoyAccess::default(),
            leaving: BTreeSet::new(),
            apart: publish::ShownApart::default(),
            views,
        }
    }

    /// The same with an operator's limits of connections.
    #[must_use]
    pub fn within(mut self, edge: Edge) -> Self {
        self.edge = edge;
        self
    }

    /// The same with somebody who is told which Envoys of Gateways' own are let in.
    #[must_use]
    pub fn admitting(mut self, access: EnvoyAccess) -> Self {
        self.access = access;
        self
    }

    /// What owns hostnames and what is served, to be looked at.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// What its Envoys see.
    pub fn views(&self) -> &FleetViews {
        &self.views
    }

    /// What is served, to be looked at.
    pub fn engine(&self) -> &Engine {
        self.pipeline.engine()
    }

    /// Takes in changes and publishes what they lead to. Returns what else is to be done.
    ///
    /// # Errors
    /// When `record` fails, which keeps for the next run what was decided: then nothing is published.
    pub fn apply<E>(
        &mut self,
        changes: Vec<Change>,
        known: Vec<tenancy::Change>,
        record: &mut dyn FnMut(&Outcome) -> Result<(), E>,
        now: SystemTime,
        at: Duration,
    ) -> Result<Effects, E> {
        let subject = subject(&changes);
        self.changes += changes.len() as u64;
        let outcome = self.pipeline.apply_with(changes, known, now);
        self.refused = None;
        record(&outcome)?;
        let mut delta = outcome.delta;
        let decided = delta.wants.keys().chain(outcome.tenancy.wants.keys());
        let wanted = decided.chain(&delta.standing).cloned().collect();
        let mut touched = hosts(&delta);
        let hosts = touched.len();
        let host = touched.pop_first().filter(|_| hosts == 1);
        let envoys = std::mem::take(&mut delta.envoys);
        self.make_views(&envoys);
        let changed = self.publish(&delta);
        self.states.note(self.engine().digest(), &changed);
        // Endpoints and certificates come and go without anybody's configuration being another one.
        let is_configuration = |key: &&ResourceKey| !matches!(key, ResourceKey::Endpoints(_) | ResourceKey::Secret(_));
        let touched = delta.resources.keys().filter(is_configuration).filter_map(ResourceKey::frontend);
        let touched = touched.map(|id| &id.gateway);
        for gateway in touched.chain(&delta.gateways) {
            let fleet = self.engine().fleet_of(gateway);
            if let Some(place) = self.views.place(&fleet) {
                self.published.insert(gateway.clone(), (place, self.generations[place]));
            }
            self.awaited.insert(gateway.clone());
        }
        let mut events = Events::default();
        for (key, status) in &delta.statuses {
            events.extend(self.complaints.news(key, status.as_ref()));
        }
        let services = std::mem::take(&mut delta.services);
        self.touched.extend(delta.statuses.keys().cloned());
        events.extend(crate::tenants::complaints(&self.pipeline, &outcome.tenancy));
        for (key, status) in &delta.statuses {
            if status.is_none() {
                self.in_doubt.remove(key);
                if key.kind == Kind::Gateway {
                    self.published.remove(&key.name);
                    self.awaited.remove(&key.name);
                }
                let places = self.since.range((key.clone(), String::new())..);
                let places = places.map_while(|(place, _)| (place.0 == *key).then(|| place.clone()));
                for place in places.collect::<Vec<_>>() {
                    self.since.remove(&place);
                }
            }
        }
        self.end_views(&envoys);
        let published: Vec<_> =
            changed.into_iter().filter(|(place, _)| self.generations.get(*place).is_some()).collect();
        if published.is_empty() {
            events.push(Event::Unchanged { subject });
        } else {
            self.waiting.push_back(Announcement { subject, hosts, host, published, at });
            if self.waiting.len() > ANNOUNCED {
                self.waiting.pop_front();
            }
        }
        Ok(Effects { events, services, envoys, wanted })
    }

    /// Takes in how many names were asked for in all, by Envoys of one view, that nobody has. Returns what people should know
    /// at once.
    pub fn asked_in_vain(&mut self, place: Place, total: u64, at: Duration) -> Events {
        // Its Gateway may be gone.
        if self.generations.get(place).is_none() || !self.floods[place].asked(total, at) {
            return Events::default();
        }
        self.publish_listeners(place, true);
        Some(Event::FloodBegan).into()
    }

    /// The same of all views.
    pub fn all_asked_in_vain(&mut self, at: Duration) -> Events {
        let totals: Vec<_> = self.views.iter().map(|(place, view)| (place, self.cache.unknown(view))).collect();
        let mut events = Events::default();
        for (place, total) in totals {
            events.append(self.asked_in_vain(place, total, at));
        }
        events
    }

    /// Does what time asks for. Returns what people should know at once.
    pub fn tend(&mut self, at: Duration) -> Events {
        let ended: Vec<Place> =
            self.floods.iter_mut().filter_map(|(at_place, flood)| flood.ends(at).then_some(at_place)).collect();
        for place in &ended {
            self.publish_listeners(*place, false);
        }
        let cache = &self.cache;
        self.leaving.retain(|view| !cache.remove(view));
        let mut events = Events::default();
        ended.iter().for_each(|_| events.push(Event::FloodEnded));
        events
    }

    fn publish_listeners(&mut self, place: Place, listed: bool) {
        let update = self.tls_listeners(place, listed);
        self.generations[place] = self.cache.publish(&self.views[place], update);
    }

    /// The TLS listeners of a view.
    fn tls_listeners(&self, place: Place, listed: bool) -> xds::Update {
        let mut frontends = self.engine().tls_frontends(listed);
        frontends.retain(|frontend| self.views.place(&frontend.id.fleet()) == Some(place));
        publish::listeners(&frontends, &self.edge)
    }

    /// What has been acknowledged or refused since the last time.
    pub fn settled(&mut self, at: Duration) -> Events {
        let own = self.own_progress();
        self.note_lags(&own, at);
        let progress = self.with_others(own);
        let mut events = Events::default();
        let refused = self.rejections(&progress).map(|r| (Refusal::of(r), refusals::key(r))).collect();
        events.extend(self.new_refusals(refused));
        self.waiting.retain(|waiting| {
            let acks: Vec<_> = waiting
                .published
                .iter()
                .filter_map(|(place, made)| Some(progress.get(*place)?.acknowledged(*made)))
                .collect();
            let connected: usize = acks.iter().map(|(_, connected)| connected).sum();
            let done = connected > 0 && acks.iter().all(|(acked, connected)| acked == connected);
            if done {
                events.push(Event::Acknowledged {
                    subject: waiting.subject.clone(),
                    hosts: waiting.hosts,
                    host: waiting.host.clone(),
                    envoys: connected,
                    generation: waiting.published.iter().map(|(_, made)| *made).max().unwrap_or_default(),
                    took: at.saturating_sub(waiting.at),
                });
            }
            !done
        });
        events
    }

    /// Objects whose status may be different from when this was last asked.
    pub fn take_touched(&mut self) -> BTreeSet<ObjectKey> {
        let progress = self.progress();
        let known = (self.views.each(|place| progress[place].nodes.len()), refusals(self.rejections(&progress)));
        if known != self.known {
            let (count, before) = std::mem::replace(&mut self.known, known);
            let (count, before, after) = (count == self.known.0, before, &self.known.1);
            let differ = |(key, text): &(&(xds::Kind, String, Option<xds::Part>), &Arc<str>)| {
                before.get(*key) != Some(text) || after.get(*key) != Some(text)
            };
            let changed: BTreeSet<_> = before.iter().chain(after).filter(differ).map(|((.., part), _)| part).collect();
            if count && changed.iter().all(|part| part.is_some()) {
                let routes = changed.into_iter().flatten().filter_map(|part| RouteKey::of_envoy_route(&part.route));
                self.touched.extend(routes.map(|route| route.object()));
            } else {
                // Who refuses a whole resource, or whether anybody is there, shows everywhere.
                self.touched.extend(self.pipeline.engine().statuses().map(|(key, _)| key.clone()));
            }
        }
        let done = |gateway: &&ObjectName| self.acks_of(gateway, &progress).are_complete();
        let acknowledged: Vec<ObjectName> = self.awaited.iter().filter(done).cloned().collect();
        for gateway in acknowledged {
            self.awaited.remove(&gateway);
            let sets = self.pipeline.engine().store().sets_of(&gateway);
            let sets = sets.map(|set| ObjectKey::new(Kind::ListenerSet, set.clone()));
            let in_doubt = &mut self.in_doubt;
            self.touched.extend(sets.filter(|set| in_doubt.remove(set)));
            self.touched.insert(ObjectKey::new(Kind::Gateway, gateway));
        }
        std::mem::take(&mut self.touched)
    }

    /// The statuses of some objects, with what the Envoys say; `None` for one that is not ours.
    pub fn laid_over(&mut self, keys: BTreeSet<ObjectKey>) -> Vec<(ObjectKey, Option<ObjectStatus>)> {
        let mut fleet = self.fleet();
        let progress = self.progress();
        fleet.acks = keys.iter().map(|key| (key.clone(), self.acks(key, &progress))).collect();
        let status = |key: &ObjectKey| self.engine().status(key).map(|status| fleet.lay_over(key, &status));
        keys.into_iter().map(|key| (key.clone(), status(&key))).collect()
    }

    /// Takes note that a status is being looked at: when it is not final because Envoys have not acknowledged, it is among
    /// what is touched once they have. One that has just come may need long for what others acknowledged before.
    pub fn look_at(&mut self, key: &ObjectKey) {
        let Some(gateway) = self.gateway_of(key).cloned() else { return };
        let Acks { done: acknowledged, all: connected, .. } = self.acknowledgement(key);
        // When the first one comes, everything is touched.
        if acknowledged < connected {
            self.awaited.insert(gateway);
        }
        if key.kind == Kind::ListenerSet && (connected == 0 || acknowledged < connected) {
            self.in_doubt.insert(key.clone());
        }
    }

    /// What is known of the Envoys now.
    fn fleet(&mut self) -> FleetAcks {
        let progress = self.progress();
        let refused = refusals(self.rejections(&progress));
        let whose = match &self.refused {
            Some((known, whose)) if *known == refused => whose.clone(),
            _ => {
                let whose = Arc::new(self.whose(&refused));
                self.refused = Some((refused, whose.clone()));
                whose
            }
        };
        FleetAcks { refused: whose, ..FleetAcks::default() }
    }

    /// The Gateway that an object is, or extends.
    fn gateway_of<'a>(&'a self, key: &'a ObjectKey) -> Option<&'a ObjectName> {
        match key.kind {
            Kind::Gateway => Some(&key.name),
            Kind::ListenerSet => self.engine().store().listener_set(&key.name).and_then(|set| set.parent.as_ref()),
            _ => None,
        }
    }

    /// Every status as it would be written now.
    pub fn statuses(&mut self, now: Timestamp) -> Value {
        let mut fleet = self.fleet();
        let keys = self.engine().statuses();
        let progress = self.progress();
        fleet.acks = keys.map(|(key, _)| (key.clone(), self.acks(key, &progress))).collect();
        let clock = Clock { fleet, controller: &self.controller, now, since: RefCell::new(&mut self.since) };
        json!({"apiVersion": "v1", "kind": "List", "items": documents(&self.pipeline, &clock)})
    }

    /// The chain for a URL, the Envoys included.
    pub fn explain(&self, question: &Question) -> Explanation {
        let mut told = self.engine().explain(question);
        crate::tenants::explain(&self.pipeline, question, &mut told);
        let frontend = told.frontend.as_deref().filter(|_| told.ok());
        if let Some((gateway, _)) = frontend.and_then(|name| name.rsplit_once(':')) {
            let progress = self.progress();
            // What many Gateways share is as new as the newest of them.
            let acks = match gateway.split_once('/') {
                Some((namespace, name)) => self.acks_of(&ObjectName::new(namespace, name), &progress),
                None => self.acks_of_view(self.views.shared(), &progress),
            };
            let own = format!("{gateway}:");
            let concerns = |r: &&Rejection| match &r.part {
                None => r.name.starts_with(&own),
                Some(part) => r.name.starts_with(&own) && *part.virtual_host == *question.host,
            };
            let refused = self.rejections(&progress).find(concerns);
            let text = match refused {
                Some(refused) => format!("refused {}: {}", place(refused), refused.text),
                None => acks.text(),
            };
            told.links.push(Link { what: "envoys", ok: refused.is_none() && acks.are_complete(), text });
        }
        told
    }

    /// What each Envoy has.
    pub fn clients(&self) -> Value {
        let progress = self.progress();
        let rejection = |r: &xds::Rejection| {
            json!({
                "node": &*r.node, "type": format!("{:?}", r.kind), "name": &*r.name,
                "virtualHost": r.part.as_ref().map(|part| &*part.virtual_host),
                "route": r.part.as_ref().map(|part| &*part.route),
                "version": &*r.version, "text": &*r.text,
            })
        };
        let rejections: Vec<Value> = self.rejections(&progress).map(rejection).collect();
        let nodes: Vec<&NodeProgress> = progress.values().flat_map(|progress| &progress.nodes).collect();
        json!({
            "published": self.publication(),
            "envoys": nodes,
            "rejections": rejections,
            "views": self.cache.debug(),
        })
    }

    /// The metrics, in the text format of Prometheus, with what others have to say.
    pub fn metrics(&self, others: Vec<Box<dyn Collector>>, at: Duration) -> String {
        let progress = self.progress();
        let connected = |(place, view): (Place, &xds::View)| {
            let Acks { done, all, .. } = self.acks_of_view(place, &progress);
            Connected { view: view.name().to_owned(), all, behind: all - done, age: self.lags[place].age(at) }
        };
        let (good, bad) = self.engine().good_and_bad();
        let program = Program {
            changes: self.changes,
            work: self.engine().counters(),
            connected: self.views.iter().map(connected).collect(),
            quarantined: self.rejections(&progress).count(),
            good,
            bad,
        };
        metrics::text(program, &self.cache, others)
    }
}

/// What the Envoys say, and when conditions changed.
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

    fn lay_over(&self, key: &ObjectKey, status: &ObjectStatus) -> ObjectStatus {
        self.fleet.lay_over(key, status)
    }

    fn since(&self, key: &ObjectKey, place: &str, status: Status) -> String {
        let mut since = self.since.borrow_mut();
        let entry = since.entry((key.clone(), place.to_owned())).or_insert((status, self.now));
        if entry.0 != status {
            *entry = (status, self.now);
        }
        entry.1.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// What changes are about.
fn subject(changes: &[Change]) -> Subject {
    let text = |change: &Change| match change {
        Change::Object(ObjectChange::Put(object)) => object.key().to_string(),
        Change::Object(ObjectChange::Delete(key)) => format!("{key} deleted"),
        Change::Fact(Fact::Challenge(asked, _)) => format!("challenges of {asked}"),
        Change::Fact(Fact::TlsChallenges(_)) => "challenges of TLS-ALPN-01".to_owned(),
        Change::Fact(Fact::Trouble(secret, _) | Fact::Awaited(secret, _)) => format!("certificate {secret}"),
        Change::Fact(Fact::Unexposed(gateway, _)) => format!("the Service of gateway {gateway}"),
        Change::Fact(Fact::Undeployed(gateway, _)) => format!("the Envoys of gateway {gateway}"),
        Change::Fact(Fact::Recorded(what, _)) => format!("the owner of {what}"),
        Change::Fact(Fact::Granted(route, _)) => format!("hostnames of {}", route.object()),
        Change::Fact(Fact::Governed(gateway, _)) => format!("whether a TenantGateway has gateway {gateway}"),
        Change::Fact(Fact::TrustBundles(_)) => "ClusterTrustBundles".to_owned(),
        Change::Fact(Fact::Withheld(set, _)) => format!("listeners of listenerset {set}"),
    };
    let text = match changes {
        [] => "validity of certificates".to_owned(),
        [one] => text(one),
        [first, rest @ ..] => format!("{} and {} more", text(first), rest.len()),
    };
    Subject { object: changes.first().and_then(Change::key), text }
}

/// The hostnames that a delta touches.
fn hosts(delta: &Delta) -> BTreeSet<String> {
    let host = |key| match key {
        ResourceKey::SniCluster(_, host) | ResourceKey::Scope(_, host) | ResourceKey::Secret(SecretName::Sni(host)) => {
            Some(host.to_string())
        }
        ResourceKey::Secret(SecretName::Fixed(_, name)) => Some(name.to_string()),
        ResourceKey::Table(table) => table.listener.as_ref().map(ToString::to_string),
        ResourceKey::Secret(SecretName::Client(_) | SecretName::Roots(_))
        | ResourceKey::Backend(_)
        | ResourceKey::UdpCluster(_)
        | ResourceKey::Endpoints(_)
        | ResourceKey::Frontend(_) => None,
    };
    delta.resources.keys().cloned().filter_map(host).collect()
}

mod acknowledgements;
mod complaints;
mod own_views;
mod owners;
mod refusals;
mod states;
#[cfg(test)]
mod tests;
