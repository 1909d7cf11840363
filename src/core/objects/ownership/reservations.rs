//! Reservations: a released hostname stays reserved for its namespace for a while, so that nobody
//! takes over a name whose DNS still points here. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most names that are reserved for one namespace; further released names are free at once.
const RESERVED: usize = 1_000;

/// Reservations by the time of release, and their number by namespace. Times are seconds since the
/// epoch.
#[derive(Debug)]
pub(super) struct Reservations<K> {
    hold: u64,
    by_time: BTreeSet<(u64, K)>,
    count: BTreeMap<Arc<str>, usize>,
}

impl<K: Ord + Clone> Reservations<K> {
    /// Creates an empty set of reservations, which last for `hold` seconds.
    pub(super) fn new(hold: u64) -> Self {
        Self {
            hold,
            by_time: BTreeSet::new(),
            count: BTreeMap::new(),
        }
    }

    /// Adds a reservation for a namespace that released an item at this time.
    pub(super) fn add(&mut self, what: &K, namespace: &Arc<str>, released: u64) {
        if self.by_time.insert((released, what.clone())) {
            *self.count.entry(namespace.clone()).or_insert(0) += 1;
        }
    }

    /// Removes the reservation for a namespace that released an item at this time.
    pub(super) fn remove(&mut self, what: &K, namespace: &Arc<str>, released: u64) {
        if self.by_time.remove(&(released, what.clone()))
            && let Some(count) = self.count.get_mut(namespace)
        {
            *count -= 1;
            if *count == 0 {
                self.count.remove(namespace);
            }
        }
    }

    /// Returns the time of release of a reserved item that its namespace claims no more; `None` if
    /// it is free. `released` is the recorded time of release, if there is one.
    pub(super) fn since(
        &self,
        namespace: &Arc<str>,
        released: Option<u64>,
        now: u64,
    ) -> Option<u64> {
        let is_full = released.is_none()
            && self
                .count
                .get(namespace)
                .is_some_and(|count| *count >= RESERVED);
        let released = released.unwrap_or(now);
        (released.saturating_add(self.hold) > now && !is_full).then_some(released)
    }

    /// The items whose reservation has ended.
    pub(super) fn expired(&self, now: u64) -> impl Iterator<Item = &K> {
        self.by_time
            .iter()
            .take_while(move |(released, _)| released.saturating_add(self.hold) <= now)
            .map(|(_, what)| what)
    }

    /// The end of the next reservation.
    pub(super) fn next_expiry(&self) -> Option<u64> {
        self.by_time
            .first()
            .map(|(released, _)| released.saturating_add(self.hold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_reserved_for_a_while_and_no_more_than_so_many_are() {
        let mut reserved = Reservations::new(100);
        let a = Arc::from("a");
        let b = Arc::from("b");
        assert_eq!(reserved.since(&a, None, 5), Some(5));
        reserved.add(&0, &a, 5);
        assert_eq!(reserved.since(&a, Some(5), 104), Some(5), "it is reserved");
        assert_eq!(
            reserved.since(&a, Some(5), 105),
            None,
            "and no longer than the hold time"
        );
        assert_eq!(reserved.next_expiry(), Some(105), "the end is known");
        assert_eq!(reserved.expired(104).count(), 0, "it has not come yet");
        assert_eq!(reserved.expired(105).count(), 1, "it has come");
        (1..RESERVED).for_each(|name| reserved.add(&name, &a, 6));
        assert_eq!(reserved.since(&a, None, 7), None, "the older one gives way");
        assert_eq!(
            reserved.since(&b, None, 7),
            Some(7),
            "the newer one is reserved"
        );
        assert_eq!(
            reserved.since(&a, Some(6), 7),
            Some(6),
            "those that are reserved stay so"
        );
        reserved.remove(&0, &a, 5);
        reserved.remove(&0, &a, 5);
        assert_eq!(
            reserved.since(&a, None, 7),
            Some(7),
            "the name is reserved anew"
        );
        assert_eq!(
            reserved.next_expiry(),
            Some(106),
            "the end is that of the next one"
        );
        assert_eq!(Reservations::<u8>::new(0).since(&a, None, 7), None);
    }
}
