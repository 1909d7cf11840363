//! Endpoints that terminate and still serve (KEP-1669) on a real Envoy: used while a Service has no
//! ready one, for every kind of route.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::echo::Echo;
use e2e::grpc::Grpc;
use e2e::probe::Probe;
use e2e_inside::world::{World, api, class, edge, free_port, object, secret};
use envoy_types::pb::envoy::service::auth::v3::CheckRequest;
use envoy_types::pb::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

const HOST: &str = "app.example.org";
const PATIENCE: Duration = Duration::from_secs(60);

/// The conditions of an endpoint.
fn conditions(ready: bool, serving: Option<bool>, terminating: bool) -> Value {
    match serving {
        Some(serving) => json!({"ready": ready, "serving": serving, "terminating": terminating}),
        None => json!({"ready": ready, "terminating": terminating}),
    }
}

fn ready() -> Value {
    conditions(true, Some(true), false)
}

fn ending() -> Value {
    conditions(false, Some(true), true)
}

/// A slice with one endpoint of a Service.
fn slice(service: &str, index: usize, address: SocketAddr, conditions: &Value) -> Change {
    object(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": format!("{service}-{index}"),
            "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "p", "port": address.port()}, {"name": "u", "port": address.port(), "protocol": "UDP"}],
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": conditions}]}),
    )
}

fn service(name: &str) -> Change {
    let ports = json!([{"name": "p", "port": 80}, {"name": "u", "port": 80, "protocol": "UDP"}]);
    object(
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name},
        "spec": {"ports": ports}}),
    )
}

fn route(kind: &str, section: &str, backends: &[(&str, u32)]) -> Change {
    let backends: Vec<Value> = backends
        .iter()
        .map(|(name, weight)| json!({"name": name, "port": 80, "weight": weight}))
        .collect();
    let mut spec = json!({"parentRefs": [{"name": "edge", "sectionName": section}], "rules": [{"backendRefs": backends}]});
    if !["TCPRoute", "UDPRoute"].contains(&kind) {
        spec["hostnames"] = json!([HOST]);
    }
    api(kind, section, spec)
}

async fn by(port: u16) -> Result<(u16, String)> {
    let answer = Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST)
        .send()
        .await?;
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    Ok((
        answer.status,
        said["name"].as_str().unwrap_or_default().to_owned(),
    ))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn ready_endpoints_come_first_and_those_that_serve_replace_them() -> Result<()> {
    let port = free_port()?;
    let one = Echo::start("one").await?;
    let two = Echo::start("two").await?;
    let other = Echo::start("other").await?;
    let listeners = json!([{"name": "http", "port": port, "protocol": "HTTP"}]);
    let world = World::start(vec![
        class(),
        edge(listeners),
        route("HTTPRoute", "http", &[("web", 1)]),
        service("web"),
        service("other"),
        slice("other", 0, other.address(), &ready()),
        slice("web", 0, one.address(), &ending()),
    ])
    .await?;
    assert_eq!(
        by(port).await?,
        (200, "one".to_owned()),
        "{}",
        world.envoy.log()
    );
    // A ready endpoint in another slice takes everything.
    world
        .settle(vec![slice("web", 1, two.address(), &ready())])
        .await?;
    for _ in 0..10 {
        assert_eq!(by(port).await?, (200, "two".to_owned()));
    }
    for (conditions, expected) in [
        (conditions(false, Some(true), true), (200, true)),
        (conditions(false, None, true), (200, true)),
        // publishNotReadyAddresses: the slice says that they are ready.
        (conditions(true, Some(false), true), (200, false)),
        (conditions(false, Some(false), true), (200, true)),
        (conditions(false, Some(true), false), (200, true)),
    ] {
        world
            .settle(vec![slice("web", 1, two.address(), &conditions)])
            .await?;
        let mut names = Vec::new();
        for _ in 0..20 {
            let (status, name) = by(port).await?;
            assert_eq!(status, expected.0, "{conditions}");
            names.push(name);
        }
        assert_eq!(
            names.contains(&"one".to_owned()),
            expected.1,
            "{conditions}: {names:?}"
        );
    }
    // Nothing that does not serve is ever used.
    let ended = conditions(false, Some(false), true);
    let starting = conditions(false, Some(true), false);
    let none = vec![
        slice("web", 0, one.address(), &ended),
        slice("web", 1, two.address(), &starting),
    ];
    world.settle(none).await?;
    assert_eq!(by(port).await?.0, 503);
    // Each backend of several has its share.
    world
        .settle(vec![
            slice("web", 0, one.address(), &ending()),
            route("HTTPRoute", "http", &[("web", 1), ("other", 1)]),
        ])
        .await?;
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..40 {
        names.insert(by(port).await?.1);
    }
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["one", "other"]);
    Ok(())
}

