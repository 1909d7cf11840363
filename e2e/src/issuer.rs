//! An issuer of tokens (JSON Web Tokens) with a key of its own.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

/// `iss` of all tokens.
pub const ISSUER: &str = "https://id.example.org";

/// An issuer with a key on P-256.
pub struct Issuer {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl Issuer {
    /// An issuer with a new key.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn new() -> Result<Self> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .and_then(|pkcs8| {
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random)
                    .map_err(|_| ring::error::Unspecified)
            })
            .map_err(|_| anyhow::anyhow!("no key"))?;
        Ok(Self { key, random })
    }

    /// Its public key.
    pub fn jwk(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let (x, y) = (encoded(&point[1..33]), encoded(&point[33..]));
        json!({"kty": "EC", "crv": "P-256", "kid": "one", "x": x, "y": y})
    }

    /// A token for audience `shop` that is valid for five minutes, with these claims in place of its
    /// own.
    ///
    /// # Errors
    /// When the claims are no object, or the key does not sign.
    pub fn token(&self, claims: Value) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let mut all = json!({"iss": ISSUER, "aud": "shop", "exp": now + 300});
        let fields = all.as_object_mut().context("an object")?;
        for (name, value) in claims.as_object().context("claims")? {
            fields.insert(name.clone(), value.clone());
        }
        fields.retain(|_, value| !value.is_null());
        let head = encoded(json!({"alg": "ES256", "kid": "one"}).to_string().as_bytes());
        let signed = format!("{head}.{}", encoded(all.to_string().as_bytes()));
        let signature = self
            .key
            .sign(&self.random, signed.as_bytes())
            .map_err(|_| anyhow::anyhow!("no signature"))?;
        Ok(format!("{signed}.{}", encoded(signature.as_ref())))
    }
}

/// Bytes in Base64url without padding.
pub fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
