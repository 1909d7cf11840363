//! Whose facts an answer may have: those of everybody, or those of one namespace.

use std::sync::Arc;

/// Whose facts an answer may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// Those of everybody: for who may read the whole installation.
    #[default]
    Everything,
    /// Those of one namespace, without a name of any other.
    Namespace(Arc<str>),
}

impl Visibility {
    /// The namespace; `None` if everything is visible.
    pub fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Self::Everything => None,
            Self::Namespace(namespace) => Some(namespace),
        }
    }
}
