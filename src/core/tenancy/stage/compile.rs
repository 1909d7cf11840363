//! The stage that renders Gateways and ListenerSets.

use std::sync::Arc;

use super::other_data_plane::Selection;
use crate::delta::DerivedKind;
use crate::rule::host::Shard;
use crate::rule::names;
use crate::state::children::ChildApexes;
use crate::state::derivations::Derivations;
use crate::state::dirty::Dirty;
use crate::state::hosts::Hosts;
use crate::state::places::Places;
use crate::state::tenants::Tenants;
use gatewright_objects::inputs::Listener;
use gatewright_objects::model::ObjectName;

/// The states that the stage reads and writes.
pub(crate) struct Rendering<'a> {
    pub(crate) tenants: &'a Tenants,
    pub(crate) hosts: &'a Hosts,
    pub(crate) places: &'a Places,
    pub(crate) children: &'a ChildApexes,
    pub(crate) derivations: &'a mut Derivations,
}

impl Rendering<'_> {
    /// Renders a Gateway (shard 0) or a ListenerSet from its listeners.
    pub(crate) fn compile(self, shard: &Shard, dirty: &mut Dirty) {
        let (tenant, number) = shard;
        let (kind, name) = place_of(tenant, *number);
        let Some(valid) = self.tenants.resolved(tenant) else {
            return self
                .derivations
                .emit(self.tenants, tenant, (kind, name), None, dirty);
        };
        let items: Vec<Arc<Listener>> = self
            .places
            .in_shard(shard)
            .filter_map(|(_, listener)| listener.cloned())
            .collect();
        let value = if *number == 0 {
            let overflows = self.places.last_of(tenant).is_some_and(|number| number > 0);
            let theirs = self.places.has_sets(tenant);
            let selection = Selection {
                tenants: self.tenants,
                hosts: self.hosts,
                children: self.children,
                derivations: self.derivations,
            };
            Some(
                valid
                    .template
                    .gateway(items, overflows || theirs, &|hostname| {
                        if valid.template.own {
                            self.hosts.get(tenant, hostname)?.sole_namespace().cloned()
                        } else {
                            selection.selected_namespace_of_fixed(tenant, hostname)
                        }
                    }),
            )
        } else {
            (!items.is_empty()).then(|| valid.template.overflow(&name, items))
        };
        self.derivations
            .emit(self.tenants, tenant, (kind, name), value, dirty);
    }
}

pub(crate) fn place_of(tenant: &ObjectName, number: usize) -> (DerivedKind, String) {
    match number {
        0 => (DerivedKind::Gateway, tenant.name.to_string()),
        number => (
            DerivedKind::ListenerSet,
            names::overflow(&tenant.name, number),
        ),
    }
}
