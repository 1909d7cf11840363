//! Fingerprints of client certificates.

use std::fmt;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The SHA-256 of a certificate's DER, as 64 lower-case hexadecimal digits: the output of
/// `openssl x509 -noout -fingerprint -sha256`, without the colons.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Fingerprint(Arc<str>);

impl Fingerprint {
    /// Returns the fingerprint of a certificate in DER.
    pub fn of(der: &[u8]) -> Fingerprint {
        let hex: String = Sha256::digest(der)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Fingerprint(hex.into())
    }

    /// Returns the fingerprint of the first certificate of a PEM text, the leaf of a chain.
    pub fn of_pem(pem: &str) -> Option<Fingerprint> {
        let leaf = CertificateDer::pem_slice_iter(pem.as_bytes())
            .next()?
            .ok()?;
        Some(Fingerprint::of(&leaf))
    }

    /// Parses a fingerprint as printed by us or by openssl.
    pub fn parse(text: &str) -> Option<Fingerprint> {
        let hex: String = text
            .chars()
            .filter(|c| *c != ':')
            .map(|c| c.to_ascii_lowercase())
            .collect();
        (hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .then(|| Fingerprint(hex.into()))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = String;

    fn try_from(text: String) -> Result<Fingerprint, String> {
        Fingerprint::parse(&text).ok_or_else(|| format!("{text:?} is no SHA-256 fingerprint"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed_by_us_and_by_openssl() {
        let one = Fingerprint::of(b"certificate");
        let hex = one.to_string();
        assert_eq!(Fingerprint::parse(&hex), Some(one.clone()));
        let pairs: Vec<&str> = (0..32).map(|at| &hex[2 * at..2 * at + 2]).collect();
        assert_eq!(
            Fingerprint::parse(&pairs.join(":").to_uppercase()),
            Some(one)
        );
        assert_eq!(Fingerprint::parse(&hex[1..]), None);
        assert_eq!(Fingerprint::parse("gatewright-envoy-x7k2p"), None);
    }
}
