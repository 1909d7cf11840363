//! A proxy in front of Pebble that changes its answers. Pebble makes its URLs from the `Host` of a
//! request, so that all of them lead through the proxy.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::pebble::{Pebble, server_certificate};
use crate::testca::Mangle;

/// A running proxy; stopped on drop.
pub struct AcmeProxy {
    address: SocketAddr,
    ca_pem: String,
    accepting: JoinHandle<()>,
}

impl Drop for AcmeProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl AcmeProxy {
    /// Starts it: each answer of Pebble passes through `mangle`, with the path that was requested.
    pub async fn start(pebble: &Pebble, mangle: Mangle) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let ca = server_certificate(dir.path())?;
        let chain = CertificateDer::from_pem_file(dir.path().join("server.pem"))?;
        let key = PrivateKeyDer::from_pem_file(dir.path().join("server.key"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let pebbles = pebble.ca_pem();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pebbles.as_bytes())?)?;
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let behind = Arc::new(Behind {
            pebble: pebble.address(),
            connector: TlsConnector::from(Arc::new(config)),
            mangle: Mutex::new(mangle),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(|request| behind.clone().answer(request));
                    let http = hyper::server::conn::http1::Builder::new();
                    let _gone = http.serve_connection(TokioIo::new(stream), service).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            ca_pem: ca,
            accepting,
        })
    }

    /// Returns the directory URL at the proxy.
    pub fn directory(&self) -> String {
        format!("https://{}/dir", self.address)
    }

    /// Returns the root of the proxy's TLS certificate, in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }
}

struct Behind {
    pebble: SocketAddr,
    connector: TlsConnector,
    mangle: Mutex<Mangle>,
}

impl Behind {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        let path = request.uri().path().to_owned();
        let answer = self.ask(request).await.unwrap_or_else(|error| {
            let mut answer = Response::new(Bytes::from(format!("{error:#}")));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        });
        let mut mangle = self.mangle.lock().expect("nobody panics while holding it");
        Ok(mangle(&path, answer).map(Full::new))
    }

    async fn ask(&self, request: Request<Incoming>) -> Result<Response<Bytes>> {
        let stream = TcpStream::connect(self.pebble).await?;
        let stream = self
            .connector
            .connect(ServerName::from(self.pebble.ip()), stream)
            .await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let (parts, body) = sender
            .send_request(request)
            .await
            .context("asking Pebble")?
            .into_parts();
        let body = body.collect().await?.to_bytes();
        connection.abort();
        let mut answer = Response::from_parts(parts, body);
        answer.headers_mut().remove("content-length");
        answer.headers_mut().remove("transfer-encoding");
        Ok(answer)
    }
}
