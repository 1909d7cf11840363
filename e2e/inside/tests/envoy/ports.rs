//! TCPRoutes and UDPRoutes on a real Envoy: ports whose connections and datagrams are forwarded
//! unchanged.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e_inside::world::{World, api, class, edge, free_port};
use futures::{StreamExt, TryStreamExt};
use gatewright_core::inputs::{Kind, Object, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::{Change, StatusBody};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Time limit, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time without an answer after which a datagram counts as dropped.
const DROPPED: Duration = Duration::from_secs(2);

/// A backend that sends its name; stopped on drop.
struct Named {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Named {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Named {
    /// Starts a TCP backend that sends its name to each connection, and then echoes.
    async fn tcp(name: &'static str) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // The client may have disconnected.
                    let _ = connection.write_all(name.as_bytes()).await;
                    let (mut read, mut write) = connection.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        Ok(Self { address, serving })
    }

    /// Starts a UDP backend that answers each datagram with its name.
    async fn udp(name: &'static str) -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = socket.local_addr()?;
        let serving = tokio::spawn(async move {
            let mut datagram = [0; 2048];
            while let Ok((_, client)) = socket.recv_from(&mut datagram).await {
                let _ = socket.send_to(name.as_bytes(), client).await;
            }
        });
        Ok(Self { address, serving })
    }
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Returns the name of a new connection's backend; None if it is closed.
async fn connected(port: u16) -> Result<Option<String>> {
    let work = async {
        let mut connection = TcpStream::connect(at(port)).await?;
        let mut name = [0; 64];
        // A connection that is closed at once may be reset.
        Ok(match connection.read(&mut name).await {
            Ok(0) | Err(_) => None,
            Ok(length) => Some(String::from_utf8_lossy(&name[..length]).into_owned()),
        })
    };
    timeout(PATIENCE, work)
        .await
        .context("nothing is said, and nothing closed")?
}

/// Returns the name of the backend of a new client's datagram; None without an answer.
async fn answered(port: u16, patience: Duration) -> Result<Option<String>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    socket.connect(at(port)).await?;
    socket.send(b"who").await?;
    let mut name = [0; 64];
    Ok(match timeout(patience, socket.recv(&mut name)).await {
        Ok(Ok(length)) => Some(String::from_utf8_lossy(&name[..length]).into_owned()),
        Ok(Err(_)) | Err(_) => None,
    })
}

/// A Service with a TCP and a UDP port of one number, and their endpoints.
fn service(name: &str, tcp: &[SocketAddr], udp: &[SocketAddr]) -> Vec<Change> {
    let put = |value: Value| Change::put(Object::parse(value).expect("an object"));
    let ports = json!([{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}]);
    let mut all = vec![put(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "default", "name": name}, "spec": {"ports": ports}}))];
    for (transport, short, addresses) in [("TCP", "t", tcp), ("UDP", "u", udp)] {
        // Every address has a port of its own, so that each has a slice.
        for index in 0..3 {
            let slice = format!("{name}-{short}-{index}");
            let Some(address) = addresses.get(index) else {
                all.push(Change::delete(ObjectKey::new(
                    Kind::EndpointSlice,
                    ObjectName::new("default", slice),
                )));
                continue;
            };
            all.push(put(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"namespace": "default", "name": slice, "labels": {"kubernetes.io/service-name": name}},
                "ports": [{"name": short, "port": address.port(), "protocol": transport}],
                "endpoints": [{"addresses": [address.ip().to_string()]}]})));
        }
    }
    all
}

fn gateway(port: u16) -> Change {
    let listeners = json!([{"name": "tcp", "port": port, "protocol": "TCP"}, {"name": "udp", "port": port, "protocol": "UDP"}]);
    edge(listeners)
}

