//! Views are isolated: every RPC with every kind of credential.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use e2e::simenvoy::{DeltaClient, SECRET};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use envoy_types::pb::envoy::service as svc;
use envoy_types::pb::envoy::service::accesslog::v3::{
    StreamAccessLogsMessage,
    stream_access_logs_message::{HttpAccessLogEntries, Identifier},
};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use xds::{
    Authority, Cache, CertificatesOrTokens, ClusterStats, Denied, LogEntries, Pair, Reporter,
    Reports, Resource, ReviewToken, Reviewed, Server, ServerTls, Update, View, Views,
};

const HOUR: Duration = Duration::from_secs(3600);
const A: &str = "spiffe://test/a";
const B: &str = "spiffe://test/b";

/// A token reviewer that knows two tokens.
struct Reviewer;

#[tonic::async_trait]
impl ReviewToken for Reviewer {
    async fn review(&self, token: &str) -> Result<Reviewed, Denied> {
        let users = BTreeMap::from([("token-b", B), ("token-nobody", "nobody")]);
        match users.get(token) {
            Some(user) => Ok(Reviewed {
                user: (*user).to_owned(),
                expires: None,
            }),
            None => Err(Denied::Unauthenticated("the token is not genuine".into())),
        }
    }
}

/// A receiver that remembers who reported.
#[derive(Default)]
struct Heard(Mutex<Vec<Reporter>>);

impl Heard {
    fn add(&self, reporter: &Reporter) {
        self.0.lock().expect("not poisoned").push(reporter.clone());
    }

    fn reporters(&self) -> Vec<Reporter> {
        self.0.lock().expect("not poisoned").clone()
    }
}

impl Reports for Heard {
    fn log(&self, reporter: &Reporter, _: LogEntries) {
        self.add(reporter);
    }

    fn load(&self, reporter: &Reporter, _: Vec<ClusterStats>) {
        self.add(reporter);
    }

    fn watched(&self, view: &View) -> watch::Receiver<Arc<[String]>> {
        watch::channel(Arc::from([format!("cluster of {view}")])).1
    }
}

