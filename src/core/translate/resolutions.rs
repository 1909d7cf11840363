//! Resolved references of the rules of routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fingerprint::fingerprint;
use super::key::{RouteKey, Verdict};
use crate::model::{Match, Reason, Rule};

/// The rules of a route, ready to be served under any hostname.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resolved {
    /// Its rules in order, without those that cannot be matched.
    pub(super) rules: Vec<ResolvedRule>,
    /// Ok if all references resolve.
    pub(super) references: Verdict,
    /// Why some rules or hostnames are not served as written, while others are.
    pub(super) partial: Option<String>,
    /// A note about a deviation from the written rules that the specification permits.
    pub(super) note: Option<String>,
    /// True if its requests are counted by themselves.
    pub(super) counted: bool,
    /// Why nothing of the route can be served.
    pub(super) invalid: Option<(Reason, String)>,
}

/// The part of a [`Resolved`] that is stored: its rules are resolved again when they are served.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resolution {
    rules: u64,
    pub(super) references: Verdict,
    pub(super) partial: Option<Box<str>>,
    pub(super) note: Option<Box<str>>,
    pub(super) counted: bool,
    pub(super) invalid: Option<Box<(Reason, String)>>,
}

impl Resolution {
    pub(super) fn of(resolved: Resolved) -> Self {
        Self {
            rules: fingerprint(&resolved.rules),
            references: resolved.references,
            partial: resolved.partial.map(Box::from),
            note: resolved.note.map(Box::from),
            counted: resolved.counted,
            invalid: resolved.invalid.map(Box::new),
        }
    }
}

/// The resolved references of each route.
#[derive(Default)]
pub(super) struct Resolutions {
    of: BTreeMap<RouteKey, Resolution>,
}

impl Resolutions {
    /// The resolution of a route.
    pub(super) fn get(&self, key: &RouteKey) -> Option<&Resolution> {
        self.of.get(key)
    }

    /// All resolutions, sorted by route.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&RouteKey, &Resolution)> {
        self.of.iter()
    }

    /// Sets or removes the resolution of a route. Returns whether it changed.
    pub(super) fn set(&mut self, key: &RouteKey, new: Option<Resolution>) -> bool {
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
pub(super) struct ResolvedRule {
    /// Its index in the route.
    pub(super) index: usize,
    /// Its own name, if it has one, by which policies are attached to it.
    pub(super) section: Option<Arc<str>>,
    /// The name for stats: the rule's name, or its index.
    pub(super) name: Arc<str>,
    /// Its matches.
    pub(super) matches: Box<[Match]>,
    /// The action. A redirect's port is as written.
    pub(super) rule: Arc<Rule>,
}
