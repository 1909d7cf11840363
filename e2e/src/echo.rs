//! A backend that answers with the request that it received, in JSON.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::loopback;

const BODY_LIMIT: usize = 1024 * 1024;
const DELAY_LIMIT: Duration = Duration::from_secs(60);

/// A running backend by HTTP/1.1 and HTTP/2; stopped on drop, with its connections.
///
/// Every path answers 200 with `{name, method, path, version, host, headers, body}` (header values
/// as lists); `/delay/MS` does so after that many milliseconds, `/status/CODE` with that status.
#[derive(Debug)]
pub struct Echo {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Echo {
    /// Starts a cleartext backend (HTTP/1.1 and HTTP/2 with prior knowledge).
    pub async fn start(name: &str) -> Result<Self> {
        Self::serve(name, ("127.0.0.1", 0), None).await
    }

    /// Starts a cleartext backend on an address that is valid in an EndpointSlice, unlike all of
    /// 127.0.0.0/8: one of 198.18.0.0/15, which are for tests (RFC 2544), on the loopback
    /// interface.
    pub async fn start_on(name: &str, address: &str) -> Result<Self> {
        Self::start_at(name, address, 0).await
    }

    /// Starts a cleartext backend on a port that another address may have as well.
    pub async fn start_at(name: &str, address: &str, port: u16) -> Result<Self> {
        loopback::add(address).await?;
        Self::serve(name, (address, port), None)
            .await
            .with_context(|| {
                format!("no address {address}; as root: ip address add {address}/32 dev lo")
            })
    }

    /// Starts a TLS backend with this chain and key, for passthrough.
    pub async fn start_tls(
        name: &str,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self> {
        Self::start_tls_on(name, "127.0.0.1", chain, key).await
    }

    /// Starts a TLS backend on another address of this machine.
    pub async fn start_tls_on(
        name: &str,
        address: &str,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .context("the TLS backend's certificate")?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self::serve(
            name,
            (address, 0),
            Some(TlsAcceptor::from(Arc::new(config))),
        )
        .await
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of requests that it received.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    async fn serve(name: &str, at: (&str, u16), tls: Option<TlsAcceptor>) -> Result<Self> {
        let listener = TcpListener::bind(at)
            .await
            .context("binding the echo backend")?;
        let address = listener.local_addr()?;
        let requests = Arc::new(AtomicU64::new(0));
        let backend = Arc::new(Backend {
            name: name.to_owned(),
            requests: requests.clone(),
        });
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((stream, _)) = listener.accept() => {
                        let (backend, tls) = (backend.clone(), tls.clone());
                        connections.spawn(async move {
                            match tls {
                                None => backend.converse(stream).await,
                                Some(tls) => if let Ok(stream) = tls.accept(stream).await { backend.converse(stream).await },
                            }
                        });
                    }
                    Some(_ended) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            requests,
            accepting,
        })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // The connections are a JoinSet inside the accepting task and are aborted with it.
        self.accepting.abort();
    }
}

struct Backend {
    name: String,
    requests: Arc<AtomicU64>,
}

/// More header fields than an Envoy lets pass.
const MAX_HEADERS: usize = 512;

impl Backend {
    async fn converse(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) {
        let service = service_fn(move |request| {
            let backend = self.clone();
            async move { Ok::<_, std::convert::Infallible>(backend.answer(request).await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().max_headers(MAX_HEADERS);
        // The client may disconnect at any time.
        let _ended = builder
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let (head, body) = request.into_parts();
        let body = Limited::new(body, BODY_LIMIT)
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let path = head.uri.path();
        if let Some(millis) = path
            .strip_prefix("/delay/")
            .and_then(|millis| millis.parse().ok())
        {
            tokio::time::sleep(Duration::from_millis(millis).min(DELAY_LIMIT)).await;
        }
        let status = path
            .strip_prefix("/status/")
            .and_then(|code| code.parse::<u16>().ok());
        let host = head.uri.authority().map(|authority| authority.to_string());
        let host = host.or_else(|| {
            Some(String::from_utf8_lossy(head.headers.get(header::HOST)?.as_bytes()).into_owned())
        });
        let mut headers = Map::new();
        for (name, value) in &head.headers {
            let values = headers.entry(name.as_str()).or_insert_with(|| json!([]));
            if let Value::Array(values) = values {
                values.push(json!(String::from_utf8_lossy(value.as_bytes())));
            }
        }
        let said = json!({
            "name": self.name,
            "method": head.method.as_str(),
            "path": head.uri.path_and_query().map_or(path, |whole| whole.as_str()),
            "version": format!("{:?}", head.version),
            "host": host,
            "headers": headers,
            "body": String::from_utf8_lossy(&body),
        });
        let mut answer = Response::new(Full::new(Bytes::from(said.to_string())));
        *answer.status_mut() = status
            .and_then(|code| StatusCode::from_u16(code).ok())
            .unwrap_or(StatusCode::OK);
        answer.headers_mut().insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static("application/json"),
        );
        answer
    }
}
