//! Changes of objects, from files and from watches.

use super::{Object, ObjectKey};

/// One change of one object.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "changes are few and short-lived")]
pub enum ObjectChange {
    /// The object was created or changed.
    Put(Object),
    /// The object was deleted.
    Delete(ObjectKey),
}

impl ObjectChange {
    /// The key of the changed object.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Put(object) => object.key(),
            Self::Delete(key) => key.clone(),
        }
    }
}
