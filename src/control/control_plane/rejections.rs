//! Rejections by Envoy, actual and predicted, and the statuses that report them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use xds::{Generation, Rejection, View, one_line};

use super::ControlPlane;
use super::rejection_log::LoggedRejection;
use crate::event::Event;
use crate::fleet_views::ViewId;
use crate::programmed::{RejectedObjects, RejectedSecret};
use crate::publish::{self, Withheld};
use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::{Fleets, Hostname};
use gatewright_core::translate::{Blame, Delta, RouteKey};
use gatewright_envoy::{BindError, is_bind_error};

/// The messages of rejected resources, or parts of them, by kind and name.
pub(super) type RejectedParts = BTreeMap<RejectedKey, Arc<str>>;

/// The message for all objects that share a rejected resource, where no single namespace is to
/// blame.
const NOBODY_ALONE: &str = "refused by Envoy together with configuration of other namespaces on this port; the last version \
    that Envoy accepted is served, and the program's log has the reason";

/// The maximum length of Envoy's message in a status.
const MAX_TEXT: usize = 512;

/// Returns the message for the author of a rejected object.
pub(super) fn clipped_message(text: &str) -> String {
    let clipped = one_line(text, MAX_TEXT);
    let more = if text.chars().nth(MAX_TEXT).is_some() {
        "..."
    } else {
        ""
    };
    format!("refused by Envoy: {}{more}", clipped.trim_end())
}

/// Returns the message of a rejection, with what to do if Envoy cannot bind the address.
pub(super) fn with_advice(message: String, text: &str) -> String {
    match BindError::of(text) {
        Some(error) => format!("{}; {error}", message.trim_end()),
        None => message,
    }
}

/// Returns the name of the rejected resource or part, for the log and for comparison.
pub(super) fn rejected_name(r: &Rejection) -> String {
    match &r.part {
        None => r.name.to_string(),
        Some(part) if r.kind == xds::Kind::Listener => {
            format!("{} (filter chain {:?})", r.name, part.virtual_host)
        }
        Some(part) => format!(
            "{} (virtual host {:?}, route {:?})",
            r.name, part.virtual_host, part.route
        ),
    }
}

/// Returns whether a host on a frontend is not served as published because of a rejection.
pub(super) fn concerns(r: &Rejection, frontend: &str, host: &str) -> bool {
    let is_here = match r.name.strip_prefix(frontend) {
        None => false,
        Some("") => true,
        // Routes are named after the frontend and the hostname that they belong to.
        Some(rest) => rest.strip_prefix('|').is_some_and(|name| {
            name == "*"
                || Hostname::parse(name)
                    .is_ok_and(|name| Hostname::parse(host).is_ok_and(|host| name.covers(&host)))
        }),
    };
    is_here
        && r.part
            .as_ref()
            .is_none_or(|part| *part.virtual_host == *host)
}

/// The key of a rejected resource, or of a part of one. The same name in another view is another
/// resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RejectedKey {
    view: View,
    kind: xds::Kind,
    name: String,
    pub(super) part: Option<xds::Part>,
}

impl RejectedKey {
    pub(super) fn of(r: &Rejection) -> Self {
        Self {
            view: r.view.clone(),
            kind: r.kind,
            name: r.name.to_string(),
            part: r.part.clone(),
        }
    }
}

/// Returns the object to blame, if it is only one: the route, or otherwise the parent of the
/// listeners.
fn one(blame: &Blame) -> Option<ObjectKey> {
    let of_routes: BTreeSet<ObjectKey> = blame.routes.iter().map(|route| route.object()).collect();
    let of_listeners: BTreeSet<ObjectKey> = blame
        .listeners
        .iter()
        .map(|listener| listener.parent.object())
        .collect();
    let mut all = if of_routes.is_empty() {
        of_listeners
    } else {
        of_routes
    };
    all.pop_first().filter(|_| all.is_empty())
}

pub(super) fn rejected_parts<'a>(rejections: impl Iterator<Item = &'a Rejection>) -> RejectedParts {
    rejections
        .map(|r| (RejectedKey::of(r), r.text.clone()))
        .collect()
}

impl ControlPlane {
    /// Publishes the resources that satisfy the constraints of Envoy's messages to the view of each
    /// fleet, and notes the others as rejected. Returns the views that changed.
    pub(super) fn publish(&mut self, delta: &Delta) -> BTreeMap<ViewId, Generation> {
        let mut isolated_resources = std::mem::take(&mut self.isolated_resources);
        let updates = publish::updates(
            delta,
            &self.edge,
            &self.views,
            &mut isolated_resources,
            |key| self.engine().fleets(key),
            |view, kind, name| self.cache.get(&self.views[view], kind, name),
        );
        self.isolated_resources = isolated_resources;
        let mut changed = BTreeMap::new();
        for (id, update) in updates {
            let before = self.generations[id];
            self.publish_to(id, update);
            if self.generations[id] != before {
                changed.insert(id, self.generations[id]);
            }
        }
        changed
    }

