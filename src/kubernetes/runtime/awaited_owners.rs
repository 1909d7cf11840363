//! The claims of the first start for which Envoys wait. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gatewright_core::ownership::Ownable;

/// The time without progress after which Envoys wait no longer: what has an owner must not wait for
/// what cannot get one.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest time between two looks at all of them.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Claims without a recorded owner. There may be tens of thousands, so that not every event looks
/// at all of them: before as many are decided as there are, some are not.
pub(super) struct AwaitedOwners {
    names: BTreeSet<Ownable>,
    /// The number of records that came since the last look.
    recorded: usize,
    looked: Instant,
    /// When one of them got its owner last.
    progress: Instant,
}

/// Whether Envoys wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// They do.
    Goes,
    /// Everything has an owner that can get one.
    Over,
    /// So many got no owner in time; the first of them.
    TooLong(usize, Ownable),
}

impl AwaitedOwners {
    pub(super) fn new(names: BTreeSet<Ownable>, now: Instant) -> Self {
        Self {
            names,
            recorded: 0,
            looked: now,
            progress: now,
        }
    }

    /// Returns their number, as of the last look.
    pub(super) fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there are more claims than records, of which this many are not taken in yet.
    pub(super) fn lacks_some(&self, more: usize) -> bool {
        self.recorded + more < self.names.len()
    }

    /// Takes in that this many records came.
    pub(super) fn record(&mut self, count: usize) {
        self.recorded += count;
    }

    /// Returns whether Envoys wait. `refused` is the number of claims that cannot be recorded, and
    /// `is_undecided` tells whether one may still get an owner.
    pub(super) fn wait(
        &mut self,
        now: Instant,
        refused: usize,
        is_undecided: impl Fn(&Ownable) -> bool,
    ) -> Wait {
        let is_due = now.duration_since(self.looked) >= LOOK_AGAIN;
        if self.recorded + refused < self.names.len() && !is_due {
            return Wait::Goes;
        }
        (self.recorded, self.looked) = (0, now);
        let before = self.names.len();
        self.names.retain(is_undecided);
        if self.names.len() < before {
            self.progress = now;
        }
        match self.names.first() {
            None => Wait::Over,
            Some(first) if now.duration_since(self.progress) >= PATIENCE => {
                Wait::TooLong(self.names.len(), first.clone())
            }
            Some(_) => Wait::Goes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use gatewright_core::model::Hostname;

    use super::*;

    fn named(number: usize) -> Ownable {
        let name = format!("h{number:05}.example.org");
        Ownable::Hostname(Hostname::parse(&name).expect("a hostname"))
    }

    #[test]
    fn the_looks_of_a_start_grow_with_its_claims_and_not_with_their_square() {
        for count in [100, 10_000] {
            let start = Instant::now();
            let mut awaited = AwaitedOwners::new((0..count).map(named).collect(), start);
            let (looked, left) = (Cell::new(0), RefCell::new(awaited.names.clone()));
            let is_undecided = |name: &Ownable| {
                looked.set(looked.get() + 1);
                left.borrow().contains(name)
            };
            // Each record is an event of its own.
            for number in 0..count {
                assert_eq!(awaited.wait(start, 0, is_undecided), Wait::Goes);
                left.borrow_mut().remove(&named(number));
                awaited.record(1);
            }
            assert_eq!(awaited.wait(start, 0, is_undecided), Wait::Over);
            assert_eq!(looked.get(), count, "each is looked at once");
        }
    }

    #[test]
    fn refused_and_withdrawn_claims_hold_up_nobody() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut awaited = AwaitedOwners::new((0..3).map(named).collect(), start);
        assert_eq!(awaited.wait(start, 1, |_| true), Wait::Goes);
        awaited.record(2);
        let refused = |name: &Ownable| *name == named(2);
        assert_eq!(
            awaited.wait(start, 1, |name| !refused(name) && *name == named(1)),
            Wait::Goes,
            "one of the records was of another name"
        );
        assert_eq!(awaited.wait(start, 1, |_| false), Wait::Over, "withdrawn");

        let mut awaited = AwaitedOwners::new((0..3).map(named).collect(), start);
        assert_eq!(awaited.wait(later(4), 0, |_| false), Wait::Goes);
        assert_eq!(awaited.wait(later(5), 0, |_| false), Wait::Over);

        let mut awaited = AwaitedOwners::new((0..3).map(named).collect(), start);
        assert_eq!(awaited.wait(later(59), 0, |_| true), Wait::Goes);
        assert_eq!(
            awaited.wait(later(65), 0, |_| true),
            Wait::TooLong(3, named(0))
        );
    }
}
