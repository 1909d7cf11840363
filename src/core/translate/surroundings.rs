//! What Gateways and ListenerSets are evaluated against.

use std::time::SystemTime;

use super::settings::Settings;
use crate::store::Store;

/// What parents are evaluated against.
pub(super) struct Surroundings<'a> {
    pub(super) store: &'a Store,
    pub(super) settings: &'a Settings,
    pub(super) now: SystemTime,
}
