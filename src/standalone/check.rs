//! Checks that hosts are served, as a client would.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use rustls::AlertDescription;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use gatewright_core::translate::{Host, Protocol};

use super::check_tls::{Requests, config};

const LIMIT: Duration = Duration::from_secs(5);
const BODY: usize = 1 << 20;

/// What a served host answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The status of `GET /`.
    Status(u16),
    /// A TLS handshake with the certificate of the listener. What follows is not HTTP.
    Handshake,
    /// A TLS handshake with the backend, whose certificate is its own matter.
    Passthrough,
    /// The request for a client certificate, without which nobody is served.
    ClientCertificate,
    /// None: only load balancers may ask, by the PROXY protocol.
    LoadBalancersOnly,
}

impl Answer {
    /// Returns whether the host is served.
    pub fn is_good(self) -> bool {
        !matches!(self, Answer::Status(500..))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Status(status) => write!(f, "{status}"),
            Answer::Handshake => f.write_str("TLS handshake"),
            Answer::Passthrough => f.write_str("TLS handshake, certificate not checked"),
            Answer::ClientCertificate => f.write_str("client certificate required"),
            Answer::LoadBalancersOnly => f.write_str("PROXY protocol, not checked"),
        }
    }
}

/// The reason for which a host is not served.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The timeout expired.
    #[error("no answer within {LIMIT:?}")]
    Late,
    /// The connection or the TLS handshake failed.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// The certificate or the name cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The HTTP exchange failed.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The body of the response failed.
    #[error("{0}")]
    Body(Box<dyn Error + Send + Sync>),
}

/// Fetches `/` of a host. Where TLS is terminated, Envoy must present the chain of the listener,
/// for the host's name and at a time at which it is valid; whether clients trust its CA is not
/// checked.
///
/// # Errors
/// When the host is not served.
pub async fn check(host: &Host) -> Result<Answer, CheckError> {
    if host.behind_load_balancer {
        return Ok(Answer::LoadBalancersOnly);
    }
    let ip = host
        .addresses
        .first()
        .copied()
        .filter(|ip| !ip.is_unspecified());
    let address = SocketAddr::new(
        ip.unwrap_or_else(|| Ipv4Addr::LOCALHOST.into()),
        host.frontend.port,
    );
    let requests = Arc::new(Requests::default());
    match timeout(LIMIT, exchange(host, address, &requests))
        .await
        .map_err(|_| CheckError::Late)?
    {
        Err(error) if requests.any() && is_refusal_of_client(&error) => {
            Ok(Answer::ClientCertificate)
        }
        result => result,
    }
}

async fn exchange(
    host: &Host,
    address: SocketAddr,
    requests: &Arc<Requests>,
) -> Result<Answer, CheckError> {
    let stream = TcpStream::connect(address).await?;
    let name = example(host);
    let authority = format!("{name}:{}", address.port());
    if host.protocol == Protocol::Http {
        return fetch(stream, &authority).await.map(Answer::Status);
    }
    let config = config(host.certificate.as_deref(), requests.clone()).map_err(CheckError::Tls)?;
    let sni = ServerName::try_from(name).map_err(|error| CheckError::Tls(error.to_string()))?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(sni, stream)
        .await?;
    match host.protocol {
        Protocol::TlsPassthrough => Ok(Answer::Passthrough),
        Protocol::TlsTerminate => Ok(Answer::Handshake),
        _ => fetch(stream, &authority).await.map(Answer::Status),
    }
}

/// Returns a single hostname that a host's name matches.
pub fn example(host: &Host) -> String {
    let of_certificate = || {
        host.certificate
            .as_ref()
            .and_then(|certificate| certificate.names.first())
    };
    let hostname = if host.hostname.is_any() {
        of_certificate()
    } else {
        Some(&host.hostname)
    };
    let name = hostname.map_or("localhost", |hostname| hostname.as_str());
    match name.strip_prefix("*.") {
        Some(parent) => format!("any.{parent}"),
        None => name.to_owned(),
    }
}

async fn fetch(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    authority: &str,
) -> Result<u16, CheckError> {
    let (mut client, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/")
        .header(header::HOST, authority)
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| CheckError::Body(error.into()))?;
    let exchange = async {
        let answer = client.send_request(request).await?;
        let status = answer.status().as_u16();
        Limited::new(answer.into_body(), BODY)
            .collect()
            .await
            .map_err(CheckError::Body)?;
        Ok(status)
    };
    match tokio::join!(exchange, connection) {
        // The request was cancelled because of it.
        (Err(CheckError::Http(error)), Err(cause)) if error.is_canceled() => Err(cause.into()),
        // Errors of the connection after the response are ignored.
        (answer, _) => answer,
    }
}

/// Returns whether the server ended the connection because the client sent no certificate. It may
/// reset the connection before the client has read the alert.
fn is_refusal_of_client(error: &CheckError) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let alert = error
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<rustls::Error>());
            return match alert {
                Some(rustls::Error::AlertReceived(alert)) => {
                    // Up to TLS 1.2 there is no alert of its own.
                    matches!(
                        alert,
                        AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure
                    )
                }
                Some(_) => false,
                None => matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                ),
            };
        }
        cause = error.source();
    }
    false
}
