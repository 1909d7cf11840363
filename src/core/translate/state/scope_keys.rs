//! Scopes whose keys have one hash, of which Envoy can have one.
//!
//! Envoy (1.40) finds a scope by the 64-bit hash of its key and does not compare the key. Hashes
//! are equal by intent only: whoever chooses hostnames can look for one whose key has the hash of a
//! neighbour's. Of such units (hostnames on frontends) the first by seniority has a scope.

use std::collections::HashMap;
use std::mem;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use super::dirty::Dirty;
use super::frontend_state::Owner;
use super::parents::Parents;
use crate::key::ParentKey;
use gatewright_objects::model::{FrontendId, Hostname};

/// A hostname on a frontend.
type Unit = (FrontendId, Hostname);

/// The precedence among units whose keys have one hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seniority {
    /// A listener serves the hostname: the creation time of its parent, and the parent.
    Served(i64, ParentKey),
    /// The hostname is kept from the listener over it, or has answers to challenges alone.
    Kept,
}

impl Seniority {
    /// The seniority of a hostname that this owner serves; if it has none, of one that is kept.
    pub(crate) fn of(owner: Option<&Owner>, parents: &Parents) -> Self {
        let parent = owner.and_then(|owner| parents.get(&owner.listener.parent));
        parent.map_or(Self::Kept, |parent| {
            Self::Served(parent.created, parent.key.clone())
        })
    }
}

/// All units with a scope, by the hashes of their keys.
pub(crate) struct ScopeKeys {
    hash: fn(&FrontendId, &Hostname) -> u64,
    by_hash: HashMap<u64, SmallVec<[(Seniority, Unit); 1]>, FixedState>,
}

impl Default for ScopeKeys {
    fn default() -> Self {
        Self::hashed_by(FrontendId::scope_hash)
    }
}

impl ScopeKeys {
    /// Without units, for another hash than Envoy's.
    pub(crate) fn hashed_by(hash: fn(&FrontendId, &Hostname) -> u64) -> Self {
        let by_hash = HashMap::default();
        Self { hash, by_hash }
    }

    /// Sets the seniority of a unit; `None` if it has no scope. Marks the other unit that may have
    /// its scope now, or not any more, and the status of the owner if this one may not any more, or
    /// may again. Returns whether it may.
    pub(crate) fn place(
        &mut self,
        unit: &Unit,
        seniority: Option<Seniority>,
        owner: Option<&Owner>,
        dirty: &mut Dirty,
    ) -> bool {
        let hash = (self.hash)(&unit.0, &unit.1);
        let units = self.by_hash.entry(hash).or_default();
        let before = mem::take(units);
        let was_second = is_later(&before, unit);
        let first = before.first().map(|(_, first)| first.clone());
        units.extend(before.into_iter().filter(|(_, other)| other != unit));
        units.extend(seniority.map(|seniority| (seniority, unit.clone())));
        units.sort_unstable();
        let now = units.first().map(|(_, now)| now.clone());
        let is_second = is_later(units, unit);
        if units.is_empty() {
            self.by_hash.remove(&hash);
        }
        let has_it = now.as_ref() == Some(unit);
        if first != now {
            let others = [first, now].into_iter().flatten();
            dirty.units.extend(others.filter(|other| other != unit));
        }
        if was_second != is_second {
            let owner = owner.map(|owner| owner.listener.parent.object());
            dirty.statuses.extend(owner);
        }
        has_it
    }

    /// True if a unit has no scope because another has that hash.
    pub(crate) fn is_second(&self, frontend: &FrontendId, hostname: &Hostname) -> bool {
        let hash = (self.hash)(frontend, hostname);
        let units = self.by_hash.get(&hash);
        units.is_some_and(|units| is_later(units, &(frontend.clone(), hostname.clone())))
    }
}

/// True if a unit is among these, and not the first.
fn is_later(units: &[(Seniority, Unit)], unit: &Unit) -> bool {
    units.iter().skip(1).any(|(_, later)| later == unit)
}
