//! Secrets: who refers to which, and the bodies that are fetched for it.

pub(crate) mod body;
pub(crate) mod references;
pub(crate) mod refs;
