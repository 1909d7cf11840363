//! Scopes of rate limits.

use serde::{Deserialize, Serialize};

use crate::names::Names;

/// The scope of a rate limit: what it counts. Serialized as a string.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Scope {
    /// New orders of the account.
    Orders,
    /// Certificates for a registered domain.
    Domain(String),
    /// Certificates for exactly these names.
    Set(String),
    /// Failed authorizations of a name.
    Failures(String),
    /// Consecutive failed authorizations of a name, since its last success.
    InARow(String),
    /// New accounts from our address.
    Accounts,
    /// Requests from our address.
    Requests(Endpoint),
}

/// The resource of the CA that a request goes to; Let's Encrypt limits each of them separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// The directory.
    Directory,
    /// newNonce.
    NewNonce,
    /// newAccount: registrations and look-ups.
    NewAccount,
    /// newOrder.
    NewOrder,
    /// revokeCert.
    Revoke,
    /// renewalInfo (ARI).
    RenewalInfo,
    /// All other requests.
    Other,
}

impl Endpoint {
    const ALL: [Self; 7] = [
        Self::Directory,
        Self::NewNonce,
        Self::NewAccount,
        Self::NewOrder,
        Self::Revoke,
        Self::RenewalInfo,
        Self::Other,
    ];

    /// Returns its name for messages and storage.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::NewNonce => "new-nonce",
            Self::NewAccount => "new-account",
            Self::NewOrder => "new-order",
            Self::Revoke => "revoke-cert",
            Self::RenewalInfo => "renewal-info",
            Self::Other => "orders and authorizations",
        }
    }
}

impl Scope {
    /// Returns true if a part of the limit is reserved for emergencies and for operators.
    pub(super) fn has_reserve(&self) -> bool {
        matches!(self, Self::Orders | Self::Domain(_))
    }

    pub(crate) fn set(names: &Names) -> Self {
        Self::Set(names.to_strings().join(","))
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Orders => f.write_str("new orders of the account"),
            Self::Domain(d) => write!(f, "certificates for {d}"),
            Self::Set(s) => write!(f, "certificates for exactly {s}"),
            Self::Failures(n) => write!(f, "failed authorizations of {n}"),
            Self::InARow(n) => write!(
                f,
                "failed authorizations of {n} in a row, after which the CA pauses it"
            ),
            Self::Accounts => f.write_str("new accounts from this address"),
            Self::Requests(e) => write!(f, "requests to {} from this address", e.as_str()),
        }
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Orders => "orders".to_owned(),
            Scope::Domain(d) => format!("domain:{d}"),
            Scope::Set(s) => format!("set:{s}"),
            Scope::Failures(n) => format!("failures:{n}"),
            Scope::InARow(n) => format!("in-a-row:{n}"),
            Scope::Accounts => "accounts".to_owned(),
            Scope::Requests(e) => format!("requests:{}", e.as_str()),
        }
    }
}

impl TryFrom<String> for Scope {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no scope of a limit");
        match text.split_once(':') {
            None if text == "orders" => Ok(Self::Orders),
            None if text == "accounts" => Ok(Self::Accounts),
            Some(("domain", d)) => Ok(Self::Domain(d.to_owned())),
            Some(("set", s)) => Ok(Self::Set(s.to_owned())),
            Some(("failures", n)) => Ok(Self::Failures(n.to_owned())),
            Some(("in-a-row", n)) => Ok(Self::InARow(n.to_owned())),
            Some(("requests", name)) => {
                let found = Endpoint::ALL.into_iter().find(|e| e.as_str() == name);
                found.map(Self::Requests).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}
