//! Certificates: an ACME engine with a pure planner, and an internal CA.
//!
//! This crate knows ACME and X.509; it knows neither Kubernetes nor Envoy.

pub mod account;
mod breaker;
pub mod budget;
pub mod certificate;
pub mod challenge;
pub mod client;
pub mod denied_networks;
pub mod dns;
pub mod engine;
pub mod failure;
pub mod fallback_issuer;
pub mod internal_ca;
pub mod issuer;
pub mod keeper;
pub mod key;
pub mod names;
pub mod plan;
pub mod preflight;
pub mod renewal;
pub mod self_signed;
pub mod storage;
mod tls_error;

pub use certificate::IssuedCertificate;
pub use denied_networks::DeniedNetworks;
pub use failure::{Class, Failure};
pub use issuer::{CertificateId, IssueRequest, Issuer};
pub use key::PrivateKeyPem;
pub use names::{DnsName, Names};
pub use plan::{Budgets, Held, Order, Reason, Step, Wanted, plan};
pub use storage::Storage;
