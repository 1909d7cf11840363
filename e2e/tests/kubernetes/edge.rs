//! A Gateway with one listener and a backend, for several tests.

use std::net::SocketAddr;

use anyhow::Result;
use e2e::apiserver::ApiServer;
use e2e::cluster::{BACKEND, Cluster, service, tls_secret};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::{Value, json};

use crate::pods::until_served;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// Makes the Gateway `edge` for `*.example.org` and the Service `web`; returns the Gateway's
/// address.
pub(crate) async fn edge(cluster: &Cluster) -> Result<(Echo, SocketAddr)> {
    let echo = Echo::start_on("web", BACKEND).await?;
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    cluster
        .server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    cluster
        .server
        .put(tls_secret("default", "cert", &["*.example.org"])?)
        .await?;
    for object in service("default", "web", echo.address().port()) {
        cluster.server.put(object).await?;
    }
    cluster
        .server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "listeners": [{
                "name": "https", "protocol": "HTTPS", "port": address.port(), "hostname": "*.example.org",
                "tls": {"certificateRefs": [{"name": "cert"}]}}]}}))
        .await?;
    Ok((echo, address))
}

/// Makes the Gateway `edge` for plain HTTP, the Service `web` with a backend at this port, and the
/// route `app` of a host; returns the port of the Gateway.
pub(crate) async fn plain_edge(server: &ApiServer, host: &str, backend: u16) -> Result<u16> {
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    for object in service("default", "web", backend) {
        server.put(object).await?;
    }
    let port = free_port()?;
    let listeners = json!([{"name": "http", "protocol": "HTTP", "port": port}]);
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "listeners": listeners}}))
        .await?;
    server.put(route("app", host)).await?;
    Ok(port)
}

/// A route of a host from the Gateway to the backend.
pub(crate) fn route(name: &str, host: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "default"},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [host],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

/// Waits until a host answers with this status over HTTPS.
pub(crate) async fn until_answers(address: SocketAddr, host: &str, status: u16) -> Result<()> {
    until_served(&Probe::https(address, host), status).await
}