/// Starts a backend that answers with its name over TCP and UDP, on one port.
async fn named(name: &'static str) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let socket = UdpSocket::bind(address).await?;
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.write_all(name.as_bytes()).await;
        }
    });
    tokio::spawn(async move {
        let mut datagram = [0; 64];
        while let Ok((_, client)) = socket.recv_from(&mut datagram).await {
            let _ = socket.send_to(name.as_bytes(), client).await;
        }
    });
    Ok(address)
}

/// The first bytes that a connection gets, after some of the client's.
async fn first(port: u16, hello: &[u8]) -> Result<String> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    connection.write_all(hello).await?;
    let mut said = [0; 64];
    let length = timeout(PATIENCE, connection.read(&mut said))
        .await
        .context("nothing is said")??;
    Ok(String::from_utf8_lossy(&said[..length]).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn every_kind_of_route_uses_them() -> Result<()> {
    let [http, tls, tcp, udp] = [free_port()?, free_port()?, free_port()?, free_port()?];
    let raw = named("raw").await?;
    let rpc = Grpc::start("rpc").await?;
    let web = Echo::start("web").await?;
    let listeners = json!([{"name": "grpc", "port": http, "protocol": "HTTP"},
        {"name": "tls", "port": tls, "protocol": "TLS", "hostname": HOST, "tls": {"mode": "Terminate",
            "certificateRefs": [{"name": "app"}]}},
        {"name": "tcp", "port": tcp, "protocol": "TCP"}, {"name": "udp", "port": udp, "protocol": "UDP"}]);
    let world = World::start(vec![
        class(),
        secret("app", HOST)?,
        edge(listeners),
        route("GRPCRoute", "grpc", &[("rpc", 1)]),
        route("TLSRoute", "tls", &[("web", 1)]),
        route("TCPRoute", "tcp", &[("raw", 1)]),
        route("UDPRoute", "udp", &[("raw", 1)]),
        service("raw"),
        service("rpc"),
        service("web"),
        slice("web", 0, web.address(), &ending()),
        slice("raw", 0, raw, &ending()),
        slice("rpc", 0, rpc.address(), &ending()),
    ])
    .await?;
    assert_eq!(first(tcp, b"").await?, "raw", "{}", world.envoy.log());
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    socket.connect((Ipv4Addr::LOCALHOST, udp)).await?;
    socket.send(b"who").await?;
    let mut name = [0; 8];
    let length = timeout(PATIENCE, socket.recv(&mut name))
        .await
        .context("no answer over UDP")??;
    assert_eq!(&name[..length], b"raw");
    let channel = tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{http}"))?
        .origin(format!("http://{HOST}").parse()?)
        .connect()
        .await?;
    AuthorizationClient::new(channel)
        .check(CheckRequest::default())
        .await?;
    assert_eq!(rpc.calls(), 1);
    let said = Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, tls)), HOST)
        .alpn(&[])
        .send()
        .await?;
    assert_eq!(said.status, 200, "the backend that terminates is served");
    assert_eq!(web.requests(), 1, "it had one request");
    Ok(())
}
