//! Secrets with the secret of a client of OpenID Connect.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
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
        "{CLIENT_SECRET_KEY}: expected 16 to 1024 bytes of text, without line ends, other control characters and spaces \
         around it"
    )]
    Text,
    /// The Secret could not be read.
    #[error("cannot be read: {0}")]
    Unread(String),
}

/// What is not encoded in names and secrets of clients, beside letters and digits: all that has no
/// meaning in a form, in a URL or between name and secret, so that providers which decode nothing
/// understand them as well.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'*')
    .remove(b'!')
    .remove(b'(')
    .remove(b')')
    .remove(b',')
    .remove(b'$')
    .remove(b'@')
    .remove(b'/');

/// The name or the secret of a client as it is in its credentials, and in URLs: encoded as a form
/// (RFC 6749, 2.3.1).
pub fn form_encoded(text: &str) -> String {
    utf8_percent_encode(text, KEPT).to_string()
}

/// Reads the secret of a client.
pub(super) fn client_secret(text: &[u8]) -> Result<SecretText, ClientSecretError> {
    std::str::from_utf8(text)
        .ok()
        .filter(|text| LENGTHS.contains(&text.len()))
        .filter(|text| !text.contains(char::is_control) && text.trim() == *text)
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
    let sent = SecretText::new(form_encoded(secret.expose()).into());
    ClientCredentials::new(sent, SecretText::new(key.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"open-sesame-open-sesame";

    #[test]
    fn a_secret_is_long_enough_and_a_text_and_never_printed() {
        let read = client_secret(SECRET).expect("a secret");
        assert_eq!(read.expose().as_bytes(), SECRET);
        assert_eq!(format!("{read:?}"), "[secret]");
        for text in [
            &b"short"[..],
            b"open-sesame-open-sesame\n",
            b" open-sesame-open-sesame",
            b"open-sesame\topen-sesame",
            &[0xff; 20],
            &[b'a'; 1025],
        ] {
            let error = client_secret(text).expect_err("it is refused");
            assert_eq!(error, ClientSecretError::Text);
        }
    }

    #[test]
    fn a_secret_is_sent_as_a_form_has_it_and_one_without_signs_as_it_is() {
        for (written, sent) in [
            ("open-sesame_open.sesame~", "open-sesame_open.sesame~"),
            ("abc/def,ghi*jkl@mno(pq)!", "abc/def,ghi*jkl@mno(pq)!"),
            (
                "a+b%c&d=e:f?g#h;i'j\"k\\",
                "a%2Bb%25c%26d%3De%3Af%3Fg%23h%3Bi%27j%22k%5C",
            ),
            (
                "ein Geheimnis für alle",
                "ein%20Geheimnis%20f%C3%BCr%20alle",
            ),
        ] {
            let secret = client_secret(written.as_bytes()).expect("a secret");
            let policy = ObjectName::new("a", "p");
            let [client, _] = credentials(&secret, &policy).generic(&policy);
            assert_eq!(client.value.expose(), sent, "{written}");
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
