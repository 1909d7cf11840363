//! The pure core of Gatewright: objects in; Envoy's model, statuses and wanted certificates out.
//!
//! ```text
//! inputs ==> tenancy ==> translate (store, attach, compile, emit) ==> model, wanted
//!    pipeline joins the two stages;  statuses writes their results as Gateway API documents
//! ```
//!
//! Values in, values out. No client, task, clock or log can be named here: `Cargo.toml` has no
//! crate with one.

mod address_forms;
pub mod channel;
pub mod cost;
mod counters;
pub mod definitions;
mod domain_order;
pub mod external_name;
pub mod fair_queue;
pub mod gateway_api;
pub mod inputs;
pub mod interner;
pub mod limits;
pub mod model;
pub mod multimap;
pub mod namespaces;
pub mod ownership;
pub mod pipeline;
mod quota;
pub mod request_outcome;
pub mod statuses;
pub mod store;
pub mod tenancy;
pub mod translate;
pub mod unserved;
pub mod wanted;
