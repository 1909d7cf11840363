//! Answers TLS-ALPN-01 (RFC 8737): Envoy forwards validation connections to this responder, which
//! presents the challenge's certificate.
//!
//! Envoy is not reconfigured for a challenge: only the responder knows the names that are being
//! proven, and presents no certificate for any other name.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use acme::challenge::alpn::{AlpnSolver, ChallengeCertificate, PROTOCOL};
use acme::failure::{Class, Failure};
use async_trait::async_trait;
use dashmap::DashMap;
use futures::future::join_all;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tracing::warn;

use super::proxy_self_check::{Pauses, ProxyEndpoints, SELF_CHECK_TIMEOUT, reachable};
use super::settings::Preflight;
use crate::bounded_listener;
use gatewright_core::inputs::Object;
use gatewright_core::model::{ObjectName, ServicePort};
use gatewright_core::translate::{Change, Fact};

/// The timeout of a validation connection.
const HANDSHAKE: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(3);
/// The Service by which Envoys find the responder, and its port.
const SERVICE: (&str, &str, u16) = ("gatewright", "acme-tls-alpn", 443);

/// The certificates of challenges in progress, by name.
#[derive(Debug, Default)]
pub struct TlsAlpnResponder(DashMap<String, Arc<CertifiedKey>>);

impl TlsAlpnResponder {
    fn of(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.0.get(name).map(|key| key.clone())
    }

    fn set(&self, name: &str, key: Arc<CertifiedKey>) {
        self.0.insert(name.to_owned(), key);
    }

    fn remove(&self, name: &str) {
        self.0.remove(name);
    }

    /// Serves until `stop`.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(self);
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        // The handshake is the whole validation (RFC 8737, 3): the connection is closed after it.
        bounded_listener::receive(listener, "TLS-ALPN-01", HANDSHAKE, stop, |stream| {
            let accepted = acceptor.accept(stream);
            async move { accepted.await.map(drop) }
        })
        .await;
    }

    /// The name of the Service by which Envoys reach a responder on this machine.
    pub fn service() -> ObjectName {
        let (namespace, name, _) = SERVICE;
        ObjectName::new(namespace, name)
    }

    /// Returns the Service and the EndpointSlice by which Envoys reach a responder on this machine.
    ///
    /// # Errors
    /// Never, as far as we know.
    pub fn endpoint_objects(address: SocketAddr) -> Result<Vec<Change>, String> {
        let (namespace, name, port) = SERVICE;
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"ports": [{"port": port}]},
        });
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
            "metadata": {"namespace": namespace, "name": name, "labels": {"kubernetes.io/service-name": name}},
            "endpoints": [{"addresses": [address.ip().to_string()]}], "ports": [{"port": address.port()}],
        });
        let put = |object| {
            Object::parse(object)
                .map(Change::put)
                .map_err(|error| error.to_string())
        };
        let service_port = ServicePort::tcp(Self::service(), port);
        Ok(vec![
            put(service)?,
            put(slice)?,
            Change::Fact(Fact::TlsChallenges(Some(service_port))),
        ])
    }
}

impl ResolvesServerCert for TlsAlpnResponder {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let validates = hello
            .alpn()
            .is_some_and(|mut offered| offered.any(|protocol| protocol == PROTOCOL));
        let name = hello.server_name()?.to_ascii_lowercase();
        self.of(&name).filter(|_| validates)
    }
}

/// The TLS-ALPN-01 solver of one issuer: presents certificates in the responder, and checks them
/// through the Envoys that serve a name.
pub(super) struct TlsAlpnSolver {
    pub(super) responder: Arc<TlsAlpnResponder>,
    pub(super) endpoints: Arc<ProxyEndpoints>,
    /// The port where validation connections reach Envoys.
    pub(super) port: u16,
    pub(super) strictness: Preflight,
}

#[async_trait]
impl AlpnSolver for TlsAlpnSolver {
    /// Presents the certificate, and waits until it can be seen through every known Envoy before
    /// the CA is told to validate: a failed challenge costs the order.
    async fn present(&self, name: &str, certificate: &ChallengeCertificate) -> Result<(), Failure> {
        let key = certified(certificate).map_err(|text| Failure::new(Class::Bug, text))?;
        self.responder.set(name, key.clone());
        if self.strictness == Preflight::Skip {
            return Ok(());
        }
        let until = Instant::now() + SELF_CHECK_TIMEOUT;
        let looks = self.endpoints.of(name).await.into_iter().map(|ip| {
            let address = SocketAddr::new(reachable(ip), self.port);
            let expected = &key.cert[0];
            async move {
                until_shown(name, address, expected, until)
                    .await
                    .map(|found| (address, found))
            }
        });
        for (address, found) in join_all(looks).await.into_iter().flatten() {
            let text = format!(
                "{name}: {address} does not show the TLS-ALPN-01 certificate: {found}; is the listener on port 443 \
                 programmed?"
            );
            if self.strictness == Preflight::Strict {
                // The order is kept, and resumed when Envoy answers.
                return Err(Failure::new(Class::Transient, text).by(vec![name.to_owned()]));
            }
            warn!("{text}; the CA is asked to validate all the same");
        }
        Ok(())
    }

