//! PEM, private keys and certificate chains: one reader and one judgement for certificates of users
//! and of ACME.
//!
//! In: bytes, and the time where dates count. Out: DER, and what is wrong in words. No file, no
//! clock, no log, and no message quotes a text that may hold a key.
//!
//! - [`certificates`], [`bundle`] and [`PrivateKey::from_pem`] read PEM (RFC 7468). A part that
//!   looks like a certificate is read, or it is an error with its number; none is skipped.
//! - [`chain`] reads that of a server, and refuses one that is too long to be held for each name.
//! - [`PrivateKey`] knows the keys that Envoy (BoringSSL) serves with, and writes them as Envoy
//!   reads them.
//! - [`Jwk`] is a key of a JSON Web Key Set, with which Envoy verifies tokens.
//! - [`judge`] returns why Envoy refuses to load a chain for a server, and why usual TLS clients
//!   refuse to verify it.

mod chain;
mod curve;
mod der;
mod finding;
mod judge;
mod jwk;
mod label;
mod names;
mod pem;
mod private_key;
mod public_key;
mod signature;
mod x509;

pub use chain::{ChainError, chain};
pub use finding::{Finding, Problem, Refuser};
pub use judge::{judge, judge_signed, unloadable};
pub use jwk::{Jwk, JwkError};
pub use pem::{PartProblem, PemError, bundle, certificates, encode};
pub use private_key::{KeyError, PrivateKey};
pub use public_key::{PublicKey, Unserved};
pub use signature::{Signature, signed_by};
pub use x509::{Validity, read, validity};
