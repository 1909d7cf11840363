//! Fixtures

pub mod bind;
pub mod moto;
mod process;
