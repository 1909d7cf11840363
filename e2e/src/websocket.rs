//! A strict WebSocket server (RFC 6455, and RFC 8441 over HTTP/2) with a page for browsers, and a
//! client over HTTP/2 that sends no key.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::probe::Verifier;
use crate::tls_backend::Pair;

/// A page that opens a WebSocket, and tells the server how the page came and what it was answered.
const PAGE: &str = r"<!doctype html><title>WebSocket</title><script>
const tell = text => fetch('/tell?' + encodeURI(text));
const socket = new WebSocket((location.protocol === 'https:' ? 'wss://' : 'ws://') + location.host + '/ws');
const how = performance.getEntriesByType('navigation')[0].nextHopProtocol;
socket.onopen = () => socket.send('hello');
socket.onmessage = event => tell(how + ' ' + event.data);
socket.onerror = () => tell(how + ' error');
</script>";

/// RFC 6455, 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;

/// A running server; stopped on drop. It answers a message with that message, the version of HTTP
/// of the handshake and its key, or `-` if there was none. A handshake over HTTP/1.1 without a
/// valid key is answered 400.
#[derive(Debug)]
pub struct WebSocketServer {
    address: SocketAddr,
    told: mpsc::UnboundedReceiver<String>,
    accepting: JoinHandle<()>,
}

impl WebSocketServer {
    /// Starts a server, with TLS if it is given a certificate.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(shown: Option<&Pair>) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("binding the WebSocket server")?;
        let address = listener.local_addr()?;
        let acceptor = shown.map(acceptor).transpose()?;
        let (tell, told) = mpsc::unbounded_channel();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((stream, _)) = listener.accept() => {
                        let (acceptor, tell) = (acceptor.clone(), tell.clone());
                        connections.spawn(async move {
                            match acceptor {
                                None => converse(stream, tell).await,
                                Some(acceptor) => if let Ok(stream) = acceptor.accept(stream).await { converse(stream, tell).await },
                            }
                        });
                    }
                    Some(_ended) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            told,
            accepting,
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for what a page tells.
    ///
    /// # Errors
    /// Never, while the server runs.
    pub async fn told(&mut self) -> Result<String> {
        self.told.recv().await.context("the server has ended")
    }
}

impl Drop for WebSocketServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn acceptor(shown: &Pair) -> Result<TlsAcceptor> {
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ));
    let key = PrivateKeyDer::try_from(shown.key.serialize_der()).map_err(anyhow::Error::msg)?;
    let mut config = builder
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![shown.certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    tell: mpsc::UnboundedSender<String>,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().enable_connect_protocol();
    let service = service_fn(move |request| {
        let tell = tell.clone();
        async move { Ok::<_, std::convert::Infallible>(answer(request, &tell)) }
    });
    // The client may disconnect at any time.
    let _ended = builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await;
}

fn answer(
    request: Request<Incoming>,
    tell: &mpsc::UnboundedSender<String>,
) -> Response<Full<Bytes>> {
    if request.uri().path() == "/tell" {
        // Without a receiver the test has ended.
        let _ended = tell.send(
            request
                .uri()
                .query()
                .unwrap_or_default()
                .replace("%20", " "),
        );
        return Response::new(Full::default());
    }
    if request.uri().path() != "/ws" {
        let page = Response::builder().header(header::CONTENT_TYPE, "text/html");
        return page.body(Full::from(PAGE)).expect("a response");
    }
    let key = request
        .headers()
        .get("sec-websocket-key")
        .and_then(|key| key.to_str().ok())
        .map(str::to_owned);
    let answer = if request
        .extensions()
        .get::<Protocol>()
        .is_some_and(|protocol| protocol.as_str() == "websocket")
    {
        Response::builder()
    } else {
        match key
            .as_ref()
            .filter(|key| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16))
        {
            Some(key) => Response::builder()
                .status(StatusCode::SWITCHING_PROTOCOLS)
                .header(header::CONNECTION, "upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_ACCEPT, accept(key)),
            None => {
                return Response::builder()
                    .status(400)
                    .body(Full::default())
                    .expect("a response");
            }
        }
    };
    let opened = format!("{:?} {}", request.version(), key.as_deref().unwrap_or("-"));
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            // The client may disconnect at any time.
            let _ended = echo(TokioIo::new(upgraded), &opened).await;
        }
    });
    answer.body(Full::default()).expect("a response")
}