fn route(kind: &str, name: &str, backends: &[(&str, u32)]) -> Change {
    let backends: Vec<Value> = backends
        .iter()
        .map(|(name, weight)| json!({"name": name, "port": 53, "weight": weight}))
        .collect();
    api(
        kind,
        name,
        json!({"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": backends}]}),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn tcp_and_udp_of_one_number_each_have_their_backend_and_endpoints_change_live() -> Result<()>
{
    let port = free_port()?;
    let tcp = Named::tcp("over tcp").await?;
    let udp = Named::udp("over udp").await?;
    let mut changes = vec![class(), gateway(port)];
    changes.extend([
        route("TCPRoute", "t", &[("dns", 1)]),
        route("UDPRoute", "u", &[("dns", 1)]),
    ]);
    changes.extend(service("dns", &[tcp.address], &[udp.address]));
    let world = World::start(changes).await?;
    assert_eq!(
        connected(port).await?.as_deref(),
        Some("over tcp"),
        "{}",
        world.envoy.log()
    );
    assert_eq!(
        answered(port, PATIENCE).await?.as_deref(),
        Some("over udp"),
        "{}",
        world.envoy.log()
    );

    // Endpoints change: existing connections stay, new ones reach the new endpoint.
    let mut held = TcpStream::connect(at(port)).await?;
    let mut name = [0; 8];
    held.read_exact(&mut name).await?;
    let next_tcp = Named::tcp("next tcp").await?;
    let next_udp = Named::udp("next udp").await?;
    world
        .settle(service("dns", &[next_tcp.address], &[next_udp.address]))
        .await?;
    assert_eq!(connected(port).await?.as_deref(), Some("next tcp"));
    assert_eq!(answered(port, PATIENCE).await?.as_deref(), Some("next udp"));
    held.write_all(b"still here").await?;
    let mut said = [0; 10];
    timeout(PATIENCE, held.read_exact(&mut said)).await??;
    assert_eq!(&said, b"still here");

    // Without endpoints, and without routes: closed and dropped.
    world.settle(service("dns", &[], &[])).await?;
    assert_eq!(
        connected(port).await?,
        None,
        "no backend is reached over TCP"
    );
    assert_eq!(
        answered(port, DROPPED).await?,
        None,
        "none is reached over UDP"
    );
    let gone = [
        ("TCPRoute", Kind::TCPRoute, "t"),
        ("UDPRoute", Kind::UDPRoute, "u"),
    ];
    let gone = gone.map(|(_, kind, name)| {
        Change::delete(ObjectKey::new(kind, ObjectName::new("default", name)))
    });
    world.settle(gone.to_vec()).await?;
    assert_eq!(
        connected(port).await?,
        None,
        "no backend is reached over TCP"
    );
    assert_eq!(
        answered(port, DROPPED).await?,
        None,
        "none is reached over UDP"
    );
    Ok(())
}

/// The number of each answer.
type Counts = BTreeMap<Option<String>, usize>;

fn share(counts: &Counts, name: Option<&str>) -> f64 {
    let all: usize = counts.values().sum();
    let found = counts
        .iter()
        .find(|(key, _)| key.as_deref() == name)
        .map_or(0, |(_, count)| *count);
    found as f64 / all as f64
}

