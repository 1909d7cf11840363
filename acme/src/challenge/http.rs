//! HTTP-01 (RFC 8555, 8.3): the answer is the token, a dot and the account's thumbprint. The
//! thumbprint is public, so that a responder that knows it answers every challenge statelessly,
//! without a notification of any.

use async_trait::async_trait;

use crate::failure::Failure;

/// The path prefix of HTTP-01 challenges.
pub const PREFIX: &str = "/.well-known/acme-challenge/";

/// A responder for HTTP-01 that is notified of each challenge before the CA is. Does nothing where
/// answers are stateless.
#[async_trait]
pub trait HttpSolver: Send + Sync {
    /// Makes sure that `http://name/.well-known/acme-challenge/token` answers with the key
    /// authorization.
    async fn present(
        &self,
        name: &str,
        token: &str,
        key_authorization: &str,
    ) -> Result<(), Failure>;
    /// Removes the answer: the challenge is over.
    async fn cleanup(&self, name: &str, token: &str);
}

/// Stateless answers: Envoy itself, or any replica, answers by the thumbprint alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stateless;

#[async_trait]
impl HttpSolver for Stateless {
    async fn present(&self, _: &str, _: &str, _: &str) -> Result<(), Failure> {
        Ok(())
    }
    async fn cleanup(&self, _: &str, _: &str) {}
}

/// Returns the body for a path, to be sent as `text/plain` with `nosniff`; `None` is a 404.
///
/// Only a path with a possible token is answered (RFC 8555, 8.3: base64url, at least 128 bits), so
/// that nothing else is reflected. The caller makes sure that it answers only for hosts that it
/// manages.
pub fn answer(path: &str, thumbprint: &str) -> Option<String> {
    let path = path.split_once('?').map_or(path, |(p, _)| p);
    let token = path.strip_prefix(PREFIX)?;
    is_token(token).then(|| format!("{token}.{thumbprint}"))
}

/// Returns true if a text can be a token: base64url of at least 128 bits, or nearly (RFC 8555,
/// 8.3).
pub(crate) fn is_token(text: &str) -> bool {
    (16..=128).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_are_answered() {
        let token = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA";
        assert_eq!(
            answer(&format!("{PREFIX}{token}"), "thumb"),
            Some(format!("{token}.thumb"))
        );
        assert_eq!(
            answer(&format!("{PREFIX}{token}?x=1"), "thumb"),
            Some(format!("{token}.thumb"))
        );
        for path in [
            "/",
            PREFIX,
            "/.well-known/acme-challenge/short",
            "/.well-known/acme-challenge/<script>aaaaaaaaaaaa",
        ] {
            assert_eq!(answer(path, "thumb"), None, "{path}");
        }
        assert_eq!(
            answer(&format!("{PREFIX}{}", "a".repeat(129)), "thumb"),
            None
        );
        assert_eq!(answer(&format!("{PREFIX}{token}/../x"), "thumb"), None);
    }
}
