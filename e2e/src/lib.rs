//! Fixtures

pub mod simenvoy;
