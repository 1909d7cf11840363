//! The hosts that both Envoys serve, and their backend.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use bytes::Bytes;
use e2e_inside::world::{api, class, free_port, secret, service};
use gatewright_core::translate::Change;
use http_body_util::Full;
use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

/// The name of a host.
pub(super) fn name(n: usize) -> String {
    format!("h{n}.bench.example.org")
}

/// The objects of some hosts behind a port, each with a certificate, a listener and a route.
pub(super) fn objects(count: usize, port: u16, backend: SocketAddr) -> Result<Vec<Change>> {
    let plain = json!([{"name": "http", "port": free_port()?, "protocol": "HTTP"}]);
    let gateway = json!({"gatewayClassName": "ours", "listeners": plain,
        "allowedListeners": {"namespaces": {"from": "Same"}}});
    let mut all = vec![class(), api("Gateway", "edge", gateway)];
    all.extend(service("web", backend));
    for n in 0..count {
        let listener = json!({"name": "https", "port": port, "protocol": "HTTPS",
            "hostname": name(n), "tls": {"certificateRefs": [{"name": format!("c{n}")}]}});
        let set = json!({"parentRef": {"name": "edge"}, "listeners": [listener]});
        let route = json!({"parentRefs": [{"kind": "ListenerSet", "name": format!("s{n}")}],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
        all.extend([
            secret(&format!("c{n}"), &name(n))?,
            api("ListenerSet", &format!("s{n}"), set),
            api("HTTPRoute", &format!("r{n}"), route),
        ]);
    }
    Ok(all)
}

/// Starts a backend that answers `ok` to every request, whatever is in it.
pub(super) async fn backend() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(|_| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
            });
            let server = hyper::server::conn::http1::Builder::new();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
        }
    });
    Ok(address)
}
