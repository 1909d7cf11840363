//! Properties of plans: over random changes of random worlds, what `plan` announces is what then
//! happens to a pipeline that has lived through the changes before, and nothing else.
//!
//! The truth is what the engine emits when it applies the change: the statuses, the wanted
//! certificates, the resources and the virtual hosts in them, and what `explain` says of each host.

#[path = "plan/cases.rs"]
mod cases;
#[path = "plan/envoy.rs"]
mod envoy;
#[path = "plan/told_apart.rs"]
mod told_apart;
#[path = "plan/worlds.rs"]
mod worlds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gatewright::plan::{
    Change, Effect, Emitted, HostChange, Issuance, Place, Plan, Sight, Step, World,
};
use gatewright_control::publish::name;
use gatewright_core::inputs::{Object, ObjectKey, Secret};
use gatewright_core::model::{Certificate, FrontendId, Hostname, ObjectName, PrivateKey, Route};
use gatewright_core::pipeline::{Outcome, Pipeline, Written};
use gatewright_core::tenancy;
use gatewright_core::translate::{
    self, Explanation, Fact, ObjectStatus, Question, Resource, ResourceKey, Settings,
    status_document,
};
use gatewright_core::wanted::WantedCertificate;
use proptest::prelude::*;
use serde_json::Value;

use envoy::Envoy;
use worlds::{HOSTS, OURS, beginning, changed, event, now};

fn pipeline() -> Pipeline {
    let address = "127.0.0.1".parse().expect("an address");
    let settings = Settings::new(OURS, vec![address]);
    Pipeline::new(settings, tenancy::Settings::default(), Written::Here)
}

/// A pipeline that lives, with all that it has said.
struct Live {
    pipeline: Pipeline,
    objects: BTreeMap<ObjectKey, Object>,
    resources: BTreeMap<ResourceKey, Resource>,
    statuses: BTreeMap<ObjectKey, ObjectStatus>,
    wants: BTreeMap<ObjectName, WantedCertificate>,
    clock: i64,
}

impl Live {
    fn new() -> Self {
        let mut live = Self {
            pipeline: pipeline(),
            objects: BTreeMap::new(),
            resources: BTreeMap::new(),
            statuses: BTreeMap::new(),
            wants: BTreeMap::new(),
            clock: 1,
        };
        let change = Change {
            put: beginning(),
            ..Change::default()
        };
        live.apply(change);
        live
    }

    fn apply(&mut self, mut change: Change) {
        self.clock += 1;
        change.date(&self.objects, self.clock);
        let inputs = change.clone().inputs(&self.objects);
        for key in &change.delete {
            self.objects.remove(key);
        }
        let put = change.put.into_iter().map(|object| (object.key(), object));
        self.objects.extend(put);
        let outcome = self.pipeline.apply(inputs, now());
        self.take(outcome);
    }

    fn take(&mut self, outcome: Outcome) {
        take(&mut self.resources, outcome.delta.resources);
        take(&mut self.statuses, outcome.delta.statuses);
        take(&mut self.wants, outcome.delta.wants);
    }

    /// The issuers store some of the wanted certificates.
    fn issue(&mut self) {
        let secrets: Vec<translate::Change> = self
            .wants
            .keys()
            .filter(|secret| secret.name.len() % 2 == 0)
            .map(|secret| {
                let Object::Secret(stored) = secret_of(secret) else {
                    unreachable!("a Secret")
                };
                translate::Change::put(Object::Secret(stored))
            })
            .collect();
        for change in &secrets {
            if let translate::Change::Object(gatewright_core::inputs::ObjectChange::Put(object)) =
                change
            {
                self.objects.insert(object.key(), object.clone());
            }
        }
        let outcome = self.pipeline.apply(secrets, now());
        self.take(outcome);
    }

    /// The plan of a change: by a pipeline that has seen nothing but what there is now, and the
    /// record of owners.
    fn plan(&self, mut change: Change) -> Plan {
        change.date(&self.objects, self.clock + 1);
        let mut pipeline = pipeline();
        let mut emitted = Emitted::default();
        let objects = self.objects.values().cloned().map(translate::Change::put);
        let records = self.pipeline.records().map(|(what, owner)| {
            translate::Change::Fact(Fact::Recorded(what.clone(), Some(owner.clone())))
        });
        emitted.take(pipeline.apply(objects.chain(records).collect(), now()));
        let before = World::of(&pipeline, &emitted, &Sight::whole());
        emitted.take(pipeline.apply(change.inputs(&self.objects), now()));
        let after = World::of(&pipeline, &emitted, &Sight::whole());
        Plan::new(&before, &after, &Issuance::default())
    }

