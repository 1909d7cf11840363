//! Ownership of hostnames among admitted namespaces: those whose routes (`allowedRoutes`) or
//! ListenerSets (`allowedListeners`) the listeners of another namespace admit.
//!
//! The admitting namespace itself is always served, and keeps the exact hostnames of applications
//! that its routes have first. Else the record of ownership gives each hostname to one of the
//! admitted ones, on all ports: rules of several namespaces are not merged, since one could take
//! paths of another. A listener for an exact hostname is different: an owner that admits
//! routes of several namespaces there shares that name among them, unless GatewayParameters forbid
//! it (`routeHostnames`). The namespaces claim the hostname all the same, so that no other has it
//! at a wider listener.

use std::sync::Arc;

use crate::key::{ListenerId, ParentKey, RouteKey, Verdict};
use crate::rule::ownership::{By, Claimant};
use crate::state::attachments::{Attachment, Attachments, Way};
use crate::state::by_record::{ByRecord, RecordEffect, WideListener, admitted, is_contended};
use crate::state::dirty::Dirty;
use crate::state::parent::Parent;
use crate::state::parents::Parents;
use crate::state::register::Register;
use crate::state::resolutions::Resolutions;
use gatewright_objects::model::{FrontendId, Hostname, Reason, clipped};
use gatewright_objects::ownership::{ListenersOf, Ownable, Recording};

/// A wildcard or catch-all listener with the namespaces it admits: among whom, its hostname,
/// itself, and its frontend.
type Standing = (Arc<ListenersOf>, Hostname, WideListener, FrontendId);

/// The wildcard and catch-all listeners of a parent whose hostnames the record gives to owners.
fn wide_listeners(parent: Option<&Parent>) -> Vec<Standing> {
    let all = parent.into_iter().flat_map(|parent| {
        parent
            .listeners
            .iter()
            .map(move |listener| (parent, listener))
    });
    let wide = all.filter(|(_, listener)| {
        !listener.hostname.is_exact() && !listener.misnamed && listener.has_hostnames()
    });
    wide.flat_map(|(parent, l)| {
        let own = is_contended(parent, l).then_some((&parent.listeners_of, false));
        let ways = own.into_iter().chain(admitted(parent).map(|at| (at, true)));
        ways.map(|(at, is_admitted)| {
            let listener = WideListener {
                is_admitted,
                listener: parent.id(l),
            };
            (
                at.clone(),
                l.hostname.clone(),
                listener,
                parent.frontend(l.transport_port()),
            )
        })
    })
    .collect()
}

/// The claims of a route by its attachments: the listener, the hostname, and the ground of the
/// claim.
fn claimed(attachments: &[(Way, ParentKey, Attachment)]) -> Vec<(ListenerId, Hostname, ByRecord)> {
    let mut all = Vec::new();
    for (_, parent, attachment) in attachments {
        for attached in &attachment.listeners {
            let Some(by) = &attached.by_record else {
                continue;
            };
            fn listener(parent: &ParentKey, attached_listener: &Arc<str>) -> ListenerId {
                ListenerId {
                    parent: parent.clone(),
                    name: attached_listener.clone(),
                }
            }
            let names = attached.names.iter().filter(|(name, _)| by.claims(name));
            all.extend(names.map(|(name, _)| {
                (
                    listener(parent, &attached.listener),
                    name.clone(),
                    by.clone(),
                )
            }));
        }
    }
    all.sort();
    all.dedup();
    all
}

/// Admission: queries over the parents, the attachments and the record together.
#[derive(Clone, Copy)]
pub(crate) struct Admission<'a> {
    pub(crate) parents: &'a Parents,
    pub(crate) attachments: &'a Attachments,
    pub(crate) register: &'a Register,
}

