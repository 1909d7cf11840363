//! Our resources on a real Envoy: each test serves them over delta ADS and fails when one is
//! refused.

mod ads;
mod bootstrap;
mod passthrough;
mod routes;
mod site;
mod tls;
