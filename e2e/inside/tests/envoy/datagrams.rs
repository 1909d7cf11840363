//! TrafficPolicies and `trafficDistribution` for UDPRoutes on a real Envoy.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use e2e::loopback;
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, api, class, edge, free_port, object};
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::{ObjectName, Zone};
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// The patience with a datagram that may have been dropped.
const DROPPED: Duration = Duration::from_millis(300);

/// A backend that answers each datagram with its name, and takes TCP connections at the same port,
/// as a name server does.
struct Answering {
    address: SocketAddr,
    datagrams: JoinHandle<()>,
    connections: JoinHandle<()>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.datagrams.abort();
        self.connections.abort();
    }
}

impl Answering {
    async fn start_on(name: &'static str, address: &str) -> Result<Self> {
        loopback::add(address).await?;
        let listener = TcpListener::bind((address, 0)).await?;
        let address = listener.local_addr()?;
        let socket = UdpSocket::bind(address).await?;
        let connections = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let datagrams = tokio::spawn(async move {
            let mut datagram = [0; 64];
            while let Ok((_, client)) = socket.recv_from(&mut datagram).await {
                // The client may be gone.
                let _ = socket.send_to(name.as_bytes(), client).await;
            }
        });
        Ok(Self {
            address,
            datagrams,
            connections,
        })
    }

    /// Takes no more connections, and answers datagrams as before.
    fn refuse_checks(&self) {
        self.connections.abort();
    }
}

/// Returns the name of the backend that answers a new client at an address; `None` without an
/// answer.
async fn answered(client: Ipv4Addr, port: u16) -> Result<Option<String>> {
    let socket = UdpSocket::bind((client, 0)).await?;
    socket.connect((Ipv4Addr::LOCALHOST, port)).await?;
    asked(&socket).await
}

/// Returns the name of the backend that answers a client once more.
async fn asked(socket: &UdpSocket) -> Result<Option<String>> {
    socket.send(b"who").await?;
    let mut name = [0; 64];
    Ok(match timeout(DROPPED, socket.recv(&mut name)).await {
        Ok(Ok(length)) => Some(String::from_utf8_lossy(&name[..length]).into_owned()),
        Ok(Err(_)) | Err(_) => None,
    })
}

/// The names that answer 30 new clients at one address.
async fn names(client: Ipv4Addr, port: u16) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for _ in 0..30 {
        names.extend(answered(client, port).await?);
    }
    Ok(names)
}

/// Waits until exactly these answer.
async fn until_by(world: &World, port: u16, expected: &[&str]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let names = names(Ipv4Addr::LOCALHOST, port).await?;
        if names
            .iter()
            .map(String::as_str)
            .eq(expected.iter().copied())
        {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "answered by {names:?}, expected {expected:?}:\n{}",
            world.envoy.log()
        );
    }
}

/// A Service with a UDP and a TCP port that lead to the same port of its pods.
fn service(name: &str, distribution: Option<&str>) -> Change {
    let ports = json!([{"name": "u", "port": 53, "protocol": "UDP"},
        {"name": "t", "port": 53, "protocol": "TCP"}]);
    let mut spec = json!({"ports": ports});
    if let Some(distribution) = distribution {
        spec["trafficDistribution"] = json!(distribution);
    }
    object(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "default", "name": name}, "spec": spec}))
}

fn endpoint(service: &str, backend: &Answering, zone: Option<&str>) -> Change {
    let SocketAddr::V4(address) = backend.address else {
        panic!("an IPv4 address")
    };
    let number = address.ip().octets()[3];
    let mut endpoint = json!({"addresses": [address.ip().to_string()]});
    if let Some(zone) = zone {
        endpoint["zone"] = json!(zone);
    }
    object(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": format!("{service}-{number}"),
            "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "u", "port": address.port(), "protocol": "UDP"}],
        "endpoints": [endpoint]}),
    )
}

fn route(services: &[&str]) -> Change {
    let backends: Vec<Value> = services
        .iter()
        .map(|name| json!({"name": name, "port": 53}))
        .collect();
    let rules = json!([{"backendRefs": backends}]);
    let parents = json!([{"name": "edge"}]);
    api(
        "UDPRoute",
        "dns",
        json!({"parentRefs": parents, "rules": rules}),
    )
}

fn gateway(port: u16) -> [Change; 2] {
    let listeners = json!([{"name": "udp", "port": port, "protocol": "UDP"}]);
    [class(), edge(listeners)]
}

/// A policy of Services.
fn policy(services: &[&str], mut spec: Value) -> Change {
    let targets: Vec<Value> = services
        .iter()
        .map(|name| json!({"group": "", "kind": "Service", "name": name}))
        .collect();
    spec["targetRefs"] = json!(targets);
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
        "metadata": {"namespace": "default", "name": "dns"}, "spec": spec}),
    )
}

fn hashed() -> Value {
    json!({"loadBalancer": {"type": "ConsistentHash", "consistentHash": {"type": "SourceIP"}}})
}

