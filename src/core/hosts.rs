//! Hostnames as people ask for them: of each what answers where, which policies it has, and what is
//! wrong with it, the worst first. Pure.
//!
//! ```text
//! servings of the engine ==+==> HostRow
//! statuses of its objects =+
//! ```

mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::inputs::{Kind, ObjectKey, RouteKey, SetKey};
use crate::model::Hostname;
use crate::pipeline::Pipeline;
use crate::statuses::{ConditionRow, condition_rows};
use crate::store::{Store, target_ports};
use crate::translate::Serving;

pub use self::place::{HostCertificate, HostPlace};

/// How a hostname fares, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostState {
    /// Nothing answers, or requests are answered with an error.
    Failing,
    /// A certificate is being issued.
    Waiting,
    /// It is served, and an object of it has a condition that is not as desired.
    Faulty,
    /// Nothing is wrong.
    Ok,
}

/// A hostname with what answers for it and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRow {
    /// The hostname; `*` for every name, and for ports without hostnames.
    pub host: String,
    /// How it fares.
    pub state: HostState,
    /// The namespaces of its routes; without one those of its listeners.
    pub namespaces: BTreeSet<String>,
    /// Where it is served.
    pub places: Vec<HostPlace>,
    /// The policies on its Gateways, ListenerSets, routes and Services.
    pub policies: BTreeSet<String>,
    /// The conditions of its objects that are not as desired.
    pub faults: Vec<ConditionRow>,
}

/// How far the objects of hostnames are known.
pub struct Sight<'a> {
    /// Returns an object's kind, metadata and status.
    pub document: &'a dyn Fn(&ObjectKey) -> Option<Value>,
    /// Returns whether an object may be read, and is not supposed to admit everything.
    pub may_read: &'a dyn Fn(&ObjectKey) -> bool,
}

/// What a hostname is made from.
#[derive(Default)]
struct Draft {
    servings: Vec<Serving>,
    routes: BTreeSet<RouteKey>,
    listeners: BTreeSet<(ObjectKey, Arc<str>)>,
}

/// Returns the rows of the hostnames that listeners and routes have; with `asked`, of those among
/// these.
///
/// The work is proportional to the number of hostnames; with `asked` to the number of these, and of
/// the frontends.
pub fn host_rows(
    pipeline: &Pipeline,
    asked: Option<&BTreeSet<Hostname>>,
    sight: &Sight<'_>,
) -> Vec<HostRow> {
    let mut conditions = Conditions {
        sight,
        faults: BTreeMap::new(),
    };
    drafts(pipeline, asked)
        .into_iter()
        .map(|(hostname, draft)| row(pipeline, &hostname, &draft, &mut conditions))
        .collect()
}

fn drafts(pipeline: &Pipeline, asked: Option<&BTreeSet<Hostname>>) -> BTreeMap<Hostname, Draft> {
    let engine = pipeline.engine();
    let store = engine.store();
    let servings = match asked {
        Some(names) => names
            .iter()
            .flat_map(|name| engine.servings_of(name))
            .collect(),
        None => engine.servings(),
    };
    let mut drafts: BTreeMap<Hostname, Draft> = BTreeMap::new();
    // A wildcard of a listener is no host unless something answers under it.
    let servings = servings
        .into_iter()
        .filter(|serving| serving.hostname.is_exact() || serving.answers());
    for serving in servings {
        let draft = drafts.entry(serving.hostname.clone()).or_default();
        draft.routes.extend(serving.routes.iter().cloned());
        let listener = &serving.listener;
        let named = (listener.parent.object(), listener.name.clone());
        draft.listeners.insert(named);
        draft.servings.push(serving);
    }
    let named: BTreeSet<&ObjectKey> = match asked {
        Some(names) => names
            .iter()
            .flat_map(|name| store.indexes().objects_by_hostname(name))
            .filter(|key| engine.has_status(key))
            .collect(),
        None => engine.objects_with_status().collect(),
    };
    for key in named {
        if let Some(route) = RouteKey::of(key) {
            for name in hostnames_of_route(store, &route).filter(|name| is_asked(name, asked)) {
                let draft = drafts.entry(name.clone()).or_default();
                draft.routes.insert(route.clone());
            }
        }
        for (name, listener) in hostnames_of_listeners(store, key) {
            if name.is_exact() && is_asked(name, asked) {
                let draft = drafts.entry(name.clone()).or_default();
                draft.listeners.insert((key.clone(), listener.clone()));
            }
        }
    }
    drafts
}

fn is_asked(name: &Hostname, asked: Option<&BTreeSet<Hostname>>) -> bool {
    asked.is_none_or(|names| names.contains(name))
}

