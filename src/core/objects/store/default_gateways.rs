//! Routes that want default Gateways, and Gateways whose routes tenancy decides.

use super::Store;
use crate::inputs::{ParentKey, RouteKey};
use crate::model::ObjectName;

impl Store {
    /// The routes that reach a parent: those that name it, and where it is a default Gateway those
    /// that want one.
    pub fn routes_reaching(
        &self,
        parent: &ParentKey,
        is_default: bool,
    ) -> impl Iterator<Item = &RouteKey> {
        let defaulted = is_default.then(|| self.defaulted_routes());
        self.indexes
            .routes_by_parent
            .of(parent)
            .chain(defaulted.into_iter().flatten())
    }

    /// The routes that want default Gateways.
    pub fn defaulted_routes(&self) -> impl Iterator<Item = &RouteKey> {
        self.defaulted.iter()
    }

    /// True if a TenantGateway decides which hostnames routes have at a Gateway.
    pub fn is_governed(&self, gateway: &ObjectName) -> bool {
        self.governed.contains(gateway)
    }

    /// Notes whether a TenantGateway decides that. Whether that is new.
    pub fn set_governed(&mut self, gateway: &ObjectName, governs: bool) -> bool {
        if governs {
            self.governed.insert(gateway.clone())
        } else {
            self.governed.remove(gateway)
        }
    }
}
