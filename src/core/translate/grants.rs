//! What tenancy grants to routes.

use super::key::ParentKey;
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
