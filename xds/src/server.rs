//! The server: listening sockets, and the life cycle of connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tracing::Instrument;

use crate::admission::{Connection, IdleSlot, IdleSlots, source};
use crate::cache::Cache;
use crate::counters::Closed;
use crate::identity::{Authenticate, Peer};
use crate::reports::{self, NoReports, Reports};
use crate::sample::Sample;
use crate::service::{self, Reporting, Shared, StreamQuota};
use crate::tls::ClientTrust;
use crate::{Limits, ServerTls};

/// Serves a [`Cache`] to authenticated clients.
pub struct Server {
    cache: Cache,
    authenticator: Arc<dyn Authenticate>,
    limits: Arc<Limits>,
    quota: Arc<StreamQuota>,
    reports: Arc<dyn Reports>,
    report_quota: Arc<StreamQuota>,
}

/// Listens on a Unix socket at `path` with this file mode; replaces a stale socket.
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
    /// Makes a server of `cache` for clients that `authenticator` admits.
    pub fn new(cache: Cache, authenticator: impl Authenticate) -> Server {
        Server {
            cache,
            authenticator: Arc::new(authenticator),
            limits: Arc::default(),
            quota: Arc::default(),
            reports: Arc::new(NoReports),
            report_quota: Arc::default(),
        }
    }

    /// Sets the receiver of what clients report.
    pub fn reporting(mut self, reports: Arc<dyn Reports>) -> Server {
        self.reports = reports;
        self
    }

    /// Sets other limits.
    pub fn with_limits(mut self, limits: Limits) -> Server {
        self.limits = Arc::new(limits);
        self
    }

    /// Serves connections of `listener` until `shutdown` ends, then closes streams and waits for
    /// them.
    pub async fn serve_unix(&self, listener: UnixListener, shutdown: impl Future<Output = ()>) {
        let (mut connections, shared) = self.connections();
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept(), if connections.tasks.len() < self.limits.connections => {
                    let peer = accepted.and_then(|(io, _)| io.peer_cred().map(|c| (io, Peer::Unix { uid: c.uid(), gid: c.gid() })));
                    match peer {
                        Ok((io, peer)) => connections.begin(serve_connection(shared.clone(), io, Connection::new(peer, None), None)),
                        Err(error) => connections.failed(error).await,
                    }
                }
                Some(ended) = connections.tasks.join_next(), if !connections.tasks.is_empty() => Connections::ended(ended),
            }
        }
        connections.drain(&self.limits).await;
    }

    /// Serves TLS connections of `listener` until `shutdown` ends, then closes streams and waits
    /// for them.
    pub async fn serve_tls(
        &self,
        listener: TcpListener,
        tls: ServerTls,
        shutdown: impl Future<Output = ()>,
    ) {
        let (mut connections, shared) = self.connections();
        let idle_connections = Arc::new(IdleConnections::new(&self.limits));
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept(), if connections.tasks.len() < self.limits.connections => match accepted {
                    Ok((tcp, address)) => {
                        let idle = idle_connections.admit(address, self.limits.handshake);
                        let (shared, settings) = (shared.clone(), tls.begin());
                        connections.begin(async move {
                            // Small responses must not be delayed to be sent with others; a failure
                            // to set the option is harmless.
                            let _ = tcp.set_nodelay(true);
                            serve_tls_connection(shared, tcp, settings, idle).await;
                        });
                    }
                    Err(error) => connections.failed(error).await,
                },
                Some(ended) = connections.tasks.join_next(), if !connections.tasks.is_empty() => Connections::ended(ended),
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
            quota: self.quota.clone(),
            reporting: Reporting {
                reports: self.reports.clone(),
                limits: Arc::new(reports::limits(&self.limits)),
                quota: self.report_quota.clone(),
            },
            denials: Sample::default(),
        };
        (
            Connections {
                tasks: JoinSet::new(),
                down,
                failures: Sample::default(),
            },
            Arc::new(shared),
        )
    }
}

struct Connections {
    tasks: JoinSet<()>,
    down: watch::Sender<bool>,
    failures: Sample,
}

impl Connections {
    fn begin(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        // The report of a panic has the name of the span.
        self.tasks
            .spawn(connection.instrument(tracing::error_span!("xds connection")));
    }

    /// Takes in the end of a connection. Its panic goes on in the server's task, which the program
    /// watches.
    fn ended(ended: Result<(), JoinError>) {
        if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
            std::panic::resume_unwind(panic);
        }
    }

    /// Logs, and waits a moment: when file descriptors are exhausted, retrying at once would not
    /// help.
    async fn failed(&self, error: io::Error) {
        if let Some(left_out) = self.failures.take(Instant::now().into_std()) {
            tracing::warn!(%error, left_out, "cannot accept a connection");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    async fn drain(mut self, limits: &Limits) {
        // All connections may have ended already.
        let _ = self.down.send(true);
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                Self::ended(ended);
            }
        };
        if tokio::time::timeout(limits.drain, all).await.is_err() {
            tracing::warn!(
                connections = self.tasks.len(),
                "still open after the drain time; closing"
            );
            self.tasks.shutdown().await;
        }
    }
}

