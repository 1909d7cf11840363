//! Attachment: the listeners of a parent that accept a route, and the hostnames that they accept it
//! with.

use std::collections::{BTreeMap, BTreeSet};

use super::admission::{Admission, claim_for_route};
use super::allowed_hostnames;
use super::default_gateways;
use super::plain_http::has_https;
use crate::key::{ListenerId, ParentKey, RouteKey};
use crate::rule::protocol::Protocol;
use crate::rule::settings::Settings;
use crate::state::attachments::{
    Attached, Attachment, Attachments, Contribution, Moved, OfRoute, Way, handed_out,
};
use crate::state::by_record::ByRecord;
use crate::state::dirty::Dirty;
use crate::state::parent::{Parent, ParentListener};
use crate::state::parents::Parents;
use crate::state::policies::Policies;
use crate::state::quotas::Quotas;
use crate::state::register::Register;
use gatewright_objects::inputs::{ParentRef, Route};
use gatewright_objects::model::{Hostname, HostnameGrant, Reason};
use gatewright_objects::store::Store;

/// Decides for one parentRef of `route`, or none where it wants default Gateways, and `parent` that
/// it reaches.
///
/// Order of checks: section and port, kind, namespace, hostname (Gateway API, `ParentReference` and
/// `AllowedRoutes`). Only hostnames that tenancy grants, where it has a say, reach a TLS listener.
/// Plain HTTP, which sends everybody to HTTPS, is reached there by naming it only.
fn attach(
    route: &Route,
    reference: Option<&ParentRef>,
    grant: Option<&HostnameGrant>,
    parent: &Parent,
    store: &Store,
) -> Attachment {
    let mut attachment = decide(route, reference, grant, parent, store);
    if let Some(refusal) = grant.and_then(|grant| grant.refusal.as_ref()) {
        attachment.accepted = Err(refusal.clone());
    }
    attachment
}

/// The stage that attaches routes to parents.
pub(crate) struct Attaching<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) parents: &'a Parents,
    /// Default Gateways count AccessPolicies.
    pub(crate) policies: &'a Policies,
    pub(crate) attachments: &'a mut Attachments,
    pub(crate) quotas: &'a mut Quotas,
    /// Claims of routes.
    pub(crate) register: &'a mut Register,
}

impl Attaching<'_> {
    /// Attaches a route to its parents, and contributes its hostnames to their listeners.
    pub(crate) fn attach(&mut self, key: &RouteKey, dirty: &mut Dirty) {
        // The Gateway of a ListenerSet may have changed though no attachment has.
        dirty.uses.insert(key.object());
        dirty.charged.insert(key.clone());
        let new = self.attachments_of(key, dirty);
        self.leave_defaults(key, &new, dirty);
        // Another listener may serve a hostname, with another certificate.
        dirty.statuses.insert(key.object());
        if self.attachments.of(key) == new {
            for (listener, hostname, _) in handed_out(key, &new) {
                dirty.solved.insert((listener, hostname));
            }
            return;
        }
        let Moved { old, before, after } = self.attachments.set(key, new);
        let admission = Admission {
            parents: self.parents,
            attachments: self.attachments,
            register: self.register,
        };
        for (listener, hostname, _) in before.symmetric_difference(&after) {
            if let Some(id) = self.parents.frontend_of(listener) {
                self.attachments
                    .touch_solved(&id, listener, hostname, dirty);
                admission.touch_kept(&id, listener, hostname, key, dirty);
                dirty.units.insert((id, hostname.clone()));
            }
        }
        // A label marks a route as one of cert-manager's solver.
        dirty.solved.extend(
            before
                .union(&after)
                .map(|(listener, hostname, _)| (listener.clone(), hostname.clone())),
        );
        fn listeners(all: &BTreeSet<Contribution>) -> BTreeSet<ListenerId> {
            all.iter().map(|(listener, ..)| listener.clone()).collect()
        }
        let (before, after) = (listeners(&before), listeners(&after));
        dirty.statuses.extend(
            before
                .symmetric_difference(&after)
                .map(|listener| listener.parent.object()),
        );
        dirty.counted.extend(
            before
                .union(&after)
                .map(|listener| (listener.clone(), key.clone())),
        );
        let dates = self.settings.believes_creation_times;
        for (listener, hostname) in claim_for_route(
            self.register,
            key,
            &old,
            self.attachments.of(key),
            dates,
            dirty,
        ) {
            // The listener may serve the same route in another way.
            dirty
                .units
                .extend(self.parents.frontend_of(&listener).map(|id| (id, hostname)));
        }
    }

    /// Frees what the route counts for at default Gateways that it comes to no longer.
    fn leave_defaults(&mut self, key: &RouteKey, new: &OfRoute, dirty: &mut Dirty) {
        for gone in defaults(self.attachments.of(key)).difference(&defaults(new)) {
            self.quotas
                .charge_default(&(key.clone(), gone.clone()), None, dirty);
        }
    }

    fn attachments_of(&mut self, key: &RouteKey, dirty: &mut Dirty) -> OfRoute {
        let mut all = Vec::new();
        let store = self.store;
        let parents = self.parents;
        let Some(route) = store.route(key) else {
            return all;
        };
        all.reserve_exact(route.parents.len());
        for (index, reference) in route.parents.iter().enumerate() {
            let parent = gatewright_objects::store::parent_key(reference, &key.name.namespace);
            let Some(parent) = parent.and_then(|parent| parents.get(&parent)) else {
                continue;
            };
            // Parents that the grant attaches the route to, beside the named one.
            let grant = store.grant(key, &parent.key);
            let mut reached = gatewright_objects::store::reached(&parent.key, grant);
            reached.retain(|other| *other != parent.key);
            let reached = reached.iter().filter_map(|other| parents.get(other));
            for parent in std::iter::once(parent).chain(reached) {
                let attachment = attach(route, Some(reference), grant, parent, store);
                all.push((Way::Reference(index), parent.key.clone(), attachment));
            }
        }
        let dates = self.settings.believes_creation_times;
        let by_default = |parent: &Parent| attach(route, None, None, parent, store);
        for (parent, attachment) in
            default_gateways::of_route(route, parents, store, dates, by_default)
        {
            let attachment =
                self.quotas
                    .at_default(route, parent, (store, self.policies), attachment, dirty);
            all.push((Way::Default, parent.key.clone(), attachment));
        }
        all
    }
}

