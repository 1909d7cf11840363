//! Public keys of a JSON Web Key Set (RFC 7517) with which Envoy verifies tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::curve::Curve;
use crate::der;
use crate::public_key::{Kind, PublicKey, Unserved};

/// The members of a public key, in Base64url without padding (RFC 7518, 6).
#[derive(Clone, Copy, Debug)]
pub enum Jwk<'a> {
    /// An RSA key.
    Rsa {
        /// The modulus.
        n: &'a str,
        /// The exponent.
        e: &'a str,
    },
    /// A point of an elliptic curve.
    Ec {
        /// The name of the curve.
        crv: &'a str,
        /// Its coordinates, of the full length of the field.
        x: &'a str,
        /// See `x`.
        y: &'a str,
    },
}

/// Why a token cannot be verified with a key. No message has a part of the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwkError {
    /// Not Base64url.
    #[error("{0} is not Base64url without padding (RFC 7515)")]
    Base64(&'static str),
    /// A curve that Envoy does not have.
    #[error("crv: expected P-256, P-384 or P-521")]
    Curve,
    /// Not on the curve.
    #[error("x and y are no point of the curve, with as many bytes as its field")]
    Point,
    /// An even modulus is that of no key.
    #[error("n is the modulus of no RSA key")]
    Modulus,
    /// A key that Envoy refuses.
    #[error("{0}")]
    Unserved(#[from] Unserved),
}

impl Jwk<'_> {
    /// The key, as Envoy loads it.
    ///
    /// # Errors
    /// When Envoy does not load it.
    pub fn public_key(self) -> Result<PublicKey, JwkError> {
        match self {
            Self::Rsa { n, e } => {
                let modulus = der::trimmed(&decoded("n", n)?).to_vec();
                let exponent = der::trimmed(&decoded("e", e)?).to_vec();
                if modulus.last().is_none_or(|last| last % 2 == 0) {
                    return Err(JwkError::Modulus);
                }
                Ok(PublicKey(Kind::Rsa { modulus, exponent }).checked()?)
            }
            Self::Ec { crv, x, y } => {
                let curve = match crv {
                    "P-256" => Curve::P256,
                    "P-384" => Curve::P384,
                    "P-521" => Curve::P521,
                    _ => return Err(JwkError::Curve),
                };
                let (x, y) = (decoded("x", x)?, decoded("y", y)?);
                let length = curve.secret_length();
                if x.len() != length || y.len() != length {
                    return Err(JwkError::Point);
                }
                let point = [&[4][..], &x, &y].concat();
                let point = curve.uncompressed(&point).ok_or(JwkError::Point)?;
                Ok(PublicKey(Kind::Ec { curve, point }))
            }
        }
    }
}

fn decoded(member: &'static str, text: &str) -> Result<Vec<u8>, JwkError> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| JwkError::Base64(member))
}
