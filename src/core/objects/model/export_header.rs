//! Headers of the requests by which spans are exported.

use std::fmt;
use std::sync::Arc;

/// A header of the requests to a collector. Its value may be a credential: it has no `Debug` that
/// prints it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ExportHeader {
    /// Its name in lower case.
    pub name: Arc<str>,
    value: Arc<str>,
}

impl ExportHeader {
    /// A header with this lower-case name.
    pub fn new(name: &str, value: &str) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }

    /// The value; only the code that sends it to Envoy calls it.
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// The bytes of name and value.
    pub fn size(&self) -> usize {
        self.name.len() + self.value.len()
    }
}

impl fmt::Debug for ExportHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: [redacted]", self.name)
    }
}
