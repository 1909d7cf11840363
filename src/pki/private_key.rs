//! Private keys of servers.

use std::fmt;

use ring::signature::KeyPair;
use x509_parser::num_bigint::BigUint;
use x509_parser::prelude::X509Certificate;
use zeroize::Zeroizing;

use crate::curve::{Curve, padded};
use crate::der::{self, BIT_STRING, INTEGER, NULL, OCTET_STRING, OID, Reader, SEQUENCE};
use crate::label::{Form, Label};
use crate::names::{dotted, name_of};
use crate::pem::{self, PemError};
use crate::public_key::{EC, ED25519, Kind, PublicKey, RSA, Unserved};
use crate::x509;

/// A private key that Envoy serves with: its public part is known, and its numbers fit each other.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey {
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
}

// The content is never printed.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[private key]")
    }
}

/// Why a text holds no private key that Envoy serves with. No message quotes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not PEM, or without a private key.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// Encrypted with a passphrase.
    #[error(
        "the key is encrypted with a passphrase, expected one that is not (openssl pkey -in KEY -out NEW removes it)"
    )]
    Encrypted,
    /// The format of OpenSSH.
    #[error(
        "the key is in OpenSSH's format, expected PKCS #8 (ssh-keygen -p -m PKCS8 -f KEY rewrites it)"
    )]
    OpenSsh,
    /// The key cannot be decoded.
    #[error("the key is damaged: {0}")]
    Damaged(&'static str),
    /// Envoy does not serve with it.
    #[error("the key is {0}")]
    Unserved(#[from] Unserved),
}

impl PrivateKey {
    /// Reads the first private key of a PEM text, in PKCS #8, SEC 1 or PKCS #1.
    ///
    /// # Errors
    /// When there is none, or Envoy does not serve with it.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let parts = pem::parts(text)?;
        let key = parts.iter().find_map(|part| match part.label {
            Label::PrivateKey(form) => Some(Ok((form, &part.der))),
            Label::EncryptedKey => Some(Err(KeyError::Encrypted)),
            Label::OpenSshKey => Some(Err(KeyError::OpenSsh)),
            _ if part.title == "DSA PRIVATE KEY" => {
                Some(Err(Unserved::Algorithm("DSA".to_owned()).into()))
            }
            _ => None,
        });
        let Some(key) = key else {
            let found = parts.into_iter().map(|part| part.shown()).collect();
            return Err(PemError::Nothing {
                wanted: "private key",
                found,
            }
            .into());
        };
        let (form, der) = key?;
        match form {
            Form::Pkcs8 => of_pkcs8(der),
            // OpenSSL reads the inside whatever the label says of it.
            Form::Sec1 => of_sec1(der, None).or_else(|error| of_pkcs8(der).map_err(|_| error)),
            Form::Pkcs1 => of_pkcs1(der).or_else(|error| of_pkcs8(der).map_err(|_| error)),
        }
    }

    /// Its public part.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// True if this is the key of that certificate, in DER.
    pub fn belongs_to(&self, certificate: &[u8]) -> bool {
        x509::read(certificate).is_ok_and(|read| self.is_of(&read))
    }

    /// True if this is the key of that certificate.
    pub fn is_of(&self, certificate: &X509Certificate<'_>) -> bool {
        PublicKey::of(certificate.public_key()).is_ok_and(|key| key == self.public)
    }

    /// The key in PKCS #8, version 1, with its public part: the encoding that BoringSSL reads for
    /// every algorithm.
    pub fn pkcs8(&self) -> &Zeroizing<Vec<u8>> {
        &self.pkcs8
    }
}

const ENDS_EARLY: KeyError = KeyError::Damaged("it is cut short, or is not what its label says");

fn of_pkcs8(bytes: &[u8]) -> Result<PrivateKey, KeyError> {
    let parsed = || {
        let mut key = Reader::new(bytes).inside(SEQUENCE)?;
        key.next(INTEGER)?;
        let mut algorithm = key.inside(SEQUENCE)?;
        Some((algorithm.next(OID)?, algorithm, key.next(OCTET_STRING)?))
    };
    let (algorithm, parameters, secret) = parsed().ok_or(ENDS_EARLY)?;
    match algorithm {
        RSA => of_pkcs1(secret),
        EC => of_sec1(secret, Some(curve_of(parameters)?)),
        ED25519 => ed25519(Reader::new(secret).next(OCTET_STRING).ok_or(ENDS_EARLY)?),
        other => Err(Unserved::Algorithm(name_of(&dotted(other)).to_owned()).into()),
    }
}

/// The curve of parameters: a name, or all its numbers.
fn curve_of(mut parameters: Reader<'_>) -> Result<Curve, KeyError> {
    let mut written_out = parameters;
    if let Some(oid) = parameters.next(OID) {
        return Ok(Curve::of_oid(oid)
            .ok_or_else(|| Unserved::Algorithm(format!("ECDSA on {}", name_of(&dotted(oid)))))?);
    }
    let curve = written_out.inside(SEQUENCE).and_then(Curve::of_parameters);
    Ok(curve.ok_or_else(|| Unserved::Algorithm("ECDSA on a curve of its own".to_owned()))?)
}

