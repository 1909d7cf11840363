//! Logins: clients whom a provider of OpenID Connect knows.

use std::fmt;
use std::sync::Arc;

use super::{BackendId, ObjectName, SecretName};

/// Clients that have logged in at a provider, by an authorization code (OpenID Connect Core, 3.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Login {
    /// The issuer, for people.
    pub issuer: Arc<str>,
    /// The URL that browsers are sent to.
    pub authorization_endpoint: Arc<str>,
    /// The URL at which codes become tokens.
    pub token_endpoint: Arc<str>,
    /// The URL that browsers are sent to after a logout.
    pub end_session_endpoint: Option<Arc<str>>,
    /// The backend of the token endpoint.
    pub server: BackendId,
    /// The client.
    pub client_id: Arc<str>,
    /// The Secret with the secret of the client.
    pub secret: ObjectName,
    /// The host of the URL to which the provider sends browsers back, with its port; that of the
    /// request if `None`.
    pub redirect_host: Option<Arc<str>>,
    /// The path of that URL.
    pub redirect_path: Arc<str>,
    /// The path of a logout.
    pub logout_path: Arc<str>,
    /// The scopes, with `openid`.
    pub scopes: Arc<[Arc<str>]>,
    /// The domain of cookies; the host of the request alone if `None`.
    pub cookie_domain: Option<Arc<str>>,
    /// True if backends get the access token in the header `Authorization`.
    pub forwards_access_token: bool,
}

/// What a client of a provider proves itself with, and the key of the cookies of its users.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientCredentials {
    secret: SecretText,
    cookie_key: SecretText,
}

impl ClientCredentials {
    /// Wraps both.
    pub fn new(secret: SecretText, cookie_key: SecretText) -> Self {
        Self { secret, cookie_key }
    }

    /// The secrets in SDS for a policy, in the order of their names ([`SecretName::of_login`]).
    pub fn generic(&self, policy: &ObjectName) -> [GenericSecret; 2] {
        let [client, cookies] = SecretName::of_login(policy);
        [(client, &self.secret), (cookies, &self.cookie_key)].map(|(name, value)| GenericSecret {
            name,
            value: value.clone(),
        })
    }
}

/// One SDS secret that is a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GenericSecret {
    /// The name in SDS.
    pub name: SecretName,
    /// The text.
    pub value: SecretText,
}

/// A text that is not printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretText(Arc<str>);

impl SecretText {
    /// Wraps a text.
    pub fn new(text: Arc<str>) -> Self {
        Self(text)
    }

    /// The text; only the code that sends it to Envoy calls it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
