//! A CA of client certificates.

use anyhow::Result;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use rustls::pki_types::CertificateDer;

/// A new CA.
pub struct ClientCa {
    name: String,
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate in PEM, for `ca.crt`.
    pub pem: String,
}

impl ClientCa {
    /// Makes a CA.
    ///
    /// # Errors
    /// When a key cannot be generated.
    pub fn new(name: &str) -> Result<Self> {
        let params = params(name);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            name: name.to_owned(),
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// An edition of its certificate with the same name and key, which ended in 2021.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn ended_edition(&self) -> Result<String> {
        let mut params = params(&self.name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        Ok(params.self_signed(self.issuer.key())?.pem())
    }

    /// Issues a client certificate; returns it with its key in DER (PKCS #8).
    ///
    /// # Errors
    /// As [`ClientCa::new`].
    pub fn client(&self) -> Result<(CertificateDer<'static>, Vec<u8>)> {
        let (certificate, key) = self.issue()?;
        Ok((certificate.der().clone(), key.serialize_der()))
    }

    /// Issues a client certificate in PEM, with its key.
    ///
    /// # Errors
    /// As [`ClientCa::new`].
    pub fn client_pem(&self) -> Result<(String, String)> {
        let (certificate, key) = self.issue()?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    fn issue(&self) -> Result<(Certificate, KeyPair)> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "a client");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?, key))
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}
