//! The pure core of Gatewright: objects in; Envoy's model, statuses and wanted certificates out.
//!
//! ```text
//! inputs ==> tenancy ==> translate (store, attach, compile, emit) ==> model, wanted
//!    pipeline joins the two engines;  statuses writes their results as Gateway API documents
//!                                    hosts has what answers for each hostname, and what is wrong
//! ```
//!
//! The crate is the door to four: `objects` is below both engines, and `tenancy` and `translate` do
//! not name each other.
//!
//! Values in, values out. No client, task, clock or log can be named here: `Cargo.toml` has no
//! crate with one.

pub mod fair_queue;
pub mod hosts;
pub mod pipeline;
pub mod statuses;

pub use gatewright_objects::{
    address_forms, channel, cost, definitions, external_name, gateway_api, handshake_failure,
    inputs, interner, last_failure, limits, model, multimap, namespaces, ownership, printable,
    request_outcome, settings, status_maxima, store, unserved, wanted,
};
pub use gatewright_tenancy as tenancy;
pub use gatewright_translate as translate;
