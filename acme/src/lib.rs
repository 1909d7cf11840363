//! Certificates: an ACME engine with a pure planner, and an internal CA.
//!
//! This crate knows ACME and X.509; it knows neither Kubernetes nor Envoy.

pub mod bootstrap;
pub mod certificate;
pub mod challenge;
pub mod dns;
pub mod failure;
pub mod internal_ca;
pub mod issuer;
pub mod key;
pub mod names;
pub mod storage;

pub use certificate::IssuedCertificate;
pub use failure::{Class, Failure};
pub use issuer::{CertificateId, IssueRequest, Issuer};
pub use key::PrivateKeyPem;
pub use names::{DnsName, Names};
pub use storage::Storage;
