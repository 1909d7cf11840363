//! What Envoy refuses, or would refuse, and who is told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds::Rejection;

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

/// What was refused: a resource, or a part of one.
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
    /// Publishes what keeps the constraints of Envoy's messages, to each fleet what it is to see, and notes what does not.
    pub(super) fn publish(&mut self, delta: &Delta) {
        let had = |kind, name: &str| self.views.iter().find_map(|(_, view)| self.cache.get(view, kind, name));
        let fleets = |key: &ResourceKey| self.engine().fleets(key);
        let mut updates = publish::updates(delta, &self.edge, &self.views, fleets, had);
        for (place, update) in updates.iter_mut() {
            self.publish_to(place, std::mem::take(update));
        }
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
        let objects = self.objects_of(new.iter().map(|(_, key)| *key).collect());
        let events = new.into_iter().map(|(refusal, key)| refusal.event(objects.get(key).cloned())).collect();
        self.told = all.into_keys().collect();
        events
    }

    /// The object that each was made from, where it is one.
    fn objects_of(&self, refused: BTreeSet<&RefusedKey>) -> BTreeMap<RefusedKey, ObjectKey> {
        let mut objects = BTreeMap::new();
        for key in &refused {
            let (kind, name, Some(part)) = key else { continue };
            let object = match kind {
                xds::Kind::Listener => one(&self.engine().blame_chain(name, &part.virtual_host)),
                _ => RouteKey::of_envoy_route(&part.route).map(|route| route.object()),
            };
            objects.extend(object.map(|object| ((*key).clone(), object)));
        }
        // Who has to do with a resource is looked up by going through all of them, which a part needs not.
        let any = refused.iter().any(|(_, _, part)| part.is_none());
        for resource in self.engine().resources().filter(|_| any) {
            let (kind, name) = publish::name(resource);
            let key = (kind, name, None);
            if refused.contains(&key) {
                objects.extend(one(&self.engine().blame(resource)).map(|object| (key, object)));
            }
        }
        objects
    }

    /// Whose the resources are that were refused, and what each is told: Envoy's words stand in the status of the
    /// object that caused them, and where no single namespace did, in nobody's.
    pub(super) fn whose(&self, refused: &Refusals) -> Refused {
        let mut whose = Refused::default();
        for ((kind, name, part), text) in refused {
            let Some(part) = part else { continue };
            if *kind == xds::Kind::Listener {
                let blame = self.engine().blame_chain(name, &part.virtual_host);
                let text = if blame.is_of_one_namespace() { told(text) } else { NOBODY_ALONE.to_owned() };
                whose.listeners.extend(blame.listeners.into_iter().map(|listener| (listener, text.clone())));
            } else if let Some(route) = RouteKey::of_envoy_route(&part.route) {
                whose.routes.entry(route).or_insert_with(|| told(text));
            }
        }
        let whole = |key: &ResourceKey| {
            let (kind, name) = publish::name(key);
            refused.get(&(kind, name, None))
        };
        // Who has to do with a resource is looked up by going through all of them, which a part needs not.
        let any = refused.keys().any(|(_, _, part)| part.is_none());
        for key in self.engine().resources().filter(|_| any) {
            let Some(text) = whole(key) else { continue };
            let blame = self.engine().blame(key);
            let text = if blame.is_of_one_namespace() { told(text) } else { NOBODY_ALONE.to_owned() };
            whose.listeners.extend(blame.listeners.into_iter().map(|listener| (listener, text.clone())));
            whose.routes.extend(blame.routes.into_iter().map(|route| (route, text.clone())));
        }
        whose
    }
}
