//! Which fields of the Gateway API are served.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A release channel of the Gateway API. The experimental one has all fields of the standard one,
/// and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Channel {
    /// Stable fields
    #[default]
    Standard,
    /// In addition XBackends, `sessionPersistence` of rules, filter `ExternalAuth`, filters of
    /// listeners and `routability` of addresses: fields that may change or go
    Experimental,
}
