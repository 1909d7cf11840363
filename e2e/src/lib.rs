//! Fixtures
