//! A small HTTP server with answers by the test, which records its requests.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }

    /// Returns a query parameter, undecoded.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, v)| v)
    }
}

/// One answer.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

pub(crate) fn reply(status: u16, body: impl ToString) -> Reply {
    Reply {
        status,
        headers: Vec::new(),
        body: body.to_string(),
    }
}

impl Reply {
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// The server; stopped on drop, with its connections.
pub(crate) struct Double {
    url: String,
    calls: Arc<Mutex<Vec<Call>>>,
    accepting: JoinHandle<()>,
}

impl Double {
    pub(crate) async fn start(answer: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), calls.clone());
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let (answer, seen) = (answer.clone(), seen.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, seen) = (answer.clone(), seen.clone());
                    async move {
                        let call = read(request).await;
                        seen.lock().expect("not poisoned").push(call.clone());
                        let reply = answer(&call);
                        let mut response = Response::builder().status(reply.status);
                        for (name, value) in reply.headers {
                            response = response.header(name, value);
                        }
                        response.body(Full::new(Bytes::from(reply.body)))
                    }
                });
                connections.spawn(async move {
                    // The client may disconnect at any time.
                    let _ended = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            url,
            calls,
            accepting,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("not poisoned").clone()
    }

    /// Returns the number of such requests.
    pub(crate) fn count(&self, method: Method, path_ends: &str) -> usize {
        self.calls()
            .iter()
            .filter(|call| call.method == method && call.path.ends_with(path_ends))
            .count()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn read(request: Request<Incoming>) -> Call {
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    Call {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}
