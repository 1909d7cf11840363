//! X.509 certificates (RFC 5280).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::error::X509Error;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Reads a certificate in DER, behind which nothing stands; or returns what is wrong with it, in
/// words that follow "is no X.509 certificate: ".
pub fn read(der: &[u8]) -> Result<X509Certificate<'_>, &'static str> {
    match X509Certificate::from_der(der) {
        // BoringSSL takes no number with leading zeros (X.690, 8.3.2).
        Ok(([], certificate)) => match certificate.raw_serial() {
            [] | [0, 0..=0x7f, ..] => Err("its serial number is not DER"),
            _ => Ok(certificate),
        },
        Ok(_) => Err("something follows it"),
        Err(error) => Err(words(error)),
    }
}

fn words(error: x509_parser::nom::Err<X509Error>) -> &'static str {
    let (x509_parser::nom::Err::Error(error) | x509_parser::nom::Err::Failure(error)) = error
    else {
        return "it ends early";
    };
    match error {
        X509Error::InvalidVersion => "its version is invalid",
        X509Error::InvalidSerial => "its serial number is invalid",
        X509Error::InvalidAlgorithmIdentifier => "an algorithm of it cannot be decoded",
        X509Error::InvalidX509Name => "its subject or issuer cannot be decoded",
        X509Error::InvalidDate => "its validity cannot be decoded",
        X509Error::InvalidSPKI => "its public key cannot be decoded",
        X509Error::InvalidExtensions => "its extensions cannot be decoded",
        X509Error::DuplicateExtensions => "it has an extension twice",
        X509Error::InvalidSignatureValue => "its signature cannot be decoded",
        X509Error::Der(x509_parser::der_parser::error::BerError::Incomplete(_)) => "it ends early",
        _ => "it is cut short, or is not DER of a certificate",
    }
}

/// The time during which a certificate is valid, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its start.
    pub from: SystemTime,
    /// Its end; the year 9999 is one without an end (RFC 5280, 4.1.2.5).
    pub until: SystemTime,
}

/// The validity of a certificate.
pub fn validity(certificate: &X509Certificate<'_>) -> Validity {
    Validity {
        from: at(certificate.validity().not_before),
        until: at(certificate.validity().not_after),
    }
}

fn at(time: x509_parser::time::ASN1Time) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or_default())
}
