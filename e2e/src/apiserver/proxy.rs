//! A proxy in front of an API server that simulates its faults for one client: answers 429, cuts
//! and delays watches, delays renewals of Leases and other writes, hides API groups that a starting
//! server does not serve yet, stops answering, and gives a second writer a Lease of its own.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::ApiServer;

/// Most pieces of an answer that are held back.
const UNDERWAY: usize = 10_000;
const BODY_LIMIT: usize = 16 * 1024 * 1024;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// The simulated faults. All are off at first.
#[derive(Debug, Default)]
pub struct Weather {
    /// One in so many requests that are no watches is answered 429 with `Retry-After: 1`; 0 is
    /// none.
    pub throttled: AtomicUsize,
    /// The first watch of a kind ends after one byte, the second after this many more, and so on; 0
    /// is never.
    pub cut: AtomicUsize,
    /// Delay of the events of watches that begin from now on, in milliseconds.
    pub lag: AtomicU64,
    /// Delay of requests for Leases, in milliseconds.
    pub late: AtomicU64,
    /// Delay of other writes, in milliseconds. A write whose client gives up meanwhile is not
    /// passed on.
    pub slow: AtomicU64,
    /// True if requests are not answered from now on.
    pub silent: AtomicBool,
    /// True if the server reports that it is not ready.
    pub unready: AtomicBool,
    /// API groups that are missing in discovery.
    pub hidden: Mutex<BTreeSet<String>>,
    /// Number of discovery requests in which they are missing; then they appear.
    pub hidden_for: AtomicUsize,
    /// The name of the Lease that the client gets in place of the controller's.
    pub lease: Mutex<Option<String>>,
    requests: AtomicUsize,
    watches: AtomicUsize,
    writes: AtomicUsize,
    answered_429: AtomicUsize,
    cuts: Arc<AtomicUsize>,
}

impl Weather {
    /// Returns the number of requests that were answered 429.
    pub fn throttles(&self) -> usize {
        self.answered_429.load(Ordering::Relaxed)
    }

    /// Returns the number of writes that were passed on, without Leases.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    /// Hides these groups from the next `lists` discovery requests.
    pub fn hide(&self, groups: &[&str], lists: usize) {
        self.hidden_for.store(lists, Ordering::Relaxed);
        *self.hidden.lock().expect("nothing panics while it is held") =
            groups.iter().map(|g| (*g).to_owned()).collect();
    }

    /// Returns the number of watches that were cut.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Relaxed)
    }
}

/// A running proxy; stopped on drop.
#[derive(Debug)]
pub struct Proxy {
    /// The simulated faults.
    pub weather: Arc<Weather>,
    kubeconfig: PathBuf,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy that authenticates to the server as `user`.
    pub async fn start(server: &ApiServer, user: &str) -> Result<Self> {
        let client = server.client_as(user, &[]).await?;
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("a port for the proxy")?;
        let address = listener.local_addr()?;
        let kubeconfig = server
            .dir
            .path()
            .join(format!("proxy-{}.kubeconfig", address.port()));
        std::fs::write(&kubeconfig, config(address))?;
        let weather = Arc::new(Weather::default());
        let accepting = tokio::spawn(accept(listener, client, weather.clone()));
        Ok(Self {
            weather,
            kubeconfig,
            accepting,
        })
    }

