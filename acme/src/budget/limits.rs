//! Rate limits of CAs, as they publish them.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::Endpoint;

/// A token bucket, refilled evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Size of the bucket: so many at once, when it is full.
    pub burst: u32,
    /// Time that an empty bucket needs to be full again.
    pub per: SignedDuration,
}

impl Rate {
    /// A bucket of `burst`, full again after `hours`.
    pub const fn hours(burst: u32, hours: i64) -> Self {
        Self {
            burst,
            per: SignedDuration::from_hours(hours),
        }
    }

    /// A bucket of `burst`, refilled by `each_second`.
    pub const fn seconds(each_second: u32, burst: u32) -> Self {
        Self {
            burst,
            per: SignedDuration::from_millis(1000 * burst as i64 / each_second as i64),
        }
    }

    /// Returns the time that one token needs.
    pub fn interval(self) -> SignedDuration {
        self.per / i32::try_from(self.burst.max(1)).unwrap_or(i32::MAX)
    }
}

/// The limits of a CA; `None` is a limit that the CA does not have or that is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// New orders of an account.
    pub orders: Option<Rate>,
    /// Certificates for a registered domain, by all accounts.
    pub domain: Option<Rate>,
    /// Certificates for exactly one set of names, by all accounts.
    pub set: Option<Rate>,
    /// Failed authorizations of one name by an account.
    pub failures: Option<Rate>,
    /// Consecutive failed authorizations of one name by an account, after which the CA pauses the
    /// name.
    #[serde(default)]
    pub in_a_row: Option<Rate>,
    /// New accounts from one address.
    #[serde(default)]
    pub accounts: Option<Rate>,
    /// Requests from one address.
    #[serde(default)]
    pub requests: Requests,
    /// Most names that are combined in one certificate to save orders; fits every profile.
    pub names: usize,
}

/// A CA's limits of requests from one address, by endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// The directory.
    pub directory: Option<Rate>,
    /// newNonce.
    pub new_nonce: Option<Rate>,
    /// newAccount: registrations and look-ups.
    pub new_account: Option<Rate>,
    /// newOrder.
    pub new_order: Option<Rate>,
    /// revokeCert.
    pub revoke: Option<Rate>,
    /// renewalInfo (ARI).
    pub renewal_info: Option<Rate>,
    /// All other requests.
    pub other: Option<Rate>,
}

impl Requests {
    /// Let's Encrypt, production.
    const LETS_ENCRYPT: Self = Self {
        directory: Some(Rate::seconds(40, 40)),
        new_nonce: Some(Rate::seconds(20, 10)),
        new_account: Some(Rate::seconds(5, 15)),
        new_order: Some(Rate::seconds(300, 200)),
        revoke: Some(Rate::seconds(10, 100)),
        renewal_info: Some(Rate::seconds(1000, 100)),
        other: Some(Rate::seconds(250, 125)),
    };

    /// A CA whose limits are unknown.
    const UNKNOWN: Self = Self {
        directory: None,
        new_nonce: None,
        new_account: None,
        new_order: None,
        revoke: None,
        renewal_info: None,
        other: None,
    };

    /// Returns the limit of an endpoint.
    pub fn of(&self, endpoint: Endpoint) -> Option<Rate> {
        match endpoint {
            Endpoint::Directory => self.directory,
            Endpoint::NewNonce => self.new_nonce,
            Endpoint::NewAccount => self.new_account,
            Endpoint::NewOrder => self.new_order,
            Endpoint::Revoke => self.revoke,
            Endpoint::RenewalInfo => self.renewal_info,
            Endpoint::Other => self.other,
        }
    }
}

/// Most names in a certificate, unless a profile allows fewer.
const MOST_NAMES: usize = 100;
/// Let's Encrypt's profiles that allow fewer names (its page "Profiles", seen in August 2026).
const SMALL_PROFILES: [&str; 2] = ["tlsserver", "shortlived"];

impl Limits {
    /// Returns the most names that one certificate may have, by profile.
    pub fn most_names(profile: Option<&str>) -> usize {
        if profile.is_some_and(|p| SMALL_PROFILES.contains(&p)) {
            25
        } else {
            MOST_NAMES
        }
    }

    /// Let's Encrypt, production (its page "Rate limits", seen in August 2026); 25 names fit every
    /// profile.
    pub const LETS_ENCRYPT: Self = Self {
        orders: Some(Rate::hours(300, 3)),
        domain: Some(Rate::hours(50, 7 * 24)),
        set: Some(Rate::hours(5, 7 * 24)),
        failures: Some(Rate::hours(5, 1)),
        in_a_row: Some(Rate::hours(1152, 1152 * 24)),
        accounts: Some(Rate::hours(10, 3)),
        requests: Requests::LETS_ENCRYPT,
        names: 25,
    };

    /// Let's Encrypt, staging (its page "Staging Environment", seen as of November 2025; its limits
    /// by account and name as of April 2025, since later copies show the requests alone).
    pub const LETS_ENCRYPT_STAGING: Self = Self {
        orders: Some(Rate::hours(1500, 3)),
        domain: Some(Rate::seconds(30_000, 30_000)),
        set: Some(Rate::hours(30_000, 7 * 24)),
        failures: Some(Rate::hours(200, 1)),
        in_a_row: Some(Rate::hours(3600, 6)),
        accounts: Some(Rate::hours(50, 3)),
        requests: Requests {
            new_order: Some(Rate::seconds(20, 40)),
            other: Some(Rate::seconds(20, 20)),
            ..Requests::LETS_ENCRYPT
        },
        names: 25,
    };

    /// A CA whose limits are unknown: only its 429 answers count.
    pub const UNKNOWN: Self = Self {
        orders: None,
        domain: None,
        set: None,
        failures: None,
        in_a_row: None,
        accounts: None,
        requests: Requests::UNKNOWN,
        names: 25,
    };

    /// Returns the limits of the CA behind a directory URL.
    pub fn of(directory_url: &str) -> Self {
        match directory_url {
            "https://acme-v02.api.letsencrypt.org/directory" => Self::LETS_ENCRYPT,
            "https://acme-staging-v02.api.letsencrypt.org/directory" => Self::LETS_ENCRYPT_STAGING,
            _ => Self::UNKNOWN,
        }
    }
}
