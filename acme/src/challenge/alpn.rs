//! TLS-ALPN-01 (RFC 8737): a self-signed certificate that is served to clients that offer the
//! protocol `acme-tls/1`.

use async_trait::async_trait;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::key::{KeyError, PrivateKeyPem};

/// The ALPN protocol of the validation connection.
pub const PROTOCOL: &[u8] = b"acme-tls/1";

/// A responder for TLS-ALPN-01 that serves challenge certificates.
#[async_trait]
pub trait AlpnSolver: Send + Sync {
    /// Makes sure that `name` at port 443 serves the certificate to clients that offer
    /// `acme-tls/1`.
    async fn present(&self, name: &str, certificate: &ChallengeCertificate) -> Result<(), Failure>;
    /// Stops serving the certificate: the challenge is over.
    async fn cleanup(&self, name: &str);
}

/// The certificate of a challenge, with its key.
#[derive(Clone, Debug)]
pub struct ChallengeCertificate {
    /// Certificate in PEM.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: PrivateKeyPem,
}

/// Makes the challenge certificate for a name and a key authorization (RFC 8737, 3).
pub fn certificate(name: &str, key_authorization: &str) -> Result<ChallengeCertificate, KeyError> {
    let key = PrivateKeyPem::generate_p256()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(&Sha256::digest(
        key_authorization.as_bytes(),
    ))];
    let certificate_pem = params.self_signed(&key.key_pair()?)?.pem();
    Ok(ChallengeCertificate {
        certificate_pem,
        key_pem: key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_carries_the_digest_in_a_critical_extension() {
        let made = certificate("a.example.com", "token.thumb").expect("made");
        let chain = crate::certificate::chain_of(&made.certificate_pem).expect("a chain");
        let (_, parsed) = x509_parser::parse_x509_certificate(&chain[0]).expect("parses");
        let extension = parsed
            .iter_extensions()
            .find(|e| e.oid.to_id_string() == "1.3.6.1.5.5.7.1.31")
            .expect("id-pe-acmeIdentifier");
        assert!(extension.critical);
        // An OCTET STRING of 32 bytes inside.
        assert_eq!(&extension.value[..2], &[0x04, 0x20]);
        assert_eq!(
            &extension.value[2..],
            Sha256::digest(b"token.thumb").as_slice()
        );
    }
}
