//! The self-signed certificate for clients whose SNI matches no host, or that send none. No client
//! trusts it: they see its common name, `no certificate for this name`, instead of another host's
//! certificate.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
};

use crate::certificate::IssuedCertificate;
use crate::failure::{Class, Failure};
use crate::internal_ca::{calendar, random_serial};
use crate::issuer::{IssueRequest, Issuer};
use crate::key::{KeyError, PrivateKeyPem};
use crate::names::{DnsName, Names};

/// An [`Issuer`] of self-signed certificates. Holds the issuer's name.
#[derive(Debug)]
pub struct SelfSigned(String);

impl SelfSigned {
    /// Makes an issuer of this name.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }
}

#[async_trait]
impl Issuer for SelfSigned {
    fn name(&self) -> &str {
        &self.0
    }

    async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure> {
        let made = self_signed(request.names.first(), request.now)
            .map_err(|e| Failure::new(Class::Bug, format!("{}: {e}", self.0)))?;
        Ok(IssuedCertificate {
            issuer: self.0.clone(),
            ..made
        })
    }
}

/// Makes a self-signed certificate for `name`, valid for a year.
pub fn self_signed(name: &DnsName, now: Timestamp) -> Result<IssuedCertificate, KeyError> {
    let key = PrivateKeyPem::generate_p256()?;
    let names = Names::one(name.clone());
    let mut params = CertificateParams::new(names.to_strings())?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "no certificate for this name");
    params.serial_number = Some(random_serial());
    params.not_before = calendar(now - SignedDuration::from_mins(5));
    params.not_after = calendar(now + SignedDuration::from_hours(24 * 365));
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let pem = params.self_signed(&key.key_pair()?)?.pem();
    Ok(
        IssuedCertificate::verified(pem, key, &names, "self-signed", now)
            .expect("what was just made is as it was asked for"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bootstrap_certificate_is_its_own_issuer() {
        let now = Timestamp::from_second(1_790_000_000).expect("in range");
        let name = DnsName::parse("default.invalid").expect("a name");
        let made = self_signed(&name, now).expect("made");
        let chain = crate::certificate::chain_of(&made.chain_pem).expect("a chain");
        let (_, parsed) = x509_parser::parse_x509_certificate(&chain[0]).expect("parses");
        assert_eq!(parsed.issuer(), parsed.subject());
        parsed.verify_signature(None).expect("signed by itself");
        assert!(made.names.contains(&name));
    }
}
