//! The last states of the configuration by digest, and the generations in which each view had them.

use std::collections::{BTreeMap, VecDeque};

use xds::Generation;

use crate::fleet_views::{PerView, ViewId};

/// The maximum number of states: a record of another replica about an older one adds nothing.
const STATES: usize = 1024;

/// The last states, in order. A view is noted only where it changes, so that the cost of a state
/// depends on its changes and not on the number of views.
#[derive(Default)]
pub(super) struct States {
    /// The digest of each state, and its number.
    states: VecDeque<(u64, u64)>,
    views: PerView<VecDeque<StateGenerations>>,
}

/// The generations of a view at the begin and the end of a state.
#[derive(Clone, Copy)]
struct StateGenerations {
    number: u64,
    since: Generation,
    newest: Generation,
}

impl States {
    /// Notes the state that was just published, and the generations of the views that changed with
    /// it.
    pub(super) fn note(&mut self, digest: u64, changed: &BTreeMap<ViewId, Generation>) {
        let number = match self.states.back() {
            Some((last, number)) if *last == digest => *number,
            last => {
                let number = last.map_or(0, |(_, number)| number + 1);
                self.states.push_back((digest, number));
                number
            }
        };
        if self.states.len() > STATES {
            self.states.pop_front();
        }
        let oldest = self.states.front().map_or(0, |(_, number)| *number);
        for (view, generation) in changed {
            let spans = self.views.entry(*view);
            match spans.back_mut() {
                Some(last) if last.number == number => last.newest = *generation,
                _ => spans.push_back(StateGenerations {
                    number,
                    since: *generation,
                    newest: *generation,
                }),
            }
            while spans.get(1).is_some_and(|next| next.number <= oldest) {
                spans.pop_front();
            }
        }
    }

    /// Removes a view.
    pub(super) fn forget(&mut self, view: ViewId) {
        self.views.remove(view);
    }

    /// Returns the present state.
    pub(super) fn present(&self) -> u64 {
        self.states.back().map_or(0, |(digest, _)| *digest)
    }

    /// Returns the generation of a view with which the present state came.
    pub(super) fn since(&self, view: ViewId) -> Generation {
        let last = self.views.get(view).and_then(VecDeque::back);
        let number = self.states.back().map(|(_, number)| *number);
        last.map_or(0, |span| {
            if Some(span.number) == number {
                span.since
            } else {
                span.newest
            }
        })
    }

    /// Returns the newest generation of a view in which it had a state.
    pub(super) fn newest(&self, digest: u64, view: ViewId) -> Option<Generation> {
        let (_, number) = self.states.iter().rev().find(|(had, _)| *had == digest)?;
        let spans = self.views.get(view);
        let last = spans.and_then(|spans| spans.iter().rev().find(|span| span.number <= *number));
        // A view that never changed has the state since its creation.
        if spans.is_none_or(VecDeque::is_empty) {
            Some(0)
        } else {
            last.map(|span| span.newest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet_views::FleetViews;

    #[test]
    fn a_view_has_a_state_since_it_last_changed() {
        let views = FleetViews::apart();
        let [a, b] = [0, 1].map(|at| views.of_many().nth(at).expect("two"));
        let mut states = States::default();
        assert_eq!(states.present(), 0, "there is no state yet");
        assert_eq!(states.since(a), 0, "the view has not changed");
        assert_eq!(states.newest(7, a), None, "nothing was acknowledged");
        states.note(7, &BTreeMap::from([(a, 1), (b, 2)]));
        states.note(7, &BTreeMap::from([(a, 3)]));
        assert_eq!(states.present(), 7, "there is a state for each change");
        assert_eq!(states.since(a), 1, "the view has its first state");
        assert_eq!(states.newest(7, a), Some(3), "the newest state is found");
        states.note(8, &BTreeMap::from([(a, 4)]));
        assert_eq!(states.since(a), 4, "the changed view has a new state");
        assert_eq!(states.since(b), 2, "the other one keeps its own");
        assert_eq!(
            states.newest(7, a),
            Some(3),
            "the older acknowledgement counts"
        );
        assert_eq!(states.newest(8, a), Some(4), "the newer one counts");
        assert_eq!(states.newest(7, b), Some(2), "the view changed before that");
        assert_eq!(states.newest(8, b), Some(2), "it did not change since");
        assert_eq!(states.newest(9, b), None, "an unknown state says nothing");
        // A state that recurs is a new one, and the newest counts.
        states.note(7, &BTreeMap::from([(b, 5)]));
        assert_eq!(states.newest(7, a), Some(4), "the first view is up to date");
        assert_eq!(
            states.newest(7, b),
            Some(5),
            "the second one has the newer state"
        );
        assert_eq!(states.newest(8, b), Some(2), "the old one is found still");
    }

    #[test]
    fn states_are_as_many_as_are_remembered_and_views_as_many_as_changed() {
        let views = FleetViews::apart();
        let mut states = States::default();
        let [a, b] = [0, 1].map(|at| views.of_many().nth(at).expect("two"));
        states.note(0, &BTreeMap::from([(b, 1)]));
        for digest in 1..5000_u64 {
            states.note(digest, &BTreeMap::from([(a, digest)]));
        }
        assert_eq!(states.states.len(), STATES, "no more states are kept");
        assert_eq!(
            states.views[b].len(),
            1,
            "a view that did not change has one"
        );
        assert!(states.views[a].len() <= STATES + 1);
        assert_eq!(states.newest(4999, b), Some(1), "the newest state is known");
        assert_eq!(states.newest(1, a), None, "a forgotten one is not");
        states.forget(a);
        assert_eq!(states.since(a), 0);
    }
}
