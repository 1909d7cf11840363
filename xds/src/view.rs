//! Views, which are isolated sets of resources, and the generations of their changes.

use std::fmt;
use std::sync::Arc;

/// The name of an isolated set of resources. A client reads exactly one view; resources of other
/// views do not exist for it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct View(Arc<str>);

impl View {
    /// The view called `name`.
    pub fn new(name: impl Into<Arc<str>>) -> View {
        View(name.into())
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({:?})", &*self.0)
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Counts publications of one [`crate::Cache`]; later is larger.
pub type Generation = u64;