    async fn cleanup(&self, name: &str) {
        self.responder.remove(name);
    }
}

fn certified(made: &ChallengeCertificate) -> Result<Arc<CertifiedKey>, String> {
    fn text(error: &dyn std::fmt::Display) -> String {
        format!("a TLS-ALPN-01 certificate cannot be shown: {error}")
    }
    let certificate =
        CertificateDer::from_pem_slice(made.certificate_pem.as_bytes()).map_err(|e| text(&e))?;
    let key =
        PrivateKeyDer::from_pem_slice(made.key_pem.expose().as_bytes()).map_err(|e| text(&e))?;
    let key = ring::sign::any_supported_type(&key).map_err(|e| text(&e))?;
    Ok(Arc::new(CertifiedKey::new(vec![certificate], key)))
}

/// Waits until an address presents a certificate to validation connections; otherwise returns what
/// it does instead.
async fn until_shown(
    name: &str,
    address: SocketAddr,
    expected: &CertificateDer<'_>,
    until: Instant,
) -> Option<String> {
    let mut pauses = Pauses::new();
    loop {
        match shown(name, address).await {
            Ok(shown) if shown == *expected => return None,
            Ok(_) if Instant::now() >= until => {
                return Some("shows another certificate".to_owned());
            }
            Err(error) if Instant::now() >= until => return Some(error.to_string()),
            // Envoy does not have the host yet.
            Ok(_) | Err(_) => pauses.pause().await,
        }
    }
}

/// Returns the TLS client of validation connections; without resumption, since a resumed session
/// would have an earlier certificate.
fn client() -> &'static TlsConnector {
    static CLIENT: OnceLock<TlsConnector> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let provider = Arc::new(ring::default_provider());
        let schemes = provider
            .signature_verification_algorithms
            .supported_schemes();
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has TLS 1.2 and 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(schemes)))
            .with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        TlsConnector::from(Arc::new(config))
    })
}

/// Returns the certificate that an address presents to a validation connection.
async fn shown(name: &str, address: SocketAddr) -> std::io::Result<CertificateDer<'static>> {
    let server = ServerName::try_from(name.to_owned()).map_err(std::io::Error::other)?;
    let connect = async {
        let stream = TcpStream::connect(address).await?;
        client().connect(server, stream).await
    };
    let stream = timeout(ANSWER, connect)
        .await
        .map_err(std::io::Error::other)??;
    let (_, session) = stream.get_ref();
    if session.alpn_protocol() != Some(PROTOCOL) {
        return Err(std::io::Error::other("it does not speak acme-tls/1"));
    }
    let chain = session.peer_certificates().unwrap_or_default();
    chain
        .first()
        .map(|leaf| leaf.clone().into_owned())
        .ok_or_else(|| std::io::Error::other("it shows no certificate"))
}

/// Accepts any certificate, which is then compared with the expected one. Nothing is sent on the
/// connection, and no verifier supports a certificate with the critical extension of RFC 8737.
#[derive(Debug)]
struct AcceptAnyCertificate(Vec<SignatureScheme>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_shown_its_challenge_and_to_nobody_before_or_after() {
        let responder = Arc::new(TlsAlpnResponder::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let (stopper, stop) = watch::channel(false);
        let serving = tokio::spawn(responder.clone().serve(listener, stop));
        let endpoints = Arc::new(ProxyEndpoints::new(None, std::collections::BTreeMap::new()));
        let alpn_solver = TlsAlpnSolver {
            responder,
            endpoints,
            port: address.port(),
            strictness: Preflight::Strict,
        };
        shown("a.example.org", address)
            .await
            .expect_err("nobody proves it");
        let made =
            acme::challenge::alpn::certificate("a.example.org", "token.thumb").expect("made");
        alpn_solver
            .present("a.example.org", &made)
            .await
            .expect("presented");
        let seen = shown("a.example.org", address).await.expect("shown");
        assert_eq!(
            seen,
            CertificateDer::from_pem_slice(made.certificate_pem.as_bytes()).expect("PEM")
        );
        shown("b.example.org", address)
            .await
            .expect_err("another name");
        alpn_solver.cleanup("a.example.org").await;
        shown("a.example.org", address)
            .await
            .expect_err("it is over");
        stopper.send_replace(true);
        serving.await.expect("joined");
    }
}
