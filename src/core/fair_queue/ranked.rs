//! The queued changes of one namespace, in the order in which they are taken.

use std::collections::BTreeMap;

use super::Subject;
use crate::inputs::{Kind, ObjectChange, RouteKind, SetKind};
use crate::translate::Change;

/// The number of changes that may overtake the oldest one. A namespace that changes without end
/// does not keep its deletions from taking effect.
const OVERTAKING: u64 = 8192;

/// The rank of a change among those of its namespace. What others refer to comes before them and
/// goes after them, so that no route leads to a Service whose endpoints are in a later batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// What routes and listeners refer to.
    Referent,
    /// Gateways and ListenerSets.
    Parent,
    /// Routes.
    Route,
    /// Routes that are deleted.
    RouteGone,
    /// Other objects that are deleted.
    Gone,
}

impl Rank {
    pub(super) fn of(change: &Change) -> Self {
        let Change::Object(change) = change else {
            return Rank::Referent;
        };
        let rank = match change.key().kind {
            Kind::Gateway | Kind::TenantGateway => Rank::Parent,
            kind if SetKind::of(kind).is_some() => Rank::Parent,
            kind if RouteKind::of(kind).is_some() => Rank::Route,
            _ => Rank::Referent,
        };
        match change {
            ObjectChange::Put(_) => rank,
            ObjectChange::Delete(_) if rank == Rank::Route => Rank::RouteGone,
            ObjectChange::Delete(_) => Rank::Gone,
        }
    }
}

/// The rank of a queued change, and its number: the older one has the lower number.
pub(super) type Place = (Rank, u64);

/// The subjects of the queued changes of a namespace.
#[derive(Default)]
pub(super) struct Ranked {
    subjects: BTreeMap<Place, Subject>,
    /// The ranks by number.
    ages: BTreeMap<u64, Rank>,
    /// The number of changes that were taken before the oldest one.
    overtaken: u64,
}

impl Ranked {
    pub(super) fn is_empty(&self) -> bool {
        self.subjects.is_empty()
    }

    pub(super) fn insert(&mut self, place: Place, subject: Subject) {
        let (rank, number) = place;
        self.ages.insert(number, rank);
        self.subjects.insert(place, subject);
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Subject> {
        self.ages.remove(&place.1);
        self.subjects.remove(&place)
    }

    /// The number of the oldest one.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.ages.keys().next().copied()
    }

    /// Takes the next one: of the lowest rank the oldest one, or the oldest of all if it was
    /// overtaken too often.
    pub(super) fn pop(&mut self) -> Option<Subject> {
        let (oldest, rank) = self.ages.first_key_value()?;
        let oldest = (*rank, *oldest);
        let next = match self.subjects.first_key_value()? {
            _ if self.overtaken >= OVERTAKING => oldest,
            (first, _) => *first,
        };
        self.overtaken = if next == oldest {
            0
        } else {
            self.overtaken + 1
        };
        self.remove(next)
    }
}
