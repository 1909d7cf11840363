//! Secrets of logins at a provider of OpenID Connect.

use std::fmt;
use std::sync::Arc;

use super::{ObjectName, SecretName};

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
