//! Translation: from the objects we have seen to what Envoy is to serve and what each object's status says.
//!
//! In: [`Change`]s. Out: a [`Delta`] of [`Resource`]s and [`ObjectStatus`]es, with work proportional to the change.
//! Nothing here does I/O, keeps time or logs: the time is an argument.

mod delta;
mod status;

pub use delta::{Change, Delta, Resource, ResourceKey};
pub use status::{GatewayStatus, ListenerSetStatus, ListenerStatus, ObjectStatus, RouteStatus, StatusBody};
