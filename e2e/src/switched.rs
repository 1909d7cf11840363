//! A backend whose answers a test changes while it runs: the status of requests, and that of health
//! checks, apart from each other.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Response, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::http_server::serve;
use crate::loopback;

/// The path of health checks.
pub const CHECKED: &str = "/healthz";

/// A running backend that answers with its name; gone on drop.
#[derive(Debug)]
pub struct Switched {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    name: String,
    status: AtomicU16,
    health: AtomicU16,
    checks: AtomicU64,
}

impl Switched {
    /// Starts one that answers 200, on an address that is valid in an EndpointSlice.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start_on(name: &str, address: &str) -> Result<Self> {
        loopback::add(address).await?;
        let listener = TcpListener::bind((address, 0))
            .await
            .context("binding the backend")?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            name: name.to_owned(),
            status: AtomicU16::new(200),
            health: AtomicU16::new(200),
            checks: AtomicU64::new(0),
        });
        let shared = state.clone();
        let respond = move |request| answer(shared.clone(), request);
        let accepting = tokio::spawn(serve(listener, respond));
        Ok(Self {
            address,
            state,
            accepting,
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the status of requests.
    pub fn answer(&self, status: u16) {
        self.state.status.store(status, Ordering::SeqCst);
    }

    /// Sets the status of health checks.
    pub fn health(&self, status: u16) {
        self.state.health.store(status, Ordering::SeqCst);
    }

    /// How many health checks it has got.
    pub fn checks(&self) -> u64 {
        self.state.checks.load(Ordering::SeqCst)
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(
    state: Arc<State>,
    request: hyper::Request<hyper::body::Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let status = if request.uri().path() == CHECKED {
        state.checks.fetch_add(1, Ordering::SeqCst);
        &state.health
    } else {
        &state.status
    };
    let status = StatusCode::from_u16(status.load(Ordering::SeqCst)).expect("tests set statuses");
    let body = Full::new(Bytes::from(state.name.clone()));
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    Ok(answer)
}
