//! A TLS backend that answers with the properties of the handshake: SNI, ALPN and the client's
//! certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A CA of a test.
pub struct TestRoot(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub struct Pair {
    /// The certificate.
    pub certificate: rcgen::Certificate,
    /// Its key.
    pub key: KeyPair,
}

impl TestRoot {
    /// Makes a new CA.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(
            params,
            KeyPair::generate()?,
        )?))
    }

    /// Returns its certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// An edition of its certificate with this name, which is the same, and the same key, which
    /// ended in 2021.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn ended_edition(&self, name: &str) -> Result<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        Ok(params.self_signed(self.0.key())?.pem())
    }

    /// Issues a certificate for a DNS name and optionally a URI.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn issue(&self, name: &str, uri: Option<&str>) -> Result<Pair> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        if let Some(uri) = uri {
            params.subject_alt_names.push(SanType::URI(uri.try_into()?));
        }
        self.signed(&params)
    }

    /// Issues a certificate for a DNS name that ended in 2021.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn issue_ended(&self, name: &str) -> Result<Pair> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        self.signed(&params)
    }

    fn signed(&self, params: &CertificateParams) -> Result<Pair> {
        let key = KeyPair::generate()?;
        Ok(Pair {
            certificate: params.signed_by(&key, &self.0)?,
            key,
        })
    }
}

/// A running backend; stopped on drop.
pub struct TlsBackend {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl TlsBackend {
    /// Starts a backend with a certificate. With `clients`, a client needs a certificate of that
    /// CA.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(shown: &Pair, clients: Option<&TestRoot>) -> Result<Self> {
        Self::start_on("127.0.0.1", shown, clients).await
    }

    /// Starts a backend at an address of this machine.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start_on(address: &str, shown: &Pair, clients: Option<&TestRoot>) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(root) => {
                let mut roots = RootCertStore::empty();
                roots.add(root.0.der().clone())?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::try_from(shown.key.serialize_der()).map_err(anyhow::Error::msg)?;
        let mut config = builder.with_single_cert(vec![shown.certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((address, 0)).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((stream, _)) = listener.accept() => {
                        let acceptor = acceptor.clone();
                        connections.spawn(async move {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                converse(stream).await;
                            }
                        });
                    }
                    Some(_ended) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { address, accepting })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TlsBackend {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn converse(stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>) {
    let (_, tls) = stream.get_ref();
    let client = tls
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|leaf| serial(leaf));
    let alpn = tls
        .alpn_protocol()
        .map(|name| String::from_utf8_lossy(name).into_owned());
    let is_http1 = alpn.as_deref() != Some("h2");
    let seen = json!({"sni": tls.server_name(), "alpn": alpn, "client": client}).to_string();
    let service = service_fn(move |_: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let mut answer = Response::new(Full::new(Bytes::from(seen)));
            if is_http1 {
                // Each request needs a handshake of its own.
                answer.headers_mut().insert(
                    header::CONNECTION,
                    header::HeaderValue::from_static("close"),
                );
            }
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    // The client may disconnect at any time.
    let _ended = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Returns the serial number of a certificate, in hex.
pub fn serial(der: &[u8]) -> String {
    use x509_parser::prelude::{FromDer, X509Certificate};
    X509Certificate::from_der(der)
        .map(|(_, leaf)| leaf.raw_serial_as_string())
        .unwrap_or_default()
}
