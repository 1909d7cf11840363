//! Secrets with the secret of a client of OpenID Connect.

use sha2::{Digest, Sha256};

use crate::model::{ClientCredentials, ObjectName, SecretText};

/// The type of Secrets with the secret of a client.
pub const OIDC_CLIENT_TYPE: &str = "gatewright.io/oidc-client";
/// The key of such a Secret.
pub(super) const CLIENT_SECRET_KEY: &str = "client-secret";

/// The fewest and the most bytes of the secret. Keys of cookies are derived from it, and whoever
/// has a cookie can test guesses.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=1024;

/// Why a Secret has no secret of a client. No message contains anything of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientSecretError {
    /// The Secret has another type.
    #[error("has type {0:?}, expected {OIDC_CLIENT_TYPE}")]
    Type(String),
    /// The key is missing.
    #[error("has no key {CLIENT_SECRET_KEY}")]
    Missing,
    /// The text is none that can be sent.
    #[error(
        "{CLIENT_SECRET_KEY}: expected 16 to 1024 visible characters of ASCII, without a line end"
    )]
    Text,
    /// The Secret could not be read.
    #[error("cannot be read: {0}")]
    Unread(String),
}

/// Reads the secret of a client.
pub(super) fn client_secret(text: &[u8]) -> Result<SecretText, ClientSecretError> {
    let is_secret = LENGTHS.contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| is_secret)
        .map(|text| SecretText::new(text.into()))
        .ok_or(ClientSecretError::Text)
}

/// The credentials of a policy. The key of its cookies is derived from the secret, so that all
/// Envoys have the same one, and each policy another: a cookie of one is none of another.
pub fn credentials(secret: &SecretText, policy: &ObjectName) -> ClientCredentials {
    let mut hash = Sha256::new();
    for part in [
        "gatewright.io/oidc-cookies",
        &policy.namespace,
        &policy.name,
        secret.expose(),
    ] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let key: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    ClientCredentials::new(secret.clone(), SecretText::new(key.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"open-sesame-open-sesame";

    #[test]
    fn a_secret_is_long_enough_and_visible_and_never_printed() {
        let read = client_secret(SECRET).expect("a secret");
        assert_eq!(read.expose().as_bytes(), SECRET);
        assert_eq!(format!("{read:?}"), "[secret]");
        for text in [
            &b"short"[..],
            b"open-sesame-open-sesame\n",
            &[0xff; 20],
            &[b'a'; 1025],
        ] {
            let error = client_secret(text).expect_err("it is refused");
            assert_eq!(error, ClientSecretError::Text);
        }
    }

    #[test]
    fn each_policy_and_secret_has_a_key_of_its_own() {
        let secret = client_secret(SECRET).expect("a secret");
        fn key(secret: &SecretText, namespace: &str, name: &str) -> String {
            let policy = ObjectName::new(namespace, name);
            let [_, key] = credentials(secret, &policy).generic(&policy);
            key.value.expose().to_owned()
        }
        let one = key(&secret, "a", "p");
        assert_eq!(one, key(&secret, "a", "p"), "on every replica");
        assert_ne!(one, key(&secret, "ap", ""), "parts are apart");
        assert_ne!(one, key(&secret, "b", "p"));
        let other = client_secret(b"another-secret-of-it").expect("a secret");
        assert_ne!(one, key(&other, "a", "p"));
    }
}