    fn publish_to(&mut self, id: ViewId, mut update: xds::Update) {
        if self.floods[id].is_on() {
            let listed = self.tls_listeners(id, true).upserts;
            let names: BTreeSet<String> = listed
                .iter()
                .map(|listener| listener.name().to_owned())
                .collect();
            update
                .upserts
                .retain(|made| made.kind() != xds::Kind::Listener || !names.contains(made.name()));
            update.upserts.extend(listed);
        }
        for (kind, name) in update.removals.iter().cloned().chain(
            update
                .upserts
                .iter()
                .map(|r| (r.kind(), r.name().to_owned())),
        ) {
            if !self.withheld.is_empty() {
                self.withheld.remove(&(id, kind, name));
            }
        }
        let view = self.views[id].clone();
        for Withheld {
            kind,
            name,
            part,
            version,
            text,
        } in publish::checked(&mut update, |kind, name| self.cache.get(&view, kind, name))
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
            self.withheld
                .entry((id, kind, name))
                .or_default()
                .push(rejection);
        }
        self.generations[id] = self.cache.publish(&view, update);
    }

    /// Returns events of the rejections that were not logged yet, within the number of lines that
    /// each view may cause, and of bind errors that are over. `nodes` are the Envoys that are
    /// connected.
    pub(super) fn changed_rejections(
        &mut self,
        all: BTreeMap<LoggedRejection, RejectedKey>,
        nodes: &BTreeSet<&str>,
        at: Duration,
    ) -> Vec<Event> {
        let bound: Vec<Event> = self
            .logged
            .ended(&all, nodes)
            .filter(|ended| self.is_bound(ended))
            .map(LoggedRejection::end_event)
            .collect();
        let (new, omitted) = self.logged.new_ones(&all, at);
        let keys: BTreeSet<&RejectedKey> = new.iter().map(|rejection| &all[rejection]).collect();
        let objects = self
            .blames(keys)
            .into_iter()
            .filter_map(|(key, blame)| Some((key, one(&blame)?)));
        let objects: BTreeMap<&RejectedKey, ObjectKey> = objects.collect();
        new.iter()
            .map(|rejection| rejection.event(objects.get(&all[rejection]).cloned()))
            .chain(omitted)
            .chain(bound)
            .collect()
    }

    /// Returns whether a rejection that ended was a bind error of a resource that is still
    /// published.
    fn is_bound(&self, ended: &LoggedRejection) -> bool {
        is_bind_error(&ended.text)
            && self
                .cache
                .get(&ended.view, ended.kind, &ended.resource)
                .is_some()
    }

    /// Returns the objects that rejected resources were made from, each with its message: Envoy's
    /// message is shown in the status of the object that caused the rejection, and in no status if
    /// objects of several namespaces may have.
    pub(super) fn attributed(&self, rejected: &RejectedParts) -> RejectedObjects {
        let mut attributed = RejectedObjects::default();
        for (key, blame) in self.blames(rejected.keys()) {
            let text = &rejected[key];
            // No configuration is to blame for an address that Envoy cannot bind.
            let text = if blame.is_of_one_namespace() || is_bind_error(text) {
                with_advice(clipped_message(text), text)
            } else {
                NOBODY_ALONE.to_owned()
            };
            if key.kind == xds::Kind::Secret {
                let text = clipped_message(&rejected[key]);
                let secret = RejectedSecret {
                    view: key.view.clone(),
                    name: key.name.clone(),
                    text,
                };
                attributed.secrets.extend(
                    blame
                        .listeners
                        .iter()
                        .map(|listener| (listener.clone(), secret.clone())),
                );
            }
            attributed.listeners.extend(
                blame
                    .listeners
                    .into_iter()
                    .map(|listener| (listener, text.clone())),
            );
            for route in blame.routes {
                // The status of a route has the message of its first rejected rule, but that of a
                // whole resource has precedence.
                if key.part.is_none() || !attributed.routes.contains_key(&route) {
                    attributed.routes.insert(route, text.clone());
                }
            }
        }
        attributed
    }

    /// Returns the objects that rejected resources were made from: of parts first, then of whole
    /// resources. Only objects that the view of the rejection shows are to blame: its Envoys decide
    /// about no others.
    fn blames<'a>(
        &self,
        rejected: impl IntoIterator<Item = &'a RejectedKey>,
    ) -> Vec<(&'a RejectedKey, Blame)> {
        let ids: BTreeMap<&View, ViewId> = self.views.iter().map(|(id, view)| (view, id)).collect();
        let mut blames = Vec::new();
        let mut whole = BTreeMap::<(xds::Kind, &str), Vec<_>>::new();
        for key in rejected {
            let Some(id) = ids.get(&key.view).copied() else {
                continue;
            };
            match &key.part {
                None => whole
                    .entry((key.kind, key.name.as_str()))
                    .or_default()
                    .push((key, id)),
                Some(part) => blames.extend(
                    self.blame_part(key, part, &self.views.fleets(id))
                        .map(|blame| (key, blame)),
                ),
            }
        }
        // The objects of a whole resource are found by iterating over all resources, those of a
        // part are not.
        for resource in self.engine().resources().filter(|_| !whole.is_empty()) {
            let (kind, name) = publish::name(resource);
            let Some(keys) = whole.get(&(kind, name.as_str())) else {
                continue;
            };
            let shown_in = self.views.showing(&self.engine().fleets(resource));
            let shown = keys.iter().filter(|(_, id)| shown_in.contains(id));
            blames.extend(
                shown.map(|(key, id)| {
                    (*key, self.engine().blame(resource, &self.views.fleets(*id)))
                }),
            );
        }
        blames
    }

    /// Returns the objects that a rejected part was made from, if Envoys of these fleets serve
    /// them.
    fn blame_part(&self, key: &RejectedKey, part: &xds::Part, fleets: &Fleets) -> Option<Blame> {
        if key.kind == xds::Kind::Listener {
            return Some(
                self.engine()
                    .blame_chain(&key.name, &part.virtual_host, fleets),
            );
        }
        let route = RouteKey::of_envoy_route(&part.route)
            .filter(|route| self.engine().is_route_of(route, fleets))?;
        Some(Blame {
            routes: vec![route],
            ..Blame::default()
        })
    }
}
