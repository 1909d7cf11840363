//! Cache of the parsed statuses of ListenerSets. There is one ListenerSet for each 64 hosts of a TenantGateway; the
//! status of the TenantGateway is made from all of them, and a change of one host changes one. Pure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Task, report};
use crate::watch::observed::ObservedObject;
use gatewright_core::inputs::ObjectKey;
use gatewright_core::tenancy::{Derived, DerivedKind, ParentState};

/// The parsed states of ListenerSets, each of one resource version.
#[derive(Default)]
pub(super) struct States(BTreeMap<Derived, State>);

struct State {
    version: Box<str>,
    stands: bool,
    state: Arc<ParentState>,
}

impl States {
    /// Calls `make` with a function that returns the state of a Gateway or ListenerSet in `seen`; see
    /// [`report::state`].
    pub(super) fn asked<T>(
        &mut self,
        seen: &BTreeMap<ObjectKey, Box<ObservedObject>>,
        stands: bool,
        make: impl FnOnce(&dyn Fn(&Derived) -> Option<Arc<ParentState>>) -> T,
    ) -> T {
        let states = RefCell::new(self);
        make(&|derived| {
            let seen = seen.get(&Task::Object(derived.clone()).key())?;
            Some(states.borrow_mut().of(derived, seen, stands))
        })
    }

    fn of(&mut self, derived: &Derived, seen: &ObservedObject, stands: bool) -> Arc<ParentState> {
        let known = self.0.get(derived).filter(|known| known.version == seen.version && known.stands == stands);
        if let Some(known) = known {
            return known.state.clone();
        }
        let state = Arc::new(report::state(seen, stands));
        // Gateways are not cached: there is one for each TenantGateway, and it is parsed when it has changed.
        if derived.kind == DerivedKind::ListenerSet {
            let known = State { version: seen.version.clone(), stands, state: state.clone() };
            self.0.insert(derived.clone(), known);
        }
        state
    }

    /// Removes the state of a deleted object.
    pub(super) fn forget(&mut self, derived: &Derived) {
        self.0.remove(derived);
    }
}
