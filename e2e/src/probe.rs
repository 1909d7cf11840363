//! A client that sends exactly the request of a test, and returns exactly the answer or failure.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::{http1, http2};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

mod payload;
mod peer;

use self::payload::Payload;
pub use self::peer::{Peer, Verifier};

const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The connection and the request of a probe.
#[derive(Clone, Debug)]
pub struct Probe {
    address: SocketAddr,
    tls: bool,
    sni: Option<String>,
    authority: String,
    alpn: Vec<Vec<u8>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    roots: Option<Arc<RootCertStore>>,
    client: Option<(CertificateDer<'static>, Vec<u8>)>,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
    body_has_length: bool,
    limit: Duration,
}

/// Parses the roots of a PEM bundle, to be trusted by a [`Probe`].
pub fn roots_of(pem: &str) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(root?)?;
    }
    Ok(roots)
}

/// An HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The response's headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// The TLS peer; None in cleartext.
    pub peer: Option<Peer>,
}

impl Answer {
    /// The value of a header; `None` too if it is no visible ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        value.to_str().ok()
    }

    /// What an [`Echo`](crate::echo::Echo) says of the request in this field: `name`, `path`,
    /// `headers` and others.
    ///
    /// # Errors
    /// When the answer is not one of an Echo.
    pub fn echoed(&self, field: &str) -> anyhow::Result<Value> {
        let request: Value = serde_json::from_slice(&self.body).context("the echo of a backend")?;
        Ok(request[field].clone())
    }
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// The peer reset the connection.
    #[error("connection reset during {0}")]
    Reset(Stage),
    /// The peer closed the connection without an answer.
    #[error("connection closed during {0}")]
    Closed(Stage),
    /// No progress within the time limit.
    #[error("timed out during {0}")]
    Timeout(Stage),
    /// TLS failed: an alert of the peer, or a certificate that does not chain to the probe's roots.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
    /// The answer is not HTTP, or is too large.
    #[error("HTTP: {0}")]
    Http(String),
    /// Another error of the operating system.
    #[error("during {0}: {1}")]
    Io(Stage, io::Error),
    /// The probe is invalid.
    #[error("probe: {0}")]
    Probe(String),
}

/// The stage of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// TCP.
    Connect,
    /// TLS.
    Handshake,
    /// HTTP.
    Exchange,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Handshake => "TLS handshake",
            Self::Exchange => "HTTP exchange",
        })
    }
}

impl Probe {
    /// `GET https://host/` at this address: SNI and authority are `host`, ALPN offers h2 and
    /// http/1.1, any certificate is accepted.
    pub fn https(address: SocketAddr, host: &str) -> Self {
        Self {
            tls: true,
            sni: Some(host.to_owned()),
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            ..Self::http(address, host)
        }
    }

    /// `GET http://host/` at this address, HTTP/1.1 in cleartext.
    pub fn http(address: SocketAddr, host: &str) -> Self {
        Self {
            address,
            tls: false,
            sni: None,
            authority: host.to_owned(),
            alpn: Vec::new(),
            versions: rustls::ALL_VERSIONS.to_vec(),
            roots: None,
            client: None,
            method: Method::GET,
            path: "/".to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            body_has_length: true,
            limit: Duration::from_secs(30),
        }
    }

    /// Sets the SNI, in this spelling.
    pub fn sni(mut self, name: &str) -> Self {
        self.sni = Some(name.to_owned());
        self
    }

    /// Sends no SNI.
    pub fn no_sni(mut self) -> Self {
        self.sni = None;
        self
    }

    /// Sets `Host` or `:authority`, in this spelling, with or without a port.
    pub fn authority(mut self, authority: &str) -> Self {
        self.authority = authority.to_owned();
        self
    }

    /// Sets the protocols of ALPN; none sends no ALPN. `["h2"]` on a cleartext probe is HTTP/2 with
    /// prior knowledge.
    pub fn alpn(mut self, protocols: &[&str]) -> Self {
        self.alpn = protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        self
    }

