//! Listening, and the life of connections.

use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::cache::Cache;
use crate::identity::{Authenticate, Peer};
use crate::service::{self, Seats, Shared};
use crate::{Limits, ServerTls};

/// Serves a [`Cache`] to authenticated clients.
pub struct Server {
    cache: Cache,
    authenticator: Arc<dyn Authenticate>,
    limits: Arc<Limits>,
    seats: Arc<Seats>,
}

/// Listens on a Unix socket at `path` that only `mode` may connect to, in place of a stale one.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => {
            use std::os::unix::fs::FileTypeExt;
            if !found.file_type().is_socket() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!("{} is there and is not a socket", path.display()),
                ));
            }
            std::fs::remove_file(path)?;
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

impl Server {
    /// A server of `cache` to whom `authenticator` lets in.
    pub fn new(cache: Cache, authenticator: impl Authenticate) -> Server {
        Server { cache, authenticator: Arc::new(authenticator), limits: Arc::default(), seats: Arc::default() }
    }

    /// The same with other bounds.
    pub fn with_limits(mut self, limits: Limits) -> Server {
        self.limits = Arc::new(limits);
        self
    }

    /// Serves connections of `listener` until `shutdown` ends, then closes streams and waits for them.
    pub async fn serve_unix(&self, listener: UnixListener, shutdown: impl Future<Output = ()>) {
        let (mut connections, shared) = self.connections();
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept(), if connections.tasks.len() < self.limits.connections => {
                    let peer = accepted.and_then(|(io, _)| io.peer_cred().map(|c| (io, Peer::Unix { uid: c.uid(), gid: c.gid() })));
                    match peer {
                        Ok((io, peer)) => connections.spawn(serve_connection(shared.clone(), io, peer)),
                        Err(error) => connections.failed(error).await,
                    }
                }
                Some(_) = connections.tasks.join_next(), if !connections.tasks.is_empty() => {}
            }
        }
        connections.drain(&self.limits).await;
    }

    /// Serves TLS connections of `listener` until `shutdown` ends, then closes streams and waits for them.
    pub async fn serve_tls(&self, listener: TcpListener, tls: ServerTls, shutdown: impl Future<Output = ()>) {
        let (mut connections, shared) = self.connections();
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept(), if connections.tasks.len() < self.limits.connections => match accepted {
                    Ok((tcp, address)) => {
                        let (shared, patience, (config, trusted)) = (shared.clone(), self.limits.handshake, tls.begin());
                        connections.spawn(async move {
                            // Small responses must not wait for more to send with them; the option is a hint.
                            let _ = tcp.set_nodelay(true);
                            let handshake = TlsAcceptor::from(config).accept(tcp);
                            match tokio::time::timeout(patience, handshake).await {
                                Ok(Ok(io)) => {
                                    let certificates = io.get_ref().1.peer_certificates().unwrap_or_default();
                                    let certificates: Arc<[_]> = certificates.iter().map(|c| c.clone().into_owned()).collect();
                                    let peer = Peer::Tls { certificates: certificates.clone() };
                                    tokio::select! {
                                        () = serve_connection(shared, io, peer) => {}
                                        () = trusted.lost(&certificates) => {
                                            tracing::warn!(%address, "the client's certificate is trusted no more; closing");
                                        }
                                    }
                                }
                                Ok(Err(error)) => tracing::warn!(%address, %error, "TLS handshake failed"),
                                Err(_) => tracing::warn!(%address, "TLS handshake took too long"),
                            }
                        });
                    }
                    Err(error) => connections.failed(error).await,
                },
                Some(_) = connections.tasks.join_next(), if !connections.tasks.is_empty() => {}
            }
        }
        connections.drain(&self.limits).await;
    }

    fn connections(&self) -> (Connections, Arc<Shared>) {
        let (down, shutdown) = watch::channel(false);
        let shared = Shared {
            cache: self.cache.clone(),
            authenticator: self.authenticator.clone(),
            limits: self.limits.clone(),
            shutdown,
            seats: self.seats.clone(),
        };
        (Connections { tasks: JoinSet::new(), down }, Arc::new(shared))
    }
}

struct Connections {
    tasks: JoinSet<()>,
    down: watch::Sender<bool>,
}

impl Connections {
    fn spawn(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(connection);
    }

    /// Waits a moment when a connection cannot be accepted: out of file descriptors heals only with time.
    async fn failed(&self, error: io::Error) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }

    async fn drain(mut self, limits: &Limits) {
        // Connections may all be gone already.
        let _ = self.down.send(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.drain, all).await.is_err() {
            tracing::warn!(connections = self.tasks.len(), "still open after the drain time; closing");
            self.tasks.shutdown().await;
        }
    }
}

/// Serves one connection until it closes or the server shuts down.
async fn serve_connection(shared: Arc<Shared>, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) {
    let peer = Arc::new(peer);
    let mut shutdown = shared.shutdown.clone();
    let limits = shared.limits.clone();
    let service = {
        let shared = shared.clone();
        service_fn(move |request| service::respond(shared.clone(), peer.clone(), request))
    };
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(limits.keepalive))
        .keep_alive_timeout(limits.keepalive)
        .max_concurrent_streams(limits.streams_per_connection)
        .initial_stream_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_header_list_size(64 << 10)
        .max_send_buf_size(256 << 10);
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = crate::stream::down(&mut shutdown) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
