//! A backend that holds each request until it is told how many of them to answer: so a test knows
//! who is under way.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::http_server::serve;

/// A running backend that answers 500 to everything, when it is told to; gone on drop.
#[derive(Debug)]
pub struct Held {
    address: SocketAddr,
    answers: watch::Sender<usize>,
    requests: watch::Receiver<usize>,
    accepting: JoinHandle<()>,
}

impl Held {
    /// Starts one.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("binding the backend")?;
        let address = listener.local_addr()?;
        let (answers, allowed) = watch::channel(0);
        let (counted, requests) = watch::channel(0);
        let counted = Arc::new(counted);
        let respond = move |_| answer(allowed.clone(), counted.clone());
        let accepting = tokio::spawn(serve(listener, respond));
        Ok(Self {
            address,
            answers,
            requests,
            accepting,
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests have reached it.
    pub fn requests(&self) -> usize {
        *self.requests.borrow()
    }

    /// Returns when another one has reached it since this was asked the last time.
    ///
    /// # Errors
    /// When the backend is gone.
    pub async fn asked(&mut self) -> Result<()> {
        Ok(self.requests.changed().await?)
    }

    /// Has so many more requests answered, in the order in which they come.
    pub fn answer(&self, requests: usize) {
        self.answers.send_modify(|answers| *answers += requests);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(
    mut allowed: watch::Receiver<usize>,
    counted: Arc<watch::Sender<usize>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut before = 0;
    counted.send_modify(|requests| {
        before = *requests;
        *requests += 1;
    });
    // The test that is gone wants no answers.
    let _gone = allowed.wait_for(|answers| *answers > before).await;
    let mut answer = Response::new(Full::new(Bytes::from_static(b"held")));
    *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    Ok(answer)
}
