//! What is wrong with a chain, in types and in words.

use std::fmt;
use std::time::SystemTime;

use crate::public_key::Unserved;

/// Something for which a chain is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The position of the certificate in the chain; the leaf is 0.
    pub position: usize,
    /// Who refuses it.
    pub refuser: Refuser,
    /// What is wrong.
    pub problem: Problem,
}

/// Who refuses a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refuser {
    /// Envoy does not load it, so that nothing is served.
    Envoy,
    /// Envoy serves it, and usual TLS clients refuse it.
    Clients,
}

impl fmt::Display for Refuser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refuser::Envoy => "Envoy",
            Refuser::Clients => "TLS clients",
        })
    }
}

/// The text names the certificate and what is wrong, without the refuser:
/// `the certificate ended at …`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            0 => write!(f, "the certificate {}", self.problem),
            position => write!(
                f,
                "certificate {} of the chain {}",
                position + 1,
                self.problem
            ),
        }
    }
}

/// What is wrong with a certificate of a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The certificate cannot be decoded.
    #[error("is no X.509 certificate: {0}")]
    NotX509(&'static str),
    /// Its key is not one that a server of today has.
    #[error("has a key of {0}")]
    Key(Unserved),
    /// Extensions exist since version 3.
    #[error("has extensions although its version is below 3")]
    Version,
    /// RFC 5280, 4.2.1.3.
    #[error(
        "has a keyUsage without digitalSignature, which TLS needs with its key (RFC 5280, 4.2.1.3)"
    )]
    KeyUsage,
    /// RFC 5280, 4.2.1.12.
    #[error("has an extKeyUsage without serverAuth (RFC 5280, 4.2.1.12)")]
    ExtendedKeyUsage,
    /// RFC 7633.
    #[error("requires OCSP stapling (must-staple, RFC 7633), which is not supported")]
    MustStaple,
    /// RFC 5280, 4.2.
    #[error("has the critical extension {0}, which clients do not know")]
    Critical(String),
    /// RFC 5280, 4.2.
    #[error("has the extension {0} twice")]
    Twice(String),
    /// An extension cannot be decoded.
    #[error("has an extension {0} that cannot be decoded")]
    Malformed(String),
    /// RFC 5280, 4.1.2.5.
    #[error("is not valid before {}", rfc3339(.0))]
    NotYet(SystemTime),
    /// RFC 5280, 4.1.2.5.
    #[error("ended at {}", rfc3339(.0))]
    Ended(SystemTime),
    /// RFC 9525, 2.
    #[error("has no DNS name or IP address as subjectAltName (RFC 9525)")]
    NoNames,
    /// RFC 5280, 4.2.1.9.
    #[error(
        "signs another, and is no CA certificate (basicConstraints CA:TRUE, RFC 5280, 4.2.1.9)"
    )]
    NotCa,
    /// RFC 5280, 4.2.1.3.
    #[error("signs another, and has a keyUsage without keyCertSign (RFC 5280, 4.2.1.3)")]
    NoCertSign,
    /// RFC 5280, 4.2.1.9.
    #[error(
        "has more CA certificates below it than its pathLenConstraint allows (RFC 5280, 4.2.1.9)"
    )]
    PathLength,
    /// RFC 5280, 4.2.1.10.
    #[error("does not permit {0} by its nameConstraints (RFC 5280, 4.2.1.10)")]
    NotPermitted(String),
    /// The hash of its signature is broken.
    #[error("is signed by {0}, which clients no longer accept")]
    WeakSignature(String),
    /// It has the name of the issuer of the certificate before it, and another key.
    #[error(
        "has the name of the issuer of the one that it should have signed, and did not sign it"
    )]
    OtherKey,
}

/// A time for people; those that jiff does not have are at the end of the year 9999.
fn rfc3339(time: &SystemTime) -> jiff::Timestamp {
    jiff::Timestamp::try_from(*time).unwrap_or(jiff::Timestamp::MAX)
}