fn row(
    pipeline: &Pipeline,
    hostname: &Hostname,
    draft: &Draft,
    conditions: &mut Conditions<'_>,
) -> HostRow {
    let may_read = conditions.sight.may_read;
    let servings = draft.servings.iter();
    let places: Vec<HostPlace> = servings.map(|of| HostPlace::of(of, may_read)).collect();
    let mut faults = Vec::new();
    for (parent, listener) in &draft.listeners {
        faults.extend(conditions.of_listener(parent, listener));
    }
    for route in &draft.routes {
        faults.extend_from_slice(conditions.of(&route.object()));
    }
    let is_answered = draft.servings.iter().any(Serving::answers);
    // Of what may not be read only the statuses of others say whether it answers.
    let is_refused = places.iter().all(|place| place.unread)
        && faults.iter().any(|fault| fault.condition == "Accepted");
    let state =
        if !is_answered || is_refused || places.iter().any(|place| !place.failing.is_empty()) {
            HostState::Failing
        } else if places.iter().any(HostPlace::awaits_certificate) {
            HostState::Waiting
        } else if !faults.is_empty() || draft.servings.iter().any(|serving| !serving.answers()) {
            HostState::Faulty
        } else {
            HostState::Ok
        };
    HostRow {
        host: hostname.to_string(),
        state,
        namespaces: namespaces(draft),
        places,
        policies: policies(pipeline.engine().store(), draft),
        faults,
    }
}

fn namespaces(draft: &Draft) -> BTreeSet<String> {
    let routes = draft.routes.iter().map(|route| &route.name.namespace);
    if draft.routes.is_empty() {
        let parents = draft.listeners.iter().map(|(parent, _)| parent);
        return parents
            .map(|parent| parent.name.namespace.to_string())
            .collect();
    }
    routes.map(ToString::to_string).collect()
}

/// The policies on what a hostname is made from.
fn policies(store: &Store, draft: &Draft) -> BTreeSet<String> {
    let indexes = store.indexes();
    let listeners = draft.listeners.iter().map(|(parent, _)| parent.clone());
    let gateways = draft.servings.iter().map(|serving| &serving.gateway);
    let gateways = gateways.map(|name| ObjectKey::new(Kind::Gateway, name.clone()));
    let routes = draft.routes.iter().map(RouteKey::object);
    let targets: BTreeSet<ObjectKey> = listeners.chain(gateways).chain(routes).collect();
    let attached = targets
        .iter()
        .flat_map(|target| indexes.policies_by_target(target));
    let routes = draft.routes.iter().filter_map(|route| store.route(route));
    let services = routes.flat_map(|route| target_ports(route));
    let on_services = services.flat_map(|port| indexes.policies_by_service(&port.service));
    attached
        .chain(on_services)
        .map(ToString::to_string)
        .collect()
}

fn hostnames_of_route<'a>(store: &'a Store, key: &RouteKey) -> impl Iterator<Item = &'a Hostname> {
    let route = store.route(key).into_iter();
    route.flat_map(|route| route.hostnames.iter().flatten())
}

/// The hostnames of the listeners of a Gateway or ListenerSet, each with the name of its listener.
fn hostnames_of_listeners<'a>(
    store: &'a Store,
    key: &ObjectKey,
) -> impl Iterator<Item = (&'a Hostname, &'a Arc<str>)> + use<'a> {
    let listeners = match key.kind {
        Kind::Gateway => store.gateway(&key.name).map(|of| &of.listeners),
        _ => SetKey::of(key)
            .and_then(|set| store.listener_set(&set))
            .map(|of| &of.listeners),
    };
    listeners
        .into_iter()
        .flatten()
        .filter_map(|listener| Some((listener.hostname.as_ref().ok()?, &listener.name)))
}

/// The hostnames that an object names, as a Gateway, a ListenerSet or a route.
pub fn hostnames_of(store: &Store, key: &ObjectKey) -> BTreeSet<Hostname> {
    let of_listeners = hostnames_of_listeners(store, key).map(|(name, _)| name);
    let route = RouteKey::of(key);
    let of_route = route
        .iter()
        .flat_map(|route| hostnames_of_route(store, route));
    of_listeners.chain(of_route).cloned().collect()
}

/// The conditions of objects that are not as desired, each object's read once.
struct Conditions<'a> {
    sight: &'a Sight<'a>,
    faults: BTreeMap<ObjectKey, Vec<ConditionRow>>,
}

impl Conditions<'_> {
    fn of(&mut self, key: &ObjectKey) -> &[ConditionRow] {
        let Self { sight, faults } = self;
        faults.entry(key.clone()).or_insert_with(|| {
            let rows = (sight.document)(key).map(|document| condition_rows(&document));
            let rows = rows.unwrap_or_default().into_iter();
            rows.filter(|row| !row.ok && !is_transition(row)).collect()
        })
    }

    /// Those of a Gateway or ListenerSet as a whole, and of one of its listeners.
    fn of_listener(&mut self, parent: &ObjectKey, listener: &str) -> Vec<ConditionRow> {
        let whole = parent.to_string();
        let place = format!("{whole} listener {listener}");
        let rows = self.of(parent).iter();
        let of_both = rows.filter(|row| row.object == whole || row.object == place);
        of_both.cloned().collect()
    }
}

/// Returns whether a condition says only that Envoys have not acknowledged a change yet: it is so
/// for a moment after each, for all hosts of a Gateway.
fn is_transition(row: &ConditionRow) -> bool {
    row.condition == "Programmed" && row.reason == "Pending"
}
