//! Signed requests (RFC 8555, 6.2) that `instant-acme` cannot make with a key that is persisted
//! beforehand: registration with an external account binding, key rollover, deactivation, download
//! of alternate chains.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD as BASE64, Engine};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::AccountError;

/// An account key: ECDSA P-256, signing as ES256.
pub(crate) struct SigningKey {
    pkcs8: Zeroizing<Vec<u8>>,
    pair: EcdsaKeyPair,
}

/// The member of the JWS header that identifies the signing key.
pub(crate) enum Signed<'a> {
    /// `jwk`, the public key itself: for newAccount, and for the inner JWS of a key rollover.
    Jwk,
    /// `kid`, the URL of the account.
    Account(&'a str),
}

impl SigningKey {
    pub(crate) fn generate() -> Result<Self, AccountError> {
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                .map_err(|_| AccountError::Key)?;
        Self::from_pkcs8(Zeroizing::new(pkcs8.as_ref().to_vec()))
    }

    pub(crate) fn from_pkcs8(pkcs8: Zeroizing<Vec<u8>>) -> Result<Self, AccountError> {
        let pair = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &pkcs8,
            &SystemRandom::new(),
        )
        .map_err(|_| AccountError::Key)?;
        Ok(Self { pkcs8, pair })
    }

    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    pub(crate) fn jwk(&self) -> Value {
        // An uncompressed point: the byte 4, then x, then y (SEC 1, 2.3.3).
        let point = self.pair.public_key().as_ref();
        json!({ "crv": "P-256", "kty": "EC", "x": BASE64.encode(&point[1..33]), "y": BASE64.encode(&point[33..65]) })
    }

    /// Returns the thumbprint of RFC 7638: a SHA-256 digest of the JWK, its members in
    /// lexicographic order, without spaces.
    pub(crate) fn thumbprint(&self) -> String {
        // serde_json keeps the members of `json!` sorted by name, as RFC 7638 requires.
        let canonical = self.jwk().to_string();
        BASE64.encode(ring::digest::digest(
            &ring::digest::SHA256,
            canonical.as_bytes(),
        ))
    }

    /// Signs a payload; `None` is a POST-as-GET (RFC 8555, 6.3).
    pub(crate) fn sign(
        &self,
        payload: Option<&Value>,
        by: &Signed<'_>,
        url: &str,
        nonce: Option<&str>,
    ) -> Result<Value, AccountError> {
        let mut header = json!({ "alg": "ES256", "url": url });
        match by {
            Signed::Jwk => header["jwk"] = self.jwk(),
            Signed::Account(account) => header["kid"] = json!(account),
        }
        if let Some(nonce) = nonce {
            header["nonce"] = json!(nonce);
        }
        let (protected, payload) = parts(&header, payload);
        let signature = self
            .pair
            .sign(
                &SystemRandom::new(),
                format!("{protected}.{payload}").as_bytes(),
            )
            .map_err(|_| AccountError::Key)?;
        Ok(
            json!({ "protected": protected, "payload": payload, "signature": BASE64.encode(signature) }),
        )
    }

    /// Signs an external account binding: this key's JWK, by the MAC key of the external account
    /// (RFC 8555, 7.3.4).
    pub(crate) fn bind(&self, key_id: &str, mac_key: &[u8], url: &str) -> Value {
        let header = json!({ "alg": "HS256", "kid": key_id, "url": url });
        let (protected, payload) = parts(&header, Some(&self.jwk()));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, mac_key);
        let tag = ring::hmac::sign(&key, format!("{protected}.{payload}").as_bytes());
        json!({ "protected": protected, "payload": payload, "signature": BASE64.encode(tag) })
    }
}

fn parts(header: &Value, payload: Option<&Value>) -> (String, String) {
    (
        BASE64.encode(header.to_string()),
        payload
            .map(|p| BASE64.encode(p.to_string()))
            .unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thumbprint_is_the_one_the_acme_library_computes() {
        let key = SigningKey::generate().expect("a key");
        let canonical = key.jwk().to_string();
        assert!(
            canonical.starts_with(r#"{"crv":"P-256","kty":"EC","x":""#),
            "{canonical}"
        );
        assert_eq!(key.thumbprint().len(), 43);
    }

    #[test]
    fn a_signature_verifies_with_the_public_key() {
        let key = SigningKey::generate().expect("a key");
        let jws = key
            .sign(
                Some(&json!({"a": 1})),
                &Signed::Jwk,
                "https://ca/x",
                Some("n"),
            )
            .expect("signs");
        fn text(f: &str, jws: &Value) -> String {
            jws[f].as_str().expect("a string").to_owned()
        }
        let signed = format!("{}.{}", text("protected", &jws), text("payload", &jws));
        let signature = BASE64.decode(text("signature", &jws)).expect("base64url");
        ring::signature::UnparsedPublicKey::new(
            &ring::signature::ECDSA_P256_SHA256_FIXED,
            key.pair.public_key().as_ref(),
        )
        .verify(signed.as_bytes(), &signature)
        .expect("verifies");
    }
}