/// Checks that each client address has one backend, and returns those of all of them.
async fn backends_of_clients(port: u16) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for last in 2..22 {
        let client = Ipv4Addr::new(127, 0, 0, last);
        let names = names(client, port).await?;
        ensure!(names.len() == 1, "{client} is answered by {names:?}");
        all.extend(names);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn datagrams_go_by_the_policy_of_their_service() -> Result<()> {
    let port = free_port()?;
    let one = Answering::start_on("one", "198.18.62.1").await?;
    let two = Answering::start_on("two", "198.18.62.2").await?;
    let mut changes = Vec::from(gateway(port));
    changes.extend([service("dns", None), service("next", None), route(&["dns"])]);
    changes.extend([endpoint("dns", &one, None), endpoint("dns", &two, None)]);
    let world = World::start(changes).await?;
    until_by(&world, port, &["one", "two"]).await?;

    // A policy replaces the cluster of the port, and nothing else.
    let (delta, generation) = world.apply(vec![policy(&["dns"], hashed())]);
    let sent: Vec<String> = delta
        .resources
        .keys()
        .map(|key| format!("{key:?}"))
        .collect();
    ensure!(
        sent.len() == 1 && sent[0].starts_with("UdpCluster"),
        "{sent:?}"
    );
    world.acknowledged(generation).await?;
    let deadline = Instant::now() + PATIENCE;
    while names(Ipv4Addr::LOCALHOST, port).await?.len() > 1 {
        ensure!(Instant::now() < deadline, "{}", world.envoy.log());
    }
    let both = BTreeSet::from(["one".to_owned(), "two".to_owned()]);
    ensure!(
        backends_of_clients(port).await? == both,
        "clients are spread"
    );
    // A key that no datagram has leaves the choice to chance.
    let cookie = json!({"type": "Cookie", "cookie": {"name": "sid"}});
    let by_cookie = json!({"loadBalancer": {"type": "ConsistentHash", "consistentHash": cookie}});
    world.settle(vec![policy(&["dns"], by_cookie)]).await?;
    until_by(&world, port, &["one", "two"]).await?;

    // Several backends with one policy have it, beside their weights.
    let mut both_of = vec![policy(&["dns", "next"], hashed()), route(&["dns", "next"])];
    both_of.push(Change::delete(ObjectKey::new(
        Kind::EndpointSlice,
        ObjectName::new("default", "dns-2"),
    )));
    both_of.push(endpoint("next", &two, None));
    world.settle(both_of).await?;
    let deadline = Instant::now() + PATIENCE;
    while names(Ipv4Addr::LOCALHOST, port).await?.len() > 1 {
        ensure!(Instant::now() < deadline, "{}", world.envoy.log());
    }
    ensure!(
        backends_of_clients(port).await? == both,
        "clients are spread over Services"
    );
    // With different policies they have none.
    world.settle(vec![policy(&["dns"], hashed())]).await?;
    until_by(&world, port, &["one", "two"]).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn checks_by_tcp_take_endpoints_out_and_sessions_have_a_limit() -> Result<()> {
    let port = free_port()?;
    let one = Answering::start_on("one", "198.18.62.11").await?;
    let two = Answering::start_on("two", "198.18.62.12").await?;
    let mut changes = Vec::from(gateway(port));
    changes.extend([service("dns", None), route(&["dns"])]);
    changes.extend([endpoint("dns", &one, None), endpoint("dns", &two, None)]);
    let active = json!({"type": "TCP", "interval": "2s", "unhealthyThreshold": 1});
    let checked = json!({"healthCheck": {"active": active, "panicThreshold": 0}});
    changes.push(policy(&["dns"], checked));
    let world = World::start(changes).await?;
    until_by(&world, port, &["one", "two"]).await?;
    one.refuse_checks();
    until_by(&world, port, &["two"]).await?;

    let few = json!({"circuitBreaker": {"maxConnections": 2}});
    world.settle(vec![policy(&["dns"], few)]).await?;
    until_limited(&world, port).await
}

/// Waits until two clients have sessions and others are not answered.
async fn until_limited(world: &World, port: u16) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut clients = Vec::new();
        let mut served = 0;
        for _ in 0..4 {
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            client.connect((Ipv4Addr::LOCALHOST, port)).await?;
            served += usize::from(asked(&client).await?.is_some());
            clients.push(client);
        }
        if served == 2 {
            let first = clients.first().context("a client")?;
            ensure!(
                asked(first).await?.is_some() || asked(&clients[1]).await?.is_some(),
                "those with sessions are served on"
            );
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{served} of 4 clients are served:\n{}",
            world.envoy.log()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn datagrams_go_to_endpoints_of_an_envoys_own_zone_first() -> Result<()> {
    let port = free_port()?;
    let in_a = Answering::start_on("in-a", "198.18.62.21").await?;
    let in_b = Answering::start_on("in-b", "198.18.62.22").await?;
    let mut changes = Vec::from(gateway(port));
    changes.extend([service("dns", Some("PreferSameZone")), route(&["dns"])]);
    changes.extend([
        endpoint("dns", &in_a, Some("a")),
        endpoint("dns", &in_b, Some("b")),
    ]);
    let zone = Zone::parse("a").map_err(Error::msg)?;
    let world = World::start_in(changes, zone).await?;
    until_by(&world, port, &["in-a"]).await?;
    let slice = ObjectName::new("default", "dns-21");
    let gone = Change::delete(ObjectKey::new(Kind::EndpointSlice, slice));
    world.settle(vec![gone]).await?;
    until_by(&world, port, &["in-b"]).await?;
    world
        .settle(vec![endpoint("dns", &in_a, Some("a"))])
        .await?;
    until_by(&world, port, &["in-a"]).await?;
    // With several backends the weights decide, and a Service that does not ask has no zones.
    let empty = vec![service("next", None), endpoint("next", &in_b, Some("b"))];
    world.settle(empty).await?;
    world.settle(vec![route(&["dns", "next"])]).await?;
    until_by(&world, port, &["in-a", "in-b"]).await?;
    world.settle(vec![route(&["dns"])]).await?;
    until_by(&world, port, &["in-a"]).await?;
    world.settle(vec![service("dns", None)]).await?;
    until_by(&world, port, &["in-a", "in-b"]).await
}
