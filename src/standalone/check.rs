//! Fetches served pages, as a client would.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use gatewright_core::translate::{Host, Protocol};

const LIMIT: Duration = Duration::from_secs(5);
const BODY: usize = 1 << 20;

/// The reason for which a page was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The timeout expired.
    #[error("no answer within {LIMIT:?}")]
    Late,
    /// The connection or the TLS handshake failed.
    #[error("{0}")]
    Connect(#[from] std::io::Error),
    /// The roots or the name cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The HTTP exchange failed.
    #[error("{0}")]
    Http(String),
}

/// Fetches `/` of a host and returns the status; over TLS, verified with `roots`, where the host uses it.
///
/// # Errors
/// When there is no response.
pub async fn check(host: &Host, roots: &str) -> Result<u16, CheckError> {
    let ip = host.addresses.first().copied().filter(|ip| !ip.is_unspecified());
    let address = SocketAddr::new(ip.unwrap_or_else(|| Ipv4Addr::LOCALHOST.into()), host.frontend.port);
    let name = example(host);
    let authority = format!("{name}:{}", address.port());
    let work = async {
        let stream = TcpStream::connect(address).await?;
        if host.protocol == Protocol::Http {
            return fetch(stream, &authority).await;
        }
        let tls = |error: &dyn std::fmt::Display| CheckError::Tls(error.to_string());
        let mut store = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(roots.as_bytes()) {
            store.add(root.map_err(|_| tls(&"the CA certificates are not PEM"))?).map_err(|error| tls(&error))?;
        }
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| tls(&error))?
            .with_root_certificates(store)
            .with_no_client_auth();
        let sni = ServerName::try_from(name.clone()).map_err(|error| tls(&error))?;
        let stream = TlsConnector::from(Arc::new(config)).connect(sni, stream).await?;
        fetch(stream, &authority).await
    };
    timeout(LIMIT, work).await.map_err(|_| CheckError::Late)?
}

/// Returns a single hostname that a host's name matches.
pub fn example(host: &Host) -> String {
    let name = host.hostname.as_str();
    match name.strip_prefix("*.") {
        Some(parent) => format!("any.{parent}"),
        None if host.hostname.is_any() => "localhost".to_owned(),
        None => name.to_owned(),
    }
}

async fn fetch(stream: impl AsyncRead + AsyncWrite + Unpin, authority: &str) -> Result<u16, CheckError> {
    let http = |error: &dyn std::fmt::Display| CheckError::Http(error.to_string());
    let (mut client, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| http(&error))?;
    let request = Request::get("/")
        .header(header::HOST, authority)
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| http(&error))?;
    let exchange = async {
        let answer = client.send_request(request).await.map_err(|error| http(&error))?;
        let status = answer.status().as_u16();
        Limited::new(answer.into_body(), BODY).collect().await.map_err(|error| http(&error))?;
        Ok(status)
    };
    // Errors of the connection after the response are ignored.
    let (answer, _) = tokio::join!(exchange, connection);
    answer
}
