//! The state of attachments: the routes at each listener, and their hostnames.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::by_record::ByRecord;
use super::dirty::Dirty;
use super::parent::Parent;
use crate::key::{ListenerId, ParentKey, RouteKey, Verdict};
use gatewright_objects::model::{FrontendId, Hostname, ObjectName};
use gatewright_objects::multimap::MultiMap;

/// The attachments of a route: how it comes to a parent, the parent, and the outcome.
pub(crate) type OfRoute = Vec<(Way, ParentKey, Attachment)>;

/// The way in which a route comes to a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By its parentRef with this index.
    Reference(usize),
    /// It wants default Gateways, and this is one.
    Default,
}

/// All attachments, and the indexes that are derived from them alone.
#[derive(Default)]
pub(crate) struct Attachments {
    of_route: BTreeMap<RouteKey, OfRoute>,
    /// For each listener and hostname, the routes that contribute it, each with its own hostname
    /// that matched.
    contributions: MultiMap<(ListenerId, Hostname), (RouteKey, Hostname)>,
    /// The routes that a listener counts in `attachedRoutes`.
    counted: MultiMap<ListenerId, RouteKey>,
    /// Hostnames that only routes of cert-manager's solvers contribute to a listener.
    solved: MultiMap<ListenerId, Hostname>,
}

/// The difference between two sets of attachments of a route.
pub(crate) struct Moved {
    /// The attachments before.
    pub(crate) old: OfRoute,
    /// Contributions of the route to listeners before.
    pub(crate) before: BTreeSet<Contribution>,
    /// Contributions of the route to listeners now.
    pub(crate) after: BTreeSet<Contribution>,
}

impl Attachments {
    /// Returns the attachments of a route; `None` if it reaches no parent.
    pub(crate) fn get(&self, key: &RouteKey) -> Option<&OfRoute> {
        self.of_route.get(key)
    }

    /// Returns the attachments of a route, empty if it reaches no parent.
    pub(crate) fn of(&self, key: &RouteKey) -> &[(Way, ParentKey, Attachment)] {
        self.of_route
            .get(key)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// The attachments of all routes that reach a parent.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RouteKey, &OfRoute)> {
        self.of_route.iter()
    }

    /// The number of hostnames that a route contributes to listeners, each counted at every
    /// listener.
    pub(crate) fn hostnames(&self, key: &RouteKey) -> u64 {
        let attached = self
            .of(key)
            .iter()
            .flat_map(|(.., attachment)| &attachment.listeners);
        attached.map(|attached| attached.names.len() as u64).sum()
    }

    /// Sets the attachments of a route, and its contributions to listeners.
    pub(crate) fn set(&mut self, key: &RouteKey, new: OfRoute) -> Moved {
        let after = handed_out(key, &new);
        let old = if new.is_empty() {
            self.of_route.remove(key)
        } else {
            self.of_route.insert(key.clone(), new)
        };
        let old = old.unwrap_or_default();
        let before = handed_out(key, &old);
        for (listener, hostname, entry) in before.difference(&after) {
            self.contributions
                .remove(&(listener.clone(), hostname.clone()), entry);
        }
        for (listener, hostname, entry) in after.difference(&before) {
            self.contributions
                .insert((listener.clone(), hostname.clone()), entry.clone());
        }
        Moved { old, before, after }
    }

