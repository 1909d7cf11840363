//! The on-demand secrets of one stream, and the memory that they take in Envoy.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Limits;

/// On-demand secrets that a client has or gets.
#[derive(Debug, Default)]
pub(crate) struct OnDemandSecrets {
    /// The estimated memory of each in the client.
    memory: HashMap<Arc<str>, usize>,
    total: usize,
}

impl OnDemandSecrets {
    /// Adds a secret of this many bytes, or changes its size.
    pub(crate) fn hold(&mut self, name: &Arc<str>, bytes: usize) {
        let memory = Limits::secret_memory(bytes);
        self.total += memory;
        self.total -= self.memory.insert(name.clone(), memory).unwrap_or_default();
    }

    /// Removes a secret.
    pub(crate) fn drop(&mut self, name: &str) {
        self.total -= self.memory.remove(name).unwrap_or_default();
    }

    /// Returns true if the secrets are at most so many and take at most so much memory.
    pub(crate) fn is_within(&self, count: usize, memory: usize) -> bool {
        self.memory.len() <= count && self.total <= memory
    }

    /// Returns the names of the secrets.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.memory.keys()
    }

    /// Returns the number of secrets.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }
}
