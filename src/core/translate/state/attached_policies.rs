//! The state of policies on Gateways, ListenerSets and routes (GEP-713): what comes of each, and
//! which of them a rule has at a listener.
//!
//! In: policies that `attached_policing` judged by themselves. Out: for a [`Place`], which is a
//! rule of a route at a listener, the policies there from the outermost to the innermost
//! ([`AttachedPolicies::at`]). What several policies of a kind mean together is the kind's own:
//! AccessPolicies add up ([`AttachedPolicies::access`]), and of TrafficPolicies the nearest wins for
//! each field (`attached_policies/traffic.rs`).
//!
//! The levels of a place are the Gateway, its listener, the ListenerSet, its listener, the route,
//! and its rule. A policy on a Gateway as a whole is one on the listeners of its ListenerSets as
//! well; one on a listener of the Gateway is not.
//!
//! A new kind has a variant of [`Effect`], which is compared: where it is the same as before, no
//! unit is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::parent::Parent;
use crate::key::{ListenerId, RouteKey, Verdict};
use gatewright_objects::cost::{self, TOKEN_TIME};
use gatewright_objects::inputs::{
    AttachedPolicy, AttachmentTarget, Kind, ObjectKey, Route, RouteRule,
};
use gatewright_objects::model::ClientCredentials;
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::settings::{Access, TrafficSettings};

mod traffic;

/// The effect of a policy where it is attached.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// AccessPolicy: only those whom it admits pass, unless it only reports.
    Admit(Arc<Access>),
    /// AccessPolicy that cannot be carried out: nobody passes.
    Close,
    /// AccessPolicy that only reports, and cannot be carried out: everybody passes. Or
    /// TrafficPolicy that cannot be carried out.
    Nothing,
    /// TrafficPolicy.
    Traffic(TrafficSettings),
}

/// A policy by itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JudgedAttachment {
    /// The policy.
    pub(crate) policy: Arc<AttachedPolicy>,
    /// Ok if it can be carried out.
    pub(crate) accepted: Verdict,
    /// Its effect.
    pub(crate) effect: Effect,
    /// The credentials of its login, which are no part of routes.
    pub(crate) credentials: Option<ClientCredentials>,
    /// What of it is not as one may expect, where it has effect.
    pub(crate) notes: Vec<&'static str>,
}

impl JudgedAttachment {
    /// Its effect at the hosts of a Gateway, whose class may not allow it: nobody passes then, and
    /// of a TrafficPolicy, or one that only reports, nothing comes.
    pub(crate) fn effect_at(&self, parent: &Parent) -> &Effect {
        match &self.effect {
            effect if parent.allows(self).is_ok() => effect,
            Effect::Admit(access) if access.only_reports() => &Effect::Nothing,
            Effect::Admit(_) | Effect::Close => &Effect::Close,
            Effect::Nothing | Effect::Traffic(_) => &Effect::Nothing,
        }
    }

    /// True if it is an AccessPolicy that closes an object as a whole, because it names a section
    /// that the object does not have. One on the object and a section of it is on the object.
    fn closes_for_missing_section(
        &self,
        object: &ObjectKey,
        has_section: impl Fn(&str) -> bool,
    ) -> bool {
        let closes = match &self.effect {
            Effect::Admit(access) => !access.only_reports(),
            Effect::Close => true,
            Effect::Nothing | Effect::Traffic(_) => false,
        };
        let of_object = || {
            let targets = self.policy.targets.iter();
            targets.filter(|target| target.object == *object)
        };
        closes
            && of_object().all(|target| target.section.is_some())
            && of_object().any(|target| {
                let section = target.section.as_deref();
                section.is_some_and(|section| !has_section(section))
            })
    }

    /// True if it closes a route as a whole, because it names a rule that the route does not have.
    pub(crate) fn closes_route(&self, object: &ObjectKey, rules: &[RouteRule]) -> bool {
        self.closes_for_missing_section(object, |name| has_rule(rules, name))
    }

    /// True if it closes a Gateway or ListenerSet as a whole, because it names a listener that is
    /// not there.
    pub(crate) fn closes_parent(&self, object: &ObjectKey, parent: &Parent) -> bool {
        self.closes_for_missing_section(object, |name| parent.listener(name).is_some())
    }
}

