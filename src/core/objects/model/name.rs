//! The name of a namespaced object.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Namespace and name of an object. Ordered and printed as `namespace/name`.
///
/// A pointer: maps hold dozens of copies of names for each host. Its parts are read as fields.
#[derive(Clone)]
pub struct ObjectName(Arc<Parts>);

/// The parts of an [`ObjectName`].
#[derive(PartialEq, Eq, Hash)]
pub struct Parts {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// The name within the namespace.
    pub name: Arc<str>,
}

impl ObjectName {
    /// Joins a namespace and a name.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Parts {
            namespace: namespace.into(),
            name: name.into(),
        }))
    }

    /// True if another copy of this pointer exists.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Deref for ObjectName {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl PartialEq for ObjectName {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for ObjectName {}

impl PartialOrd for ObjectName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectName {
    fn cmp(&self, other: &Self) -> Ordering {
        // Stored names are shared, and so are their namespaces: most comparisons end with equal
        // pointers.
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        let namespaces = if Arc::ptr_eq(&self.namespace, &other.namespace) {
            Ordering::Equal
        } else {
            self.namespace.cmp(&other.namespace)
        };
        namespaces.then_with(|| self.name.cmp(&other.name))
    }
}

impl Hash for ObjectName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
