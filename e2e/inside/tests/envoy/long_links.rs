//! Uploads and downloads over links with a long round trip: HTTP/2 has enough bytes on the way.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use e2e::http_server::serve;
use e2e::link::Link;
use e2e::probe::{Answer, Probe};
use e2e_inside::world::{World, class, edge, edge_route, free_port, object, secret, service};
use gatewright_core::translate::Change;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde_json::json;
use tokio::net::TcpListener;

const HOST: &str = "app.example.org";
/// Half of a round trip.
const ONE_WAY: Duration = Duration::from_millis(50);
/// 32 windows of 64 KiB.
const LARGE: usize = 2 << 20;
/// So many round trips take a connection and TLS, the first windows of TCP, and bytes in windows of
/// a MiB; with windows of 64 KiB there would be 32 and more.
const ROUND_TRIPS: u32 = 12;

/// Answers an upload when it is complete, and anything else with many bytes.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let is_upload = request.method() == Method::POST;
    let received = request.into_body().collect().await?.to_bytes().len();
    let body = if is_upload {
        received.to_string().into()
    } else {
        vec![b'x'; LARGE].into()
    };
    Ok(Response::new(Full::new(body)))
}

struct Site {
    https: SocketAddr,
    world: World,
}

/// A host whose backend is at an address, by HTTP/2 or HTTP/1.1.
async fn site(backend: SocketAddr, by_http2: bool) -> Result<Site> {
    let port = free_port()?;
    let listeners = json!([{"name": "https", "port": port, "protocol": "HTTPS", "hostname": HOST,
        "tls": {"certificateRefs": [{"name": "app"}]}}]);
    let mut changes: Vec<Change> = vec![
        class(),
        secret("app", HOST)?,
        edge(listeners),
        edge_route(
            "app",
            HOST,
            json!([{"backendRefs": [{"name": "web", "port": 80}]}]),
        ),
    ];
    changes.extend(service("web", backend));
    if by_http2 {
        changes.push(object(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "web"},
            "spec": {"ports": [{"name": "p", "port": 80, "appProtocol": "kubernetes.io/h2c"}]}}),
        ));
    }
    Ok(Site {
        https: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        world: World::start(changes).await?,
    })
}

async fn backend() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, answer));
    Ok(address)
}

/// The answer of a request, and the round trips that it takes.
async fn timed(site: &Site, probe: &Probe) -> Result<(Answer, u32)> {
    let begun = Instant::now();
    let answer = probe.send().await.with_context(|| site.world.envoy.log())?;
    let took = begun.elapsed();
    ensure!(answer.status == 200, "{}", answer.status);
    let round_trips = took.as_millis() / (2 * ONE_WAY).as_millis();
    Ok((answer, u32::try_from(round_trips)?))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_upload_over_a_long_link_has_many_bytes_on_the_way() -> Result<()> {
    let site = site(backend().await?, false).await?;
    let link = Link::start(site.https).await?;
    link.lengthen(ONE_WAY);
    for version in ["http/1.1", "h2"] {
        let upload = Probe::https(link.address(), HOST)
            .alpn(&[version])
            .method(Method::POST)
            .body(vec![b'x'; LARGE]);
        let (answer, found) = timed(&site, &upload).await?;
        let received = String::from_utf8_lossy(&answer.body);
        assert_eq!(received, LARGE.to_string(), "all bytes arrive");
        assert!(found < ROUND_TRIPS, "{version}: {found} round trips");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_download_from_a_backend_far_away_has_many_bytes_on_the_way() -> Result<()> {
    for by_http2 in [false, true] {
        let link = Link::start(backend().await?).await?;
        link.lengthen(ONE_WAY);
        let site = site(link.address(), by_http2).await?;
        let (answer, found) = timed(&site, &Probe::https(site.https, HOST)).await?;
        assert_eq!(answer.body.len(), LARGE, "all bytes arrive");
        assert!(
            found < ROUND_TRIPS,
            "HTTP/2 {by_http2}: {found} round trips"
        );
    }
    Ok(())
}
