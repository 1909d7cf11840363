//! The inputs for the evaluation of Gateways and ListenerSets.

use std::time::SystemTime;

use super::settings::Settings;
use crate::store::Store;

/// The inputs for the evaluation of parents.
pub(super) struct Surroundings<'a> {
    pub(super) store: &'a Store,
    pub(super) settings: &'a Settings,
    pub(super) now: SystemTime,
}
