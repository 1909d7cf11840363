//! The CA of xDS connections, as whoever has its key could use it: certificates that the controller
//! did not issue.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};

use crate::hex::hex;

/// The name in the controller's server certificate.
pub const XDS_NAME: &str = "xds.gatewright.io";
/// How long certificates are valid already: clocks differ.
const SKEW: Duration = Duration::from_secs(300);

/// A certificate and its key in PEM.
#[derive(Clone, Debug)]
pub struct PemPair {
    /// The chain, leaf first.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl PemPair {
    /// Returns the SHA-256 of the certificate, in hexadecimal.
    ///
    /// # Errors
    /// When it is no PEM.
    pub fn fingerprint(&self) -> Result<String> {
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes())?;
        Ok(hex(Sha256::digest(&der)))
    }
}

/// A CA of clients and servers.
pub struct XdsCa {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate in PEM.
    pub pem: String,
}

impl XdsCa {
    /// Makes a new one.
    ///
    /// # Errors
    /// When a key cannot be generated.
    pub fn new(name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = params(name, Duration::from_secs(3600));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// Uses the key of an existing one.
    ///
    /// # Errors
    /// When the pair cannot be read.
    pub fn load(pair: &PemPair) -> Result<Self> {
        let key = KeyPair::from_pem(&pair.key).context("the key of the CA")?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(&pair.certificate, key).context("the CA")?,
            pem: pair.certificate.clone(),
        })
    }

    /// Issues a certificate for the client with this URI.
    ///
    /// # Errors
    /// As [`XdsCa::new`].
    pub fn client(&self, identity: &str, valid: Duration) -> Result<PemPair> {
        let name = SanType::URI(identity.try_into()?);
        self.issue(identity, name, ExtendedKeyUsagePurpose::ClientAuth, valid)
    }

    /// Issues a certificate for a server of this name.
    ///
    /// # Errors
    /// As [`XdsCa::new`].
    pub fn server(&self, host: &str, valid: Duration) -> Result<PemPair> {
        let name = SanType::DnsName(host.try_into()?);
        self.issue(host, name, ExtendedKeyUsagePurpose::ServerAuth, valid)
    }

    fn issue(
        &self,
        subject: &str,
        name: SanType,
        usage: ExtendedKeyUsagePurpose,
        valid: Duration,
    ) -> Result<PemPair> {
        let mut params = params(subject, valid);
        params.subject_alt_names = vec![name];
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        Ok(PemPair {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn params(subject: &str, valid: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    // X.520 has no longer names.
    let subject: String = subject.chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, subject);
    let now = SystemTime::now();
    params.not_before = (now - SKEW).into();
    params.not_after = (now + valid).into();
    params
}
