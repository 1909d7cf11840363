//! The state of policies (GEP-713): what comes of each, which of them counts where it is, and what
//! comes of that.
//!
//! In: policies that `policing` judged by themselves. Out:
//!
//! - for a [`Place`], which is a rule of a route at a listener, the policies there from the
//!   outermost to the innermost ([`Policies::at`]). What several of a kind mean together is the
//!   kind's own: AccessPolicies add up (`policies/access.rs`), and of TrafficPolicies the nearest
//!   wins for each field (`policies/traffic.rs`);
//! - for a Service or a Gateway the first policy of a kind ([`Policies::first`]), and what backends
//!   have of it (`policies/backends.rs`).
//!
//! A new kind has a variant of [`Effect`](judged::Effect), which is compared: where it is the same
//! as before, nothing is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use super::deadline::Deadlines;
use crate::key::Verdict;
use gatewright_objects::inputs::{Kind, ObjectKey, PolicyTarget};
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::multimap::MultiMap;

mod access;
pub(crate) mod backends;
pub(crate) mod judged;
pub(crate) mod place;
mod traffic;

pub(crate) use access::{AccessAt, has_logins};

use backends::TargetServices;
use judged::{Effect, Judged};
use place::Place;

/// What policies of a kind are attached to, exactly.
type Level = (PolicyTarget, Kind);

/// All policies.
#[derive(Default)]
pub(crate) struct Policies {
    judged: BTreeMap<ObjectKey, Judged>,
    /// How many of them are on Gateways, ListenerSets and routes.
    on_requests: usize,
    /// Those that have effect, if they are first where only one can: the oldest first, then by
    /// name.
    ranked: MultiMap<Level, (i64, ObjectKey)>,
    /// The accepted policies of each target.
    accepted: MultiMap<ObjectKey, ObjectKey>,
    /// When each must be judged again: its CA certificates begin or cease to be valid.
    deadlines: Deadlines<ObjectKey>,
    /// The Services that policies are about.
    services: TargetServices,
}

impl Policies {
    /// True if there are none on Gateways, ListenerSets and routes.
    pub(crate) fn guard_nothing(&self) -> bool {
        self.on_requests == 0
    }

