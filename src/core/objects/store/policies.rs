//! Policies, what they are about, and what they refer to.

use std::sync::Arc;

use super::tables::Indexed;
use super::{Replaced, Store};
use crate::inputs::Policy;

impl Indexed for Policy {
    fn index(&self, store: &mut Store, there: bool) {
        let key = self.key();
        let indexes = &mut store.indexes;
        for target in &self.targets {
            indexes.policies_by_target.set(&target.object, &key, there);
        }
        for reference in self.references() {
            let name = &reference.name;
            indexes.policies_by_reference.set(name, &key, there);
            if name.namespace != key.name.namespace {
                indexes.policies_across.set(&name.namespace, &key, there);
            }
        }
    }

    fn replaced(_: &mut Store, old: Option<&Arc<Self>>, _: Option<&Arc<Self>>) -> Replaced {
        Replaced {
            policy: old.cloned(),
            ..Replaced::default()
        }
    }
}
