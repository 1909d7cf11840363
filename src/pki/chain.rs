//! The chain of a server, and how long it may be: Envoy holds it once for each name that is served
//! with it.

use rustls_pki_types::CertificateDer;

use crate::pem::{PemError, certificates, encoded_length};

/// The most certificates of a chain. Public CAs issue chains of 2 to 5.
const MOST_CERTIFICATES: usize = 10;
/// The most bytes of a chain in PEM. Those of public CAs have 3 to 8 KiB.
const MOST_BYTES: usize = 32 << 10;

/// Why a text is no chain to serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// It cannot be read.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// It has too many certificates.
    #[error(
        "{0} certificates, a chain may have {MOST_CERTIFICATES}: keep the server's certificate and the intermediates that lead \
         to the root, and leave out roots and other certificates"
    )]
    Certificates(usize),
    /// It is too large.
    #[error(
        "{} KiB of certificates, a chain may have {}: leave out roots and other certificates, or distribute the names over \
         several certificates",
        .0.div_ceil(1024),
        MOST_BYTES >> 10
    )]
    Bytes(usize),
}

/// Reads the chain of a server like [`certificates`], the server's certificate first; there is at
/// least one.
///
/// # Errors
/// Also when the chain is longer than those that are served.
pub fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, ChainError> {
    let ders = certificates(text)?;
    if ders.len() > MOST_CERTIFICATES {
        return Err(ChainError::Certificates(ders.len()));
    }
    let bytes = ders
        .iter()
        .map(|der| encoded_length("CERTIFICATE", der))
        .sum();
    if bytes > MOST_BYTES {
        return Err(ChainError::Bytes(bytes));
    }
    Ok(ders)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate with this number of names of 63 letters.
    fn certificate(names: usize) -> String {
        let names: Vec<String> = (0..names)
            .map(|number| format!("{number:063}.example.org"))
            .collect();
        let key = KeyPair::generate().expect("a key");
        CertificateParams::new(names)
            .expect("names")
            .self_signed(&key)
            .expect("a certificate")
            .pem()
    }

    #[test]
    fn a_chain_has_at_most_ten_certificates() {
        let many: Vec<String> = (0..11).map(|_| certificate(1)).collect();
        assert_eq!(
            chain(many[..10].concat().as_bytes()).map(|ders| ders.len()),
            Ok(10)
        );
        assert_eq!(
            chain(many.concat().as_bytes()),
            Err(ChainError::Certificates(11))
        );
        let twice = many[..10].concat().repeat(2);
        assert_eq!(
            chain(twice.as_bytes()).map(|ders| ders.len()),
            Ok(10),
            "a repeated certificate is read once"
        );
    }

    #[test]
    fn a_chain_has_at_most_32_kib_without_the_text_between_certificates() {
        let large = certificate(300);
        assert!(
            large.len() > 30 << 10 && large.len() < 32 << 10,
            "{} bytes",
            large.len()
        );
        let noted = format!("{}\n{large}", "# a comment\n".repeat(10_000));
        assert_eq!(
            chain(noted.as_bytes()).map(|ders| ders.len()),
            Ok(1),
            "comments do not count"
        );
        let over = chain((large + &certificate(30)).as_bytes()).expect_err("it is too large");
        assert!(
            matches!(over, ChainError::Bytes(bytes) if bytes > MOST_BYTES),
            "{over:?}"
        );
        let told = over.to_string();
        assert!(
            told.starts_with("35 KiB of certificates, a chain may have 32: "),
            "{told}"
        );
    }
}