struct World {
    heard: Arc<Heard>,
    authority: Authority,
    tls: ServerTls,
    views: Views,
    cache: Cache,
    address: String,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl World {
    async fn start() -> World {
        let now = SystemTime::now();
        let authority = Authority::new("test", HOUR, now).expect("an authority");
        let shown = authority
            .issue_server(&["localhost".into(), "127.0.0.1".into()], HOUR, now)
            .expect("issued");
        let tls = ServerTls::optional(&shown, authority.certificate()).expect("TLS");
        let views = Views::new();
        views.allow(A, View::new("a"));
        views.allow(B, View::new("b"));
        let cache = Cache::new();
        for view in ["a", "b"] {
            let name = format!("{view}.example.com");
            let secret = Resource::new(
                name.as_str(),
                &Secret {
                    name: name.clone(),
                    ..Default::default()
                },
            );
            cache.publish(
                &View::new(view),
                Update {
                    upserts: vec![secret],
                    removals: vec![],
                },
            );
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = format!(
            "https://localhost:{}",
            listener.local_addr().expect("bound").port()
        );
        let server = Server::new(
            cache.clone(),
            CertificatesOrTokens::new(Reviewer, views.clone()),
        );
        let heard = Arc::new(Heard::default());
        let server = server.reporting(heard.clone());
        let (stop, stopped) = oneshot::channel();
        let serving = {
            let tls = tls.clone();
            tokio::spawn(async move {
                server
                    .serve_tls(listener, tls, async {
                        let _ = stopped.await;
                    })
                    .await;
            })
        };
        World {
            heard,
            authority,
            tls,
            views,
            cache,
            address,
            stop: Some(stop),
            serving: Some(serving),
        }
    }

    fn client(&self, identity: &str) -> Pair {
        self.authority
            .issue_client(identity, HOUR, SystemTime::now())
            .expect("issued")
    }

    async fn channel(&self, client: Option<&Pair>) -> Result<Channel, tonic::transport::Error> {
        connect(&self.address, self.authority.certificate(), client).await
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        self.serving.take().expect("once").await.expect("joined");
    }
}

async fn connect(
    address: &str,
    root: &str,
    client: Option<&Pair>,
) -> Result<Channel, tonic::transport::Error> {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(root));
    if let Some(pair) = client {
        tls = tls.identity(Identity::from_pem(&pair.certificate, &pair.key));
    }
    Endpoint::from_shared(address.to_owned())
        .expect("a URL")
        .tls_config(tls)?
        .connect()
        .await
}

/// Calls each RPC of every discovery service with these credentials, each on a connection of its
/// own, since a denied client loses its connection; returns the status codes.
async fn walk(
    world: &World,
    pair: Option<&Pair>,
    token: Option<&str>,
) -> Vec<(&'static str, Code)> {
    fn request<T>(message: T, token: Option<&str>) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = token {
            request.metadata_mut().insert(
                "authorization",
                format!("Bearer {token}").parse().expect("ASCII"),
            );
        }
        request
    }
    // An admitted stream stays open; one request of an unknown type ends it with an error of its
    // own, which differs from a denial.
    fn code<T>(answer: Result<T, Status>) -> Code {
        answer.err().map_or(Code::Ok, |s| s.code())
    }
    let mut found = Vec::new();
    macro_rules! stream {
        ($client:path, $method:ident, $message:ty) => {{
            let mut client = <$client>::new(world.channel(pair).await.expect("connects"));
            let wrong = <$message>::default();
            let wrong = <$message>::from(wrong);
            let stream = tokio_stream::iter([{
                let mut m = wrong;
                m.type_url = "type.googleapis.com/none".into();
                m
            }]);
            let answer = match client.$method(request(stream, token)).await {
                Ok(response) => response.into_inner().message().await.map(|_| ()),
                Err(status) => Err(status),
            };
            found.push((stringify!($method), code(answer)));
        }};
    }
    macro_rules! fetch {
        ($client:path, $method:ident) => {{
            let mut client = <$client>::new(world.channel(pair).await.expect("connects"));
            found.push((
                stringify!($method),
                code(
                    client
                        .$method(request(DiscoveryRequest::default(), token))
                        .await,
                ),
            ));
        }};
    }
    use svc::cluster::v3::cluster_discovery_service_client::ClusterDiscoveryServiceClient as Cds;
    use svc::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient as Ads;
    use svc::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient as Eds;
    use svc::extension::v3::extension_config_discovery_service_client::ExtensionConfigDiscoveryServiceClient as Ecds;
    use svc::listener::v3::listener_discovery_service_client::ListenerDiscoveryServiceClient as Lds;
    use svc::route::v3::route_discovery_service_client::RouteDiscoveryServiceClient as Rds;
    use svc::route::v3::scoped_routes_discovery_service_client::ScopedRoutesDiscoveryServiceClient as Srds;
    use svc::route::v3::virtual_host_discovery_service_client::VirtualHostDiscoveryServiceClient as Vhds;
    use svc::runtime::v3::runtime_discovery_service_client::RuntimeDiscoveryServiceClient as Rtds;
    use svc::secret::v3::secret_discovery_service_client::SecretDiscoveryServiceClient as Sds;
    stream!(
        Ads<Channel>,
        delta_aggregated_resources,
        DeltaDiscoveryRequest
    );
    stream!(Ads<Channel>, stream_aggregated_resources, DiscoveryRequest);
    stream!(Cds<Channel>, delta_clusters, DeltaDiscoveryRequest);
    stream!(Cds<Channel>, stream_clusters, DiscoveryRequest);
    fetch!(Cds<Channel>, fetch_clusters);
    stream!(Eds<Channel>, delta_endpoints, DeltaDiscoveryRequest);
    stream!(Eds<Channel>, stream_endpoints, DiscoveryRequest);
    fetch!(Eds<Channel>, fetch_endpoints);
    stream!(Rds<Channel>, delta_routes, DeltaDiscoveryRequest);
    stream!(Rds<Channel>, stream_routes, DiscoveryRequest);
    fetch!(Rds<Channel>, fetch_routes);
    stream!(Srds<Channel>, delta_scoped_routes, DeltaDiscoveryRequest);
    stream!(Srds<Channel>, stream_scoped_routes, DiscoveryRequest);
    fetch!(Srds<Channel>, fetch_scoped_routes);
    stream!(Vhds<Channel>, delta_virtual_hosts, DeltaDiscoveryRequest);
    stream!(Lds<Channel>, delta_listeners, DeltaDiscoveryRequest);
    stream!(Lds<Channel>, stream_listeners, DiscoveryRequest);
    fetch!(Lds<Channel>, fetch_listeners);
    stream!(Sds<Channel>, delta_secrets, DeltaDiscoveryRequest);
    stream!(Sds<Channel>, stream_secrets, DiscoveryRequest);
    fetch!(Sds<Channel>, fetch_secrets);
    stream!(Rtds<Channel>, delta_runtime, DeltaDiscoveryRequest);
    stream!(Rtds<Channel>, stream_runtime, DiscoveryRequest);
    fetch!(Rtds<Channel>, fetch_runtime);
    stream!(
        Ecds<Channel>,
        delta_extension_configs,
        DeltaDiscoveryRequest
    );
    stream!(Ecds<Channel>, stream_extension_configs, DiscoveryRequest);
    fetch!(Ecds<Channel>, fetch_extension_configs);
    found
}

