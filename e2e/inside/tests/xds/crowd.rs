//! Unauthenticated connections, and clients that open too many streams.

use std::time::Duration;

use e2e::simenvoy::{CLUSTER, DeltaClient};
use e2e_inside::served::{IDENTITY, Served};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use xds::{Closed, Limits, Resource};

const SHORT: Duration = Duration::from_millis(300);

fn tls(served: &Served, certified: bool) -> ClientTlsConfig {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(served.tls().authority.certificate()));
    if !certified {
        return tls;
    }
    let pair = served.tls().client(IDENTITY);
    tls.identity(Identity::from_pem(&pair.certificate, &pair.key))
}

async fn connect(served: &Served, certified: bool) -> Result<Channel, tonic::transport::Error> {
    let address = format!("https://localhost:{}", served.tls().port);
    Endpoint::from_shared(address)
        .expect("a URL")
        .tls_config(tls(served, certified))?
        .connect()
        .await
}

fn closed(served: &Served, why: Closed) -> u64 {
    let at = Closed::ALL
        .iter()
        .position(|one| *one == why)
        .expect("one of all");
    served.cache.counts().closed[at]
}

async fn until_closed(served: &Served, why: Closed, count: u64) {
    let wait = async {
        while closed(served, why) < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let within = tokio::time::timeout(e2e_inside::served::PATIENCE, wait).await;
    within.unwrap_or_else(|_| panic!("{why:?} {count} times: {:?}", served.cache.counts().closed));
}

fn some() -> Vec<Resource> {
    vec![Resource::new(
        "c",
        &Cluster {
            name: "c".into(),
            ..Default::default()
        },
    )]
}

#[tokio::test]
async fn a_connection_without_a_stream_is_closed_after_a_while_and_one_with_a_stream_is_not() {
    let mut served = Served::over_tls(Limits {
        handshake: SHORT,
        ..Default::default()
    });
    served.publish(some(), vec![]);
    // One stream, older than all others.
    let mut client = DeltaClient::open(connect(&served, true).await.expect("connects"), "one")
        .await
        .expect("opens");
    client.subscribe(CLUSTER, &[]).await.expect("sent");
    client
        .run_until(|c| c.held(CLUSTER).versions.len() == 1)
        .await
        .expect("served");

    // No handshake; and a handshake without any request.
    let mut silent = TcpStream::connect(("127.0.0.1", served.tls().port))
        .await
        .expect("it listens");
    assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0, "closed");
    until_closed(&served, Closed::Idle, 1).await;
    let idle = connect(&served, true).await.expect("connects");
    until_closed(&served, Closed::Idle, 2).await;
    // No certificate: the handshake fails, and the connection is closed. A client of TLS 1.3 learns
    // of it by its first read.
    if let Ok(bare) = connect(&served, false).await {
        assert!(DeltaClient::open(bare, "bare").await.is_err());
    }
    until_closed(&served, Closed::Handshake, 1).await;

    served.publish(
        vec![Resource::new(
            "d",
            &Cluster {
                name: "d".into(),
                ..Default::default()
            },
        )],
        vec![],
    );
    client
        .run_until(|c| c.held(CLUSTER).versions.len() == 2)
        .await
        .expect("still served");
    // A connection whose stream has ended is closed as well.
    let channel = connect(&served, true).await.expect("connects");
    let mut second = DeltaClient::open(channel.clone(), "two")
        .await
        .expect("opens");
    second.subscribe(CLUSTER, &[]).await.expect("sent");
    second
        .run_until(|c| c.held(CLUSTER).versions.len() == 2)
        .await
        .expect("served");
    let before = closed(&served, Closed::Idle);
    drop(second.close());
    until_closed(&served, Closed::Idle, before + 1).await;
    drop((idle, channel, client));
    served.stop().await;
}

#[tokio::test]
async fn the_connection_of_a_denied_client_is_closed() {
    let mut served = Served::over_tls(Limits::default());
    served.tls().views.revoke(IDENTITY);
    let channel = connect(&served, true).await.expect("connects");
    let denied = DeltaClient::open(channel, "stranger")
        .await
        .err()
        .expect("denied");
    assert_eq!(denied.code(), Code::PermissionDenied, "and it reads why");
    until_closed(&served, Closed::Denied, 1).await;
    served.stop().await;
}

#[tokio::test]
async fn one_address_has_a_few_streams() {
    let mut served = Served::over_tls(Limits {
        streams_per_address: 3,
        ..Default::default()
    });
    served.publish(some(), vec![]);
    let mut held = Vec::new();
    for n in 0..3 {
        let channel = connect(&served, true).await.expect("connects");
        held.push(
            DeltaClient::open(channel, &format!("n{n}"))
                .await
                .expect("opens"),
        );
    }
    let channel = connect(&served, true).await.expect("connects");
    let refused = DeltaClient::open(channel, "one too many")
        .await
        .err()
        .expect("refused");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(
        refused.message().contains("3 streams open from 127.0.0.1"),
        "{refused}"
    );
    // A stream that ends makes room.
    held.pop();
    let channel = connect(&served, true).await.expect("connects");
    let again = async {
        while DeltaClient::open(channel.clone(), "again").await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(e2e_inside::served::PATIENCE, again)
        .await
        .expect("there is room again");
    drop(held);
    served.stop().await;
}
