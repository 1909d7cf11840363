//! Which fields of the Gateway API are served.

use clap::ValueEnum;

/// A release channel of the Gateway API. The experimental one has all fields of the standard one, and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Channel {
    /// Stable fields
    #[default]
    Standard,
    /// In addition `sessionPersistence` of rules and the filter `ExternalAuth`: fields that may change or be removed
    Experimental,
}