/// The shared state of TCP connections without a stream.
struct IdleConnections {
    idle: Arc<IdleSlots>,
    /// Samplers of failed handshakes, and of closed connections.
    failures: Sample,
    closed: Sample,
}

/// A TCP connection while it has no stream.
struct IdleConnection {
    all: Arc<IdleConnections>,
    address: SocketAddr,
    slot: IdleSlot,
    deadline: Instant,
}

impl IdleConnections {
    fn new(limits: &Limits) -> IdleConnections {
        let idle = IdleSlots::new(limits.idle_connections_per_address, limits.idle_connections);
        IdleConnections {
            idle: Arc::new(idle),
            failures: Sample::default(),
            closed: Sample::default(),
        }
    }

    fn admit(self: &Arc<Self>, address: SocketAddr, timeout: Duration) -> IdleConnection {
        let slot = self.idle.admit(source(address.ip()));
        IdleConnection {
            all: self.clone(),
            address,
            slot,
            deadline: Instant::now() + timeout,
        }
    }
}

impl IdleConnection {
    /// Waits until it may not stay any longer; returns the reason.
    async fn close_reason(&self) -> Closed {
        tokio::select! {
            () = self.slot.evicted() => Closed::Evicted,
            () = sleep_until(self.deadline) => Closed::Idle,
        }
    }

    fn close(&self, cache: &Cache, why: Closed) {
        cache.counters().closed(why);
        if let Some(left_out) = self.all.closed.take(Instant::now().into_std()) {
            tracing::warn!(address = %self.address, reason = why.label(), left_out, "closed a connection without a stream");
        }
    }
}

async fn serve_tls_connection(
    shared: Arc<Shared>,
    tcp: TcpStream,
    settings: (Arc<ServerConfig>, ClientTrust),
    idle: IdleConnection,
) {
    let address = idle.address;
    let (config, trusted) = settings;
    let handshake = tokio::select! {
        done = TlsAcceptor::from(config).accept(tcp) => done,
        why = idle.close_reason() => return idle.close(&shared.cache, why),
    };
    let io = match handshake {
        Ok(io) => io,
        Err(error) => {
            shared.cache.counters().closed(Closed::Handshake);
            if let Some(left_out) = idle.all.failures.take(Instant::now().into_std()) {
                tracing::warn!(%address, %error, left_out, "TLS handshake failed");
            }
            return;
        }
    };
    let certificates = io.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates: Arc<[_]> = certificates
        .iter()
        .map(|c| c.clone().into_owned())
        .collect();
    let peer = Peer::Tls {
        certificates: certificates.clone(),
    };
    let connection = Connection::new(peer, Some(address.ip()));
    tokio::select! {
        () = serve_connection(shared, io, connection, Some(idle)) => {}
        () = trusted.until_untrusted(&certificates) => {
            tracing::warn!(%address, "the client's certificate is trusted no more; closing");
        }
    }
}

/// Time for a client to read that its request was denied, or that its credential has expired,
/// before the connection is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves one connection until it closes or the server shuts down; one over TCP only while it has
/// streams.
async fn serve_connection(
    shared: Arc<Shared>,
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Connection,
    mut idle: Option<IdleConnection>,
) {
    let connection = Arc::new(connection);
    let from = idle.as_ref().map(|idle| (idle.all.clone(), idle.address));
    let mut used = connection.watch();
    let mut shutdown = shared.shutdown.clone();
    let limits = shared.limits.clone();
    let service = {
        let shared = shared.clone();
        service_fn(move |request| {
            let span = tracing::error_span!("xds request");
            service::respond(shared.clone(), connection.clone(), request).instrument(span)
        })
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
    let serving = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(serving);
    let ended = loop {
        let close_reason = async {
            match &idle {
                Some(idle) => (idle.close_reason().await, idle),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = &mut serving => break ended,
            () = crate::stream::wait_for_shutdown(&mut shutdown) => {
                serving.as_mut().graceful_shutdown();
                break serving.await;
            }
            (why, idle) = close_reason => return idle.close(&shared.cache, why),
            Ok(()) = used.changed() => {}
        }
        let now = *used.borrow_and_update();
        if now.denied || now.expired {
            // A client that continues on the same connection would present the same credential
            // again (GOAWAY).
            if now.denied {
                shared.cache.counters().closed(Closed::Denied);
            }
            serving.as_mut().graceful_shutdown();
            // It does not matter whether the client reads it.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, serving).await;
            return;
        }
        match &from {
            _ if now.streams > 0 => idle = None,
            // Its last stream ended.
            Some((all, address)) if idle.is_none() => {
                idle = Some(all.admit(*address, limits.handshake))
            }
            _ => {}
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