    /// The hostnames that routes contribute to a listener.
    pub(crate) fn names_of<'a>(
        &'a self,
        listener: &'a ListenerId,
    ) -> impl Iterator<Item = &'a Hostname> + use<'a> {
        let all = self.contributions.from((listener.clone(), Hostname::any()));
        all.map(|((of, name), _)| (of, name))
            .take_while(move |(of, _)| *of == listener)
            .map(|(_, name)| name)
    }

    /// The routes that contribute a hostname to a listener, with their own hostnames.
    pub(crate) fn contributors(
        &self,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> impl Iterator<Item = &(RouteKey, Hostname)> {
        self.contributions.of(&(listener.clone(), hostname.clone()))
    }

    /// A route of each namespace other than one that contributes a hostname to a listener and meets
    /// a condition, by kind. The work does not grow with the routes that follow the first ones.
    pub(crate) fn first_of_others<'a, 'b, F: Fn(&RouteKey) -> bool>(
        &'a self,
        (hostname, listener): (&Hostname, &ListenerId),
        namespace: &'b str,
        is_meant: F,
    ) -> impl Iterator<Item = &'a RouteKey> + use<'a, 'b, F> {
        let at = (listener.clone(), hostname.clone());
        let mut next = self.contributions.first(&at);
        std::iter::from_fn(move || {
            loop {
                let (route, _) = next?;
                let is_own = *route.name.namespace == *namespace;
                let is_found = !is_own && is_meant(route);
                // No name has this character.
                let name = if is_own || is_found {
                    ObjectName::new(format!("{}\0", route.name.namespace), "")
                } else {
                    let name = format!("{}\0", route.name.name);
                    ObjectName::new(route.name.namespace.clone(), name)
                };
                let after = RouteKey {
                    kind: route.kind,
                    name,
                };
                next = self.contributions.next(&at, &(after, Hostname::any()));
                if is_found {
                    return Some(route);
                }
            }
        })
    }

    /// True if routes of several namespaces contribute a hostname to a listener.
    pub(crate) fn is_of_several(&self, listener: &ListenerId, hostname: &Hostname) -> bool {
        let first = self
            .contributions
            .first(&(listener.clone(), hostname.clone()));
        first.is_some_and(|(first, _)| {
            let namespace = &*first.name.namespace;
            let mut others = self.first_of_others((hostname, listener), namespace, |_| true);
            others.next().is_some()
        })
    }

    /// The routes with a hostname at a parent.
    pub(crate) fn routes_at(&self, parent: &Parent) -> BTreeSet<RouteKey> {
        let mut all = BTreeSet::new();
        for listener in &parent.listeners {
            let id = parent.id(listener);
            for name in self.names_of(&id) {
                all.extend(self.contributors(name, &id).map(|(route, _)| route.clone()));
            }
        }
        all
    }

    /// The number of routes that a listener counts (Gateway API, `ListenerStatus.attachedRoutes`).
    pub(crate) fn count(&self, listener: &ListenerId) -> usize {
        self.counted.count(listener)
    }

    /// Sets whether a listener counts a route. Returns whether that changed.
    pub(crate) fn set_counted(
        &mut self,
        listener: &ListenerId,
        key: &RouteKey,
        there: bool,
    ) -> bool {
        if self.counted.contains(listener, key) == there {
            return false;
        }
        self.counted.set(listener, key, there);
        true
    }

    /// True if only solvers' routes contribute a hostname to a listener.
    pub(crate) fn is_solved(&self, listener: &ListenerId, hostname: &Hostname) -> bool {
        self.solved.contains(listener, hostname)
    }

    /// True if any listener has such a hostname.
    pub(crate) fn has_solved(&self) -> bool {
        !self.solved.is_empty()
    }

    /// Sets whether only solvers' routes contribute a hostname to a listener. Returns whether that
    /// changed.
    pub(crate) fn set_solved(
        &mut self,
        listener: &ListenerId,
        hostname: &Hostname,
        only: bool,
    ) -> bool {
        if self.solved.contains(listener, hostname) == only {
            return false;
        }
        self.solved.set(listener, hostname, only);
        true
    }

    /// Marks the hosts that only solvers contribute, and that also serve routes of a wider hostname
    /// that changed.
    pub(crate) fn touch_solved(
        &self,
        id: &FrontendId,
        listener: &ListenerId,
        wide: &Hostname,
        dirty: &mut Dirty,
    ) {
        if !wide.is_exact() {
            let hosts = self.solved.of(listener).filter(|host| wide.covers(host));
            dirty
                .units
                .extend(hosts.map(|host| (id.clone(), host.clone())));
        }
    }
}

/// The outcome for one parentRef.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attachment {
    /// Listeners that accept the route.
    pub(crate) listeners: Vec<Attached>,
    /// Ok if at least one accepts it.
    pub(crate) accepted: Verdict,
}

/// A listener that accepts a route.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attached {
    /// Its name.
    pub(crate) listener: Arc<str>,
    /// Hostnames that both match, each with the route's own hostname that matched.
    pub(crate) names: Vec<(Hostname, Hostname)>,
    /// The ground of the claims, if the record decides which namespace's routes have the hostnames.
    pub(crate) by_record: Option<ByRecord>,
}

/// A contribution of a route to a listener: the hostname, and the route with its own hostname that
/// matched.
pub(crate) type Contribution = (ListenerId, Hostname, (RouteKey, Hostname));

pub(crate) fn handed_out(
    key: &RouteKey,
    attachments: &[(Way, ParentKey, Attachment)],
) -> BTreeSet<Contribution> {
    let mut all = BTreeSet::new();
    for (_, parent, attachment) in attachments {
        for attached in &attachment.listeners {
            let listener = ListenerId {
                parent: parent.clone(),
                name: attached.listener.clone(),
            };
            for (hostname, own) in &attached.names {
                all.insert((
                    listener.clone(),
                    hostname.clone(),
                    (key.clone(), own.clone()),
                ));
            }
        }
    }
    all
}
