//! The grants of tenancy to routes, stored beside the routes.

use super::Store;
use crate::inputs::{ParentKey, RouteKey};
use crate::model::HostnameGrant;

/// The grants of a route, one for each parent that the route refers to and where hostnames must be
/// granted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteGrants(Vec<(ParentKey, HostnameGrant)>);

impl RouteGrants {
    /// True if no parent requires a grant.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The grant at a parent; `None` if hostnames need no grant there. A linear search: a route
    /// refers to a few parents only.
    pub fn at(&self, parent: &ParentKey) -> Option<&HostnameGrant> {
        self.0
            .iter()
            .find(|(of, _)| of == parent)
            .map(|(_, grant)| grant)
    }
}

impl FromIterator<(ParentKey, HostnameGrant)> for RouteGrants {
    /// The first grant at a parent counts: parentRefs to several sections of one parent have the
    /// same grant.
    fn from_iter<I: IntoIterator<Item = (ParentKey, HostnameGrant)>>(all: I) -> Self {
        let mut grants = Self::default();
        for (parent, grant) in all {
            if grants.at(&parent).is_none() {
                grants.0.push((parent, grant));
            }
        }
        grants.0.shrink_to_fit();
        grants
    }
}

impl Store {
    /// Sets the grants of a route. Returns whether that changed an existing route.
    pub fn set_grants(&mut self, key: &RouteKey, grants: RouteGrants) -> bool {
        if self
            .granted
            .get(key)
            .map_or(grants.is_empty(), |held| *held == grants)
        {
            return false;
        }
        let route = self.tables.routes.get(key).cloned();
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

    /// The grant of a route at a parent that the route refers to; `None` if hostnames need no grant
    /// there.
    pub fn grant(&self, route: &RouteKey, parent: &ParentKey) -> Option<&HostnameGrant> {
        self.granted.get(route)?.at(parent)
    }
}
