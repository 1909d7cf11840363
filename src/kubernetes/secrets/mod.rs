//! Secrets and ConfigMaps: the references to them, and the fetches of their bodies.

pub(crate) mod body;
pub(crate) mod references;
pub(crate) mod refs;
