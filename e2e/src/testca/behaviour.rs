//! How the test CA behaves, and what it counts.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::{SignedDuration, Timestamp};

/// Behaviour from now on.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// Percent of good nonces it refuses.
    pub bad_nonces: u64,
    /// So many of the next signed requests get a page of HTML with status 502.
    pub html_errors: u32,
    /// New orders are refused with this text and these seconds.
    pub limit: Option<(String, u32)>,
    /// Signed requests are answered 503, with these seconds to wait.
    pub busy: Option<u32>,
    /// Finalizing takes so many polls, with this `Retry-After` in seconds.
    pub processing: (u32, Option<u32>),
    /// The renewal window of every certificate, and why.
    pub window: Option<(Timestamp, Timestamp, Option<String>)>,
    /// Lifetime of certificates.
    pub life: Option<SignedDuration>,
    /// Its clock is this far ahead.
    pub ahead: SignedDuration,
    /// It issues for another name than asked.
    pub wrong_name: bool,
    /// Validation fails for these names.
    pub failing: HashSet<String>,
    /// Validation of these names does not come to an end.
    pub stuck: HashSet<String>,
    /// So many of the next requests for a certificate are answered 503.
    pub failing_finalizes: u32,
    /// New orders with one of these names are refused so.
    pub refusing: BTreeMap<String, Refusal>,
    /// The account is deactivated.
    pub deactivated: bool,
    /// So many of the next requests for an authorization are answered 404.
    pub lost_authorizations: u32,
    /// Certificates come without the one that signed them.
    pub leaf_only: bool,
    /// Certificates say that the one that signed them is at this URL (RFC 5280, 4.2.2.1).
    pub issuer_at: Option<String>,
    /// Certificates are for a key that nobody asked for, of another type.
    pub other_key: bool,
    /// Authorizations are about this name, whatever was ordered.
    pub foreign: Option<String>,
}

/// How a new order is refused.
#[derive(Clone, Debug, Default)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The last part of the problem's type.
    pub kind: &'static str,
    /// The problem's text.
    pub detail: String,
    /// The names of its subproblems.
    pub subproblems: Vec<String>,
    /// Seconds to wait.
    pub retry_after: Option<u32>,
}

/// Its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Orders made; one given back to who asked twice is not another one.
    pub orders: BTreeMap<String, usize>,
    /// Certificates issued.
    pub certificates: BTreeMap<String, usize>,
    /// Accounts made.
    pub accounts: usize,
    /// New-nonce requests.
    pub nonces: usize,
    /// Requests answered 503.
    pub busy: usize,
    /// Requests for an order, those that were refused included.
    pub asked: usize,
    /// Names whose authorizations were deactivated.
    pub deactivated: BTreeSet<String>,
    /// Challenges that it was told to look at.
    pub challenges: usize,
}
