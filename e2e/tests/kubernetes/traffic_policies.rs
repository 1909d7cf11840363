//! The experimental channel on a real API server, with its definitions and the rights that the chart gives for it: the status of
//! an XBackendTrafficPolicy, and what default Gateways and routes that want them are told.

use anyhow::Result;
use e2e::apiserver::ApiServer;
use e2e::cluster::{Cluster, condition, service};
use e2e::helm::Helm;
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const POLICY: &str = "gateway.networking.x-k8s.io/v1alpha1";

fn policy(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["targetRefs"] = json!([{"group": "", "kind": "Service", "name": "web"}]);
    json!({"apiVersion": POLICY, "kind": "XBackendTrafficPolicy", "metadata": {"name": name, "namespace": "default"},
        "spec": spec})
}

/// The ancestor of a policy, with status and reason of what it is told.
fn told(policy: &Value) -> (Value, Value, Value) {
    let ancestor = &policy["status"]["ancestors"][0];
    let accepted = condition(ancestor, "Accepted").cloned().unwrap_or_default();
    (ancestor["ancestorRef"]["name"].clone(), accepted["status"].clone(), accepted["reason"].clone())
}

/// The Gateways at which a route is accepted.
fn accepted(route: &Value) -> Vec<Value> {
    let parents = route["status"]["parents"].as_array().into_iter().flatten();
    let good = |parent: &&Value| condition(parent, "Accepted").is_some_and(|accepted| accepted["status"] == "True");
    parents.filter(good).map(|parent| parent["parentRef"]["name"].clone()).collect()
}

#[tokio::test]
#[ignore = "needs Kubernetes and Helm: e2e/tools install"]
async fn policies_and_routes_of_the_experimental_channel_are_told() -> Result<()> {
    let server = ApiServer::start().await?;
    server.install_experimental_gateway_api().await?;
    let cluster = Cluster::over(server).await?;
    let server = &cluster.server;
    Helm::new(None)?.grant_experimental_channel(server).await?;
    server.apply(include_str!("../../../deploy/gatewayclass.yaml")).await?;
    for object in service("default", "web", 8080) {
        server.put(object).await?;
    }
    let gateway = |name: &str, scope: &str| {
        let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "defaultScope": scope, "listeners": listeners}})
    };
    server.put(gateway("edge", "All")).await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "app", "namespace": "default"},
            "spec": {"useDefaultGateways": "All", "hostnames": ["app.example.org"],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    server.put(policy("first", json!({"retryConstraint": {"budget": {"percent": 30}}}))).await?;
    let mut controller = cluster.controller_with("one", &["--gateway-api-channel", "experimental"])?;
    controller.line("xDS at").await?;

    cluster.until(GATEWAY, "HTTPRoute", "default", "app", |route| accepted(route) == [json!("edge")]).await?;
    let is_default = |gateway: &Value| {
        condition(&gateway["status"], "DefaultGateway").is_some_and(|default| default["status"] == "True")
    };
    cluster.until(GATEWAY, "Gateway", "default", "edge", is_default).await?;
    let policy_is = async |name: &str, status: &str, reason: &str| {
        let wanted = (json!("edge"), json!(status), json!(reason));
        cluster.until(POLICY, "XBackendTrafficPolicy", "default", name, |policy| told(policy) == wanted).await
    };
    policy_is("first", "True", "Accepted").await?;
    // A second policy for the Service, while the first is there.
    let session = json!({"sessionPersistence": {"type": "Cookie", "cookie": {"name": "sid"}}});
    server.put(policy("second", session)).await?;
    policy_is("second", "False", "Conflicted").await?;
    server.api(POLICY, "XBackendTrafficPolicy", "default").await?.delete("first", &Default::default()).await?;
    policy_is("second", "True", "Accepted").await?;

    // Without a default Gateway the route is nowhere, and the policy has no Gateway to be told by.
    server.put(gateway("edge", "None")).await?;
    cluster.until(GATEWAY, "HTTPRoute", "default", "app", |route| accepted(route).is_empty()).await?;
    let untold = |policy: &Value| policy["status"]["ancestors"].as_array().is_none_or(Vec::is_empty);
    cluster.until(POLICY, "XBackendTrafficPolicy", "default", "second", untold).await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