/// A rule of a route at a listener.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The Gateway or ListenerSet of the listener.
    pub(crate) parent: &'a Parent,
    /// The listener.
    pub(crate) listener: &'a ListenerId,
    /// The route.
    pub(crate) route: &'a RouteKey,
    /// The rules of the route.
    pub(crate) rules: &'a [RouteRule],
    /// The name of the rule, if it has one.
    pub(crate) rule: Option<&'a str>,
}

/// The rules of a route at a listener, each with its place.
pub(crate) fn places<'a>(
    parent: &'a Parent,
    listener: &'a ListenerId,
    (key, route): (&'a RouteKey, &'a Route),
) -> impl Iterator<Item = (&'a RouteRule, Place<'a>)> {
    route.rules.iter().map(move |rule| {
        let place = Place {
            parent,
            listener,
            route: key,
            rules: &route.rules,
            rule: rule.name.as_deref(),
        };
        (rule, place)
    })
}

impl Place<'_> {
    /// What policies at the place are attached to, from the outermost to the innermost.
    pub(crate) fn levels(self) -> [Option<AttachmentTarget>; 6] {
        let Place {
            parent,
            listener,
            route,
            rules: _,
            rule,
        } = self;
        let gateway = ObjectKey::new(Kind::Gateway, parent.placement.gateway.clone());
        let parent = listener.parent.object();
        let is_set = parent != gateway;
        let name = Some(&*listener.name);
        let of_gateway = name.filter(|_| !is_set);
        let set = is_set.then(|| target(parent, None));
        [
            Some(target(gateway.clone(), None)),
            of_gateway.map(|name| target(gateway, Some(name))),
            set.clone(),
            set.map(|set| target(set.object, name)),
            Some(target(route.object(), None)),
            rule.map(|rule| target(route.object(), Some(rule))),
        ]
    }
}

/// True if one of the rules has this name.
pub(crate) fn has_rule(rules: &[RouteRule], name: &str) -> bool {
    rules.iter().any(|rule| rule.name.as_deref() == Some(name))
}

fn target(object: ObjectKey, section: Option<&str>) -> AttachmentTarget {
    AttachmentTarget {
        object,
        section: section.map(Arc::from),
    }
}

/// The clients that may send the requests of a place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AccessAt {
    /// Whom all of these admit, the outermost first; everybody where there are none.
    Admit(Vec<Arc<Access>>),
    /// Nobody: an AccessPolicy cannot be carried out, or is not allowed.
    Closed,
}

/// All policies on Gateways, ListenerSets and routes.
#[derive(Default)]
pub(crate) struct AttachedPolicies {
    judged: BTreeMap<ObjectKey, JudgedAttachment>,
    /// Policies by what they are attached to: the oldest first, then by name.
    by_target: MultiMap<ObjectKey, (i64, ObjectKey)>,
}

