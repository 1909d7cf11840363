//! The backend of the built-in example: its response has its name. It serves HTTP, or HTTPS with
//! TLS of its own.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gatewright_control::tasks::{joined, named};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// The maximum number of connections; more wait.
const CONNECTIONS: usize = 256;
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A backend on a port of 127.0.0.1 that the system chose.
pub struct Echo {
    listener: TcpListener,
    name: &'static str,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Echo {
    /// Binds a port; with `tls`, it serves only TLS.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn open(
        name: &'static str,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?,
            name,
            tls,
        })
    }

    /// Returns the address of its port.
    ///
    /// # Errors
    /// When the system does not know it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            while let Some(ended) = connections.try_join_next() {
                joined(ended);
            }
            let Ok((stream, _)) = accepted else {
                // No file descriptors are left for a moment.
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (slots, name, tls) = (slots.clone(), self.name, self.tls.clone());
            let connection = async move {
                let _slot = slots.acquire_owned().await.expect("nobody closes it");
                match tls {
                    None => answer(stream, name).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) =
                            timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream)).await
                        {
                            answer(stream, name).await;
                        }
                    }
                }
            };
            connections.spawn(named("backend of the example", connection));
        }
        connections.shutdown().await;
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, name: &'static str) {
    let service = service_fn(move |request: Request<Incoming>| async move {
        let host = request
            .headers()
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
            .unwrap_or("?");
        let text = format!(
            "{name} here: {} {} for {host}\n",
            request.method(),
            request.uri().path()
        );
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
    });
    // Errors of a client that disconnects early are ignored.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
