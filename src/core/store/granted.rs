//! What tenancy grants to routes, held beside them.

use super::Store;
use crate::model::HostnameGrant;
use crate::translate::{Grants, ParentKey, RouteKey};

impl Store {
    /// Takes in what tenancy grants a route. Returns whether that is something else for a route that is there.
    pub(crate) fn set_grants(&mut self, key: &RouteKey, grants: Grants) -> bool {
        if self.granted.get(key).map_or(grants.is_empty(), |held| *held == grants) {
            return false;
        }
        let route = self.routes.get(key).cloned();
        if let Some(route) = &route {
            self.index_parents(key, route, false);
        }
        if grants.is_empty() {
            self.granted.remove(key);
        } else {
            self.granted.insert(key.clone(), grants);
        }
        if let Some(route) = &route {
            self.index_parents(key, route, true);
        }
        route.is_some()
    }

    /// What tenancy grants a route at a parent that the route names; `None` where it has no say.
    pub(crate) fn grant(&self, route: &RouteKey, parent: &ParentKey) -> Option<&HostnameGrant> {
        self.granted.get(route)?.at(parent)
    }
}
