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
#[derive(PartialEq, Eq)]
pub struct Parts {
    /// The prefixes of namespace and name, which decide most comparisons without the texts: those
    /// are elsewhere in memory.
    prefixes: [u64; 2],
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// The name within the namespace.
    pub name: Arc<str>,
}

impl ObjectName {
    /// Joins a namespace and a name.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        let (namespace, name) = (namespace.into(), name.into());
        Self(Arc::new(Parts {
            prefixes: [prefix(&namespace), prefix(&name)],
            namespace,
            name,
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
        let ([namespace, name], [others_namespace, others_name]) = (self.prefixes, other.prefixes);
        let namespaces = if Arc::ptr_eq(&self.namespace, &other.namespace) {
            Ordering::Equal
        } else {
            namespace
                .cmp(&others_namespace)
                .then_with(|| self.namespace.cmp(&other.namespace))
        };
        namespaces
            .then_with(|| name.cmp(&others_name))
            .then_with(|| self.name.cmp(&other.name))
    }
}

/// The first bytes of a text as a number. Two texts with different prefixes are in their order.
fn prefix(text: &str) -> u64 {
    let mut bytes = [0; 8];
    let length = text.len().min(bytes.len());
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    u64::from_be_bytes(bytes)
}

impl Hash for ObjectName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.namespace.hash(state);
        self.name.hash(state);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_are_in_the_order_of_their_texts(
            a in ("[a\\x00é-]{0,10}", "[a\\x00é-]{0,10}"),
            b in ("[a\\x00é-]{0,10}", "[a\\x00é-]{0,10}"),
        ) {
            let [first, second] = [&a, &b].map(|(namespace, name)| {
                ObjectName::new(namespace.as_str(), name.as_str())
            });
            prop_assert_eq!(first.cmp(&second), a.cmp(&b));
            prop_assert_eq!(first == second, a == b);
        }
    }
}
