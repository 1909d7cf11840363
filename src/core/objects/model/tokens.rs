//! Keys and claims of the tokens of an issuer (JSON Web Tokens, RFC 7519).

use std::sync::Arc;

use serde::Deserialize;

use super::BackendId;

/// The public keys of an issuer, as a JSON Web Key Set that Envoy loads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Jwks {
    text: Arc<str>,
    kinds: Arc<[KeyKind]>,
}

/// What a signature is verified with, which says how long that takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// RSA, with so many bits.
    Rsa(u16),
    /// ECDSA with curve P-256.
    P256,
    /// ECDSA with curve P-384.
    P384,
    /// ECDSA with curve P-521.
    P521,
}

impl Jwks {
    /// Wraps the text of a set of keys of these kinds.
    pub fn new(text: String, kinds: Vec<KeyKind>) -> Self {
        Self {
            text: text.into(),
            kinds: kinds.into(),
        }
    }

    /// The set.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of keys.
    pub fn count(&self) -> usize {
        self.kinds.len()
    }

    /// The kinds of the keys.
    pub fn kinds(&self) -> &[KeyKind] {
        &self.kinds
    }
}

/// Where an Envoy has the keys of an issuer from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IssuerKeys {
    /// These.
    Given(Jwks),
    /// Those that a backend answers with.
    Fetched(FetchedKeys),
}

impl IssuerKeys {
    /// The backend that answers with them.
    pub fn server(&self) -> Option<&BackendId> {
        match self {
            Self::Given(_) => None,
            Self::Fetched(keys) => Some(&keys.server),
        }
    }

    /// The same, to change it.
    pub fn server_mut(&mut self) -> Option<&mut BackendId> {
        match self {
            Self::Given(_) => None,
            Self::Fetched(keys) => Some(&mut keys.server),
        }
    }
}

/// Keys that each worker of an Envoy fetches when a token comes, and keeps for a while.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FetchedKeys {
    /// The URL of the JSON Web Key Set.
    pub url: Arc<str>,
    /// The backend of the URL.
    pub server: BackendId,
    /// The seconds that the keys are kept for.
    pub cache_seconds: u32,
}

/// A claim that a token has, with one of these values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequiredClaim {
    /// The claim, with dots between the names of nested ones.
    pub claim: Arc<str>,
    /// The type of its value.
    pub value_type: ClaimType,
    /// The values, sorted; not empty.
    pub values: Arc<[Arc<str>]>,
}

impl RequiredClaim {
    /// True for the claim `scope`, whose texts are between spaces (RFC 8693, 4.2), as a list.
    pub fn is_list_of_scopes(&self) -> bool {
        &*self.claim == SCOPE && self.value_type == ClaimType::StringArray
    }
}

/// The claim with the scopes of a token.
pub const SCOPE: &str = "scope";

/// The type of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum ClaimType {
    /// A text, which is one of the values.
    #[default]
    String,
    /// A list of texts, of which at least one is one of the values.
    StringArray,
}

/// A claim that backends get in a header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimHeader {
    /// The claim, with dots between the names of nested ones.
    pub claim: Arc<str>,
    /// The lower-case name of the header.
    pub header: Arc<str>,
}