/// Reads an `ECPrivateKey` (RFC 5915), whose curve and public part may be missing.
fn of_sec1(bytes: &[u8], outer: Option<Curve>) -> Result<PrivateKey, KeyError> {
    let mut key = Reader::new(bytes).inside(SEQUENCE).ok_or(ENDS_EARLY)?;
    key.next(INTEGER).ok_or(ENDS_EARLY)?;
    let secret = key.next(OCTET_STRING).ok_or(ENDS_EARLY)?;
    let inner = key.inside(0xa0).map(curve_of).transpose()?;
    let stated = key
        .inside(0xa1)
        .and_then(|mut public| public.next(BIT_STRING));
    if let (Some(outer), Some(inner)) = (outer, inner)
        && outer != inner
    {
        return Err(KeyError::Damaged("it names two curves"));
    }
    let curve = outer
        .or(inner)
        .ok_or(KeyError::Damaged("it does not name its curve"))?;
    let secret = padded(curve, secret).ok_or(KeyError::Damaged("it is longer than its curve"))?;
    let point = match stated {
        // The first byte is the number of unused bits.
        Some(bits) => curve
            .uncompressed(bits.get(1..).unwrap_or_default())
            .filter(|point| curve.fits(&secret, point)),
        None => curve.public_of(&secret),
    };
    let point = point.ok_or(KeyError::Damaged(
        "it is out of the range of its curve, or its public part is of another",
    ))?;
    let version = der::encode(INTEGER, &[&[1]]);
    let bits = der::encode(0xa1, &[&der::encode(BIT_STRING, &[&[0], &point])]);
    let inside = der::encode(
        SEQUENCE,
        &[&version, &der::encode(OCTET_STRING, &[&secret]), &bits],
    );
    let algorithm = [der::encode(OID, &[EC]), der::encode(OID, &[curve.oid()])];
    Ok(written(&algorithm, &inside, Kind::Ec { curve, point })?)
}

fn ed25519(seed: &[u8]) -> Result<PrivateKey, KeyError> {
    let pair =
        ring::signature::Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| ENDS_EARLY)?;
    let public = Kind::Ed25519(pair.public_key().as_ref().to_vec());
    Ok(written(
        &[der::encode(OID, &[ED25519])],
        &der::encode(OCTET_STRING, &[seed]),
        public,
    )?)
}

/// Reads an `RSAPrivateKey` (RFC 8017), and checks it as BoringSSL does.
fn of_pkcs1(bytes: &[u8]) -> Result<PrivateKey, KeyError> {
    let numbers = || {
        let mut key = Reader::new(bytes).inside(SEQUENCE)?;
        let version = key.number()?;
        let mut numbers = [&[][..]; 8];
        for number in &mut numbers {
            *number = key.number()?;
        }
        Some((version, numbers))
    };
    let (version, numbers) = numbers().ok_or(ENDS_EARLY)?;
    if !version.is_empty() {
        return Err(Unserved::Algorithm("RSA with more than two primes".to_owned()).into());
    }
    let [modulus, exponent, ..] = numbers;
    let public = Kind::Rsa {
        modulus: modulus.to_vec(),
        exponent: exponent.to_vec(),
    };
    let key = written(
        &[der::encode(OID, &[RSA]), der::encode(NULL, &[])],
        bytes_of(bytes),
        public,
    )?;
    if !fits(numbers.map(BigUint::from_bytes_be)) {
        return Err(KeyError::Damaged("its numbers do not fit each other"));
    }
    Ok(key)
}

/// The value without what follows it.
fn bytes_of(bytes: &[u8]) -> &[u8] {
    der::split_first(bytes).map_or(bytes, |(value, _)| value)
}

/// True if the numbers of an RSA key are of one key (RFC 8017, 3.2).
fn fits([n, e, d, p, q, dp, dq, inverse]: [BigUint; 8]) -> bool {
    let one = BigUint::from(1u8);
    // Compared first: the time of the products is bounded by the size of the modulus.
    if p <= one || q <= one || p >= n || q >= n || d >= n || inverse >= p || &p * &q != n {
        return false;
    }
    let p1 = &p - &one;
    let q1 = &q - &one;
    &e * &d % &p1 == one
        && &e * &d % &q1 == one
        && &d % &p1 == dp
        && &d % &q1 == dq
        && inverse * &q % &p == one
}

/// Writes PKCS #8, version 1.
fn written(
    algorithm: &[Zeroizing<Vec<u8>>],
    secret: &[u8],
    public: Kind,
) -> Result<PrivateKey, Unserved> {
    let public = PublicKey(public).checked()?;
    let algorithm: Vec<&[u8]> = algorithm.iter().map(|part| part.as_slice()).collect();
    let version = der::encode(INTEGER, &[&[0]]);
    let pkcs8 = der::encode(
        SEQUENCE,
        &[
            &version,
            &der::encode(SEQUENCE, &algorithm),
            &der::encode(OCTET_STRING, &[secret]),
        ],
    );
    Ok(PrivateKey { pkcs8, public })
}