/// Of 600 answers, a share of 0.1 to 0.7 is off by more than 0.1 less than once in a million runs.
fn close_to(counts: &Counts, expected: &[(Option<&str>, f64)]) -> Result<()> {
    for (name, expected) in expected {
        let found = share(counts, *name);
        ensure!(
            (found - expected).abs() < 0.1,
            "{name:?}: {found} instead of {expected}: {counts:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn connections_are_divided_by_weight_and_the_share_of_what_is_not_there_is_closed()
-> Result<()> {
    let port = free_port()?;
    let one = Named::tcp("one").await?;
    let two = Named::tcp("two").await?;
    let idle = Named::tcp("idle").await?;
    let mut changes = vec![class(), gateway(port)];
    changes.push(route(
        "TCPRoute",
        "t",
        &[("one", 60), ("two", 20), ("gone", 20), ("idle", 0)],
    ));
    for (name, backend) in [("one", &one), ("two", &two), ("idle", &idle)] {
        changes.extend(service(name, &[backend.address], &[]));
    }
    let _world = World::start(changes).await?;
    let mut counts = Counts::new();
    for _ in 0..600 {
        *counts.entry(connected(port).await?).or_default() += 1;
    }
    close_to(
        &counts,
        &[(Some("one"), 0.6), (Some("two"), 0.2), (None, 0.2)],
    )?;
    assert_eq!(share(&counts, Some("idle")), 0.0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn datagrams_are_divided_by_weight_whatever_the_number_of_endpoints() -> Result<()> {
    let port = free_port()?;
    let one = Named::udp("one").await?;
    let two = [
        Named::udp("two").await?,
        Named::udp("two").await?,
        Named::udp("two").await?,
    ];
    let mut changes = vec![class(), gateway(port)];
    changes.push(route(
        "UDPRoute",
        "u",
        &[("one", 60), ("two", 20), ("gone", 10), ("empty", 10)],
    ));
    changes.extend(service("one", &[], &[one.address]));
    changes.extend(service(
        "two",
        &[],
        &two.each_ref().map(|backend| backend.address),
    ));
    changes.extend(service("empty", &[], &[]));
    let _world = World::start(changes).await?;
    // Sockets have room for some 200 datagrams: of more at once, a busy machine loses some.
    let asking = (0..600).map(|_| answered(port, DROPPED * 5));
    let mut answers = futures::stream::iter(asking).buffer_unordered(64);
    let mut counts = Counts::new();
    while let Some(answer) = answers.try_next().await? {
        *counts.entry(answer).or_default() += 1;
    }
    close_to(
        &counts,
        &[(Some("one"), 0.6), (Some("two"), 0.2), (None, 0.2)],
    )
}

/// More clients than Envoy's default of sessions per cluster, beyond which it would silently drop
/// datagrams.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn more_than_a_thousand_clients_have_sessions_at_a_time() -> Result<()> {
    let port = free_port()?;
    let backend = Named::udp("one").await?;
    let mut changes = vec![
        class(),
        gateway(port),
        route("UDPRoute", "u", &[("dns", 1)]),
    ];
    changes.extend(service("dns", &[], &[backend.address]));
    let _world = World::start(changes).await?;
    for client in 0..1200 {
        ensure!(
            answered(port, PATIENCE).await?.is_some(),
            "client {client} gets no answer"
        );
    }
    Ok(())
}

/// Returns the reason of `Accepted` of a Gateway's first listener.
fn told(
    statuses: &BTreeMap<ObjectKey, Option<gatewright_core::translate::ObjectStatus>>,
    namespace: &str,
) -> String {
    let key = ObjectKey::new(Kind::Gateway, ObjectName::new(namespace, "edge"));
    let Some(Some(status)) = statuses.get(&key) else {
        return "nothing".to_owned();
    };
    let StatusBody::Gateway(status) = &status.body else {
        panic!("a Gateway's")
    };
    let condition = &status.listeners[0].conditions[0];
    format!("{}: {}", condition.reason.as_str(), condition.message)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_port_of_the_shared_fleet_is_the_first_namespaces_and_is_opened_by_the_class()
-> Result<()> {
    let port = free_port()?;
    let closed = free_port()?;
    let put = |value: Value| Change::put(Object::parse(value).expect("an object"));
    let common = put(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "common"}, "spec": {"controllerName": e2e_inside::world::CONTROLLER, "parametersRef":
            {"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "infra", "name": "p"}}}),
    );
    let parameters = put(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "infra", "name": "p"},
        "spec": {"fleet": "Shared", "ports": [{"port": port, "protocol": "TCP"}]}}),
    );
    let gateway = |namespace: &str, port: u16| {
        put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"namespace": namespace, "name": "edge"}, "spec": {"gatewayClassName": "common",
                "listeners": [{"name": "db", "port": port, "protocol": "TCP"}]}}),
        )
    };
    let route = |namespace: &str| {
        put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "TCPRoute",
            "metadata": {"namespace": namespace, "name": "db"}, "spec": {"parentRefs": [{"name": "edge"}],
                "rules": [{"backendRefs": [{"name": "db", "namespace": "default", "port": 53}]}]}}),
        )
    };
    let grant = put(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ReferenceGrant",
        "metadata": {"namespace": "default", "name": "all"}, "spec": {"to": [{"group": "", "kind": "Service"}], "from": [
            {"group": "gateway.networking.k8s.io", "kind": "TCPRoute", "namespace": "alice"}]}}),
    );
    let backend = Named::tcp("alice's").await?;
    let mut changes = vec![
        common,
        parameters,
        grant,
        gateway("alice", port),
        route("alice"),
    ];
    changes.extend(service("db", &[backend.address], &[]));
    let world = World::start(changes).await?;
    assert_eq!(
        connected(port).await?.as_deref(),
        Some("alice's"),
        "{}",
        world.envoy.log()
    );

    // Another namespace requests it, whose name sorts first.
    let (delta, generation) = world.apply(vec![gateway("a-mallory", port), route("a-mallory")]);
    world.acknowledged(generation).await?;
    let refused = told(&delta.statuses, "a-mallory");
    assert!(
        refused.starts_with("HostnameConflict: ")
            && refused.contains("belongs to another namespace"),
        "{refused}"
    );
    assert_eq!(connected(port).await?.as_deref(), Some("alice's"));

    // A port that the class does not open stays closed.
    let (delta, generation) = world.apply(vec![gateway("a-mallory", closed)]);
    world.acknowledged(generation).await?;
    let refused = told(&delta.statuses, "a-mallory");
    assert!(
        refused.starts_with("PortUnavailable: ") && refused.contains("is closed to protocol TCP"),
        "{refused}"
    );
    assert!(
        TcpStream::connect(at(closed)).await.is_err(),
        "nothing listens there"
    );
    Ok(())
}
