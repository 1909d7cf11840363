//! Engine, xDS server and a real Envoy in one process: in come objects, out come answers to
//! requests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use gatewright_control::publish;
use gatewright_core::channel::Channel;
use gatewright_core::inputs::Object;
use gatewright_core::limits::Limits;
use gatewright_core::model::Zone;
use gatewright_core::translate::{Change, Delta, Engine, Settings};
use gatewright_envoy::{
    Admin, AdsServer, BootstrapOptions, ConnectionLimit, Edge, ShownStatistics, Statistics,
    TrafficMetrics, bootstrap,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use xds::{Cache, Generation, Server, UnixPeers, View};

use e2e::envoy::Envoy;
pub use e2e::port::free_port;

/// The controller name of the tests' GatewayClass, which is called `ours`.
pub const CONTROLLER: &str = "gatewright.io/gateway-controller";

/// The running engine, server and Envoy. Ended on drop.
pub struct World {
    /// The cache of published resources.
    pub cache: Cache,
    /// The Envoy that serves them.
    pub envoy: Envoy,
    engine: Mutex<Engine>,
    edge: Edge,
    view: View,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
    dir: tempfile::TempDir,
}

/// How Envoy runs.
enum Process {
    /// With a port for its statistics, if there is one.
    Usual(Option<Statistics>),
    /// In a zone.
    Placed(Zone),
    /// With an edited bootstrap.
    Edited(fn(&mut Value)),
    /// Under Callgrind, with an edited bootstrap.
    Counted(fn(&mut Value)),
}

impl Process {
    fn statistics(&self) -> Option<Statistics> {
        match self {
            Self::Usual(statistics) => statistics.clone(),
            Self::Placed(_) | Self::Edited(_) | Self::Counted(_) => None,
        }
    }

    fn zone(&self) -> Option<Zone> {
        match self {
            Self::Placed(zone) => Some(zone.clone()),
            Self::Usual(_) | Self::Edited(_) | Self::Counted(_) => None,
        }
    }

    async fn start(&self, mut bootstrap: Value) -> Result<Envoy> {
        match self {
            Self::Usual(_) | Self::Placed(_) => Envoy::start(&bootstrap.to_string()).await,
            Self::Edited(edit) => {
                edit(&mut bootstrap);
                Envoy::start(&bootstrap.to_string()).await
            }
            Self::Counted(edit) => {
                edit(&mut bootstrap);
                bootstrap["stats_flush_interval"] = json!(UNDISTURBED);
                Envoy::start_counted(&bootstrap.to_string()).await
            }
        }
    }
}

/// The longest interval between two flushes of statistics that Envoy accepts: every flush costs
/// the worker instructions that belong to no request.
pub const UNDISTURBED: &str = "299s";

impl World {
    /// Starts with some objects, and returns when Envoy has acknowledged them.
    ///
    /// # Errors
    /// When Envoy does not start or refuses a resource.
    pub async fn start(changes: Vec<Change>) -> Result<Self> {
        Self::start_within(changes, Edge::DEFAULT, Process::Usual(None)).await
    }

    /// The same with an Envoy in a zone.
    ///
    /// # Errors
    /// As [`World::start`].
    pub async fn start_in(changes: Vec<Change>, zone: Zone) -> Result<Self> {
        Self::start_within(changes, Edge::DEFAULT, Process::Placed(zone)).await
    }

    /// The same with an Envoy whose bootstrap is edited.
    ///
    /// # Errors
    /// As [`World::start`].
    pub async fn start_edited(changes: Vec<Change>, edit: fn(&mut Value)) -> Result<Self> {
        Self::start_within(changes, Edge::DEFAULT, Process::Edited(edit)).await
    }

    /// The same with an Envoy whose instructions are counted, as [`Envoy::start_counted`] says, and
    /// whose bootstrap is edited.
    ///
    /// # Errors
    /// As [`World::start`], and when Valgrind is not installed.
    pub async fn start_counted(changes: Vec<Change>, edit: fn(&mut Value)) -> Result<Self> {
        Self::start_within(changes, Edge::DEFAULT, Process::Counted(edit)).await
    }

    /// The same with a port for Envoy's statistics.
    ///
    /// # Errors
    /// As [`World::start`].
    pub async fn start_with_statistics(changes: Vec<Change>) -> Result<(Self, SocketAddr)> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let statistics = Statistics {
            address: at,
            shown: ShownStatistics::Process,
        };
        let process = Process::Usual(Some(statistics));
        let world = Self::start_within(changes, Edge::DEFAULT, process).await?;
        Ok((world, at))
    }

    /// The same with numbers of requests by namespace, if they are counted, and the port where they
    /// are read.
    ///
    /// # Errors
    /// As [`World::start`].
    pub async fn start_counting(
        changes: Vec<Change>,
        traffic: TrafficMetrics,
        statistics: Option<Statistics>,
    ) -> Result<Self> {
        let edge = Edge {
            traffic,
            ..Edge::DEFAULT
        };
        Self::start_within(changes, edge, Process::Usual(statistics)).await
    }

    async fn start_within(changes: Vec<Change>, edge: Edge, process: Process) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("xds.sock");
        let cache = Cache::new();
        let view = View::new("test");
        let settings = Settings {
            limits: Limits::NONE,
            channel: Channel::Experimental,
            named_hosts: edge.traffic == TrafficMetrics::Namespaces,
            ..Settings::new(CONTROLLER, vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
        };
        let mut engine = Engine::new(settings);
        let delta = engine.apply(changes, SystemTime::now());
        let generation = cache.publish(&view, publish::update_within(&delta, &edge));
        let (stop, stopped) = oneshot::channel::<()>();
        let listener = xds::bind_unix(&socket, 0o600)?;
        let user = std::fs::metadata(&socket)?.uid();
        let server = Server::new(cache.clone(), UnixPeers::new().allow(user, view.clone()));
        let server = tokio::spawn(async move {
            let stopped = async {
                // Either the world stops it, or it is dropped.
                let _ = stopped.await;
            };
            server.serve_unix(listener, stopped).await;
        });
        let options = BootstrapOptions {
            node_id: "test".into(),
            node_cluster: "test".into(),
            zone: process.zone(),
            ads: AdsServer::Pipe(socket),
            admin: Admin::Loopback(0),
            ready: None,
            stats: process.statistics(),
            max_heap_bytes: 4 << 30,
            connections: ConnectionLimit::of(50_000),
        };
        let envoy = process.start(bootstrap(&options)).await?;
        let engine = Mutex::new(engine);
        let mut world = Self {
            cache,
            envoy,
            engine,
            edge,
            view,
            stop: Some(stop),
            server,
            dir,
        };
        world.acknowledged(generation).await?;
        world.envoy.ready().await?;
        Ok(world)
    }

    /// Applies changes and publishes the resulting resources.
    pub fn apply(&self, changes: Vec<Change>) -> (Delta, Generation) {
        let delta = self
            .engine
            .lock()
            .expect("no test panics while it applies")
            .apply(changes, SystemTime::now());
        let update = publish::update_within(&delta, &self.edge);
        let generation = self.cache.publish(&self.view, update);
        (delta, generation)
    }

    /// Publishes resources that are not from the engine.
    pub fn publish(&self, update: xds::Update) -> Generation {
        self.cache.publish(&self.view, update)
    }

    /// Returns all published resources.
    pub fn resources(&self) -> Vec<xds::Resource> {
        self.cache.resources(&self.view).1
    }

    /// Waits until Envoy has acknowledged a generation, without refusing any resource.
    ///
    /// # Errors
    /// When it refuses a resource, or does not acknowledge all within a minute.
    pub async fn acknowledged(&self, generation: Generation) -> Result<()> {
        let mut progress = self.cache.watch(&self.view);
        let wait = async {
            loop {
                progress.borrow_and_update();
                let now = self.cache.progress(&self.view);
                if let Some(rejection) = now.rejections.first() {
                    bail!("Envoy refused {rejection:?}");
                }
                let (acknowledged, connected) = now.acknowledged(generation);
                if connected > 0 && acknowledged == connected {
                    return Ok(());
                }
                progress.changed().await?;
            }
        };
        tokio::time::timeout(Duration::from_secs(180), wait)
            .await
            .with_context(|| {
                format!(
                    "generation {generation}: {:?}\n{}",
                    self.cache.progress(&self.view),
                    self.envoy.log()
                )
            })?
    }

    /// Applies changes, and waits for the acknowledgement.
    ///
    /// # Errors
    /// As [`World::acknowledged`].
    pub async fn settle(&self, changes: Vec<Change>) -> Result<()> {
        let (_, generation) = self.apply(changes);
        self.acknowledged(generation).await
    }

    /// Returns the lines of the access log, which are among those of Envoy's output.
    ///
    /// # Panics
    /// When one is no JSON.
    pub fn access_log(&self) -> Vec<Value> {
        let log = self.envoy.log();
        log.lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(line).expect("each line is a JSON object"))
            .collect()
    }

    /// Returns the directory of its sockets.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.server.abort();
    }
}

