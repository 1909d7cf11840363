//! HTTP-01 (RFC 8555, 8.3): the answer is the token, a dot and the account's thumbprint, so that whoever knows the
//! thumbprint, which is public, answers every challenge without being told of any.

use async_trait::async_trait;

use crate::failure::Failure;

/// The path below which challenges are asked for.
pub const PREFIX: &str = "/.well-known/acme-challenge/";

/// Told of each challenge before the CA is. Where answers are stateless there is nothing to do.
#[async_trait]
pub trait HttpSolver: Send + Sync {
    /// Makes sure that `http://name/.well-known/acme-challenge/token` answers with the key authorization.
    async fn present(&self, name: &str, token: &str, key_authorization: &str) -> Result<(), Failure>;
    /// The challenge is over.
    async fn cleanup(&self, name: &str, token: &str);
}

/// The answers are given by whoever knows the thumbprint: Envoy itself, or any replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stateless;

#[async_trait]
impl HttpSolver for Stateless {
    async fn present(&self, _: &str, _: &str, _: &str) -> Result<(), Failure> {
        Ok(())
    }
    async fn cleanup(&self, _: &str, _: &str) {}
}

/// The body for a path, to be sent as `text/plain` with `nosniff`; `None` is a 404.
///
/// Only what can be a token is answered (RFC 8555, 8.3: base64url, at least 128 bits), so that nothing else is
/// reflected. The caller answers for hosts it manages and no other.
pub fn answer(path: &str, thumbprint: &str) -> Option<String> {
    let path = path.split_once('?').map_or(path, |(p, _)| p);
    let token = path.strip_prefix(PREFIX)?;
    is_token(token).then(|| format!("{token}.{thumbprint}"))
}

/// Whether a text can be a token: base64url of at least 128 bits, or nearly (RFC 8555, 8.3).
pub(crate) fn is_token(text: &str) -> bool {
    (16..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_are_answered() {
        let token = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA";
        assert_eq!(answer(&format!("{PREFIX}{token}"), "thumb"), Some(format!("{token}.thumb")));
        assert_eq!(answer(&format!("{PREFIX}{token}?x=1"), "thumb"), Some(format!("{token}.thumb")));
        for path in
            ["/", PREFIX, "/.well-known/acme-challenge/short", "/.well-known/acme-challenge/<script>aaaaaaaaaaaa"]
        {
            assert_eq!(answer(path, "thumb"), None, "{path}");
        }
        assert_eq!(answer(&format!("{PREFIX}{}", "a".repeat(129)), "thumb"), None);
        assert_eq!(answer(&format!("{PREFIX}{token}/../x"), "thumb"), None);
    }
}
