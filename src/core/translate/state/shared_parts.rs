//! Parts of Envoy's configuration that objects of a namespace share: a cluster, or a port. The
//! oldest object that has a part pays for it, so that it is counted once.

use std::collections::BTreeSet;
use std::sync::Arc;

use gatewright_objects::multimap::MultiMap;

/// The objects that have each part of a namespace.
pub(crate) struct SharedParts<P, K> {
    users: MultiMap<(Arc<str>, P), (i64, K)>,
}

impl<P, K> Default for SharedParts<P, K> {
    fn default() -> Self {
        Self {
            users: MultiMap::default(),
        }
    }
}

impl<P: Ord + Clone, K: Ord + Clone> SharedParts<P, K> {
    /// Adds or removes an object of a namespace as a user of a part. Returns another object that
    /// pays more or less now.
    fn set(&mut self, namespace: &Arc<str>, part: &P, user: &(i64, K), there: bool) -> Option<K> {
        let part = (namespace.clone(), part.clone());
        let before = self.users.first(&part).cloned();
        self.users.set(&part, user, there);
        let after = self.users.first(&part);
        let other = if after == Some(user) {
            before.as_ref()
        } else {
            after
        };
        let has_changed = before.as_ref() != after;
        other
            .filter(|other| has_changed && *other != user)
            .map(|(_, key)| key.clone())
    }

    /// True if an object pays for a part.
    pub(crate) fn pays(&self, namespace: &Arc<str>, part: &P, user: &(i64, K)) -> bool {
        self.users.first(&(namespace.clone(), part.clone())) == Some(user)
    }

    /// Replaces the parts of an object, each with its creation time. Returns the other objects that
    /// pay more or less now.
    pub(crate) fn replace(
        &mut self,
        namespace: &Arc<str>,
        (old, before): (i64, BTreeSet<P>),
        (new, after): (i64, BTreeSet<P>),
        key: &K,
    ) -> BTreeSet<K> {
        let mut others = BTreeSet::new();
        for part in before
            .iter()
            .filter(|part| old != new || !after.contains(*part))
        {
            others.extend(self.set(namespace, part, &(old, key.clone()), false));
        }
        for part in after
            .iter()
            .filter(|part| old != new || !before.contains(*part))
        {
            others.extend(self.set(namespace, part, &(new, key.clone()), true));
        }
        others
    }
}
