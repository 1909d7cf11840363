//! The inputs for the evaluation of Gateways and ListenerSets.

use std::time::SystemTime;

use super::settings::Settings;
use gatewright_objects::store::Store;

/// The inputs for the evaluation of parents.
pub(crate) struct Surroundings<'a> {
    pub(crate) store: &'a Store,
    pub(crate) settings: &'a Settings,
    pub(crate) now: SystemTime,
}
