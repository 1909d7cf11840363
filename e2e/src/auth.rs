//! An HTTP authorization server for external authorization (GEP-1494, protocol HTTP).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::http_server::serve;

/// The value of `authorization` that the server accepts.
pub const KEY: &str = "let-me-in";

/// The cookie of its answers.
pub const COOKIE: &str = "sid=of-the-server";

/// A running server; stopped on drop. It answers 200 to requests with [`KEY`], else 401; each
/// answer sets headers that it may set for the backend, some that it may not, and a cookie.
#[derive(Debug)]
pub struct AuthServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    accepting: JoinHandle<()>,
}

/// A request to the server.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method and path.
    pub line: String,
    /// Headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl AuthServer {
    /// Starts a server on loopback.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let respond = move |request| answer(request, log.clone());
        let accepting = tokio::spawn(serve(listener, respond));
        Ok(Self {
            address,
            asked,
            accepting,
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the requests since the last call.
    ///
    /// # Panics
    /// If a task of the server panicked.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().expect("no task panics while it logs"))
    }
}

impl Drop for AuthServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    log: Arc<Mutex<Vec<Asked>>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let passes = head
        .headers
        .get("authorization")
        .is_some_and(|value| value == KEY);
    let asked = Asked {
        line: format!("{} {}", head.method, head.uri),
        headers: head.headers,
        body,
    };
    log.lock()
        .expect("no task panics while it logs")
        .push(asked);
    let answer = Response::builder()
        .status(if passes { 200 } else { 401 })
        .header("x-user", "alice")
        .header("x-extra", "1")
        .header("set-cookie", COOKIE)
        .header("x-gw-sni", "forged")
        .header("x-forwarded-for", "192.0.2.1")
        .header("x-envoy-retry-on", "5xx");
    Ok(answer
        .body(Full::new(Bytes::from_static(b"the server's word")))
        .expect("its parts are valid"))
}
