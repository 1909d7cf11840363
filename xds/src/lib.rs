//! xDS
