//! Signatures of certificates.

use ring::signature::{
    self as rsa, ED25519, RSA_PKCS1_2048_8192_SHA384, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use x509_parser::prelude::X509Certificate;
use x509_parser::signature_algorithm::SignatureAlgorithm;

use crate::names::{dotted, name_of};
use crate::public_key::{self, Kind, PublicKey, bits_of};

/// The verdict on a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// It was made with the key.
    Right,
    /// It was not.
    Wrong,
    /// Its algorithm, or the key, is unknown here; clients may know it.
    Unchecked,
}

/// Checks whether a certificate was signed by another: names and signature.
pub fn signed_by(child: &X509Certificate<'_>, parent: &X509Certificate<'_>) -> Signature {
    if child.issuer() != parent.subject() {
        return Signature::Wrong;
    }
    let signed = child.tbs_certificate.as_ref();
    let signature = &*child.signature_value.data;
    let key = &*parent.public_key().subject_public_key.data;
    let is_right = match scheme(child) {
        Some(Scheme::Ecdsa(hash)) => {
            let Ok(PublicKey(Kind::Ec { curve, point })) = PublicKey::of(parent.public_key())
            else {
                return Signature::Unchecked;
            };
            curve.verifies(&point, &hash(signed), signature)
        }
        Some(Scheme::Rsa(smallest, algorithm)) => {
            let size = public_key::rsa(key).map_or(0, |kind| match kind {
                Kind::Rsa { modulus, .. } => bits_of(&modulus),
                Kind::Ec { .. } | Kind::Ed25519(_) => 0,
            });
            // What `ring` can verify.
            if !(smallest..=8192).contains(&size) {
                return Signature::Unchecked;
            }
            UnparsedPublicKey::new(algorithm, key)
                .verify(signed, signature)
                .is_ok()
        }
        Some(Scheme::Ed25519) => UnparsedPublicKey::new(&ED25519, key)
            .verify(signed, signature)
            .is_ok(),
        None => return Signature::Unchecked,
    };
    if is_right {
        Signature::Right
    } else {
        Signature::Wrong
    }
}

/// How a signature is verified.
enum Scheme {
    Ecdsa(fn(&[u8]) -> Vec<u8>),
    /// By `ring`, for keys of that many bits and more.
    Rsa(usize, &'static dyn VerificationAlgorithm),
    Ed25519,
}

fn scheme(certificate: &X509Certificate<'_>) -> Option<Scheme> {
    let oid = dotted(certificate.signature_algorithm.algorithm.as_bytes());
    Some(match oid.as_str() {
        "1.2.840.10045.4.3.1" => Scheme::Ecdsa(|signed| Sha224::digest(signed).to_vec()),
        "1.2.840.10045.4.3.2" => Scheme::Ecdsa(|signed| Sha256::digest(signed).to_vec()),
        "1.2.840.10045.4.3.3" => Scheme::Ecdsa(|signed| Sha384::digest(signed).to_vec()),
        "1.2.840.10045.4.3.4" => Scheme::Ecdsa(|signed| Sha512::digest(signed).to_vec()),
        "1.2.840.113549.1.1.11" => {
            Scheme::Rsa(1024, &rsa::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY)
        }
        "1.2.840.113549.1.1.12" => Scheme::Rsa(2048, &RSA_PKCS1_2048_8192_SHA384),
        "1.2.840.113549.1.1.13" => {
            Scheme::Rsa(1024, &rsa::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY)
        }
        "1.2.840.113549.1.1.10" => Scheme::Rsa(2048, pss(certificate)?),
        "1.3.101.112" => Scheme::Ed25519,
        _ => return None,
    })
}

/// RSA-PSS with a salt of the length of the hash, as TLS has it.
fn pss(certificate: &X509Certificate<'_>) -> Option<&'static dyn VerificationAlgorithm> {
    let SignatureAlgorithm::RSASSA_PSS(parameters) =
        SignatureAlgorithm::try_from(&certificate.signature_algorithm).ok()?
    else {
        return None;
    };
    let hash = dotted(parameters.hash_algorithm_oid().as_bytes());
    Some(match (hash.as_str(), parameters.salt_length()) {
        ("2.16.840.1.101.3.4.2.1", 32) => &RSA_PSS_2048_8192_SHA256,
        ("2.16.840.1.101.3.4.2.2", 48) => &RSA_PSS_2048_8192_SHA384,
        ("2.16.840.1.101.3.4.2.3", 64) => &RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

/// The name of the signature's algorithm if no client of today accepts its hash.
pub(crate) fn weak(certificate: &X509Certificate<'_>) -> Option<String> {
    let oid = dotted(certificate.signature_algorithm.algorithm.as_bytes());
    let is_weak = matches!(
        oid.as_str(),
        "1.2.840.113549.1.1.2"
            | "1.2.840.113549.1.1.4"
            | "1.2.840.113549.1.1.5"
            | "1.2.840.10045.4.1"
    );
    is_weak.then(|| name_of(&oid).to_owned())
}
