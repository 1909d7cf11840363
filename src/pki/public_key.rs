//! Public keys of certificates.

use x509_parser::x509::SubjectPublicKeyInfo;

use crate::curve::Curve;
use crate::der::{self, Reader};
use crate::names::{dotted, name_of};

/// The object identifier of an RSA key, encoded without tag and length (RFC 8017).
pub(crate) const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// That of an elliptic curve key (RFC 5480).
pub(crate) const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// That of an Ed25519 key (RFC 8410).
pub(crate) const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// A public key of an algorithm that Envoy knows. Equal keys are equal, however they are encoded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey(pub(crate) Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Modulus and exponent, without leading zeros.
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point.
    Ec {
        curve: Curve,
        point: Vec<u8>,
    },
    Ed25519(Vec<u8>),
}

/// Why Envoy cannot serve with a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
    /// An algorithm or curve that BoringSSL does not have.
    #[error(
        "{0}, which Envoy does not have: expected RSA of 2048 to 16384 bits, ECDSA on P-256, P-384 or P-521, or Ed25519"
    )]
    Algorithm(String),
    /// Envoy refuses RSA keys of fewer than 2048 bits, BoringSSL those of more than 16384.
    #[error("RSA with {0} bits, Envoy takes 2048 to 16384")]
    RsaSize(usize),
    /// BoringSSL takes odd exponents of 2 to 33 bits.
    #[error(
        "RSA with a public exponent that Envoy does not take: expected an odd one of 2 to 33 bits, usually 65537"
    )]
    RsaExponent,
    /// The key cannot be decoded.
    #[error("{0}, and cannot be decoded")]
    Damaged(String),
}

impl PublicKey {
    /// Reads the key of a certificate.
    ///
    /// # Errors
    /// When Envoy does not take it.
    pub fn of(info: &SubjectPublicKeyInfo<'_>) -> Result<Self, Unserved> {
        let algorithm = info.algorithm.algorithm.as_bytes();
        let bits = &info.subject_public_key.data;
        let name = name_of(&dotted(algorithm)).to_owned();
        let kind = match algorithm {
            RSA => rsa(bits).ok_or(Unserved::Damaged(name))?,
            ED25519 if bits.len() == 32 => Kind::Ed25519(bits.to_vec()),
            EC => {
                let named = info
                    .algorithm
                    .parameters
                    .as_ref()
                    .and_then(|any| any.as_oid().ok());
                let Some(named) = named else {
                    return Err(Unserved::Algorithm(
                        "ECDSA with parameters in place of a named curve".to_owned(),
                    ));
                };
                let curve_name = dotted(named.as_bytes());
                let curve = Curve::of_oid(named.as_bytes());
                let curve = curve.ok_or_else(|| {
                    Unserved::Algorithm(format!("ECDSA on {}", name_of(&curve_name)))
                })?;
                let point = curve.uncompressed(bits).ok_or(Unserved::Damaged(name))?;
                Kind::Ec { curve, point }
            }
            _ => return Err(Unserved::Algorithm(name)),
        };
        Self(kind).checked()
    }

    pub(crate) fn checked(self) -> Result<Self, Unserved> {
        if let Kind::Rsa { modulus, exponent } = &self.0 {
            let size = bits_of(modulus);
            if !(2048..=16384).contains(&size) {
                return Err(Unserved::RsaSize(size));
            }
            let is_odd = exponent.last().is_some_and(|last| last % 2 == 1);
            if !is_odd || !(2..=33).contains(&bits_of(exponent)) {
                return Err(Unserved::RsaExponent);
            }
        }
        Ok(self)
    }

    /// The size of an RSA key, in bits.
    pub fn rsa_bits(&self) -> Option<usize> {
        match &self.0 {
            Kind::Rsa { modulus, .. } => Some(bits_of(modulus)),
            Kind::Ec { .. } | Kind::Ed25519(_) => None,
        }
    }

    /// True if signatures with it are ECDSA.
    pub(crate) fn is_ec(&self) -> bool {
        matches!(self.0, Kind::Ec { .. })
    }
}

/// Modulus and exponent of an RSA key in the encoding of RFC 8017.
pub(crate) fn rsa(bytes: &[u8]) -> Option<Kind> {
    let mut key = Reader::new(bytes).inside(der::SEQUENCE)?;
    let modulus = key.number()?.to_vec();
    let exponent = key.number()?.to_vec();
    Some(Kind::Rsa { modulus, exponent })
}

/// The number of bits of a number without leading zeros.
pub(crate) fn bits_of(number: &[u8]) -> usize {
    number
        .first()
        .map_or(0, |first| number.len() * 8 - first.leading_zeros() as usize)
}
