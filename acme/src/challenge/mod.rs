//! The ways to prove control of a name.

pub mod dns;
