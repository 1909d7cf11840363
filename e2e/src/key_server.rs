//! A server of the keys of an issuer: a JSON Web Key Set over HTTP.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::http_server::serve;

/// A running server; stopped on drop.
pub struct KeyServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    body: Bytes,
    asked: Vec<String>,
}

impl KeyServer {
    /// Starts a server on loopback that answers with these keys.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(keys: &[Value]) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = state.clone();
        let respond = move |request| answer(request, shared.clone());
        let accepting = tokio::spawn(serve(listener, respond));
        let server = Self {
            address,
            state,
            accepting,
        };
        server.show(keys);
        Ok(server)
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers with these keys from now on.
    ///
    /// # Panics
    /// If a task of the server panicked.
    pub fn show(&self, keys: &[Value]) {
        let set = json!({ "keys": keys }).to_string();
        self.state.lock().expect("not poisoned").body = set.into();
    }

    /// The URLs of the requests so far.
    ///
    /// # Panics
    /// If a task of the server panicked.
    pub fn asked(&self) -> Vec<String> {
        self.state.lock().expect("not poisoned").asked.clone()
    }
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let mut state = state.lock().expect("not poisoned");
    let host = request.headers().get("host");
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    state.asked.push(format!("{host}{}", request.uri().path()));
    Ok(Response::new(Full::new(state.body.clone())))
}
