//! A replica with a wrong clock.

use std::net::SocketAddr;

use anyhow::Result;
use e2e::apiserver::proxy::Proxy;
use e2e::clock::Clock;
use e2e::cluster::ACCOUNT;
use e2e::port::free_port;

use super::place::{APEX, Place};

/// By that clock, a certificate from the CA is not valid yet: it is accepted, since the next one
/// would not begin earlier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes, Envoy, Pebble and libfaketime: e2e/tools install"]
async fn a_clock_that_is_behind_has_no_certificate_ordered_twice() -> Result<()> {
    let place = Place::start().await?;
    let clock = Clock::new()?;
    clock.set(-24 * 3600)?;
    let proxy = Proxy::start(&place.cluster.server, ACCOUNT).await?;
    let xds = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let arguments = place.arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut controller = place
        .cluster
        .replica_through_at("one", &proxy, xds, &arguments, &clock)?;
    controller.line("xDS at").await?;
    place.by_acme().await?;
    let (mut envoy, _tls) = place.cluster.envoy_of("envoy-a", xds).await?;
    envoy.ready().await?;
    let roots = place.pebble.issuing_root(0).await?;
    for (number, ahead) in [-24 * 3600, -24 * 3600, 0].into_iter().enumerate() {
        clock.set(ahead)?;
        let host = format!("h{number}.{APEX}");
        place.route(&format!("r{number}"), &host).await?;
        place.until_served(&host, &roots).await?;
    }
    place.cluster.quiet().await?;
    assert_eq!(
        place.pebble.issued(),
        3,
        "each host has had one certificate"
    );
    Ok(())
}
