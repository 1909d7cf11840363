//! What is to be done, each once and in order.

/// A queue of what a change touches. It is sorted when it is begun, not with each item: most items come together.
pub(super) struct Todo<T> {
    /// What is worked off, the last first.
    now: Vec<T>,
    /// What came since, with repetitions.
    next: Vec<T>,
}

impl<T> Default for Todo<T> {
    fn default() -> Self {
        Self { now: Vec::new(), next: Vec::new() }
    }
}

impl<T: Ord> Todo<T> {
    /// Adds an item, unless it waits already.
    pub(super) fn insert(&mut self, item: T) {
        let waits = self.next.last() == Some(&item) || self.now.binary_search_by(|held| item.cmp(held)).is_ok();
        if !waits {
            self.next.push(item);
        }
    }

    /// Takes the next item: the first of those that were there when the last round ended.
    pub(super) fn pop(&mut self) -> Option<T> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_done_once_and_what_comes_meanwhile_comes_after() {
        let mut todo = Todo::default();
        todo.extend([3, 1, 3, 2, 1]);
        assert_eq!(todo.pop(), Some(1));
        // 2 waits already, 1 is to be done again.
        todo.extend([2, 0, 1, 5]);
        let rest: Vec<_> = std::iter::from_fn(|| todo.pop()).collect();
        assert_eq!(rest, [2, 3, 0, 1, 5]);
    }
}