    /// What `explain` says of a host.
    fn explained(&self, host: &str, port: u16) -> Explanation {
        let question = Question::get(port == 443, host, port);
        self.pipeline.engine().explain(&question)
    }

    /// What Envoys answer: of each host, on each frontend.
    fn answers(&self) -> BTreeMap<(FrontendId, &'static str), Vec<Route>> {
        let frontends = self
            .resources
            .values()
            .filter_map(|resource| match resource {
                Resource::Frontend(frontend) => Some(frontend),
                _ => None,
            });
        let envoy = Envoy(&self.resources);
        frontends
            .flat_map(|frontend| HOSTS.map(|host| (frontend, host)))
            .map(|(frontend, host)| {
                let routes = envoy.routes(frontend, &asked(host));
                ((frontend.id.clone(), host), routes.to_vec())
            })
            .filter(|(_, routes)| !routes.is_empty())
            .collect()
    }
}

fn secret_of(name: &ObjectName) -> Object {
    let certificate = Certificate {
        leaf: format!("issued {name}").as_bytes().into(),
        issuers: Arc::from(""),
        key: PrivateKey::new(b"key"),
        names: vec![Hostname::any()],
        not_before: SystemTime::UNIX_EPOCH,
        not_after: now() + Duration::from_secs(1000),
        issuer: Arc::from("issuer"),
    };
    Secret::with_certificate(name.clone(), Arc::new(certificate)).into()
}

fn take<K: Ord, V>(all: &mut BTreeMap<K, V>, changes: BTreeMap<K, Option<V>>) {
    for (key, value) in changes {
        match value {
            Some(value) => all.insert(key, value),
            None => all.remove(&key),
        };
    }
}

/// What people are told of an object, without words: the conditions, each with its place.
fn conditions(status: &ObjectStatus) -> Vec<String> {
    let status = status_document(status, OURS, &|_, _| String::new());
    let mut conditions = Vec::new();
    for list in ["listeners", "parents", "ancestors"] {
        for entry in status[list].as_array().into_iter().flatten() {
            let reference = match list {
                "listeners" => &entry["name"],
                "parents" => &entry["parentRef"]["name"],
                _ => &entry["ancestorRef"]["name"],
            };
            conditions.extend(conditions_at(&format!("{list} {reference}"), entry));
        }
    }
    conditions.extend(conditions_at("", &status));
    conditions.sort();
    conditions
}

fn conditions_at(place: &str, status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions
        .map(|condition| {
            let [kind, status, reason] =
                ["type", "status", "reason"].map(|field| condition[field].to_string());
            format!("{place} {kind} {status} {reason}")
        })
        .collect()
}

fn differing<K: Ord + Clone, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> BTreeSet<K> {
    let keys = before.keys().chain(after.keys());
    keys.filter(|key| before.get(key) != after.get(key))
        .cloned()
        .collect()
}

/// A host that a name of [`HOSTS`] stands for, and no other of them.
fn asked(name: &str) -> Hostname {
    let host = match name {
        "" => "other.net".to_owned(),
        name => name.replace('*', "other"),
    };
    Hostname::parse(&host).expect("a hostname")
}

/// The name of [`HOSTS`] as plans say it.
fn announced_as(name: &str) -> &str {
    if name.is_empty() { "*" } else { name }
}

/// The announced change of a hostname, if there is one.
fn announced<'a>(plan: &'a Plan, hostname: &str) -> Option<&'a HostChange> {
    plan.hosts.iter().find(|host| host.hostname == hostname)
}

/// Where a request of a host arrives: the object of the listener, and the namespace of the route.
fn place(explanation: &Explanation) -> Option<(String, String)> {
    let route = explanation
        .links
        .iter()
        .find(|link| link.what == "route" && link.ok)?;
    let parent = explanation.parent.as_ref()?;
    let namespace = route.text.split('/').nth(1).unwrap_or_default();
    let namespace = if route.text.starts_with("answered") {
        ""
    } else {
        namespace
    };
    Some((parent.to_string(), namespace.to_owned()))
}

proptest! {
    // Rare kinds of changes need more cases than usual: twice as many take 6 s more.
    #![proptest_config(ProptestConfig {
        cases: 2 * ProptestConfig::default().cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_announced_happens_and_nothing_else(
        history in proptest::collection::vec(proptest::collection::vec(event(), 1..5), 1..6),
        last in proptest::collection::vec(event(), 1..4),
    ) {
        let mut live = Live::new();
        for events in history {
            live.apply(changed(events));
            live.issue();
        }
        let change = changed(last);
        let plan = live.plan(change.clone());
        let before = Seen::of(&live);
        live.apply(change);
        let after = Seen::of(&live);
        check(&plan, &before, &after)?;
    }
}

