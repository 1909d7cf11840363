//! Changes of objects: what files and watches tell.

use super::{Object, ObjectKey};

/// One change of one object.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "changes are few and short-lived")]
pub enum ObjectChange {
    /// It is there, or is different from before.
    Put(Object),
    /// It is gone.
    Delete(ObjectKey),
}

impl ObjectChange {
    /// The object that it is about.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Put(object) => object.key(),
            Self::Delete(key) => key.clone(),
        }
    }
}
