//! Policies, and the Services that they are about.

use std::sync::Arc;

use super::tables::Indexed;
use super::{Replaced, Store};
use crate::inputs::{AttachedPolicy, Policy};

impl Indexed for Policy {
    fn index(&self, store: &mut Store, there: bool) {
        let key = self.key();
        let indexes = &mut store.indexes;
        for target in &self.targets {
            indexes
                .policies_by_service
                .set(&target.service, &key, there);
        }
        for reference in self.references() {
            indexes.policies_by_roots.set(&reference.name, &key, there);
        }
    }

    fn replaced(store: &mut Store, old: Option<&Arc<Self>>, new: Option<&Arc<Self>>) -> Replaced {
        if let Some(new) = new {
            store.remove::<AttachedPolicy>(&new.key());
        }
        Replaced {
            policy: old.cloned(),
            ..Replaced::default()
        }
    }
}
