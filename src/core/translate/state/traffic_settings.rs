//! The settings of a TrafficPolicy.

use std::sync::Arc;

use gatewright_objects::model::{
    Bodies, Compression, ObjectName, RateLimits, RequestBody, ResponseOverrides,
};

/// The settings of a TrafficPolicy, each of which the nearest policy decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TrafficSettings {
    /// How many requests pass.
    pub(crate) rate_limits: Option<Arc<RateLimits>>,
    /// Changes to bodies.
    pub(crate) bodies: Bodies,
}

/// A field of a TrafficPolicy, and which settings have it.
pub(crate) type Field = (&'static str, fn(&TrafficSettings) -> bool);

/// The fields of a TrafficPolicy that policies at the same target decide apart.
pub(crate) const FIELDS: [Field; 4] = [
    ("rateLimit", |settings| settings.rate_limits.is_some()),
    ("compression", |settings| {
        settings.bodies.compression.is_some()
    }),
    ("responseOverride", |settings| {
        settings.bodies.overrides.is_some()
    }),
    ("requestBody", |settings| settings.bodies.request.is_some()),
];

/// A setting of a TrafficPolicy.
pub(crate) trait Setting {
    /// The policy.
    fn policy(&self) -> &ObjectName;
}

impl Setting for RateLimits {
    fn policy(&self) -> &ObjectName {
        &self.policy
    }
}

impl Setting for Compression {
    fn policy(&self) -> &ObjectName {
        &self.policy
    }
}

impl Setting for ResponseOverrides {
    fn policy(&self) -> &ObjectName {
        &self.policy
    }
}

impl Setting for RequestBody {
    fn policy(&self) -> &ObjectName {
        &self.policy
    }
}

impl TrafficSettings {
    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