    /// Offers these TLS versions only (`&rustls::version::TLS12`, `&rustls::version::TLS13`).
    pub fn versions(mut self, versions: &[&'static SupportedProtocolVersion]) -> Self {
        self.versions = versions.to_vec();
        self
    }

    /// Requires a certificate for the authority's host that chains to these roots.
    pub fn roots(mut self, roots: RootCertStore) -> Self {
        self.roots = Some(Arc::new(roots));
        self
    }

    /// Sends this client certificate on request; the key is in DER (PKCS #8).
    pub fn client(mut self, certificate: CertificateDer<'static>, key: Vec<u8>) -> Self {
        self.client = Some((certificate, key));
        self
    }

    /// Sets the method.
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sets path and query.
    pub fn path(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).expect("tests write printable header values");
        self.headers.append(HeaderName::from_static(name), value);
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body, and does not say at its beginning how long it is.
    pub fn body_of_unknown_length(mut self, body: impl Into<Bytes>) -> Self {
        self.body_has_length = false;
        self.body(body)
    }

    /// Sets the time limit of each stage.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Connects, sends one request, and closes.
    pub async fn send(&self) -> Result<Answer, Failure> {
        self.connect().await?.ask(self).await
    }

    /// The same, and expects an answer with this status.
    ///
    /// # Errors
    /// When there is none, or one with another status.
    pub async fn answered(&self, status: u16) -> anyhow::Result<Answer> {
        let answer = self.send().await.with_context(|| format!("{self:?}"))?;
        ensure!(
            answer.status == status,
            "{self:?} was answered {}, not {status}: {:?}",
            answer.status,
            answer.headers
        );
        Ok(answer)
    }

    /// Asks again until it is answered with this status.
    ///
    /// # Errors
    /// When it is not within this time.
    pub async fn until(&self, status: u16, patience: Duration) -> anyhow::Result<Answer> {
        let until = Instant::now() + patience;
        loop {
            match self.answered(status).await {
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => sleep(Duration::from_millis(20)).await,
                answer => return answer,
            }
        }
    }

    /// Connects and returns the connection, for several requests.
    pub async fn connect(&self) -> Result<Connection, Failure> {
        let tcp = within(self.limit, Stage::Connect, TcpStream::connect(self.address)).await?;
        tcp.set_nodelay(true)
            .map_err(|error| broken(Stage::Connect, error))?;
        if !self.tls {
            return Connection::open(tcp, self.alpn == [b"h2"], None, self.limit).await;
        }
        let (connector, name) = self.connector()?;
        let stream = within(self.limit, Stage::Handshake, connector.connect(name, tcp)).await?;
        let peer = Peer::of(stream.get_ref().1);
        let h2 = peer.alpn.as_deref() == Some("h2");
        Connection::open(stream, h2, Some(peer), self.limit).await
    }

    fn connector(&self) -> Result<(TlsConnector, ServerName<'static>), Failure> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let bad = |what: &str| Failure::Probe(what.to_owned());
        let host = host_of(&self.authority);
        let roots = match &self.roots {
            Some(roots) => {
                let name = ServerName::try_from(host.to_ascii_lowercase())
                    .map_err(|_| bad("the authority is no name a certificate could have"))?;
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
                Some((
                    verifier
                        .build()
                        .map_err(|error| Failure::Probe(error.to_string()))?,
                    name,
                ))
            }
            None => None,
        };
        let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&self.versions)
            .map_err(Failure::Tls)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier::new(roots, provider)));
        let mut config = match self.client.clone() {
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key).map_err(bad)?;
                builder
                    .with_client_auth_cert(vec![certificate], key)
                    .map_err(Failure::Tls)?
            }
            None => builder.with_no_client_auth(),
        };
        config.enable_sni = self.sni.is_some();
        config.alpn_protocols = self.alpn.clone();
        config.resumption = rustls::client::Resumption::disabled();
        let name = self
            .sni
            .clone()
            .unwrap_or_else(|| "unsaid.invalid".to_owned());
        let name = ServerName::try_from(name).map_err(|_| bad("this SNI is no DNS name"))?;
        Ok((TlsConnector::from(Arc::new(config)), name))
    }
}

/// An open connection; closed on drop.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    driver: JoinHandle<()>,
    peer: Option<Peer>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Payload>),
    Http2(http2::SendRequest<Payload>),
}