impl<'a> Admission<'a> {
    /// True if a listener serves a route under a hostname that the route contributes to it.
    pub(crate) fn is_served(
        self,
        listener: &ListenerId,
        hostname: &Hostname,
        key: &RouteKey,
    ) -> bool {
        if key.name.namespace == listener.parent.name().namespace {
            return true;
        }
        let attachments = self.attachments.of(key);
        let here = attachments
            .iter()
            .filter(|(_, parent, _)| *parent == listener.parent);
        let here = here
            .flat_map(|(.., attachment)| &attachment.listeners)
            .filter(|at| at.listener == listener.name);
        here.filter(|attached| attached.names.iter().any(|(name, _)| name == hostname))
            .any(|attached| {
                attached
                    .by_record
                    .as_ref()
                    .is_none_or(|by| self.has_name(by, hostname, &key.name.namespace))
            })
    }

    /// True if a namespace owns a hostname among the namespaces admitted at `at`.
    pub(crate) fn has_admitted(
        self,
        at: &Arc<ListenersOf>,
        hostname: &Hostname,
        namespace: &str,
    ) -> bool {
        let owner = self
            .register
            .owner(&Ownable::Admitted(at.clone(), hostname.clone()));
        owner.is_some_and(|owner| *owner.namespace == *namespace)
    }

    /// True if another admitted namespace owns a hostname below the wildcard or catch-all listener
    /// of an admitted one.
    pub(crate) fn is_of_another_admitted(self, hostname: &Hostname, listener: &ListenerId) -> bool {
        let Some(at) = self.parents.get(&listener.parent).and_then(admitted) else {
            return false;
        };
        let mut names = std::iter::once(hostname.clone()).chain(hostname.covering());
        let namespace = &listener.parent.name().namespace;
        let granted = self.register.granted();
        names
            .find_map(|name| {
                match self
                    .register
                    .owner(&Ownable::Admitted(at.clone(), name.clone()))
                {
                    Some(owner) => Some(owner.namespace != *namespace),
                    // The owner of the Gateway admits whom it wants to its own names.
                    None => granted.first(&name).map(|_| {
                        !granted.has(&name, namespace) && !granted.has(&name, &at.namespace)
                    }),
                }
            })
            .unwrap_or(false)
    }

    /// True if a listener serves routes of a namespace under a hostname.
    fn has_name(self, by: &ByRecord, hostname: &Hostname, namespace: &str) -> bool {
        by.effect != RecordEffect::Decides || self.has_admitted(&by.at, hostname, namespace)
    }

