//! What ListenerSets say of their listeners, as last read: there is one for each 64 hosts of a TenantGateway, whose status is
//! made of all of them, and one host changes one. Pure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Task, report};
use crate::watch::observed::ObservedObject;
use gatewright_core::inputs::ObjectKey;
use gatewright_core::tenancy::{Derived, DerivedKind, ParentState};

/// The states of ListenerSets, each of one version of it.
#[derive(Default)]
pub(super) struct States(BTreeMap<Derived, State>);

struct State {
    version: Box<str>,
    stands: bool,
    state: Arc<ParentState>,
}

impl States {
    /// What is made of what Gateways and ListenerSets say, as `seen` has them; see [`report::state`].
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
        // There are as many Gateways as TenantGateways, and each is looked at when it changed.
        if derived.kind == DerivedKind::ListenerSet {
            let known = State { version: seen.version.clone(), stands, state: state.clone() };
            self.0.insert(derived.clone(), known);
        }
        state
    }

    /// An object is gone.
    pub(super) fn forget(&mut self, derived: &Derived) {
        self.0.remove(derived);
    }
}
