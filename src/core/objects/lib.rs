//! Objects: parsed once into types of our own, kept in one store with reverse indexes; their limits
//! and costs; the model of what is to be served; and statuses.

pub mod address_forms;
pub mod channel;
pub mod cost;
mod counters;
pub mod definitions;
pub mod domain_order;
pub mod external_name;
pub mod gateway_api;
pub mod handshake_failure;
pub mod inputs;
pub mod interner;
pub mod last_failure;
pub mod limits;
pub mod model;
pub mod multimap;
pub mod namespaces;
pub mod ownership;
pub mod printable;
pub mod quota;
pub mod request_outcome;
pub mod settings;
pub mod status;
pub mod status_maxima;
pub mod store;
pub mod unserved;
pub mod wanted;