/// Parses an object from its JSON.
///
/// # Panics
/// When it is invalid.
pub fn object(value: Value) -> Change {
    let text = value.to_string();
    Change::put(Object::parse(value).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// An object of our own group in namespace `default`.
pub fn gatewright(kind: &str, name: &str, spec: Value) -> Change {
    object(json!({"apiVersion": "gatewright.io/v1alpha1", "kind": kind,
        "metadata": {"namespace": "default", "name": name}, "spec": spec}))
}

/// An object of the Gateway API in namespace `default`.
pub fn api(kind: &str, name: &str, spec: Value) -> Change {
    object(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
        "metadata": {"namespace": "default", "name": name}, "spec": spec}),
    )
}

/// A GatewayClass of ours, called `ours`.
pub fn class() -> Change {
    object(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "ours"}, "spec": {"controllerName": CONTROLLER}}),
    )
}

/// Gateway `edge` of class `ours` in namespace `default`, with these listeners.
pub fn edge(listeners: impl Serialize) -> Change {
    let spec = json!({"gatewayClassName": "ours", "listeners": listeners});
    api("Gateway", "edge", spec)
}

/// The same with an HTTPS listener for each host, of which some have a TLS option. The Secret of a
/// host has its name.
pub fn edge_with(option: &str, port: u16, hosts: &[&str], having: &[&str]) -> Change {
    let listener = |host: &&str| {
        let mut tls = json!({"certificateRefs": [{"name": host}]});
        if having.contains(host) {
            tls["options"] = json!({option: "Enabled"});
        }
        json!({"name": host.replace('.', "-"), "port": port, "protocol": "HTTPS", "hostname": host, "tls": tls})
    };
    edge(hosts.iter().map(listener).collect::<Vec<_>>())
}