impl Connection {
    /// Sends the probe's request (authority, method, path, headers, body) over this connection.
    pub async fn ask(&mut self, probe: &Probe) -> Result<Answer, Failure> {
        let exchange = async {
            // A connection accepts the next request once the driver has finished the previous
            // answer.
            let response = match &mut self.sender {
                Sender::Http1(sender) => {
                    sender.ready().await.map_err(http)?;
                    sender.send_request(request(probe, false)?).await
                }
                Sender::Http2(sender) => {
                    sender.ready().await.map_err(http)?;
                    sender.send_request(request(probe, true)?).await
                }
            };
            read(response.map_err(http)?, self.peer.clone()).await
        };
        timeout(probe.limit, exchange)
            .await
            .unwrap_or(Err(Failure::Timeout(Stage::Exchange)))
    }

    /// Waits until another request may be sent. Returns false once the peer accepts no more.
    pub async fn takes_more(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Returns the TLS peer; None in cleartext.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// Returns true if the peer has closed it.
    pub fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    async fn open<S>(
        stream: S,
        h2: bool,
        peer: Option<Peer>,
        limit: Duration,
    ) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let late = |_| Failure::Timeout(Stage::Exchange);
        let io = TokioIo::new(stream);
        // The request that waits gets the error of the connection, so that the drivers' results are
        // not needed.
        let (sender, driver) = if h2 {
            let handshake = http2::handshake(TokioExecutor::new(), io);
            let (sender, connection) = timeout(limit, handshake)
                .await
                .map_err(late)?
                .map_err(http)?;
            (
                Sender::Http2(sender),
                tokio::spawn(async { drop(connection.await) }),
            )
        } else {
            let (sender, connection) = timeout(limit, http1::handshake(io))
                .await
                .map_err(late)?
                .map_err(http)?;
            (
                Sender::Http1(sender),
                tokio::spawn(async { drop(connection.await) }),
            )
        };
        Ok(Self {
            sender,
            driver,
            peer,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn request(probe: &Probe, h2: bool) -> Result<Request<Payload>, Failure> {
    let scheme = if probe.tls { "https" } else { "http" };
    let uri = if h2 {
        format!("{scheme}://{}{}", probe.authority, probe.path)
    } else {
        probe.path.clone()
    };
    let uri: Uri = uri
        .parse()
        .map_err(|error| Failure::Probe(format!("{uri}: {error}")))?;
    let mut request = Request::new(Payload::new(probe.body.clone(), probe.body_has_length));
    *request.method_mut() = probe.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = probe.headers.clone();
    if !h2 {
        let host = HeaderValue::from_str(&probe.authority)
            .map_err(|error| Failure::Probe(error.to_string()))?;
        request.headers_mut().insert(header::HOST, host);
    }
    Ok(request)
}

async fn read(
    response: Response<hyper::body::Incoming>,
    peer: Option<Peer>,
) -> Result<Answer, Failure> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, BODY_LIMIT)
        .collect()
        .await
        .map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => http(*error),
            Err(error) => Failure::Http(error.to_string()),
        })?;
    Ok(Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body: body.to_bytes(),
        peer,
    })
}

async fn within<T>(
    limit: Duration,
    stage: Stage,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, Failure> {
    timeout(limit, work)
        .await
        .map_err(|_| Failure::Timeout(stage))?
        .map_err(|error| broken(stage, error))
}

fn broken(stage: Stage, error: io::Error) -> Failure {
    if let Some(tls) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        return Failure::Tls(tls.clone());
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure::Refused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Failure::Reset(stage),
        io::ErrorKind::UnexpectedEof => Failure::Closed(stage),
        _ => Failure::Io(stage, error),
    }
}

fn http(error: hyper::Error) -> Failure {
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            let copy = match io
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            {
                Some(tls) => return Failure::Tls(tls.clone()),
                None => io::Error::new(io.kind(), io.to_string()),
            };
            return broken(Stage::Exchange, copy);
        }
        cause = inner.source();
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return Failure::Closed(Stage::Exchange);
    }
    Failure::Http(format!("{error}: {:?}", std::error::Error::source(&error)))
}

/// Returns the host of an authority, without its port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) =>
        {
            host
        }
        _ => authority,
    }
}
