//! What Envoy refuses, or would refuse, and who is told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds::{Generation, Rejection};

use super::ControlPlane;
use crate::event::Event;
use crate::fleet_views::Place;
use crate::programmed::Refused;
use crate::publish::{self, Withheld};
use gatewright_core::inputs::ObjectKey;
use gatewright_core::translate::{Blame, Delta, ResourceKey, RouteKey};

/// Why resources, or parts of them, were refused, by kind and name.
pub(super) type Refusals = BTreeMap<RefusedKey, Arc<str>>;

/// What those are told who share a resource that Envoy refuses, whoever of them is to blame.
const NOBODY_ALONE: &str = "refused by Envoy together with what other namespaces have on this port; the last version \
    that Envoy took is served, and the program's log has the reason";

/// So much of Envoy's words stands in a status.
const MAX_TEXT: usize = 512;

/// What the author of a refused object is told.
fn told(text: &str) -> String {
    let clipped: String = text.chars().take(MAX_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let more = if text.chars().nth(MAX_TEXT).is_some() { "..." } else { "" };
    format!("refused by Envoy: {clipped}{more}")
}

/// What of it stands in a line of the log, or tells one refusal from another.
pub(super) fn place(r: &Rejection) -> String {
    match &r.part {
        None => r.name.to_string(),
        Some(part) if r.kind == xds::Kind::Listener => format!("{} (filter chain {:?})", r.name, part.virtual_host),
        Some(part) => format!("{} (virtual host {:?}, route {:?})", r.name, part.virtual_host, part.route),
    }
}

/// A refusal as it is told: once, however often it is repeated.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Refusal {
    node: String,
    kind: xds::Kind,
    resource: String,
    text: Arc<str>,
}

impl Refusal {
    pub(super) fn of(r: &Rejection) -> Self {
        Self { node: r.node.to_string(), kind: r.kind, resource: place(r), text: r.text.clone() }
    }

    /// It as an event about the object that it was made from.
    pub(super) fn event(&self, object: Option<ObjectKey>) -> Event {
        let Self { node, kind, resource, text } = self.clone();
        Event::Rejected { node, object, kind: format!("{kind:?}"), resource, text: text.to_string() }
    }
}

/// The name of a refused resource, or of a part of one.
pub(super) type RefusedKey = (xds::Kind, String, Option<xds::Part>);

pub(super) fn key(r: &Rejection) -> RefusedKey {
    (r.kind, r.name.to_string(), r.part.clone())
}

/// The object that is to blame, where it is one: the route, or else the parent of the listeners.
fn one(blame: &Blame) -> Option<ObjectKey> {
    let of_routes: BTreeSet<ObjectKey> = blame.routes.iter().map(|route| route.object()).collect();
    let of_listeners: BTreeSet<ObjectKey> = blame.listeners.iter().map(|listener| listener.parent.object()).collect();
    let mut all = if of_routes.is_empty() { of_listeners } else { of_routes };
    all.pop_first().filter(|_| all.is_empty())
}

pub(super) fn refusals<'a>(rejections: impl Iterator<Item = &'a Rejection>) -> Refusals {
    rejections.map(|r| (key(r), r.text.clone())).collect()
}

impl ControlPlane {
    /// Publishes what keeps the constraints of Envoy's messages, to each fleet what it is to see, and notes what does not. Returns
    /// the views that changed.
    pub(super) fn publish(&mut self, delta: &Delta) -> BTreeMap<Place, Generation> {
        let mut apart = std::mem::take(&mut self.apart);
        let had = |place, kind, name: &str| self.cache.get(&self.views[place], kind, name);
        let fleets = |key: &ResourceKey| self.engine().fleets(key);
        let updates = publish::updates(delta, &self.edge, &self.views, &mut apart, fleets, had);
        self.apart = apart;
        let mut changed = BTreeMap::new();
        for (place, update) in updates {
            let before = self.generations[place];
            self.publish_to(place, update);
            if self.generations[place] != before {
                changed.insert(place, self.generations[place]);
            }
        }
        changed
    }

