//! Fingerprints of values.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The fingerprint of a value, for comparison with that of the next one.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