/// An HTTPRoute from a host at Gateway `edge` to Service `web`.
pub fn edge_route_to_web(host: &str) -> Change {
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    edge_route(&host.replace('.', "-"), host, rules)
}

/// An HTTPRoute in namespace `default` for a hostname at Gateway `edge`.
pub fn edge_route(name: &str, hostname: &str, rules: impl Serialize) -> Change {
    let spec = json!({"parentRefs": [{"name": "edge"}], "hostnames": [hostname], "rules": rules});
    api("HTTPRoute", name, spec)
}

/// A Service in namespace `default` with one endpoint behind its port 80.
pub fn service(name: &str, address: SocketAddr) -> Vec<Change> {
    vec![
        object(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name},
            "spec": {"ports": [{"name": "p", "port": 80}]}}),
        ),
        object(
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": "default", "name": format!("{name}-1"), "labels": {"kubernetes.io/service-name": name}},
            "ports": [{"name": "p", "port": address.port()}], "endpoints": [{"addresses": [address.ip().to_string()]}]}),
        ),
    ]
}

/// A TLS Secret in namespace `default` with a new self-signed certificate.
///
/// # Errors
/// When the certificate cannot be made.
pub fn secret(name: &str, hostname: &str) -> Result<Change> {
    let made = rcgen::generate_simple_self_signed([hostname.to_owned()])?;
    Ok(object(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": "default", "name": name},
        "stringData": {"tls.crt": made.cert.pem(), "tls.key": made.signing_key.serialize_pem()}}),
    ))
}