/// RFC 6455, 4.2.2.
fn accept(key: &str) -> String {
    STANDARD.encode(digest(
        &SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{GUID}").as_bytes(),
    ))
}

/// Answers short messages.
async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin, opened: &str) -> io::Result<()> {
    loop {
        let mut head = [0; 6];
        stream.read_exact(&mut head).await?;
        let [kind, length, mask @ ..] = head;
        let mut payload = vec![0; usize::from(length & 0x7f)];
        stream.read_exact(&mut payload).await?;
        payload
            .iter_mut()
            .zip(mask.iter().cycle())
            .for_each(|(byte, mask)| *byte ^= mask);
        if kind == TEXT {
            payload.extend(format!(" {opened}").as_bytes());
        }
        let length = u8::try_from(payload.len())
            .ok()
            .filter(|length| *length < 126)
            .ok_or(io::ErrorKind::InvalidData)?;
        stream
            .write_all(&[&[kind, length], &*payload].concat())
            .await?;
        if kind == CLOSE {
            return Ok(());
        }
    }
}

/// The answer to an extended CONNECT.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// True if the settings of the connection offer the extended CONNECT (RFC 8441, 3).
    pub offered: bool,
    /// The status.
    pub status: u16,
    /// The answer to a message `hello`, if the WebSocket was opened.
    pub message: Option<String>,
}

/// Opens a WebSocket over HTTP/2 without a key, over TLS or with prior knowledge, and sends
/// `hello`.
///
/// # Errors
/// When the connection fails.
pub async fn over_http2(
    address: SocketAddr,
    host: &str,
    tls: bool,
    headers: &[(&str, &str)],
) -> Result<Opened> {
    let tcp = TcpStream::connect(address).await.context("connecting")?;
    if !tls {
        return open(tcp, "http", host, headers).await;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier::new(None, provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from(host.to_owned())?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await
        .context("the handshake")?;
    open(stream, "https", host, headers).await
}

async fn open<S>(stream: S, scheme: &str, host: &str, headers: &[(&str, &str)]) -> Result<Opened>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .context("HTTP/2")?;
    let mut connection = Box::pin(connection);
    // The settings of the server arrive before the answer to any request.
    let ask = Request::get(format!("{scheme}://{host}/")).body(Empty::<Bytes>::new())?;
    tokio::select! {
        page = sender.send_request(ask) => drop(page.context("asking for the page")?),
        ended = &mut connection => anyhow::bail!("the connection ended: {ended:?}"),
    }
    let offered = connection.is_extended_connect_protocol_enabled();
    let _driver = tokio::spawn(connection);
    if !offered {
        return Ok(Opened {
            offered,
            status: 0,
            message: None,
        });
    }
    let mut connect = Request::builder()
        .method(Method::CONNECT)
        .uri(format!("{scheme}://{host}/ws"))
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .extension(Protocol::from_static("websocket"));
    for (name, value) in headers {
        connect = connect.header(*name, *value);
    }
    let answer = sender
        .send_request(connect.body(Empty::new())?)
        .await
        .context("the extended CONNECT")?;
    let status = answer.status().as_u16();
    if status != 200 {
        return Ok(Opened {
            offered,
            status,
            message: None,
        });
    }
    let mut stream = TokioIo::new(
        hyper::upgrade::on(answer)
            .await
            .context("the opened stream")?,
    );
    // Masked by zeros.
    stream
        .write_all(&[&[TEXT, 0x80 | 5, 0, 0, 0, 0], &b"hello"[..]].concat())
        .await?;
    let mut head = [0; 2];
    stream
        .read_exact(&mut head)
        .await
        .context("the head of a message")?;
    let mut payload = vec![0; usize::from(head[1] & 0x7f)];
    stream.read_exact(&mut payload).await.context("a message")?;
    Ok(Opened {
        offered,
        status,
        message: Some(String::from_utf8(payload)?),
    })
}