    /// The routes that a listener serves under a hostname, each with its own hostname that
    /// contributed it.
    pub(crate) fn served<'b>(
        self,
        hostname: &'b Hostname,
        listener: &'b ListenerId,
    ) -> impl Iterator<Item = &'a (RouteKey, Hostname)> + use<'a, 'b> {
        self.attachments
            .contributors(hostname, listener)
            .filter(move |(key, _)| self.is_served(listener, hostname, key))
    }

    /// The namespace that owns a hostname which a wildcard or catch-all listener does not serve:
    /// routes of another namespace have a wider hostname there.
    pub(crate) fn kept_for(
        self,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> Option<&'a Arc<str>> {
        let parent = self.parents.get(&listener.parent)?;
        let of = parent.listener(&listener.name)?;
        let at = &parent.listeners_of;
        if of.hostname == *hostname || !is_contended(parent, of) || !self.register.has_wide(at) {
            return None;
        }
        let what = Ownable::Admitted(at.clone(), hostname.clone());
        let granted = self.register.granted();
        let namespace = match self.register.owner(&what) {
            Some(owner) => &owner.namespace,
            None => granted.first(hostname)?,
        };
        let mut wider = hostname
            .covering()
            .chain([Hostname::any()])
            .filter(|wide| of.hostname.covers(wide));
        wider
            .any(|wide| {
                let owner = self.register.owner(&Ownable::Admitted(at.clone(), wide));
                owner.is_some_and(|owner| {
                    owner.namespace != *namespace && !granted.has(hostname, &owner.namespace)
                })
            })
            .then_some(namespace)
    }

    /// True if the owner of listeners has a wildcard listener of its own that admits namespaces,
    /// between a name and a wildcard over it: below such a listener a tenant's wildcard excludes
    /// nobody.
    pub(crate) fn admits_below(
        self,
        at: &Arc<ListenersOf>,
        name: &Hostname,
        wide: &Hostname,
    ) -> bool {
        let own = name.is_wildcard().then(|| name.clone());
        let between = own
            .into_iter()
            .chain(name.covering())
            .take_while(|own| wide.covers(own));
        let mut listeners = between.flat_map(|own| self.parents.admitting(at, own));
        listeners.any(|wide| !wide.is_admitted)
    }

    /// Marks the hostnames that are kept from a wider one, and whose units depend on a route's
    /// changed contribution there.
    pub(crate) fn touch_kept(
        self,
        id: &FrontendId,
        listener: &ListenerId,
        wide: &Hostname,
        by: &RouteKey,
        dirty: &mut Dirty,
    ) {
        if wide.is_exact() {
            return;
        }
        let Some(parent) = self
            .parents
            .get(&listener.parent)
            .filter(|p| self.register.has_wide(&p.listeners_of))
        else {
            return;
        };
        let namespace = &by.name.namespace;
        let is_own = *namespace == listener.parent.name().namespace;
        let what = Ownable::Admitted(parent.listeners_of.clone(), wide.clone());
        let kept = self.register.kept_below(&what).filter(|name| {
            let kept = self.kept_for(name, listener);
            kept.is_some_and(|owner| is_own || owner == namespace)
        });
        dirty
            .units
            .extend(kept.map(|name| (id.clone(), name.clone())));
    }

    /// The owned hostnames of routes below the hostname of a listener, which may be kept from it.
    pub(crate) fn kept_under(self, listener: &ListenerId, wide: &Hostname) -> Vec<Hostname> {
        let Some(parent) = self
            .parents
            .get(&listener.parent)
            .filter(|p| self.register.has_wide(&p.listeners_of))
        else {
            return Vec::new();
        };
        self.register
            .kept_below(&Ownable::Admitted(
                parent.listeners_of.clone(),
                wide.clone(),
            ))
            .cloned()
            .collect()
    }

    /// Returns whether a route owns the hostnames that it claims by some of its attachments.
    pub(crate) fn names_verdict(
        self,
        key: &RouteKey,
        attachments: &[(Way, ParentKey, Attachment)],
    ) -> Verdict {
        let mut lost = Vec::new();
        let mut pending = Vec::new();
        let mut exceeded = None;
        for (_, name, by) in claimed(attachments) {
            let namespace = &key.name.namespace;
            let what = Ownable::Admitted(by.at.clone(), name.clone());
            if self.has_name(&by, &name, namespace) {
                continue;
            }
            let is_pending = self.register.recording() == Recording::OtherProcess
                && self.register.owner(&what).is_none()
                && self.register.is_about_to_own(&what, namespace);
            let beyond = self.register.exceeds_quota(&what, namespace);
            if let Some(text) = beyond {
                exceeded.get_or_insert((name, text));
            } else if is_pending {
                pending.push(name)
            } else {
                lost.push(name)
            }
        }
        if !lost.is_empty() {
            let text = format!(
                "{}: at this listener it belongs to another namespace, itself or by a wildcard over it: the first one keeps it; take another name, or ask the operator of the installation to release it",
                named(lost)
            );
            return Err((Reason::HostnameConflict, clipped(text)));
        }
        if let Some((name, text)) = exceeded {
            let text = format!(
                "{} is not recorded as this namespace's: {text}",
                named(vec![name])
            );
            return Err((Reason::LimitReached, clipped(text)));
        }
        if !pending.is_empty() {
            let text = format!(
                "{}: it is being recorded as this namespace's, and is served once that is written",
                named(pending)
            );
            return Err((Reason::Pending, clipped(text)));
        }
        Ok(())
    }
}

