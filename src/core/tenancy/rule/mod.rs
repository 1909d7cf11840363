//! Rules: names, and judgements of objects by themselves. A rule names no state and no stage.

pub(crate) mod claim;
pub(crate) mod desired;
pub(crate) mod host;
pub(crate) mod issuer;
pub mod names;
pub(crate) mod provided_secret;
pub(crate) mod render;
pub(crate) mod selection;
pub(crate) mod solving;
