//! The behaviour of the test CA, and its counters.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::{SignedDuration, Timestamp};
use rcgen::CertificateParams;

/// The behaviour of the test CA from now on.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// Percentage of good nonces that it refuses.
    pub bad_nonces: u64,
    /// Number of the next signed requests that get an HTML page with status 502.
    pub html_errors: u32,
    /// Refuses new orders as rate-limited, with this text and `Retry-After` in seconds.
    pub limit: Option<(String, u32)>,
    /// Answers signed requests with 503 and this `Retry-After` in seconds.
    pub busy: Option<u32>,
    /// Number of polls that finalization takes, with this `Retry-After` in seconds.
    pub processing: (u32, Option<u32>),
    /// The renewal window of every certificate, with the URL of its explanation.
    pub window: Option<(Timestamp, Timestamp, Option<String>)>,
    /// Validity of certificates.
    pub life: Option<SignedDuration>,
    /// Time by which its clock is ahead.
    pub ahead: SignedDuration,
    /// Issues for another name than requested.
    pub wrong_name: bool,
    /// Names that it adds to each certificate.
    pub added: Vec<String>,
    /// Names whose validation fails.
    pub failing: HashSet<String>,
    /// Names whose validation never ends.
    pub stuck: HashSet<String>,
    /// Number of the next finalizations that are answered 503.
    pub failing_finalizes: u32,
    /// Refusals of new orders with one of these names.
    pub refusing: BTreeMap<String, Refusal>,
    /// The account is deactivated.
    pub deactivated: bool,
    /// Number of the next requests for an authorization that are answered 404.
    pub lost_authorizations: u32,
    /// Changes certificates before they are signed.
    pub template: Option<fn(&mut CertificateParams)>,
    /// Omits the intermediate in the chain.
    pub leaf_only: bool,
    /// The URL of the issuer's certificate in certificates (RFC 5280, 4.2.2.1).
    pub issuer_at: Option<String>,
    /// Issues for another public key than the CSR's, of another type.
    pub other_key: bool,
    /// Authorizations have this identifier, regardless of the order.
    pub foreign: Option<String>,
}

/// The refusal of a new order.
#[derive(Clone, Debug, Default)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The last part of the problem's type.
    pub kind: &'static str,
    /// The detail of the problem.
    pub detail: String,
    /// The identifiers of its subproblems.
    pub subproblems: Vec<String>,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u32>,
}

/// Its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// New orders by names; a pending one that is returned again does not count.
    pub orders: BTreeMap<String, usize>,
    /// Issued certificates by names.
    pub certificates: BTreeMap<String, usize>,
    /// New accounts.
    pub accounts: usize,
    /// New-nonce requests.
    pub nonces: usize,
    /// Requests answered 503.
    pub busy: usize,
    /// Requests for a new order, including refused ones.
    pub asked: usize,
    /// Names whose authorizations were deactivated.
    pub deactivated: BTreeSet<String>,
    /// Challenges that it was told to validate.
    pub challenges: usize,
}