#[tokio::test]
async fn every_rpc_is_closed_to_the_unauthenticated_and_to_the_unknown() {
    let world = World::start().await;
    // A TLS connection without a client certificate succeeds, since a token would suffice.
    let stranger = world.client("spiffe://test/stranger");
    for (pair, token, expected) in [
        (None, None, Code::Unauthenticated),
        (None, Some("forged"), Code::Unauthenticated),
        (None, Some("token-nobody"), Code::PermissionDenied),
        (Some(&stranger), None, Code::PermissionDenied),
        // A certificate without a view is denied, even with a valid token of somebody else.
        (Some(&stranger), Some("token-b"), Code::PermissionDenied),
    ] {
        let found = walk(&world, pair, token).await;
        assert_eq!(found.len(), 27);
        for (rpc, code) in found {
            assert_eq!(code, expected, "{rpc} with token {token:?}");
        }
    }
    // The same calls with a valid credential show that they reach the services; Fetch is not served
    // at all.
    for (rpc, code) in walk(&world, Some(&world.client(A)), None).await {
        let expected = if rpc.starts_with("fetch") {
            Code::Unimplemented
        } else {
            Code::InvalidArgument
        };
        assert_eq!(code, expected, "{rpc}");
    }
    world.stop().await;
}

/// Reports on both streams, as a node; returns the watched clusters, or the status.
async fn report(
    world: &World,
    pair: Option<&Pair>,
    node: &str,
) -> (Code, Result<Vec<String>, Code>) {
    use svc::accesslog::v3::access_log_service_client::AccessLogServiceClient as Logs;
    use svc::load_stats::v3::load_reporting_service_client::LoadReportingServiceClient as Loads;
    let node = Some(Node {
        id: node.to_owned(),
        ..Default::default()
    });
    let message = StreamAccessLogsMessage {
        identifier: Some(Identifier {
            node: node.clone(),
            log_name: "failures".to_owned(),
        }),
        log_entries: Some(LogEntries::HttpLogs(HttpAccessLogEntries::default())),
    };
    let mut logs = Logs::new(world.channel(pair).await.expect("connects"));
    let logged = logs
        .stream_access_logs(tokio_stream::iter([message]))
        .await
        .err()
        .map_or(Code::Ok, |status| status.code());
    let mut loads = Loads::new(world.channel(pair).await.expect("connects"));
    let request = LoadStatsRequest {
        node,
        ..Default::default()
    };
    // A client leaves it open.
    let requests =
        tokio_stream::StreamExt::chain(tokio_stream::iter([request]), tokio_stream::pending());
    let watched = match loads.stream_load_stats(requests).await {
        Ok(response) => response.into_inner().message().await,
        Err(status) => Err(status),
    };
    let watched = watched.map(|list| list.map_or_else(Vec::new, |list| list.clusters));
    (logged, watched.map_err(|status| status.code()))
}

