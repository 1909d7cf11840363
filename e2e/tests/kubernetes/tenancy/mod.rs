//! TenantGateways on a real API server: what they lead to is written as Cozystack's page names it, and nothing else is
//! touched.

mod first_come;
mod laxer;
mod mended;
mod modes;
mod others;
mod own_class;
mod steady;
pub(crate) mod troubles;
mod weather;
