//! Keys of the subjects of translation.

use std::fmt;
use std::sync::Arc;

pub use gatewright_objects::inputs::{ParentKey, RouteKey};

/// A listener of a Gateway or ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId {
    /// The Gateway or ListenerSet.
    pub parent: ParentKey,
    /// Its name in the parent.
    pub name: Arc<str>,
}

impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listener {:?} of {}", self.name, self.parent.object())
    }
}

/// Ok if a requirement holds; if not, a condition's reason and message.
pub type Verdict = Result<(), (gatewright_objects::model::Reason, String)>;
