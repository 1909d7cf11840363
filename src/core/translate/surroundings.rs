//! The surroundings in which Gateways and ListenerSets are evaluated.

use std::time::SystemTime;

use super::settings::Settings;
use crate::store::Store;

/// The surroundings in which parents are evaluated.
pub(super) struct Surroundings<'a> {
    pub(super) store: &'a Store,
    pub(super) settings: &'a Settings,
    pub(super) now: SystemTime,
}
