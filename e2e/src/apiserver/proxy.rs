//! A proxy in front of an API server that does to one client what a bad day does: answers 429, cuts watches, holds
//! renewals of Leases back, and gives a second writer a Lease of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::ApiServer;

const BODY_LIMIT: usize = 16 * 1024 * 1024;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// What it does. Everything is off at first.
#[derive(Debug, Default)]
pub struct Weather {
    /// Of every so many requests one that is no watch is answered 429 with `Retry-After: 1`; 0 is none.
    pub throttled: AtomicUsize,
    /// The first watch of a kind ends after one byte, the second after this many more, and so on; 0 is never.
    pub cut: AtomicUsize,
    /// How long requests for Leases are held back, in milliseconds.
    pub late: AtomicU64,
    /// The name of the Lease that the client is given when it asks for the controller's.
    pub lease: Mutex<Option<String>>,
    requests: AtomicUsize,
    watches: AtomicUsize,
    writes: AtomicUsize,
    answered_429: AtomicUsize,
    cuts: Arc<AtomicUsize>,
}

impl Weather {
    /// How many requests were answered 429.
    pub fn throttles(&self) -> usize {
        self.answered_429.load(Ordering::Relaxed)
    }

    /// How many writes were passed on, Leases aside.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    /// How many watches were cut.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Relaxed)
    }
}

/// A running proxy; gone on drop.
#[derive(Debug)]
pub struct Proxy {
    /// What it does.
    pub weather: Arc<Weather>,
    kubeconfig: PathBuf,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one that speaks as `user` to the server.
    pub async fn start(server: &ApiServer, user: &str) -> Result<Self> {
        let client = server.client_as(user, &[]).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a port for the proxy")?;
        let address = listener.local_addr()?;
        let kubeconfig = server.dir.path().join(format!("proxy-{}.kubeconfig", address.port()));
        std::fs::write(&kubeconfig, config(address))?;
        let weather = Arc::new(Weather::default());
        let accepting = tokio::spawn(accept(listener, client, weather.clone()));
        Ok(Self { weather, kubeconfig, accepting })
    }

    /// The kubeconfig of whoever goes through it.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn config(address: SocketAddr) -> String {
    json!({"apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test"})
    .to_string()
}

async fn accept(listener: TcpListener, client: Client, weather: Arc<Weather>) {
    // Dropped with this task, and all connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (client, weather) = (client.clone(), weather.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let (client, weather) = (client.clone(), weather.clone());
                async move { pass(client, weather, request).await }
            });
            // Whoever went away in the middle is no concern of ours.
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(client: Client, weather: Arc<Weather>, request: Request<Incoming>) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let mut body = Limited::new(body, BODY_LIMIT).collect().await.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    let uri = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
    let is_lease = uri.contains("/leases");
    let number = weather.requests.fetch_add(1, Ordering::Relaxed);
    let every = weather.throttled.load(Ordering::Relaxed);
    if every > 0 && number.is_multiple_of(every) && !is_watch {
        weather.answered_429.fetch_add(1, Ordering::Relaxed);
        return Ok(throttled());
    }
    if parts.method != Method::GET && !is_lease {
        weather.writes.fetch_add(1, Ordering::Relaxed);
    }
    if is_lease {
        tokio::time::sleep(Duration::from_millis(weather.late.load(Ordering::Relaxed))).await;
        let other = weather.lease.lock().expect("nothing panics while it is held").clone();
        if let Some(other) = other {
            let rename = |text: &str| text.replace("gatewright-controller", &other);
            body = Bytes::from(rename(&String::from_utf8_lossy(&body)));
            parts.uri = rename(&uri).parse()?;
            parts.headers.remove(hyper::header::CONTENT_LENGTH);
        }
    }
    parts.uri = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default().parse()?;
    parts.headers.remove(hyper::header::HOST);
    if parts.method == Method::GET {
        parts.headers.remove(hyper::header::CONTENT_LENGTH);
    }
    let answer = client.send(Request::from_parts(parts, kube::client::Body::from(body.to_vec()))).await?;
    let (mut head, body) = answer.into_parts();
    head.headers.remove(hyper::header::TRANSFER_ENCODING);
    let stream = body.into_data_stream().map_err(std::io::Error::other);
    let step = weather.cut.load(Ordering::Relaxed);
    if !is_watch || step == 0 {
        return Ok(Response::from_parts(head, StreamBody::new(stream.map_ok(Frame::data)).boxed_unsync()));
    }
    let limit = 1 + step * weather.watches.fetch_add(1, Ordering::Relaxed);
    let (mut left, cuts) = (limit, weather.cuts.clone());
    let cut = stream.flat_map(move |chunk| {
        let mut parts: Vec<std::io::Result<Frame<Bytes>>> = Vec::new();
        match chunk {
            Ok(mut chunk) if chunk.len() >= left => {
                cuts.fetch_add(1, Ordering::Relaxed);
                parts.push(Ok(Frame::data(chunk.split_to(std::mem::take(&mut left)))));
                parts.push(Err(std::io::Error::other("cut")));
            }
            Ok(chunk) => {
                left -= chunk.len();
                parts.push(Ok(Frame::data(chunk)));
            }
            Err(error) => parts.push(Err(error)),
        }
        futures::stream::iter(parts)
    });
    Ok(Response::from_parts(head, StreamBody::new(cut).boxed_unsync()))
}

fn throttled() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests",
        "message": "the server is busy", "details": {"retryAfterSeconds": 1}, "code": 429});
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    answer.headers_mut().insert("retry-after", hyper::header::HeaderValue::from_static("1"));
    answer.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    answer
}
