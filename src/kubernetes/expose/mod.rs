//! Writes the Services and EndpointSlices by which Gateways are reached.

pub(crate) mod plan;
pub(crate) mod services;