    /// Returns the kubeconfig of clients of the proxy.
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
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (client, weather) = (client.clone(), weather.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let (client, weather) = (client.clone(), weather.clone());
                async move { pass(client, weather, request).await }
            });
            // A client may disconnect at any time.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(
    client: Client,
    weather: Arc<Weather>,
    request: Request<Incoming>,
) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let mut body = Limited::new(body, BODY_LIMIT)
        .collect()
        .await
        .map_err(|error| anyhow::anyhow!(error))?
        .to_bytes();
    let uri = parts
        .uri
        .path_and_query()
        .map(ToString::to_string)
        .unwrap_or_default();
    let is_watch = parts
        .uri
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    let is_lease = uri.contains("/leases");
    if weather.silent.load(Ordering::Relaxed) {
        return std::future::pending().await;
    }
    let path = parts.uri.path().to_owned();
    let hidden = hidden(&weather, &path);
    if hidden
        .iter()
        .any(|group| path.starts_with(&format!("/apis/{group}/")))
    {
        return Ok(refused(
            StatusCode::NOT_FOUND,
            "the server could not find the requested resource",
        ));
    }
    if path == "/readyz" && weather.unready.load(Ordering::Relaxed) {
        return Ok(refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            "[-]poststarthook/crd-informer-synced failed",
        ));
    }
    let number = weather.requests.fetch_add(1, Ordering::Relaxed);
    let every = weather.throttled.load(Ordering::Relaxed);
    if every > 0 && number.is_multiple_of(every) && !is_watch {
        weather.answered_429.fetch_add(1, Ordering::Relaxed);
        return Ok(throttled());
    }
    if parts.method != Method::GET && !is_lease {
        weather.writes.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(weather.slow.load(Ordering::Relaxed))).await;
    }
    if is_lease {
        tokio::time::sleep(Duration::from_millis(weather.late.load(Ordering::Relaxed))).await;
        let other = weather
            .lease
            .lock()
            .expect("nothing panics while it is held")
            .clone();
        if let Some(other) = other {
            let rename = |text: &str| text.replace("gatewright-controller", &other);
            body = Bytes::from(rename(&String::from_utf8_lossy(&body)));
            parts.uri = rename(&uri).parse()?;
            parts.headers.remove(hyper::header::CONTENT_LENGTH);
        }
    }
    parts.uri = parts
        .uri
        .path_and_query()
        .map(ToString::to_string)
        .unwrap_or_default()
        .parse()?;
    parts.headers.remove(hyper::header::HOST);
    if parts.method == Method::GET {
        parts.headers.remove(hyper::header::CONTENT_LENGTH);
    }
    let answer = client
        .send(Request::from_parts(
            parts,
            kube::client::Body::from(body.to_vec()),
        ))
        .await?;
    let (mut head, body) = answer.into_parts();
    head.headers.remove(hyper::header::TRANSFER_ENCODING);
    if path == "/apis" && !hidden.is_empty() {
        let body = body
            .collect()
            .await
            .map_err(|error| anyhow::anyhow!(error))?
            .to_bytes();
        let mut groups: Value = serde_json::from_slice(&body).context("a list of groups")?;
        if let Some(groups) = groups["groups"].as_array_mut() {
            groups.retain(|group| !hidden.iter().any(|hidden| group["name"] == **hidden));
        }
        head.headers.remove(hyper::header::CONTENT_LENGTH);
        return Ok(Response::from_parts(head, whole(groups)));
    }
    let lag = Duration::from_millis(if is_watch {
        weather.lag.load(Ordering::Relaxed)
    } else {
        0
    });
    let stream = body
        .into_data_stream()
        .map_err(std::io::Error::other)
        .map(move |chunk| async move {
            tokio::time::sleep(lag).await;
            chunk
        })
        .buffered(UNDERWAY);
    let step = weather.cut.load(Ordering::Relaxed);
    if !is_watch || step == 0 {
        return Ok(Response::from_parts(
            head,
            StreamBody::new(stream.map_ok(Frame::data)).boxed_unsync(),
        ));
    }
    let limit = 1 + step * weather.watches.fetch_add(1, Ordering::Relaxed);
    let mut left = limit;
    let cuts = weather.cuts.clone();
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
    Ok(Response::from_parts(
        head,
        StreamBody::new(cut).boxed_unsync(),
    ))
}

fn throttled() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests",
        "message": "the server is busy", "details": {"retryAfterSeconds": 1}, "code": 429});
    let mut answer = told(StatusCode::TOO_MANY_REQUESTS, status);
    answer
        .headers_mut()
        .insert("retry-after", hyper::header::HeaderValue::from_static("1"));
    answer
}

fn refused(code: StatusCode, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
        "code": code.as_u16()});
    told(code, status)
}

fn told(code: StatusCode, status: Value) -> Response<Body> {
    let mut answer = Response::new(whole(status));
    *answer.status_mut() = code;
    answer.headers_mut().insert(
        "content-type",
        hyper::header::HeaderValue::from_static("application/json"),
    );
    answer
}

fn whole(value: Value) -> Body {
    Full::new(Bytes::from(value.to_string()))
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Returns the groups that are hidden from this request.
fn hidden(weather: &Weather, path: &str) -> BTreeSet<String> {
    let mut groups = weather
        .hidden
        .lock()
        .expect("nothing panics while it is held");
    if path == "/apis" && !groups.is_empty() {
        let left = weather.hidden_for.load(Ordering::Relaxed);
        weather
            .hidden_for
            .store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 {
            groups.clear();
        }
    }
    groups.clone()
}
