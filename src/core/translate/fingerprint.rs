//! Fingerprints of values.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A fingerprint of a value, to see whether the next one differs.
pub(super) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
