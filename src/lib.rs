//! Gatewright: from a tenant's hostname to the right Envoy, with the right certificate and a truthful status.

pub mod certificates;
pub mod cli;
pub mod controller;
pub mod drain;
pub mod envoy;
pub mod gateway_api;
pub mod heartbeat;
pub mod inputs;
pub mod kubernetes;
pub mod limits;
pub mod lint;
pub mod manifest;
pub mod metrics;
pub mod model;
pub mod offline;
pub mod pipeline;
pub mod programmed;
pub mod publish;
pub mod run;
mod sharing;
pub mod standalone;
pub mod statuses;
pub mod store;
mod tasks;
pub mod tenancy;
pub mod translate;