#[tokio::test]
async fn a_client_reports_to_its_own_view_whatever_it_calls_itself() {
    let world = World::start().await;
    let stranger = world.client("spiffe://test/stranger");
    for (pair, expected) in [
        (None, Code::Unauthenticated),
        (Some(&stranger), Code::PermissionDenied),
    ] {
        assert_eq!(
            report(&world, pair, "b").await,
            (expected, Err(expected)),
            "without a view"
        );
    }
    assert_eq!(world.heard.reporters(), [], "nobody was heard");
    let (_, watched) = report(&world, Some(&world.client(A)), "b").await;
    assert_eq!(watched, Ok(vec!["cluster of a".to_owned()]));
    let heard = world.heard.reporters();
    assert!(!heard.is_empty(), "both streams have a report");
    for reporter in heard {
        assert_eq!(reporter.view, View::new("a"));
        assert_eq!(&*reporter.node, "b", "what it calls itself");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_client_gets_its_own_names_and_never_anothers_whatever_it_calls_itself() {
    let world = World::start().await;
    let channel = world
        .channel(Some(&world.client(B)))
        .await
        .expect("connects");
    // The node claims to be A.
    let mut client = DeltaClient::open(channel, A).await.expect("opens");
    client
        .subscribe(
            SECRET,
            &["a.example.com", "b.example.com", "B.example.com", "*"],
        )
        .await
        .expect("sent");
    client
        .run_until(|c| {
            let held = c.held(SECRET);
            held.versions.len() + held.absent.len() == 3
        })
        .await
        .expect("answered");
    let held = client.held(SECRET);
    assert_eq!(held.versions.keys().collect::<Vec<_>>(), ["b.example.com"]);
    assert_eq!(
        held.absent.iter().collect::<Vec<_>>(),
        ["B.example.com", "a.example.com"]
    );
    drop(client);
    world.stop().await;
}

#[tokio::test]
async fn certificates_rotate_while_streams_run_and_a_revoked_client_is_cut_off() {
    let world = World::start().await;
    let channel = world
        .channel(Some(&world.client(A)))
        .await
        .expect("connects");
    let mut old = DeltaClient::open(channel, "old").await.expect("opens");
    old.subscribe(SECRET, &["a.example.com"])
        .await
        .expect("sent");
    old.run_until(|c| !c.held(SECRET).versions.is_empty())
        .await
        .expect("answered");

    // A new authority for both sides; clients of the old one are admitted for a while.
    let now = SystemTime::now();
    let next = Authority::new("next", HOUR, now).expect("an authority");
    let shown = next
        .issue_server(&["localhost".into()], HOUR, now)
        .expect("issued");
    let both = format!("{}{}", world.authority.certificate(), next.certificate());
    world.tls.rotate(&shown, &both).expect("rotated");
    let renewed = next.issue_client(A, HOUR, now).expect("issued");
    let channel = connect(&world.address, next.certificate(), Some(&renewed))
        .await
        .expect("the new pair connects");
    let mut new = DeltaClient::open(channel, "new").await.expect("opens");
    new.subscribe(SECRET, &["a.example.com"])
        .await
        .expect("sent");
    new.run_until(|c| !c.held(SECRET).versions.is_empty())
        .await
        .expect("answered");
    // The connection from before the rotation continues.
    let changed = Resource::new(
        "a.example.com",
        &Secret {
            name: "changed".into(),
            ..Default::default()
        },
    );
    let version = changed.version().to_owned();
    world.cache.publish(
        &View::new("a"),
        Update {
            upserts: vec![changed],
            removals: vec![],
        },
    );
    for client in [&mut old, &mut new] {
        client
            .run_until(|c| c.held(SECRET).versions["a.example.com"] == version)
            .await
            .expect("still served");
    }

    // The overlap ends: the old connection is closed, the other one continues.
    world
        .tls
        .rotate(&shown, next.certificate())
        .expect("rotated");
    old.receive()
        .await
        .expect_err("its certificate is trusted no more");
    let again = Resource::new(
        "a.example.com",
        &Secret {
            name: "again".into(),
            ..Default::default()
        },
    );
    let version = again.version().to_owned();
    world.cache.publish(
        &View::new("a"),
        Update {
            upserts: vec![again],
            removals: vec![],
        },
    );
    new.run_until(|c| c.held(SECRET).versions["a.example.com"] == version)
        .await
        .expect("still served");
    // The old authority opens no new connection: its client does not trust the server, nor the
    // server the client.
    assert!(
        world.channel(Some(&world.client(A))).await.is_err(),
        "the old root still works"
    );
    let stale = connect(&world.address, next.certificate(), Some(&world.client(A))).await;
    let refused = match stale {
        Err(_) => true,
        Ok(channel) => DeltaClient::open(channel, "stale").await.is_err(),
    };
    assert!(
        refused,
        "a client certificate of the old authority is still taken"
    );

    world.views.revoke(A);
    let late = Resource::new(
        "a.example.com",
        &Secret {
            name: "late".into(),
            ..Default::default()
        },
    );
    world.cache.publish(
        &View::new("a"),
        Update {
            upserts: vec![late],
            removals: vec![],
        },
    );
    let ended = new.receive().await.expect_err("nothing more is sent");
    assert_eq!(ended.code(), Code::PermissionDenied);
    drop((old, new));
    world.stop().await;
}

#[test]
fn no_secret_shows_in_debug_output() {
    let authority = Authority::new("test", HOUR, SystemTime::now()).expect("an authority");
    let pair = authority
        .issue_client(A, HOUR, SystemTime::now())
        .expect("issued");
    let secret = Resource::new(
        "host",
        &Secret {
            name: "the-private-part".into(),
            ..Default::default()
        },
    );
    let shown = format!("{authority:?} {pair:?} {secret:?}");
    assert!(
        !shown.contains("PRIVATE") && !shown.contains("the-private-part"),
        "{shown}"
    );
}
