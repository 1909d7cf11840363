//! Private keys: generated here, zeroized when dropped, never printed.

use std::fmt;

use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::names::Names;

/// A private key in PEM. It has no equality, and `Debug` does not print its content.
#[derive(Clone)]
pub struct PrivateKeyPem(Zeroizing<String>);

impl PrivateKeyPem {
    /// Takes a PEM text, without checking it.
    pub fn new(pem: String) -> Self {
        Self(Zeroizing::new(pem))
    }

    /// Generates a P-256 key: accepted by every client and CA, and the fastest to sign with.
    pub fn generate_p256() -> Result<Self, KeyError> {
        Ok(Self(Zeroizing::new(
            KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?.serialize_pem(),
        )))
    }

    /// Generates a P-384 key, for certificate authorities.
    pub fn generate_p384() -> Result<Self, KeyError> {
        Ok(Self(Zeroizing::new(
            KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)?.serialize_pem(),
        )))
    }

    /// Returns the PEM text, to be stored or served and for nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Parses the key for signing.
    pub(crate) fn key_pair(&self) -> Result<KeyPair, KeyError> {
        Ok(KeyPair::from_pem(&self.0)?)
    }

    /// Makes a certificate signing request for these names, in DER (RFC 8555, 7.4: no subject is
    /// needed).
    pub(crate) fn csr(&self, names: &Names) -> Result<Vec<u8>, KeyError> {
        let mut params = CertificateParams::new(names.to_strings())?;
        params.distinguished_name = DistinguishedName::new();
        Ok(params.serialize_request(&self.key_pair()?)?.der().to_vec())
    }

    /// Returns true if this is the key of that certificate.
    pub fn belongs_to(&self, certificate: &CertificateDer<'_>) -> Result<bool, KeyError> {
        Ok(pki::PrivateKey::from_pem(self.0.as_bytes())?.belongs_to(certificate))
    }
}

impl fmt::Debug for PrivateKeyPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKeyPem(..)")
    }
}

// Only storage serializes keys; it is responsible for keeping them secret.
impl Serialize for PrivateKeyPem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PrivateKeyPem {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// The error of a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Not PEM, or without a private key that Envoy serves with.
    #[error(transparent)]
    Unusable(#[from] pki::KeyError),
    /// The X.509 library returns an error.
    #[error("the key or request cannot be made: {0}")]
    Rcgen(#[from] rcgen::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_printed() {
        let key = PrivateKeyPem::generate_p256().expect("a key");
        assert!(key.expose().contains("PRIVATE KEY"));
        assert_eq!(
            format!("{key:?} {:#?}", Some(&key))
                .matches("PRIVATE")
                .count(),
            0
        );
    }
}
