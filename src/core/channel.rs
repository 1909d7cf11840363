//! Which fields of the Gateway API are served.

use clap::ValueEnum;

/// A release channel of the Gateway API. The experimental one has all fields of the standard one,
/// and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Channel {
    /// Stable fields
    #[default]
    Standard,
    /// In addition `sessionPersistence` of rules, filter `ExternalAuth`, filters of listeners and
    /// `routability` of addresses: fields that may change or go
    Experimental,
}
