//! Stages: the steps of [`Tenancy::apply`](super::Tenancy::apply), which read some states and write
//! others (`engine/stages.rs`).

pub(crate) mod admit;
pub(crate) mod arrange;
pub(crate) mod carry_out;
pub(crate) mod compile;
pub(crate) mod evaluate;
pub(crate) mod judge;
pub(crate) mod label;
pub(crate) mod observe;
pub(crate) mod other_data_plane;
pub(crate) mod ownership;
pub(crate) mod parent_refs;
pub(crate) mod placement;
pub(crate) mod report;
pub(crate) mod solver;
pub(crate) mod status;
