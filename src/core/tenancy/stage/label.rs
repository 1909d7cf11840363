//! The stage that decides to which Gateway a namespace attaches, and its label.

use std::sync::Arc;

use crate::rule::names::GATEWAY_LABEL;
use crate::state::claims::Claims;
use crate::state::dirty::Dirty;
use crate::state::namespaces::Namespaces;
use crate::state::tenants::Tenants;
use crate::{ATTACHED_BY, Patch};

/// The states that the stage reads and writes.
pub(crate) struct Labelling<'a> {
    pub(crate) tenants: &'a Tenants,
    pub(crate) claims: &'a Claims,
    pub(crate) namespaces: &'a mut Namespaces,
}

impl Labelling<'_> {
    /// Decides a namespace's label. A label of another writer is never changed; of two owners the
    /// first keeps it.
    pub(crate) fn label(self, name: &Arc<str>, dirty: &mut Dirty) {
        let before = self.namespaces.gateway_of(name);
        let patch = self.patch(name);
        if self.namespaces.set_patch(name, patch.clone()) {
            dirty.patch_namespace(name.clone(), patch);
        }
        let after = self.namespaces.gateway_of(name);
        let member = self.namespaces.member_of(name).cloned();
        for gateway in before.iter().chain(&member).chain(&after) {
            dirty.reconciled.extend(
                self.tenants
                    .in_namespace(gateway)
                    .filter(|t| self.tenants.resolved(t).is_none_or(|v| !v.mode.per_host()))
                    .cloned(),
            );
        }
        if member != after {
            self.namespaces.join(name, after);
            dirty.claims.extend(self.claims.within(name));
        }
        dirty
            .readiness
            .extend(self.namespaces.expecting(name).cloned());
    }

    fn patch(&self, name: &Arc<str>) -> Patch {
        let Some(namespace) = self.namespaces.get(name) else {
            return Patch::Leave;
        };
        let label = namespace.labels.get(GATEWAY_LABEL);
        let by = namespace.annotations.get(ATTACHED_BY);
        let kept = by.filter(|by| {
            self.namespaces
                .expecting(name)
                .any(|tenant| *tenant.namespace == **by)
        });
        // The namespaces of a TenantGateway that was never carried out are unknown.
        let unknown = by.is_some_and(|by| {
            self.tenants
                .in_namespace(by)
                .any(|tenant| self.tenants.is_unmanaged(tenant))
        });
        match (label, by, kept) {
            (Some(label), Some(_), Some(kept)) if label == kept => Patch::Leave,
            (_, Some(_), None) if unknown => Patch::Leave,
            (_, Some(_), Some(kept)) => Patch::Set(Arc::from(kept.as_str())),
            (Some(label), Some(by), None) if label != by => Patch::Disown,
            (None, ..) | (Some(_), Some(_), None) => match self.namespaces.expecting(name).next() {
                Some(first) => Patch::Set(first.namespace.clone()),
                None if by.is_some() => Patch::Strip,
                None => Patch::Leave,
            },
            (Some(_), None, _) => Patch::Leave,
        }
    }
}
