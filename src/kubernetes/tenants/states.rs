//! Cache of the parsed statuses of ListenerSets. There is one ListenerSet for each 64 hosts of a
//! TenantGateway; the status of the TenantGateway is made from all of them, and a change of one
//! host changes one. Also how long conditions of an earlier generation count. Pure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Task, report};
use crate::watch::observed::ObservedObject;
use gatewright_core::inputs::ObjectKey;
use gatewright_core::tenancy::{Derived, DerivedKind, ParentState};

/// The time that a controller has to write conditions of a new generation. After that, those of an
/// earlier one do not count any more.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The states of Gateways and ListenerSets.
#[derive(Default)]
pub(super) struct States {
    /// The parsed states of ListenerSets, each of one resource version.
    parsed: BTreeMap<Derived, State>,
    /// The earlier generation that the conditions of an object are about, and since when they are.
    behind: BTreeMap<Derived, (i64, Instant)>,
}

struct State {
    version: Box<str>,
    stands: bool,
    state: Arc<ParentState>,
}

impl States {
    /// Calls `make` with a function that returns the state of a Gateway or ListenerSet in `seen`;
    /// see [`report::state`]. Returns also when the result changes because a controller took too
    /// long.
    pub(super) fn asked<T>(
        &mut self,
        seen: &BTreeMap<ObjectKey, Box<ObservedObject>>,
        stands: bool,
        now: Instant,
        make: impl FnOnce(&dyn Fn(&Derived) -> Option<Arc<ParentState>>) -> T,
    ) -> (T, Option<Instant>) {
        let states = RefCell::new((self, None));
        let made = make(&|derived| {
            let seen = seen.get(&Task::Object(derived.clone()).key())?;
            let (states, due) = &mut *states.borrow_mut();
            let state = states.of(derived, seen, stands);
            if !state.is_behind {
                states.behind.remove(derived);
                return Some(state);
            }
            let observed = report::observed_generation(seen);
            let behind = states
                .behind
                .entry(derived.clone())
                .or_insert((observed, now));
            if behind.0 != observed {
                *behind = (observed, now);
            }
            let until = behind.1 + PATIENCE;
            if until <= now {
                return Some(states.of(derived, seen, false));
            }
            *due = Some(due.map_or(until, |due: Instant| due.min(until)));
            Some(state)
        });
        (made, states.into_inner().1)
    }

    fn of(&mut self, derived: &Derived, seen: &ObservedObject, stands: bool) -> Arc<ParentState> {
        let known = self
            .parsed
            .get(derived)
            .filter(|known| known.version == seen.version && known.stands == stands);
        if let Some(known) = known {
            return known.state.clone();
        }
        let state = Arc::new(report::state(seen, stands));
        // Gateways are not cached: there is one for each TenantGateway, and it is parsed when it
        // has changed.
        if derived.kind == DerivedKind::ListenerSet {
            let known = State {
                version: seen.version.clone(),
                stands,
                state: state.clone(),
            };
            self.parsed.insert(derived.clone(), known);
        }
        state
    }

    /// Removes the state of a deleted object.
    pub(super) fn forget(&mut self, derived: &Derived) {
        self.parsed.remove(derived);
        self.behind.remove(derived);
    }
}
