//! A Gateway of the dedicated fleet, with the objects that its Service depends on.

use anyhow::Result;
use e2e::apiserver::ApiServer;
use e2e::cluster::{NAMESPACE, service};
use serde_json::json;

use e2e::tenants::GATEWAY;

/// The GatewayParameters that choose the fleet.
pub(crate) async fn put_parameters(server: &ApiServer) -> Result<()> {
    server
        .put(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"name": "own", "namespace": NAMESPACE}, "spec": {"fleet": "Dedicated"}}),
        )
        .await
        .map(drop)
}

/// Makes Gateway `edge`, its class with parameters, and the Service of the Envoys.
pub(crate) async fn put_gateway(server: &ApiServer) -> Result<()> {
    put_parameters(server).await?;
    let parameters = json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": "own", "namespace": NAMESPACE});
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "own"},
            "spec": {"controllerName": "gatewright.io/gateway-controller", "parametersRef": parameters}}))
        .await?;
    for mut object in service(NAMESPACE, "gatewright-envoy", 80) {
        object["metadata"]["labels"]["app.kubernetes.io/component"] = json!("envoy");
        server.put(object).await?;
    }
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "own", "listeners": [{"name": "http", "protocol": "HTTP", "port": 8081}]}}))
        .await
        .map(drop)
}
