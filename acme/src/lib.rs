//! Certificates
