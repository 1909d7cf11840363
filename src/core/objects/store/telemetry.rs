//! XTelemetryPolicies, and the Gateways that they are about.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Store;
use crate::inputs::TelemetryPolicy;
use crate::model::ObjectName;

/// The target Gateways of a policy.
pub(super) fn traced(policy: Option<&TelemetryPolicy>) -> BTreeSet<ObjectName> {
    policy
        .map(|policy| policy.gateways.clone())
        .unwrap_or_default()
}

impl Store {
    /// An XTelemetryPolicy by name.
    pub fn telemetry_policy(&self, name: &ObjectName) -> Option<&Arc<TelemetryPolicy>> {
        self.telemetry.get(name)
    }

    /// The XTelemetryPolicies of a Gateway, in order of precedence: the oldest first, then by name
    /// (GEP-4768).
    pub fn telemetry_policies(
        &self,
        gateway: &ObjectName,
    ) -> impl Iterator<Item = &Arc<TelemetryPolicy>> {
        self.indexes
            .telemetry_by_gateway
            .of(gateway)
            .filter_map(|(_, name)| self.telemetry.get(name))
    }

    pub(super) fn index_telemetry(
        &mut self,
        old: Option<&TelemetryPolicy>,
        new: Option<&TelemetryPolicy>,
    ) {
        for (policy, there) in [(old, false), (new, true)] {
            let Some(policy) = policy else { continue };
            let name = &policy.meta.name;
            let rank = (policy.meta.created, name.clone());
            for gateway in &policy.gateways {
                self.indexes.telemetry_by_gateway.set(gateway, &rank, there);
            }
            let Some(collector) = policy.collector() else {
                continue;
            };
            self.indexes
                .telemetry_by_collector
                .set(&collector.name, name, there);
            if collector.name.namespace != name.namespace {
                self.indexes
                    .telemetry_across
                    .set(&collector.name.namespace, name, there);
            }
        }
    }
}
