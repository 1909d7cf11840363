//! The TLS client of a check: it expects one chain, and has no certificate of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use gatewright_core::model::Certificate;

/// Returns the configuration of a client that accepts this chain only, or any where the backend
/// presents its own.
pub(super) fn config(
    expected: Option<&Certificate>,
    requests: Arc<Requests>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let expected = expected.map(Expected::of).transpose()?;
    let verifier = Verifier {
        expected,
        provider: provider.clone(),
    };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(requests))
}

/// Notes whether the server requests a client certificate, and sends none.
#[derive(Debug, Default)]
pub(super) struct Requests(AtomicBool);

impl Requests {
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl ResolvesClientCert for Requests {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// The chain of a listener.
#[derive(Debug)]
struct Expected {
    chain: Vec<CertificateDer<'static>>,
    not_before: Duration,
    not_after: Duration,
}

impl Expected {
    fn of(certificate: &Certificate) -> Result<Self, String> {
        let leaf = Ok(CertificateDer::from(certificate.leaf.to_vec()));
        let issuers = CertificateDer::pem_slice_iter(certificate.issuers.as_bytes());
        let chain = std::iter::once(leaf)
            .chain(issuers)
            .collect::<Result<_, _>>();
        let since =
            |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            chain: chain.map_err(|_| "the chain of the listener is not PEM".to_owned())?,
            not_before: since(certificate.not_before),
            not_after: since(certificate.not_after),
        })
    }

    fn verify(
        &self,
        presented: &[&CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        if !presented.iter().copied().eq(&self.chain) {
            return Err(Error::General(
                "Envoy presents another chain than the one of the listener".to_owned(),
            ));
        }
        let now = Duration::from_secs(now.as_secs());
        if now < self.not_before {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > self.not_after {
            return Err(CertificateError::Expired.into());
        }
        verify_server_name(&ParsedCertificate::try_from(&self.chain[0])?, name)
    }
}

/// Verifies that the server has the key of its certificate, and that the chain is the expected one,
/// if there is one.
#[derive(Debug)]
struct Verifier {
    expected: Option<Expected>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(expected) = &self.expected {
            let presented: Vec<_> = std::iter::once(leaf).chain(issuers).collect();
            expected.verify(&presented, name, now)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
