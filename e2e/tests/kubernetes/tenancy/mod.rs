//! TenantGateways on a real API server: derived objects are named as on Cozystack's page, and
//! nothing else is changed.

mod first_come;
mod laxer;
mod mended;
mod modes;
pub(crate) mod others;
mod own_class;
mod steady;
pub(crate) mod troubles;
mod weather;
