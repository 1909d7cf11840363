//! Clients by tokens of an issuer (JSON Web Tokens, RFC 7519).

use std::sync::Arc;

use serde::Deserialize;

/// The public keys of an issuer, as a JSON Web Key Set that Envoy loads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Jwks {
    text: Arc<str>,
    count: usize,
}

impl Jwks {
    /// Wraps the text of a set of `count` keys.
    pub fn new(text: String, count: usize) -> Self {
        Self {
            text: text.into(),
            count,
        }
    }

    /// The set.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of keys.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Clients by tokens that one issuer has signed and that have not expired.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenAuth {
    /// The issuer, `iss` of tokens.
    pub issuer: Arc<str>,
    /// The audiences, of which a token has one in `aud`; empty for any.
    pub audiences: Arc<[Arc<str>]>,
    /// The keys.
    pub jwks: Jwks,
    /// Claims that a token has, all of them.
    pub required_claims: Arc<[RequiredClaim]>,
    /// Claims that backends get in headers.
    pub claims: Arc<[ClaimHeader]>,
    /// The lower-case name of the header in which backends get the payload.
    pub forward_payload: Option<Arc<str>>,
    /// True if backends get the token as well.
    pub forwards_credentials: bool,
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
