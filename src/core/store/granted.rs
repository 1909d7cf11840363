//! What tenancy grants to routes, held beside them.

use super::Store;
use crate::inputs::{ParentKey, RouteKey};
use crate::model::HostnameGrant;

/// What tenancy grants a route, at each parent that the route names and where tenancy has a say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grants(Vec<(ParentKey, HostnameGrant)>);

impl Grants {
    /// Whether tenancy has no say at any parent.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is granted at a parent; `None` where tenancy has no say. A route names a few parents only.
    pub fn at(&self, parent: &ParentKey) -> Option<&HostnameGrant> {
        self.0.iter().find(|(of, _)| of == parent).map(|(_, grant)| grant)
    }
}

impl FromIterator<(ParentKey, HostnameGrant)> for Grants {
    /// The first grant at a parent counts: parentRefs to several sections of one parent lead to the same.
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
