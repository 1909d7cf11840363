//! The elliptic curves that Envoy serves with: P-256, P-384 and P-521.

use ecdsa::hazmat::VerifyPrimitive;
use ecdsa::signature::hazmat::PrehashVerifier;
use ecdsa::{SignatureSize, VerifyingKey};
use elliptic_curve::generic_array::ArrayLength;
use elliptic_curve::sec1::{FromEncodedPoint, ModulusSize, ToEncodedPoint};
use elliptic_curve::{
    AffinePoint, CurveArithmetic, FieldBytesSize, PrimeCurve, PublicKey, SecretKey,
};
use p256::NistP256;
use p384::NistP384;
use p521::NistP521;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair,
};
use zeroize::Zeroizing;

use crate::der::{self, Reader};

/// A curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Curve {
    P256,
    P384,
    P521,
}

const ALL: [Curve; 3] = [Curve::P256, Curve::P384, Curve::P521];

impl Curve {
    /// Its object identifier (RFC 5480, 2.1.1.1), encoded without tag and length.
    pub(crate) fn oid(self) -> &'static [u8] {
        match self {
            Self::P256 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
            Self::P384 => &[0x2b, 0x81, 0x04, 0x00, 0x22],
            Self::P521 => &[0x2b, 0x81, 0x04, 0x00, 0x23],
        }
    }

    pub(crate) fn of_oid(oid: &[u8]) -> Option<Self> {
        ALL.into_iter().find(|curve| curve.oid() == oid)
    }

    /// Finds the curve of parameters that are written out instead of named (X9.62). The prime tells
    /// the curve: a key of another curve over it does not belong to the certificate.
    pub(crate) fn of_parameters(mut parameters: Reader<'_>) -> Option<Self> {
        parameters.number()?;
        let mut field = parameters.inside(der::SEQUENCE)?;
        field.next(der::OID)?;
        let prime = field.number()?;
        ALL.into_iter().find(|curve| curve.prime() == prime)
    }

    /// The prime of its field (SP 800-186, 3.2.1).
    fn prime(self) -> Vec<u8> {
        match self {
            Self::P256 => [&[0xff; 4][..], &[0, 0, 0, 1], &[0; 12], &[0xff; 12]].concat(),
            Self::P384 => [
                &[0xff; 31][..],
                &[0xfe, 0xff, 0xff, 0xff, 0xff],
                &[0; 8],
                &[0xff; 4],
            ]
            .concat(),
            Self::P521 => [&[0x01][..], &[0xff; 65]].concat(),
        }
    }

    /// The length of a secret key, in bytes.
    pub(crate) fn secret_length(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    /// The public key of a secret one of full length, uncompressed; `None` if it is out of range.
    pub(crate) fn public_of(self, secret: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::P256 => public_of::<NistP256>(secret),
            Self::P384 => public_of::<NistP384>(secret),
            Self::P521 => public_of::<NistP521>(secret),
        }
    }

    /// True if these are the parts of one key. `ring` is faster than to compute the public one.
    pub(crate) fn fits(self, secret: &[u8], point: &[u8]) -> bool {
        let algorithm = match self {
            Self::P256 => &ECDSA_P256_SHA256_ASN1_SIGNING,
            Self::P384 => &ECDSA_P384_SHA384_ASN1_SIGNING,
            Self::P521 => return self.public_of(secret).is_some_and(|public| public == point),
        };
        EcdsaKeyPair::from_private_key_and_public_key(
            algorithm,
            secret,
            point,
            &SystemRandom::new(),
        )
        .is_ok()
    }

    /// A public key, compressed or not, in its uncompressed form; `None` if it is not on the curve.
    pub(crate) fn uncompressed(self, point: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::P256 => uncompressed::<NistP256>(point),
            Self::P384 => uncompressed::<NistP384>(point),
            Self::P521 => uncompressed::<NistP521>(point),
        }
    }

    /// True if the signature of a hash was made with the secret of this public key.
    pub(crate) fn verifies(self, point: &[u8], hash: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::P256 => verifies::<NistP256>(point, hash, signature),
            Self::P384 => verifies::<NistP384>(point, hash, signature),
            Self::P521 => verifies::<NistP521>(point, hash, signature),
        }
    }
}

fn public_of<C>(secret: &[u8]) -> Option<Vec<u8>>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromEncodedPoint<C> + ToEncodedPoint<C>,
    FieldBytesSize<C>: ModulusSize,
{
    let secret = SecretKey::<C>::from_slice(secret).ok()?;
    Some(
        secret
            .public_key()
            .to_encoded_point(false)
            .as_bytes()
            .to_vec(),
    )
}

fn uncompressed<C>(point: &[u8]) -> Option<Vec<u8>>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromEncodedPoint<C> + ToEncodedPoint<C>,
    FieldBytesSize<C>: ModulusSize,
{
    Some(
        PublicKey::<C>::from_sec1_bytes(point)
            .ok()?
            .to_encoded_point(false)
            .as_bytes()
            .to_vec(),
    )
}

fn verifies<C>(point: &[u8], hash: &[u8], signature: &[u8]) -> bool
where
    C: PrimeCurve + CurveArithmetic,
    AffinePoint<C>: FromEncodedPoint<C> + ToEncodedPoint<C> + VerifyPrimitive<C>,
    FieldBytesSize<C>: ModulusSize,
    SignatureSize<C>: ArrayLength<u8>,
    ecdsa::der::MaxSize<C>: ArrayLength<u8>,
    <FieldBytesSize<C> as std::ops::Add>::Output:
        std::ops::Add<ecdsa::der::MaxOverhead> + ArrayLength<u8>,
{
    let Ok(key) = VerifyingKey::<C>::from_sec1_bytes(point) else {
        return false;
    };
    let Ok(signature) = ecdsa::der::Signature::<C>::try_from(signature) else {
        return false;
    };
    let Ok(signature) = ecdsa::Signature::<C>::try_from(signature) else {
        return false;
    };
    // The crate refuses hashes of less than half the length of the field; the same number in more
    // bytes is the same hash.
    let length = <FieldBytesSize<C> as elliptic_curve::generic_array::typenum::Unsigned>::USIZE;
    let mut padded = vec![0; length.saturating_sub(hash.len())];
    padded.extend_from_slice(hash);
    key.verify_prehash(&padded, &signature).is_ok()
}

/// A secret number in the full length of its curve; `None` if it is longer.
pub(crate) fn padded(curve: Curve, secret: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let secret = der::trimmed(secret);
    let missing = curve.secret_length().checked_sub(secret.len())?;
    let mut full = Zeroizing::new(vec![0; missing]);
    full.extend_from_slice(secret);
    Some(full)
}