impl AttachedPolicies {
    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.judged.is_empty()
    }

    /// A policy by itself.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&JudgedAttachment> {
        self.judged.get(key)
    }

    /// Sets what comes of a policy. Returns the targets, former and present ones, for which
    /// something changes.
    pub(crate) fn set(
        &mut self,
        key: &ObjectKey,
        new: Option<JudgedAttachment>,
    ) -> BTreeSet<AttachmentTarget> {
        let old = match new.clone() {
            Some(new) => self.judged.insert(key.clone(), new),
            None => self.judged.remove(key),
        };
        for (judged, there) in [(old.as_ref(), false), (new.as_ref(), true)] {
            let Some(JudgedAttachment { policy, effect, .. }) = judged else {
                continue;
            };
            // Of those without effect there may be any number.
            let has_effect = match effect {
                Effect::Admit(_) | Effect::Close => true,
                Effect::Nothing => false,
                Effect::Traffic(settings) => !settings.is_empty(),
            };
            if !has_effect {
                continue;
            }
            let rank = (policy.meta.created, key.clone());
            for target in &policy.targets {
                self.by_target.set(&target.object, &rank, there);
            }
        }
        let (before, after) = (targets(old.as_ref()), targets(new.as_ref()));
        let is_same = match (&old, &new) {
            (Some(old), Some(new)) => {
                old.effect == new.effect && old.policy.meta.created == new.policy.meta.created
            }
            _ => false,
        };
        if is_same {
            before.symmetric_difference(&after).cloned().collect()
        } else {
            before.union(&after).cloned().collect()
        }
    }

    /// The policies that are attached to an object, whole or by a section of it.
    pub(crate) fn on<'a>(
        &'a self,
        object: &ObjectKey,
    ) -> impl Iterator<Item = &'a JudgedAttachment> + use<'a> {
        self.by_target
            .of(object)
            .filter_map(|(_, key)| self.judged.get(key))
    }

    /// The policies with exactly this target, the oldest first.
    pub(crate) fn at_level<'a>(
        &'a self,
        level: &AttachmentTarget,
    ) -> impl Iterator<Item = &'a JudgedAttachment> {
        self.on(&level.object)
            .filter(move |judged| judged.policy.targets.contains(level))
    }

    /// The policies of a kind at a place, from the outermost to the innermost; of several at one
    /// level the oldest first. One on an object and a section of it is on the object.
    pub(crate) fn at(&self, kind: Kind, place: Place<'_>) -> Vec<&JudgedAttachment> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for level in place.levels().into_iter().flatten() {
            let whole = target(level.object.clone(), None);
            let is_section = level.section.is_some();
            found.extend(self.at_level(&level).filter(|judged| {
                let policy = &judged.policy;
                policy.kind() == kind && !(is_section && policy.targets.contains(&whole))
            }));
        }
        found
    }

    /// True if an AccessPolicy names a listener or rule that its target, around this place, does
    /// not have: it may have meant any of them, this one as well.
    fn is_closed_by_missing_section(&self, place: Place<'_>) -> bool {
        let (parent, route) = (place.listener.parent.object(), place.route.object());
        let of_parent = self.on(&parent);
        let of_parent = of_parent.filter(|judged| judged.closes_parent(&parent, place.parent));
        let of_route = self.on(&route);
        let of_route = of_route.filter(|judged| judged.closes_route(&route, place.rules));
        of_parent.chain(of_route).any(|judged| {
            matches!(
                judged.effect_at(place.parent),
                Effect::Admit(_) | Effect::Close
            )
        })
    }

    /// The clients that may send the requests of a place. AccessPolicies add up: an inner one never
    /// opens what an outer one closed.
    pub(crate) fn access(&self, place: Place<'_>) -> AccessAt {
        if !self.is_empty() && self.is_closed_by_missing_section(place) {
            return AccessAt::Closed;
        }
        let mut all = Vec::new();
        for judged in self.at(Kind::AccessPolicy, place) {
            match judged.effect_at(place.parent) {
                Effect::Admit(access) => all.push(access.clone()),
                Effect::Close => return AccessAt::Closed,
                Effect::Nothing | Effect::Traffic(_) => {}
            }
        }
        if has_logins(&all, 2) {
            return AccessAt::Closed;
        }
        within_token_time(all)
    }

    /// The time that a token may take at a place, by the policies that refuse requests.
    pub(crate) fn token_time(&self, place: Place<'_>) -> Duration {
        let policies = self.at(Kind::AccessPolicy, place);
        let times = policies
            .iter()
            .map(|judged| match judged.effect_at(place.parent) {
                Effect::Admit(access) if !access.only_reports() => cost::token_time(access),
                _ => Duration::ZERO,
            });
        times.sum()
    }
}

/// Nobody, where a token takes more time than it may by all policies together. Those that only
/// report are left out where there is no time for them.
fn within_token_time(all: Vec<Arc<Access>>) -> AccessAt {
    let enforced = all.iter().filter(|access| !access.only_reports());
    let mut time: Duration = enforced.map(|access| cost::token_time(access)).sum();
    if time > TOKEN_TIME {
        return AccessAt::Closed;
    }
    let fitting = all.into_iter().filter(|access| {
        if !access.only_reports() {
            return true;
        }
        let with_it = time + cost::token_time(access);
        let fits = with_it <= TOKEN_TIME;
        if fits {
            time = with_it;
        }
        fits
    });
    AccessAt::Admit(fitting.collect())
}

/// True if so many of the policies ask for a login. One alone can: the paths of the way back from
/// the provider and of the logout belong to it.
pub(crate) fn has_logins(all: &[Arc<Access>], count: usize) -> bool {
    let logins = all.iter().filter(|access| access.oidc.is_some());
    logins.count() >= count
}

fn targets(judged: Option<&JudgedAttachment>) -> BTreeSet<AttachmentTarget> {
    judged
        .map(|judged| judged.policy.targets.iter().cloned().collect())
        .unwrap_or_default()
}
