//! Certificates stored directly in the Secrets that listeners use. Others may write these Secrets;
//! a valid certificate found there is used until renewal.

use std::sync::Arc;

use acme::keeper::Stored;
use acme::{CertificateId, IssuedCertificate, Names, PrivateKeyPem};
use jiff::Timestamp;

use gatewright_core::inputs::CERT_MANAGER;
use gatewright_core::model::{Certificate, ObjectName};
use gatewright_core::wanted::INTERNAL_CA;

/// The writer of certificates in their target Secrets.
pub trait SecretTargets: Send + Sync {
    /// Sets the target of a Secret; `None` where it wants no certificate from us any more.
    fn address(&self, secret: &ObjectName, target: Option<SecretTarget>);
}

/// The certificate that a Secret wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretTarget {
    /// The id of the certificate.
    pub id: CertificateId,
    /// The required names.
    pub names: Names,
    /// The name of the issuer in the keeper.
    pub issuer: String,
    /// cert-manager's Issuer for the same CA: a certificate of that one counts as one of ours.
    pub twin: Option<Arc<str>>,
    /// The serial number of the certificate in the Secret.
    pub present: Option<String>,
}

/// The certificate that a Secret has.
#[derive(Clone, Debug, PartialEq)]
pub struct ExistingCertificate {
    /// The certificate.
    pub certificate: Arc<Certificate>,
    /// The issuer that the Secret's annotation names.
    pub issued_by: Option<Arc<str>>,
}

impl ExistingCertificate {
    /// Converts it to a held certificate for these names; `None` where it does not cover them, or
    /// has expired.
    pub fn held(
        &self,
        id: &CertificateId,
        tenant: &str,
        names: &Names,
        by: &str,
    ) -> Option<Stored> {
        let certificate = &self.certificate;
        let all = Names::parse(certificate.names.iter().map(|name| name.as_str())).ok()?;
        let not_before = acme::certificate::timestamp(certificate.not_before);
        let not_after = acme::certificate::timestamp(certificate.not_after);
        let certificate = IssuedCertificate {
            chain_pem: certificate.chain(),
            key_pem: PrivateKeyPem::new(certificate.key.expose()),
            names: all,
            not_before,
            not_after,
            issuer: issuer_of(self.issued_by.as_deref(), by).to_owned(),
            issued_by: None,
            serial: certificate.serial(),
            ari_id: acme::certificate::ari_id_of(&certificate.leaf),
        };
        usable(&certificate, names, Timestamp::now()).then(|| Stored {
            id: id.clone(),
            tenant: tenant.to_owned(),
            certificate,
        })
    }
}

/// Returns whether a found certificate can be held for these names.
pub fn usable(certificate: &IssuedCertificate, names: &Names, now: Timestamp) -> bool {
    certificate.not_after > now && certificate.names.cover(names)
}

/// Returns the issuer that a found certificate counts as being from. A certificate of any writer is
/// kept until renewal; but one of cert-manager is replaced where the internal CA is wanted, since
/// its certificates cost nothing and cert-manager cannot have one.
pub fn issuer_of<'a>(says: Option<&'a str>, wanted: &'a str) -> &'a str {
    match says {
        Some(CERT_MANAGER) if wanted != INTERNAL_CA => wanted,
        Some(says) => says,
        None => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use acme::DnsName;
    use acme::self_signed::self_signed;

    #[test]
    fn a_found_certificate_is_held_for_its_names_and_its_issuer() {
        let name = DnsName::parse("a.example.org").expect("a name");
        let made = self_signed(&name, Timestamp::now()).expect("made");
        let parsed = gatewright_core::inputs::parse_certificate(
            made.chain_pem.as_bytes(),
            made.key_pem.expose().as_bytes(),
        );
        let certificate = Arc::new(parsed.expect("parses"));
        let names = Names::one(name);
        let id = CertificateId::of("t", &names);
        fn held(
            issued_by: Option<&str>,
            names: &Names,
            certificate: &Arc<Certificate>,
            id: &CertificateId,
        ) -> Option<Stored> {
            let present = ExistingCertificate {
                certificate: certificate.clone(),
                issued_by: issued_by.map(Arc::from),
            };
            present.held(id, "t", names, "acme@ca")
        }
        let found = held(None, &names, &certificate, &id)
            .expect("it is good")
            .certificate;
        assert_eq!(
            found.serial, made.serial,
            "the serial number is that of the certificate"
        );
        assert_eq!(found.ari_id, made.ari_id, "so is the identifier of ARI");
        assert_eq!(&*found.issuer, "acme@ca", "the issuer is kept");
        assert_eq!(found.not_after, made.not_after);
        assert_eq!(
            held(Some("other@ca"), &names, &certificate, &id)
                .expect("it is good")
                .certificate
                .issuer,
            "other@ca"
        );
        assert!(
            held(
                None,
                &Names::parse(["b.example.org"]).expect("a name"),
                &certificate,
                &id
            )
            .is_none()
        );
        assert_eq!(issuer_of(Some(CERT_MANAGER), "acme@ca"), "acme@ca");
        assert_eq!(issuer_of(Some(CERT_MANAGER), INTERNAL_CA), CERT_MANAGER);
    }
}
