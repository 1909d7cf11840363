//! Certificates: an ACME engine with a pure planner, and an internal CA.
//!
//! This crate knows ACME and X.509; it knows neither Kubernetes nor Envoy.

pub mod challenge;
