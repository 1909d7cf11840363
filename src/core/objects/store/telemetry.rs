//! XTelemetryPolicies, and the Gateways that they are about.

use std::sync::Arc;

use super::tables::Indexed;
use super::{Replaced, Store};
use crate::inputs::TelemetryPolicy;
use crate::model::ObjectName;

impl Store {
    /// The XTelemetryPolicies of a Gateway, in order of precedence: the oldest first, then by name
    /// (GEP-4768).
    pub fn telemetry_policies(
        &self,
        gateway: &ObjectName,
    ) -> impl Iterator<Item = &Arc<TelemetryPolicy>> {
        self.indexes
            .telemetry_by_gateway
            .of(gateway)
            .filter_map(|(_, name)| self.tables.telemetry.get(name))
    }
}

impl Indexed for TelemetryPolicy {
    fn index(&self, store: &mut Store, there: bool) {
        let name = &self.meta.name;
        let rank = (self.meta.created, name.clone());
        let indexes = &mut store.indexes;
        for gateway in &self.gateways {
            indexes.telemetry_by_gateway.set(gateway, &rank, there);
        }
        let Some(collector) = self.collector() else {
            return;
        };
        indexes
            .telemetry_by_collector
            .set(&collector.name, name, there);
        if collector.name.namespace != name.namespace {
            indexes
                .telemetry_across
                .set(&collector.name.namespace, name, there);
        }
    }

    fn replaced(_: &mut Store, old: Option<&Arc<Self>>, _: Option<&Arc<Self>>) -> Replaced {
        Replaced {
            traced: old.map(|old| old.gateways.clone()).unwrap_or_default(),
            ..Replaced::default()
        }
    }
}