fn named(mut names: Vec<Hostname>) -> String {
    names.sort();
    names.dedup();
    let texts = names.iter().map(|name| {
        if name.is_any() {
            "the catch-all hostname".to_owned()
        } else {
            format!("hostname {name}")
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Registers the hostnames that a route claims now, in place of its former claims; `dates` is true
/// if creation times are trusted. Returns the hostnames of its former and present claims, each with
/// its listener.
pub(crate) fn claim_for_route(
    register: &mut Register,
    key: &RouteKey,
    old: &[(Way, ParentKey, Attachment)],
    new: &[(Way, ParentKey, Attachment)],
    dates: bool,
    dirty: &mut Dirty,
) -> Vec<(ListenerId, Hostname)> {
    let before = claimed(old);
    let after = claimed(new);
    let gone = before
        .iter()
        .filter(|claim| after.binary_search(claim).is_err())
        .map(|claim| (claim, false));
    let come = after
        .iter()
        .filter(|claim| before.binary_search(claim).is_err())
        .map(|claim| (claim, true));
    let mut touched = Vec::new();
    for ((listener, hostname, by), there) in gone.chain(come) {
        let claimant = Claimant {
            created: if dates { by.created } else { 0 },
            namespace: key.name.namespace.clone(),
            through: by.at.namespace.clone(),
            by: By::Route(listener.clone(), key.clone()),
            protocol: gatewright_objects::model::Family::Http,
        };
        let what = Ownable::Admitted(by.at.clone(), hostname.clone());
        register.claim(&what, &claimant, there);
        dirty.owned.insert(what);
        touched.push((listener.clone(), hostname.clone()));
    }
    touched
}

/// Updates the index of wildcard and catch-all listeners of a parent whose hostnames the record
/// gives to owners.
pub(crate) fn note_admitting(
    parents: &mut Parents,
    register: &Register,
    old: Option<&Parent>,
    new: Option<&Parent>,
    dirty: &mut Dirty,
) {
    let before = wide_listeners(old);
    let after = wide_listeners(new);
    let gone = before
        .iter()
        .filter(|one| !after.contains(one))
        .map(|one| (one, false));
    let come = after
        .iter()
        .filter(|one| !before.contains(one))
        .map(|one| (one, true));
    for ((at, hostname, listener, id), there) in gone.chain(come) {
        parents.set_admitting(at, hostname, listener, there);
        let wide = Ownable::Admitted(at.clone(), hostname.clone());
        dirty.owned.extend(register.below(&wide).cloned());
        if listener.is_admitted || register.has_wide(at) {
            dirty.units.extend(
                register
                    .kept_below(&wide)
                    .map(|name| (id.clone(), name.clone())),
            );
        }
    }
}

/// The stage that counts a route at a listener, if the route is valid and the listener serves it
/// under at least one of its hostnames.
pub(crate) fn count_route(
    attachments: &mut Attachments,
    parents: &Parents,
    register: &Register,
    resolutions: &Resolutions,
    (listener, key): (&ListenerId, &RouteKey),
    dirty: &mut Dirty,
) {
    // Only accepted routes count (Gateway API, `ListenerStatus.attachedRoutes`).
    let is_valid = resolutions
        .get(key)
        .is_none_or(|resolved| resolved.invalid.is_none());
    let admission = Admission {
        parents,
        attachments,
        register,
    };
    let here = attachments
        .of(key)
        .iter()
        .filter(|(_, parent, _)| *parent == listener.parent);
    let mut here = here
        .flat_map(|(.., attachment)| &attachment.listeners)
        .filter(|at| at.listener == listener.name);
    let is_there = is_valid
        && here.any(|attached| match &attached.by_record {
            None => true,
            Some(by) => attached
                .names
                .iter()
                .any(|(name, _)| admission.has_name(by, name, &key.name.namespace)),
        });
    if attachments.set_counted(listener, key, is_there) {
        dirty.statuses.insert(listener.parent.object());
    }
}

#[cfg(test)]
mod tests;
