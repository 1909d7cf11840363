//! The settings of a rule for the bodies of requests and responses.

use std::sync::Arc;

use super::{Compression, RequestBody, ResponseOverrides};

/// What TrafficPolicies ask of the bodies of a rule's requests and responses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bodies {
    /// The compression of responses.
    pub compression: Option<Arc<Compression>>,
    /// Answers in place of errors.
    pub overrides: Option<Arc<ResponseOverrides>>,
    /// How long bodies of requests may be.
    pub request: Option<Arc<RequestBody>>,
}

impl Bodies {
    /// True if bodies stay as they are.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