fn defaults(all: &[(Way, ParentKey, Attachment)]) -> BTreeSet<ParentKey> {
    let all = all.iter().filter(|(way, ..)| *way == Way::Default);
    all.map(|(_, parent, _)| parent.clone()).collect()
}

impl Attachments {
    /// Marks the routes whose attachment a change of a parent may alter.
    pub(crate) fn touch_attached(
        &self,
        key: &ParentKey,
        old: Option<&Parent>,
        new: Option<&Parent>,
        store: &Store,
        dirty: &mut Dirty,
    ) {
        let is_default = [old, new].into_iter().flatten().any(Parent::is_default);
        let routes = store.routes_reaching(key, is_default);
        match old.zip(new).and_then(|(old, new)| changed(old, new)) {
            None => dirty.attachments.extend(routes.cloned()),
            Some(changed) if changed.is_empty() => {}
            Some(changed) => {
                dirty.attachments.extend(
                    routes
                        .filter(|route| !self.stays(route, key, &changed, store))
                        .cloned(),
                );
            }
        }
    }

    /// True if the attachment of a route to a parent is unaffected: none of its listeners changed,
    /// and no changed listener shares a hostname with it. The status of a route without an
    /// accepting listener depends on every listener.
    fn stays(
        &self,
        key: &RouteKey,
        parent: &ParentKey,
        changed: &BTreeMap<&str, Vec<&Hostname>>,
        store: &Store,
    ) -> bool {
        let Some((route, attachments)) = store.route(key).zip(self.get(key)) else {
            return false;
        };
        let mut here = attachments
            .iter()
            .filter(|(_, of, _)| of == parent)
            .peekable();
        here.peek().is_some()
            && here.all(|(way, _, attachment)| {
                let reference = match way {
                    Way::Reference(index) => route.parents.get(*index),
                    Way::Default => None,
                };
                let named = reference.and_then(|reference| {
                    gatewright_objects::store::parent_key(reference, &key.name.namespace)
                });
                let own = match named.and_then(|named| store.grant(key, &named)) {
                    Some(grant) => grant.granted.iter().map(Some).collect(),
                    None => route
                        .hostnames
                        .iter()
                        .map(|name| name.as_ref().ok())
                        .collect::<Vec<_>>(),
                };
                (reference.is_some() || *way == Way::Default)
                    && reference.is_none_or(|reference| {
                        reference.section.is_none() && reference.port.is_none()
                    })
                    && !own.is_empty()
                    && !own.iter().any(|name| {
                        let mut names = changed.values().flatten();
                        names
                            .any(|other| name.is_none_or(|name| name.intersection(other).is_some()))
                    })
                    && !attachment.listeners.is_empty()
                    && attachment
                        .listeners
                        .iter()
                        .all(|taken| !changed.contains_key(&*taken.listener))
            })
    }
}

/// Returns the listeners that differ for attachment in two evaluations of one parent, with their
/// hostnames before and after; `None` if all of them may differ.
fn changed<'a>(old: &'a Parent, new: &'a Parent) -> Option<BTreeMap<&'a str, Vec<&'a Hostname>>> {
    if !stand_alike(old, new) {
        return None;
    }
    let before = by_name(old);
    let after = by_name(new);
    let mut changed: BTreeMap<&str, Vec<&Hostname>> = BTreeMap::new();
    for (one, other) in [(&before, &after), (&after, &before)] {
        for (name, listener) in one.iter().filter(|(name, listener)| {
            other
                .get(*name)
                .is_none_or(|other| !take_alike(listener, other))
        }) {
            changed.entry(name).or_default().push(&listener.hostname);
        }
    }
    Some(changed)
}

