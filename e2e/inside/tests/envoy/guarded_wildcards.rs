//! Hosts with policies under a wildcard listener on a real Envoy: each has routes of its own, which
//! no connection to a neighbour reaches, and no change of a neighbour has Envoy read.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use e2e::probe::Probe;
use e2e_inside::world::edge_route;
use serde_json::json;

use super::access::{HOST, OTHER, Site, admin_with};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_guarded_host_is_served_on_its_own_connections_alone() -> Result<()> {
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    let wide = edge_route("wide", "*.example.org", rules);
    let closed = admin_with(
        "admin",
        json!({"clientAddress": {"deny": ["0.0.0.0/0", "::/0"]}}),
    );
    let site = Site::start(vec![wide, closed]).await?;
    let tls = SocketAddr::from((Ipv4Addr::LOCALHOST, site.https));
    for (sni, authority, status) in [
        (HOST, HOST, 403),
        (OTHER, HOST, 421),
        ("x.example.org", HOST, 421),
        (OTHER, OTHER, 200),
        (HOST, OTHER, 421),
        ("x.example.org", "x.example.org", 200),
        (HOST, "x.example.org", 421),
        ("x.example.org", "y.example.org", 421),
    ] {
        for protocol in ["http/1.1", "h2"] {
            let probe = Probe::https(tls, sni).alpn(&[protocol]);
            let probe = probe.authority(authority).path("/admin");
            let found = probe.send().await?.status;
            ensure!(
                found == status,
                "{authority} on {sni} by {protocol}: {found}, not {status}"
            );
        }
    }
    Ok(())
}
