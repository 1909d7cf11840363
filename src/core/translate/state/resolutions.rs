//! Resolved references of the rules of routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fingerprint::fingerprint;
use crate::key::{RouteKey, Verdict};
use gatewright_objects::inputs::RouteKind;
use gatewright_objects::model::{Match, Reason, Rule};

/// The rules of a route, ready to be served under any hostname.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolved {
    /// Its rules in order, without those that cannot be matched.
    pub(crate) rules: Vec<ResolvedRule>,
    /// Ok if all references resolve.
    pub(crate) references: Verdict,
    /// Why some rules or hostnames are not served as written, while others are.
    pub(crate) partial: Option<String>,
    /// A note about a deviation from the written rules that the specification permits.
    pub(crate) note: Option<String>,
    /// True if its requests are counted by themselves.
    pub(crate) counted: bool,
    /// Why no rule of the route forwards requests.
    pub(crate) invalid: Option<(Reason, String)>,
}

/// The part of a [`Resolved`] that is stored: its rules are resolved again when they are served.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolution {
    rules: u64,
    pub(crate) references: Verdict,
    pub(crate) partial: Option<Box<str>>,
    pub(crate) note: Option<Box<str>>,
    pub(crate) counted: bool,
    pub(crate) invalid: Option<Box<(Reason, String)>>,
}

impl Resolution {
    pub(crate) fn of(resolved: Resolved) -> Self {
        Self {
            rules: fingerprint(&resolved.rules),
            references: resolved.references,
            partial: resolved.partial.map(Box::from),
            note: resolved.note.map(Box::from),
            counted: resolved.counted,
            invalid: resolved.invalid.map(Box::new),
        }
    }

    /// True if the rules of the route take part at its hostnames. Those of a route with an invalid
    /// value answer 500: a wider route must not serve their requests without their filters.
    pub(crate) fn takes_requests(&self, kind: RouteKind) -> bool {
        match self.invalid.as_deref() {
            None => true,
            Some((reason, _)) => kind.has_requests() && *reason != Reason::LimitReached,
        }
    }
}

/// The resolved references of each route.
#[derive(Default)]
pub(crate) struct Resolutions {
    of: BTreeMap<RouteKey, Resolution>,
}

impl Resolutions {
    /// The resolution of a route.
    pub(crate) fn get(&self, key: &RouteKey) -> Option<&Resolution> {
        self.of.get(key)
    }

    /// All resolutions, sorted by route.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RouteKey, &Resolution)> {
        self.of.iter()
    }

    /// Sets or removes the resolution of a route. Returns whether it changed.
    pub(crate) fn set(&mut self, key: &RouteKey, new: Option<Resolution>) -> bool {
        match new {
            None => self.of.remove(key).is_some(),
            Some(new) => {
                let is_same = self.of.get(key) == Some(&new);
                self.of.insert(key.clone(), new);
                !is_same
            }
        }
    }
}

/// A rule with its place in the route.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct ResolvedRule {
    /// Its index in the route.
    pub(crate) index: usize,
    /// Its own name, if it has one, by which policies are attached to it.
    pub(crate) section: Option<Arc<str>>,
    /// The name for stats: the rule's name, or its index.
    pub(crate) name: Arc<str>,
    /// Its matches.
    pub(crate) matches: Box<[Match]>,
    /// The action. A redirect's port is as written.
    pub(crate) rule: Arc<Rule>,
}