/// True if two evaluations of a parent differ in their listeners at most.
fn stand_alike(old: &Parent, new: &Parent) -> bool {
    let before = &old.placement;
    let after = &new.placement;
    old.accepted == new.accepted
        && old.listeners_of == new.listeners_of
        && before.gateway == after.gateway
        && before.frontend_owner == after.frontend_owner
        && before.exposure.route_hostnames == after.exposure.route_hostnames
        && before.exposure.allowed_hostnames == after.exposure.allowed_hostnames
        && before.exposure.plain_http == after.exposure.plain_http
        && has_https(old) == has_https(new)
}

fn by_name(parent: &Parent) -> BTreeMap<&str, &ParentListener> {
    let listeners = parent.listeners.iter();
    listeners
        .map(|listener| (&*listener.name, listener))
        .collect()
}

/// True if two evaluations of a listener take the same routes.
fn take_alike(one: &ParentListener, other: &ParentListener) -> bool {
    one.port == other.port
        && one.hostname == other.hostname
        && one.misnamed == other.misnamed
        && one.protocol == other.protocol
        && one.kinds == other.kinds
        && one.allowed == other.allowed
}

fn decide(
    route: &Route,
    reference: Option<&ParentRef>,
    grant: Option<&HostnameGrant>,
    parent: &Parent,
    store: &Store,
) -> Attachment {
    let section = reference.and_then(|reference| reference.section.as_deref());
    let port = reference.and_then(|reference| reference.port);
    let chosen = section.is_some() || port.is_some();
    if let Err((_, text)) = &parent.accepted {
        return refuse(
            Reason::NotAllowedByListeners,
            format!("{} is not accepted: {text}", parent.key.object()),
        );
    }
    let named: Vec<_> = parent
        .listeners
        .iter()
        .filter(|listener| section.is_none_or(|section| section == &*listener.name))
        .filter(|listener| port.is_none_or(|port| port == listener.port))
        .filter(|listener| grant.is_none() || chosen || listener.protocol != Some(Protocol::Http))
        .collect();
    if named.is_empty() {
        let section = section.map(|s| format!(" named {s:?}")).unwrap_or_default();
        let port = port
            .map(|port| format!(" with port {port}"))
            .unwrap_or_default();
        return refuse(
            Reason::NoMatchingParent,
            format!("{} has no listener{section}{port}", parent.key.object()),
        );
    }
    let namespace = &route.meta.name.namespace;
    let own = &parent.key.name().namespace;
    let labels = store.labels(namespace);
    let allowed: Vec<_> = named
        .into_iter()
        .filter(|l| {
            l.kinds.contains(route.kind) && l.allowed.namespaces.admits(own, namespace, labels)
        })
        .collect();
    if allowed.is_empty() {
        let text = format!(
            "no listener of {} allows {} from namespace {namespace}",
            parent.key.object(),
            route.kind.kind().as_str()
        );
        return refuse(Reason::NotAllowedByListeners, text);
    }
    let valid: Vec<&Hostname> = route
        .hostnames
        .iter()
        .filter_map(|hostname| hostname.as_ref().ok())
        .collect();
    if let (Some(Err(error)), true) = (
        route.hostnames.iter().find(|h| h.is_err()),
        valid.is_empty(),
    ) {
        return refuse(Reason::UnsupportedValue, error.to_string());
    }
    let any = Hostname::any();
    let own_names = if route.hostnames.is_empty() {
        vec![&any]
    } else {
        valid
    };
    let mut listeners = Vec::new();
    let mut accepted = Ok(());
    let granted: Option<Vec<&Hostname>> = grant.map(|grant| grant.granted.iter().collect());
    for listener in allowed.into_iter().filter(|listener| !listener.misnamed) {
        let own_names = granted
            .as_ref()
            .filter(|_| listener.protocol != Some(Protocol::Http))
            .unwrap_or(&own_names);
        let mut names: Vec<_> = own_names
            .iter()
            .filter_map(|own| Some((listener.hostname.intersection(own)?, (*own).clone())))
            .collect();
        if grant.is_none() && namespace != own {
            names.retain(|(name, _)| {
                let allowed =
                    allowed_hostnames::check(&parent.placement.exposure, name, namespace, store);
                let is_allowed = allowed.is_ok();
                if accepted.is_ok() {
                    accepted = allowed;
                }
                is_allowed
            });
        }
        names.shrink_to_fit();
        if !names.is_empty() {
            let by_record = if grant.is_some() {
                None
            } else if namespace == own {
                ByRecord::of_owner(parent, listener, route)
            } else {
                ByRecord::of(parent, listener, route.meta.created)
            };
            listeners.push(Attached {
                listener: listener.name.clone(),
                names,
                by_record,
            });
        }
    }
    if listeners.is_empty() && accepted.is_ok() {
        let names: Vec<_> = own_names.iter().map(|name| name.to_string()).collect();
        let text = format!(
            "no listener of {} has a valid hostname that matches {}",
            parent.key.object(),
            names.join(", ")
        );
        return refuse(Reason::NoMatchingListenerHostname, text);
    }
    listeners.shrink_to_fit();
    Attachment {
        listeners,
        accepted,
    }
}

fn refuse(reason: Reason, text: String) -> Attachment {
    Attachment {
        listeners: Vec::new(),
        accepted: Err((reason, text)),
    }
}
