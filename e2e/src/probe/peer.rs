//! The peer of a TLS connection, and the verification of its certificate.

use std::sync::Arc;

use rustls::DigitallySignedStruct;
use rustls::SignatureScheme;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::UnixTime;
use x509_parser::extensions::GeneralName;

use super::{CertificateDer, ProtocolVersion, ServerName};

/// The result of the TLS handshake.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The certificates as sent, the leaf first, in DER.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's serial number in lower-case hex with colons.
    pub serial: String,
    /// The leaf's DNS names.
    pub dns_names: Vec<String>,
    /// The negotiated version.
    pub version: Option<ProtocolVersion>,
    /// The negotiated application protocol.
    pub alpn: Option<String>,
}

impl Peer {
    pub(super) fn of(connection: &rustls::ClientConnection) -> Self {
        let chain: Vec<_> = connection
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|one| one.clone().into_owned())
            .collect();
        let leaf = chain
            .first()
            .and_then(|der| x509_parser::parse_x509_certificate(der).ok());
        let serial = leaf
            .as_ref()
            .map(|(_, leaf)| leaf.raw_serial_as_string())
            .unwrap_or_default();
        let names = leaf
            .as_ref()
            .and_then(|(_, leaf)| leaf.subject_alternative_name().ok().flatten());
        let dns_names = names
            .into_iter()
            .flat_map(|names| &names.value.general_names)
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            });
        let dns_names = dns_names.collect();
        let alpn = connection
            .alpn_protocol()
            .map(|name| String::from_utf8_lossy(name).into_owned());
        Self {
            serial,
            dns_names,
            version: connection.protocol_version(),
            alpn,
            chain,
        }
    }
}

/// Verifies the certificate if there are roots, for a name that need not be the SNI; the
/// handshake's signature always.
#[derive(Debug)]
pub struct Verifier {
    roots: Option<(Arc<WebPkiServerVerifier>, ServerName<'static>)>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Without roots, accepts any certificate; with roots, one for this name that chains to them.
    pub fn new(
        roots: Option<(Arc<WebPkiServerVerifier>, ServerName<'static>)>,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        Self { roots, provider }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _sni: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.roots {
            Some((verifier, name)) => verifier.verify_server_cert(leaf, chain, name, ocsp, now),
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            leaf,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            leaf,
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
