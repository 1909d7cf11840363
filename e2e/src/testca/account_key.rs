//! The public key of an account.

use super::*;

/// The public key of an account (RFC 7518, 6.2 and 6.3).
#[derive(Clone, PartialEq, Eq)]
pub(super) enum AccountKey {
    /// An uncompressed point of P-256.
    P256(Vec<u8>),
    /// Modulus and exponent.
    Rsa(Vec<u8>, Vec<u8>),
}

impl AccountKey {
    pub(super) fn of(jwk: &Value) -> Result<Self> {
        let part =
            |name: &str| Ok::<_, anyhow::Error>(BASE64.decode(jwk[name].as_str().context("jwk")?)?);
        match jwk["kty"].as_str() {
            Some("EC") => {
                ensure!(jwk["crv"] == "P-256", Kind("badPublicKey"));
                Ok(Self::P256([vec![4], part("x")?, part("y")?].concat()))
            }
            Some("RSA") => Ok(Self::Rsa(part("n")?, part("e")?)),
            _ => bail!(Kind("badPublicKey")),
        }
    }

    /// Verifies a signature; the algorithm must be the key's (RFC 8555, 6.2).
    pub(super) fn verify(&self, algorithm: &Value, signed: &str, signature: &[u8]) -> Result<()> {
        use ring::signature::{
            ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
            UnparsedPublicKey,
        };
        let checked = match (self, algorithm.as_str()) {
            (Self::P256(point), Some("ES256")) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                    .verify(signed.as_bytes(), signature)
            }
            (Self::Rsa(n, e), Some("RS256")) => RsaPublicKeyComponents { n, e }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                signed.as_bytes(),
                signature,
            ),
            _ => bail!(Kind("badSignatureAlgorithm")),
        };
        checked.map_err(|_| Kind("unauthorized").into())
    }
}