    /// A policy by itself.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Judged> {
        self.judged.get(key)
    }

    /// The policies with effect on an object, whole or by a section of it, the oldest first.
    pub(crate) fn on<'a>(
        &'a self,
        object: &ObjectKey,
    ) -> impl Iterator<Item = &'a Judged> + use<'a> {
        let whole = PolicyTarget::whole(object.clone());
        let levels = self.ranked.from((whole, Kind::ALL[0]));
        let ranks: BTreeSet<&(i64, ObjectKey)> = levels
            .take_while(|((target, _), _)| target.object == *object)
            .flat_map(|(_, ranks)| ranks)
            .collect();
        ranks
            .into_iter()
            .filter_map(|(_, key)| self.judged.get(key))
    }

    /// The policies of a kind with exactly this target, the oldest first.
    pub(crate) fn at_level<'a>(
        &'a self,
        kind: Kind,
        level: &PolicyTarget,
    ) -> impl Iterator<Item = &'a Judged> + use<'a> {
        let ranks = self.ranked.of(&(level.clone(), kind));
        ranks.filter_map(|(_, key)| self.judged.get(key))
    }

    /// The policies of a kind at a place, from the outermost to the innermost; of several at one
    /// level the oldest first. One on an object and a section of it is on the object.
    pub(crate) fn at(&self, kind: Kind, place: Place<'_>) -> Vec<&Judged> {
        if self.guard_nothing() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for level in place.levels().into_iter().flatten() {
            let whole = PolicyTarget::whole(level.object.clone());
            let is_section = level.section.is_some();
            found.extend(
                self.at_level(kind, &level)
                    .filter(|judged| !(is_section && judged.policy.targets.contains(&whole))),
            );
        }
        found
    }

    /// Which policy of a kind comes first at a target.
    pub(crate) fn first(&self, kind: Kind, target: &PolicyTarget) -> Option<&ObjectKey> {
        let first = self.ranked.first(&(target.clone(), kind));
        first.map(|(_, key)| key)
    }

    /// The XTelemetryPolicy that a Gateway goes by, if it may have one.
    pub(crate) fn tracing(&self, gateway: &ObjectName) -> Option<&Judged> {
        let target = PolicyTarget::whole(ObjectKey::new(Kind::Gateway, gateway.clone()));
        self.at_level(Kind::XTelemetryPolicy, &target).next()
    }

    /// The accepted policies of an object. These are at most as many as a namespace may have.
    pub(crate) fn accepted(&self, object: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.accepted.of(object)
    }

    /// Ok if a policy decides about all its settings at a target.
    pub(crate) fn takes_effect(&self, judged: &Judged, target: &PolicyTarget) -> Verdict {
        let own = judged.policy.key();
        let (place, first) = match &judged.effect {
            Effect::Admit(_) | Effect::Close | Effect::Nothing => return Ok(()),
            Effect::Traffic(_) => match self.rivals(judged, target) {
                Some(rivals) => rivals,
                None => return Ok(()),
            },
            Effect::Tls(_)
            | Effect::BackendTraffic { .. }
            | Effect::Backend(_)
            | Effect::Trace { .. } => match self.first(own.kind, target) {
                Some(first) if *first != own => (target.named(), first),
                Some(_) | None => return Ok(()),
            },
        };
        let (kind, name) = (first.kind.as_str(), &first.name.name);
        let text =
            format!("{place} has {kind} {name}, which takes precedence (older, or first by name)");
        Err((Reason::Conflicted, text))
    }

    /// The next time at which a policy must be judged again without a change.
    pub(crate) fn next_deadline(&self) -> Option<SystemTime> {
        self.deadlines.next()
    }

    /// Removes and returns a policy whose deadline has passed.
    pub(crate) fn pop_due(&mut self, now: SystemTime) -> Option<ObjectKey> {
        self.deadlines.pop_due(now)
    }

    /// Sets the time at which a policy must be judged again without a change.
    pub(crate) fn set_deadline(&mut self, key: &ObjectKey, next: Option<SystemTime>) {
        self.deadlines.set(key, next);
    }

    /// Sets what comes of a policy. Returns the targets, former and present ones, for which
    /// something changes: where only one policy can have effect, those of which it is the first, or
    /// another one is.
    pub(crate) fn set(&mut self, key: &ObjectKey, new: Option<Judged>) -> BTreeSet<PolicyTarget> {
        let old = self.judged.remove(key);
        let [before, after] = [&old, &new].map(targets);
        let is_same = match (&old, &new) {
            (Some(old), Some(new)) => {
                old.effect == new.effect && old.policy.meta.created == new.policy.meta.created
            }
            _ => false,
        };
        let changed: BTreeSet<PolicyTarget> = if is_same {
            before.symmetric_difference(&after).cloned().collect()
        } else {
            before.union(&after).cloned().collect()
        };
        let firsts = self.firsts(key.kind, &changed);
        self.rank(key, old.as_ref(), false);
        self.rank(key, new.as_ref(), true);
        if let Some(new) = new {
            self.judged.insert(key.clone(), new);
        }
        let now = self.firsts(key.kind, &changed);
        let changed = changed.into_iter().zip(firsts.into_iter().zip(now));
        changed
            .filter(|(target, (before, after))| {
                before != after || after.as_ref() == Some(key) || adds_up(key.kind, target)
            })
            .map(|(target, _)| target)
            .collect()
    }

    fn firsts(&self, kind: Kind, targets: &BTreeSet<PolicyTarget>) -> Vec<Option<ObjectKey>> {
        let firsts = targets.iter().map(|target| self.first(kind, target));
        firsts.map(Option::<&ObjectKey>::cloned).collect()
    }

    /// Adds a policy to those of its targets, or removes it. Of those without effect there may be
    /// any number.
    fn rank(&mut self, key: &ObjectKey, judged: Option<&Judged>, there: bool) {
        let Some(judged) = judged else { return };
        let policy = &judged.policy;
        if policy.is_on_requests() && there {
            self.on_requests += 1;
        } else if policy.is_on_requests() {
            self.on_requests -= 1;
        }
        let rank = (policy.meta.created, key.clone());
        for target in &policy.targets {
            if judged.accepted.is_ok() {
                self.accepted.set(&target.object, key, there);
            }
            if judged.effect.competes() {
                self.ranked.set(&(target.clone(), key.kind), &rank, there);
            }
        }
    }
}

/// True if several policies of a kind at a target have effect, each with settings of its own.
fn adds_up(kind: Kind, target: &PolicyTarget) -> bool {
    target.object.kind != Kind::Service && kind != Kind::XTelemetryPolicy
}

fn targets(judged: &Option<Judged>) -> BTreeSet<PolicyTarget> {
    let judged = judged.iter();
    judged
        .flat_map(|judged| judged.policy.targets.iter().cloned())
        .collect()
}
