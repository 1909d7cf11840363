//! An xDS server of one view, on a Unix socket or over mutual TLS, with access to the progress of
//! its clients.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use xds::{
    Authority, Cache, Certificates, Generation, Kind, Limits, Pair, Progress, Resource, Server,
    ServerTls, UnixPeers, Update, View, Views,
};

/// Time limit, long enough for a busy machine; no assertion depends on durations.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The identity that may read the view over TLS.
pub const IDENTITY: &str = "spiffe://test/fleet";
const HOUR: Duration = Duration::from_secs(3600);

/// The TLS settings of a server.
pub struct Tls {
    /// Issues the certificates of both sides.
    pub authority: Authority,
    /// The server's certificate and roots; replaceable while it serves.
    pub config: ServerTls,
    /// The identities and their views; at first [`IDENTITY`] alone.
    pub views: Views,
    /// The port, which stays the same after a restart.
    pub port: u16,
}

impl Tls {
    /// Issues a client certificate for `identity`.
    pub fn client(&self, identity: &str) -> Pair {
        self.authority
            .issue_client(identity, HOUR, SystemTime::now())
            .expect("issued")
    }
}

/// A served view.
pub struct Served {
    dir: TempDir,
    tls: Option<Tls>,
    limits: Limits,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
    /// The cache that is served.
    pub cache: Cache,
    /// The view that is published.
    pub view: View,
}

impl Default for Served {
    fn default() -> Self {
        Served::start(Limits::default())
    }
}

impl Served {
    /// Serves an empty view to processes of this user.
    pub fn start(limits: Limits) -> Served {
        let dir = tempfile::tempdir().expect("a directory");
        let mut served = Served {
            dir,
            limits,
            tls: None,
            stop: None,
            serving: None,
            cache: Cache::new(),
            view: View::new("fleet"),
        };
        served.serve();
        served
    }

    /// Serves an empty view to clients with a certificate for [`IDENTITY`].
    pub fn over_tls(limits: Limits) -> Served {
        let now = SystemTime::now();
        let authority = Authority::new("test", HOUR, now).expect("an authority");
        let shown = authority
            .issue_server(&["localhost".into(), "127.0.0.1".into()], HOUR, now)
            .expect("issued");
        let config = ServerTls::mutual(&shown, authority.certificate()).expect("TLS");
        let dir = tempfile::tempdir().expect("a directory");
        let view = View::new("fleet");
        let views = Views::new();
        views.allow(IDENTITY, view.clone());
        let tls = Some(Tls {
            authority,
            config,
            views,
            port: 0,
        });
        let mut served = Served {
            dir,
            limits,
            tls,
            stop: None,
            serving: None,
            cache: Cache::new(),
            view,
        };
        served.serve();
        served
    }

    /// Returns the TLS settings.
    pub fn tls(&self) -> &Tls {
        self.tls.as_ref().expect("started over TLS")
    }

    /// Returns a private directory, which also contains the socket.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("xds.sock")
    }

    /// Serves again after [`Served::stop`].
    pub fn serve(&mut self) {
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        self.stop = Some(stop);
        self.serving = Some(match &mut self.tls {
            None => {
                let listener = xds::bind_unix(&self.socket(), 0o600).expect("a socket");
                let uid = std::os::unix::fs::MetadataExt::uid(
                    &std::fs::metadata(self.socket()).expect("just made"),
                );
                let server = Server::new(
                    self.cache.clone(),
                    UnixPeers::new().allow(uid, self.view.clone()),
                );
                let server = server.with_limits(self.limits.clone());
                tokio::spawn(async move { server.serve_unix(listener, stopped).await })
            }
            Some(tls) => {
                let listener =
                    std::net::TcpListener::bind(("127.0.0.1", tls.port)).expect("a loopback port");
                listener.set_nonblocking(true).expect("a socket option");
                tls.port = listener.local_addr().expect("bound").port();
                let listener =
                    tokio::net::TcpListener::from_std(listener).expect("inside of the runtime");
                let server = Server::new(self.cache.clone(), Certificates::new(tls.views.clone()));
                let (server, config) =
                    (server.with_limits(self.limits.clone()), tls.config.clone());
                tokio::spawn(async move { server.serve_tls(listener, config, stopped).await })
            }
        });
    }

    /// Stops serving: closes all streams and waits for their end.
    pub async fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            serving.await.expect("joined");
        }
    }

    /// Publishes into the view.
    pub fn publish(&self, upserts: Vec<Resource>, removals: Vec<(Kind, String)>) -> Generation {
        self.cache.publish(&self.view, Update { upserts, removals })
    }

    /// Waits until the progress of the view's nodes satisfies `done`.
    pub async fn until(&self, what: &str, done: impl Fn(&Progress) -> bool) -> Progress {
        let mut changes = self.cache.watch(&self.view);
        let wait = async {
            loop {
                let progress = self.cache.progress(&self.view);
                if done(&progress) {
                    return progress;
                }
                changes.changed().await.expect("the cache lives");
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(progress) => progress,
            Err(_) => panic!(
                "not within {PATIENCE:?}: {what}: {:#?}",
                self.cache.progress(&self.view)
            ),
        }
    }

    /// Waits until `nodes` nodes are connected and all of them acknowledged `generation`.
    pub async fn live(&self, generation: Generation, nodes: usize) {
        self.until(
            &format!("{nodes} nodes acknowledge generation {generation}"),
            |p| p.acknowledged(generation) == (nodes, nodes),
        )
        .await;
    }
}
