//! Work lists with rounds: each item once and in order, unlike the sorted sets of the translation
//! (`translate/state/dirty.rs`).

use std::cmp::Ordering;
use std::hash::Hash;

use super::groups::Set;

/// A queue of items to redo. It is sorted once per round, not with each item: most items are added
/// together.
pub(crate) struct Todo<T> {
    /// The items of this round, in reverse order.
    now: Vec<T>,
    /// The items added since then, with duplicates.
    next: Vec<T>,
}

impl<T> Default for Todo<T> {
    fn default() -> Self {
        Self {
            now: Vec::new(),
            next: Vec::new(),
        }
    }
}

impl<T: Ord> Todo<T> {
    /// Adds an item, unless it is queued.
    pub(crate) fn insert(&mut self, item: T) {
        let waits = self.next.last() == Some(&item)
            || self.now.binary_search_by(|held| item.cmp(held)).is_ok();
        if !waits {
            self.next.push(item);
        }
    }

    /// Removes and returns the next item: the first of those that were queued when the round began.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.now.is_empty() {
            std::mem::swap(&mut self.now, &mut self.next);
            self.now.sort_unstable_by(|a, b| b.cmp(a));
            self.now.dedup();
        }
        self.now.pop()
    }
}

impl<T: Ord> Extend<T> for Todo<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.insert(item));
    }
}

/// A [`Todo`] of items that are referred to by number: ordered by what the numbers stand for, or by
/// arrival.
pub(crate) struct WorkList<Id> {
    now: Vec<Id>,
    next: Vec<Id>,
    waits: Set<Id>,
}

impl<Id> Default for WorkList<Id> {
    fn default() -> Self {
        Self {
            now: Vec::new(),
            next: Vec::new(),
            waits: Set::default(),
        }
    }
}

impl<Id: Copy + Eq + Hash> WorkList<Id> {
    /// Adds an item, unless it is queued.
    pub(crate) fn insert(&mut self, id: Id) {
        if self.waits.insert(id) {
            self.next.push(id);
        }
    }

    /// Removes and returns the next item; `order` sorts the items of a round.
    pub(crate) fn pop(&mut self, order: impl Fn(&Id, &Id) -> Ordering) -> Option<Id> {
        if self.now.is_empty() {
            std::mem::swap(&mut self.now, &mut self.next);
            self.now.reverse();
            // Items are mostly in order already.
            self.now.sort_by(|a, b| order(b, a));
        }
        let id = self.now.pop()?;
        self.waits.remove(&id);
        Some(id)
    }

    /// True if an item is queued.
    pub(crate) fn holds(&self, id: &Id) -> bool {
        self.waits.contains(id)
    }
}

impl<Id: Copy + Eq + Hash> Extend<Id> for WorkList<Id> {
    fn extend<I: IntoIterator<Item = Id>>(&mut self, ids: I) {
        ids.into_iter().for_each(|id| self.insert(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_done_once_and_what_comes_meanwhile_comes_after() {
        let mut todo = Todo::default();
        todo.extend([3, 1, 3, 2, 1]);
        assert_eq!(todo.pop(), Some(1));
        // 2 is queued already, 1 is to be redone.
        todo.extend([2, 0, 1, 5]);
        let rest: Vec<_> = std::iter::from_fn(|| todo.pop()).collect();
        assert_eq!(rest, [2, 3, 0, 1, 5]);
    }

    #[test]
    fn numbers_go_in_the_order_of_what_they_stand_for_or_of_coming() {
        let names = ["c", "a", "b"];
        let mut queue = WorkList::default();
        queue.extend([0, 1, 2, 1]);
        assert_eq!(queue.pop(|a: &usize, b| names[*a].cmp(names[*b])), Some(1));
        queue.extend([0, 1]);
        let rest: Vec<_> =
            std::iter::from_fn(|| queue.pop(|a, b| names[*a].cmp(names[*b]))).collect();
        assert_eq!(rest, [2, 0, 1]);
        queue.extend([2, 0, 1]);
        let coming: Vec<_> = std::iter::from_fn(|| queue.pop(|_, _| Ordering::Equal)).collect();
        assert_eq!(coming, [2, 0, 1]);
    }
}