/// What is true at a time.
struct Seen {
    resources: BTreeMap<ResourceKey, Resource>,
    conditions: BTreeMap<ObjectKey, Vec<String>>,
    wants: BTreeMap<ObjectName, WantedCertificate>,
    secrets: BTreeSet<ObjectName>,
    answers: BTreeMap<(FrontendId, &'static str), Vec<Route>>,
    explained: BTreeMap<(String, u16), Option<(String, String)>>,
}

impl Seen {
    fn of(live: &Live) -> Self {
        let statuses = live.statuses.iter();
        let hosts = HOSTS
            .iter()
            .filter(|host| !host.is_empty() && !host.contains('*'));
        let asked = hosts.flat_map(|host| [80, 443].map(|port| (*host, port)));
        let secrets = live.objects.values().filter_map(|object| match object {
            Object::Secret(secret) => Some(secret.name.clone()),
            _ => None,
        });
        Self {
            resources: live.resources.clone(),
            conditions: statuses
                .map(|(key, status)| (key.clone(), conditions(status)))
                .collect(),
            wants: live.wants.clone(),
            secrets: secrets.collect(),
            answers: live.answers(),
            explained: asked
                .map(|(host, port)| ((host.to_owned(), port), place(&live.explained(host, port))))
                .collect(),
        }
    }
}

impl Seen {
    fn answer(&self, frontend: &FrontendId, host: &'static str) -> &[Route] {
        let answer = self.answers.get(&(frontend.clone(), host));
        answer.map_or(&[], Vec::as_slice)
    }
}

/// Returns whether clients can connect.
fn is_certified(place: &Option<Place>) -> bool {
    let certificate = place.as_ref().and_then(|place| place.certificate.as_ref());
    certificate.is_none_or(|certificate| certificate.is_there)
}

fn parent(place: &Option<Place>) -> Option<&str> {
    place.as_ref().map(|place| &*place.parent)
}

fn check(plan: &Plan, before: &Seen, after: &Seen) -> Result<(), TestCaseError> {
    // Statuses.
    let objects = differing(&before.conditions, &after.conditions);
    let objects: BTreeSet<String> = objects.iter().map(ToString::to_string).collect();
    let told = plan.objects.iter().map(|change| {
        let object = change.object.split(" listener ").next().unwrap_or_default();
        object.split(" at ").next().unwrap_or_default().to_owned()
    });
    prop_assert_eq!(told.collect::<BTreeSet<String>>(), objects, "statuses");

    // Resources.
    let mut counts: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    for key in differing(&before.resources, &after.resources) {
        let count = counts.entry(name(&key).0.label()).or_default();
        match (before.resources.get(&key), after.resources.get(&key)) {
            (None, _) => count.0 += 1,
            (_, Some(_)) => count.1 += 1,
            (_, None) => count.2 += 1,
        }
    }
    let told = plan.resources.types.iter();
    let told = told.map(|(name, of)| (*name, (of.added, of.changed, of.removed)));
    prop_assert_eq!(told.collect::<BTreeMap<_, _>>(), counts, "resources");

    // Certificates.
    let wants: BTreeMap<String, Step> = differing(&before.wants, &after.wants)
        .into_iter()
        .filter_map(|secret| {
            let is_there = after.secrets.contains(&secret);
            let step = match (before.wants.get(&secret), after.wants.get(&secret)) {
                (None, _) if is_there => return None,
                (None, _) => Step::Ordered,
                (_, None) => Step::Withdrawn,
                _ if is_there => Step::Reissued,
                _ => Step::Ordered,
            };
            Some((secret.to_string(), step))
        })
        .collect();
    let told = plan.certificates.iter();
    let told = told.map(|change| (change.secret.clone(), change.step));
    prop_assert_eq!(told.collect::<BTreeMap<_, _>>(), wants, "certificates");

    hosts(plan, before, after)
}

/// The effects by which the answers of a host differ.
const OTHERWISE: [Effect; 8] = [
    Effect::Ends,
    Effect::ChangesHands,
    Effect::LosesTls,
    Effect::ChangesApplication,
    Effect::ChangesRules,
    Effect::LosesRedirect,
    Effect::Redirects,
    Effect::Appears,
];

/// Returns whether a plan says that a host is answered otherwise on a frontend, itself or with all
/// that is answered as the next wider name.
fn is_announced(
    plan: &Plan,
    frontend: &FrontendId,
    host: &'static str,
    worlds: &(&Seen, &Seen),
) -> bool {
    let places = announced(plan, announced_as(host))
        .into_iter()
        .flat_map(|host| &host.places);
    let mut places = places.flat_map(|place| [&place.before, &place.after]);
    let gateway = frontend.gateway.to_string();
    if places.any(|place| {
        let place = place.as_ref();
        place.is_some_and(|place| place.port == Some(frontend.port) && place.gateway == gateway)
    }) {
        return true;
    }
    let wider = match host {
        "" => return false,
        "*.x.org" | "y.org" => "",
        _ => "*.x.org",
    };
    let (before, after) = worlds;
    before.answer(frontend, host) == before.answer(frontend, wider)
        && after.answer(frontend, host) == after.answer(frontend, wider)
        && is_announced(plan, frontend, wider, worlds)
}

fn hosts(plan: &Plan, before: &Seen, after: &Seen) -> Result<(), TestCaseError> {
    // Every host that Envoys answer otherwise is announced.
    for at in differing(&before.answers, &after.answers) {
        let (frontend, host) = &at;
        prop_assert!(
            is_announced(plan, frontend, host, &(before, after)),
            "{host:?} of {frontend} is answered otherwise: {:?} then {:?}",
            before.answer(frontend, host),
            after.answer(frontend, host)
        );
    }
    // Every host that arrives elsewhere is announced, with the effect.
    for ((host, port), was) in &before.explained {
        let is = &after.explained[&(host.clone(), *port)];
        if was == is {
            continue;
        }
        let hostname = Hostname::parse(host).expect("a hostname");
        let covering = hostname.covering();
        let told = std::iter::once(host.clone())
            .chain(covering.map(|name| name.to_string()))
            .chain(["*".to_owned()])
            .find_map(|name| announced(plan, &name));
        let told = told.map(|host| &host.effects);
        prop_assert!(
            told.is_some_and(
                |effects| effects.iter().any(|effect| OTHERWISE.contains(effect)
                    || *effect == Effect::ChangesListener
                    || *effect == Effect::Moves
                    // It had no certificate yet, or has none for a while.
                    || *effect == Effect::GetsTls && was.is_none()
                    || *effect == Effect::AwaitsCertificate && is.is_none())
            ),
            "{host}:{port} arrives elsewhere: {was:?} then {is:?}, announced {told:?}"
        );
        // What a namespace loses to another is said to be lost.
        if let (Some((_, old)), Some((_, new))) = (was, is)
            && old != new
            && !old.is_empty()
            && !new.is_empty()
        {
            prop_assert!(
                told.is_some_and(|effects| effects.contains(&Effect::ChangesHands)),
                "{host}:{port} changes hands: {was:?} then {is:?}, announced {told:?}"
            );
        }
        if was.is_some() && is.is_none() {
            prop_assert!(
                plan.loses(),
                "{host}:{port} is lost: {was:?}, announced {told:?}"
            );
        }
    }
    // Nothing else is announced.
    for host in &plan.hosts {
        for place in &host.places {
            nothing_else(host, place, before, after)?;
        }
    }
    Ok(())
}

fn nothing_else(
    host: &HostChange,
    place: &gatewright::plan::PlaceChange,
    before: &Seen,
    after: &Seen,
) -> Result<(), TestCaseError> {
    let shown = place.after.as_ref().or(place.before.as_ref());
    let port = shown.and_then(|place| place.port).unwrap_or_default();
    let is_http = shown.is_some_and(|place| place.protocol.starts_with("HTTP"));
    let is_otherwise = place
        .effects
        .iter()
        .any(|effect| OTHERWISE.contains(effect));
    // A host whose certificate is still to be issued is announced, and Envoy gets nothing yet.
    let is_asked = is_certified(&place.before) && is_certified(&place.after);
    if is_http && is_otherwise && is_asked {
        prop_assert!(
            differing(&before.answers, &after.answers)
                .iter()
                .any(|(frontend, of)| frontend.port == port && announced_as(of) == host.hostname),
            "{} on port {port} is announced as {:?}, and Envoy has the same: {:?}, {:?}",
            host.hostname,
            place.effects,
            place.before,
            place.after
        );
    }
    let moves = [Effect::ChangesHands, Effect::ChangesListener];
    if is_http && place.effects.iter().any(|effect| moves.contains(effect)) {
        let at = (host.hostname.clone(), port);
        let (was, is) = (before.explained.get(&at), after.explained.get(&at));
        let is_asked = is_asked && was.is_some() && parent(&place.before) != parent(&place.after);
        prop_assert!(
            !is_asked || was != is,
            "{} is announced as {:?}, and arrives where it did: {was:?}",
            host.hostname,
            place.effects
        );
    }
    Ok(())
}