    fn publish_to(&mut self, place: Place, mut update: xds::Update) {
        if self.floods[place].is_on() {
            let listed = self.tls_listeners(place, true).upserts;
            let names: BTreeSet<String> = listed.iter().map(|listener| listener.name().to_owned()).collect();
            update.upserts.retain(|made| made.kind() != xds::Kind::Listener || !names.contains(made.name()));
            update.upserts.extend(listed);
        }
        for (kind, name) in
            update.removals.iter().cloned().chain(update.upserts.iter().map(|r| (r.kind(), r.name().to_owned())))
        {
            if !self.withheld.is_empty() {
                self.withheld.remove(&(place, kind, name));
            }
        }
        let view = self.views[place].clone();
        for Withheld { kind, name, part, version, text } in
            publish::checked(&mut update, |kind, name| self.cache.get(&view, kind, name))
        {
            let rejection = Rejection {
                view: view.clone(),
                node: Arc::from("gatewright"),
                kind,
                name: Arc::from(name.as_str()),
                part,
                version: Arc::from(version),
                text,
            };
            self.withheld.entry((place, kind, name)).or_default().push(rejection);
        }
        self.generations[place] = self.cache.publish(&view, update);
    }

    /// The refusals that were not told yet, as events.
    pub(super) fn new_refusals(&mut self, all: BTreeMap<Refusal, RefusedKey>) -> Vec<Event> {
        let new: Vec<_> = all.iter().filter(|(refusal, _)| !self.told.contains(*refusal)).collect();
        let keys: BTreeSet<&RefusedKey> = new.iter().map(|(_, key)| *key).collect();
        let objects = self.blames(keys).into_iter().filter_map(|(key, blame)| Some((key, one(&blame)?)));
        let objects: BTreeMap<&RefusedKey, ObjectKey> = objects.collect();
        let events = new.into_iter().map(|(refusal, key)| refusal.event(objects.get(key).cloned())).collect();
        self.told = all.into_keys().collect();
        events
    }

    /// The resources that were refused are made from these objects, and what each is told: Envoy's words stand in the status of
    /// the object that caused them, and where no single namespace did, in nobody's.
    pub(super) fn whose(&self, refused: &Refusals) -> Refused {
        let mut whose = Refused::default();
        for (key, blame) in self.blames(refused.keys()) {
            let text = &refused[key];
            let text = if blame.is_of_one_namespace() { told(text) } else { NOBODY_ALONE.to_owned() };
            whose.listeners.extend(blame.listeners.into_iter().map(|listener| (listener, text.clone())));
            for route in blame.routes {
                // A route is told of the first of its rules that were refused, and rather of a whole resource.
                if key.2.is_none() || !whose.routes.contains_key(&route) {
                    whose.routes.insert(route, text.clone());
                }
            }
        }
        whose
    }

    /// The objects that refused resources were made from: of parts first, then of whole resources.
    fn blames<'a>(&self, refused: impl IntoIterator<Item = &'a RefusedKey>) -> Vec<(&'a RefusedKey, Blame)> {
        let (mut blames, mut whole) = (Vec::new(), BTreeMap::new());
        for key in refused {
            let (kind, name, part) = key;
            match part {
                None => {
                    whole.insert((*kind, name.as_str()), key);
                }
                Some(part) if *kind == xds::Kind::Listener => {
                    blames.push((key, self.engine().blame_chain(name, &part.virtual_host)));
                }
                Some(part) => {
                    let routes = RouteKey::of_envoy_route(&part.route).map(|route| vec![route]);
                    blames.extend(routes.map(|routes| (key, Blame { routes, ..Blame::default() })));
                }
            }
        }
        // The objects behind a resource are looked up by going through all of them, which a part needs not.
        for resource in self.engine().resources().filter(|_| !whole.is_empty()) {
            let (kind, name) = publish::name(resource);
            blames.extend(whole.get(&(kind, name.as_str())).map(|key| (*key, self.engine().blame(resource))));
        }
        blames
    }
}
