//! Policies of traffic on a real API server: TrafficPolicies, as the definition checks them and as
//! their status tells; and the experimental channel, with its definitions and the rights that the
//! chart gives for it: the status of an XBackendTrafficPolicy, and what default Gateways and routes
//! that want them are told.

use anyhow::Result;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{Cluster, NAMESPACE, condition, service};
use e2e::helm::Helm;
use e2e::tenants::until;
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
    (
        ancestor["ancestorRef"]["name"].clone(),
        accepted["status"].clone(),
        accepted["reason"].clone(),
    )
}

/// The Gateways at which a route is accepted.
fn accepted(route: &Value) -> Vec<Value> {
    let parents = route["status"]["parents"].as_array().into_iter().flatten();
    parents
        .filter(|parent| {
            condition(parent, "Accepted").is_some_and(|accepted| accepted["status"] == "True")
        })
        .map(|parent| parent["parentRef"]["name"].clone())
        .collect()
}

/// A tenant's route that wants default Gateways needs hostnames as one that names Gateways does.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_tenants_route_to_default_gateways_needs_hostnames() -> Result<()> {
    let server = ApiServer::with(&[Definitions::ExperimentalGatewayApi]).await?;
    server
        .apply(include_str!(
            "../../../deploy/policies/route-hostnames.yaml"
        ))
        .await?;
    server
        .put(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-a",
            "labels": {"namespace.cozystack.io/host": "a.example.org"}}}),
        )
        .await?;
    let route = |name: &str, defaults: &str, hostnames: Value| {
        json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "tenant-a"},
            "spec": {"useDefaultGateways": defaults, "hostnames": hostnames, "rules": [{}]}})
    };
    until("the policy takes effect", async || {
        let told = server
            .dry_run(route("all", "All", json!([])))
            .await
            .map_err(|error| format!("{error:#}"));
        Ok(told.is_err_and(|text| text.contains("must name a host")))
    })
    .await?;
    server
        .put(route("named", "All", json!(["x.a.example.org"])))
        .await?;
    server.put(route("nowhere", "None", json!([]))).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Helm: e2e/tools install"]
async fn policies_and_routes_of_the_experimental_channel_are_told() -> Result<()> {
    let server = ApiServer::with(&[Definitions::ExperimentalGatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    let server = &cluster.server;
    Helm::new(None)?.grant_experimental_channel(server).await?;
    server.install(Definitions::Ours).await?;
    let parameters = |default: &str| {
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"name": "open", "namespace": NAMESPACE}, "spec": {"defaultGateways": default}})
    };
    server.put(parameters("Refuse")).await?;
    let reference = json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": "open", "namespace": NAMESPACE});
    let class =
        json!({"controllerName": "gatewright.io/gateway-controller", "parametersRef": reference});
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "gatewright"}, "spec": class}))
        .await?;
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
    server
        .put(policy(
            "first",
            json!({"retryConstraint": {"budget": {"percent": 30}}}),
        ))
        .await?;
    let mut controller =
        cluster.controller_with("one", &["--set", "gatewayApi.channel=Experimental"])?;
    controller.line("xDS at").await?;

    // Without the permission of its class a Gateway is no default one.
    let default_is = async |status: &str, reason: &str| {
        cluster
            .until(GATEWAY, "Gateway", "default", "edge", |gateway| {
                condition(&gateway["status"], "DefaultGateway")
                    .is_some_and(|told| told["status"] == status && told["reason"] == reason)
            })
            .await
    };
    let refused = default_is("False", "NotAllowed").await?;
    let text =
        condition(&refused["status"], "DefaultGateway").map(|told| told["message"].to_string());
    assert!(
        text.as_ref()
            .is_some_and(|text| text.contains("spec.defaultGateways to Allow")),
        "{text:?}"
    );
    let route = server
        .api(GATEWAY, "HTTPRoute", "default")
        .await?
        .get("app")
        .await?;
    assert!(accepted(&serde_json::to_value(route)?).is_empty());
    server.put(parameters("Allow")).await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "default", "app", |route| {
            accepted(route) == [json!("edge")]
        })
        .await?;
    default_is("True", "DefaultGateway").await?;
    let policy_is = async |name: &str, status: &str, reason: &str| {
        let wanted = (json!("edge"), json!(status), json!(reason));
        cluster
            .until(POLICY, "XBackendTrafficPolicy", "default", name, |policy| {
                told(policy) == wanted
            })
            .await
    };
    policy_is("first", "True", "Accepted").await?;
    // A second policy for the Service, while the first is there.
    let session = json!({"sessionPersistence": {"type": "Cookie", "cookie": {"name": "sid"}}});
    server.put(policy("second", session)).await?;
    policy_is("second", "False", "Conflicted").await?;
    server
        .api(POLICY, "XBackendTrafficPolicy", "default")
        .await?
        .delete("first", &Default::default())
        .await?;
    policy_is("second", "True", "Accepted").await?;

    // Without a default Gateway the route is nowhere, and the policy has no Gateway to be told by.
    server.put(gateway("edge", "None")).await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "default", "app", |route| {
            accepted(route).is_empty()
        })
        .await?;
    cluster
        .until(
            POLICY,
            "XBackendTrafficPolicy",
            "default",
            "second",
            |policy| {
                policy["status"]["ancestors"]
                    .as_array()
                    .is_none_or(Vec::is_empty)
            },
        )
        .await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

const OURS: &str = "gatewright.io/v1alpha1";

fn backend_policy(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("targetRefs").is_none() {
        spec["targetRefs"] = json!([{"group": "", "kind": "Service", "name": "web"}]);
    }
    json!({"apiVersion": OURS, "kind": "TrafficPolicy", "metadata": {"name": name, "namespace": "default"},
        "spec": spec})
}

fn balanced(kind: &str) -> Value {
    json!({"loadBalancer": {"type": kind}})
}

fn route() -> Value {
    json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app"})
}

/// A specification on a route instead of a Service.
fn on_route(mut spec: Value) -> Value {
    spec["targetRefs"] = json!([route()]);
    spec
}

/// A rate limit by clients of this type.
fn limited(by: &str, mut rest: Value) -> Value {
    rest["type"] = json!(by);
    json!({"rateLimit": [{"limit": {"requests": 9, "per": "Minute"}, "by": rest}]})
}

/// Specifications that the API server refuses by the definition, and the words of its answer.
fn refused() -> Vec<(Value, &'static str)> {
    fn hash(hash: Value) -> Value {
        json!({"loadBalancer": {"type": "ConsistentHash", "consistentHash": hash}})
    }
    fn active(active: Value) -> Value {
        json!({"healthCheck": {"active": active}})
    }
    let twice = json!({"group": "", "kind": "Service", "name": "web"});
    vec![
        (
            json!({"loadBalancer": {"type": "ConsistentHash"}}),
            "consistentHash belongs to type ConsistentHash",
        ),
        (
            hash(json!({"type": "Header"})),
            "header belongs to type Header",
        ),
        (
            hash(json!({"type": "Cookie", "cookie": {"name": "a b"}})),
            "should match",
        ),
        (
            hash(json!({"type": "Cookie", "cookie": {"name": "a", "ttl": "9000h"}})),
            "0s to 8760h is expected",
        ),
        (
            json!({"timeout": {"tcp": {"connectTimeout": "2m"}}}),
            "10ms to 1m is expected",
        ),
        (active(json!({"type": "HTTP"})), "http belongs to type HTTP"),
        (
            active(json!({"type": "TCP", "interval": "1s"})),
            "2s to 10m is expected",
        ),
        (
            active(json!({"type": "TCP", "timeout": "3s"})),
            "100ms to 2s is expected",
        ),
        (
            json!({"circuitBreaker": {"maxConnections": 0}}),
            "greater than or equal to 1",
        ),
        (
            json!({"healthCheck": {"passive": {"consecutive5XxErrors": 0}}}),
            "must not be 0",
        ),
        (
            json!({"targetRefs": [&twice, &twice]}),
            "a target is named once",
        ),
        (
            json!({"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "TLSRoute", "name": "app"}]}),
            "Unsupported value",
        ),
        (
            json!({"targetRefs": [route()]}),
            "Gateways, ListenerSets and routes need one of",
        ),
        (
            json!({"targetRefs": [&twice, route()]}),
            "a policy is about Services, or about",
        ),
        (
            json!({"targetRefs": [{"group": "", "kind": "HTTPRoute", "name": "app"}]}),
            "the group of Services is empty",
        ),
        (
            limited("Everyone", json!({})),
            "belong to Gateways, ListenerSets and routes",
        ),
        (
            on_route(json!({"loadBalancer": {"type": "Random"}})),
            "belong to Services",
        ),
        (
            on_route(limited("Header", json!({}))),
            "header belongs to type Header",
        ),
        (
            on_route(limited("Header", json!({"header": {"name": "a%b"}}))),
            "should match",
        ),
        (
            on_route(limited("Everyone", json!({"maxClients": 1}))),
            "counts all clients together",
        ),
        (
            on_route(json!({"rateLimit": []})),
            "should have at least 1 items",
        ),
    ]
}

/// An answer in place of a status.
fn page(status: Value) -> Value {
    answer(status, json!({"body": {"inline": "sorry"}}))
}

fn answer(status: Value, response: Value) -> Value {
    json!({"responseOverride": [{"match": {"statusCodes": [status]}, "response": response}]})
}

/// The same for changes to bodies.
fn refused_bodies() -> Vec<(Value, &'static str)> {
    let call = json!({"group": "gateway.networking.k8s.io", "kind": "GRPCRoute", "name": "app"});
    let mut on_call = page(json!({"value": 404}));
    on_call["targetRefs"] = json!([call]);
    let body_of_call = json!({"requestBody": {"maxBytes": 1}, "targetRefs": [call]});
    vec![
        (
            on_route(json!({"compression": {"types": ["application/grpc"]}})),
            "gRPC compresses its messages",
        ),
        (
            page(json!({"value": 404})),
            "belong to Gateways, ListenerSets and routes",
        ),
        (on_call, "responseOverride does not belong to GRPCRoutes"),
        (body_of_call, "requestBody does not belong to GRPCRoutes"),
        (
            on_route(json!({"requestBody": {"maxBytes": 1_048_577, "buffer": "All"}})),
            "with buffer All at most 1048576 bytes",
        ),
        (
            on_route(json!({"requestBody": {"buffer": "None"}})),
            "maxBytes: Required value",
        ),
        (
            on_route(page(json!({"value": 304}))),
            "greater than or equal to 400",
        ),
        (
            on_route(page(json!({"value": 401}))),
            "needs its WWW-Authenticate",
        ),
        (
            on_route(page(json!({"type": "Range", "value": 404}))),
            "type Range needs range",
        ),
        (
            on_route(page(
                json!({"type": "Range", "range": {"start": 500, "end": 404}}),
            )),
            "start comes after end",
        ),
        (
            on_route(answer(
                json!({"value": 404}),
                json!({"statusCode": 204, "body": {"inline": "none"}}),
            )),
            "200 or 400 to 599 without 401",
        ),
        (
            on_route(answer(
                json!({"value": 404}),
                json!({"body": {"type": "ValueRef", "inline": "none"}}),
            )),
            "type ValueRef needs valueRef",
        ),
    ]
}

/// The same for rewrites, headers and bandwidth.
fn refused_shapes() -> Vec<(Value, &'static str)> {
    let call = json!({"group": "gateway.networking.k8s.io", "kind": "GRPCRoute", "name": "app"});
    let path = |new: &str| {
        let path = json!({"pattern": "/(.*)", "substitution": new});
        json!({"rewrite": {"path": path}})
    };
    let header = |value: Value| {
        let header = json!({"name": "x-a", "value": value});
        json!({"headers": {"request": [header]}})
    };
    let mut on_call = path(r"/\1");
    on_call["targetRefs"] = json!([call]);
    vec![
        (path(r"/\1"), "belong to Gateways, ListenerSets and routes"),
        (on_call, "rewrite does not belong to GRPCRoutes"),
        (on_route(path("a")), "should match"),
        (on_route(path(r"/\n")), "should match"),
        (on_route(path("/a?b")), "should match"),
        (
            on_route(json!({"rewrite": {}})),
            "path or hostname is needed",
        ),
        (
            on_route(header(json!({"type": "Host", "text": "a"}))),
            "text belongs to type Text",
        ),
        (
            on_route(header(json!({"type": "Text", "text": "a\r\nb: c"}))),
            "should match",
        ),
        (
            on_route(header(json!({"type": "%REQ(cookie)%"}))),
            "Unsupported value",
        ),
        (
            on_route(json!({"headers": {}})),
            "request or response is needed",
        ),
        (
            on_route(json!({"bandwidthLimit": {}})),
            "requestKibPerSecond or responseKibPerSecond is needed",
        ),
    ]
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn policies_of_backends_are_checked_ranked_and_told() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    let class = json!({"controllerName": "gatewright.io/gateway-controller"});
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "gatewright"}, "spec": class}))
        .await?;
    for object in service("default", "web", 8080) {
        server.put(object).await?;
    }
    let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "listeners": listeners}}))
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "app", "namespace": "default"},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": ["app.example.org"],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    for (spec, expected) in [refused(), refused_bodies(), refused_shapes()].concat() {
        let text = match server.dry_run(backend_policy("wrong", spec.clone())).await {
            Ok(_) => String::new(),
            Err(error) => format!("{error:#}"),
        };
        assert!(text.contains(expected), "{spec}: {text}");
    }
    server
        .put(backend_policy("first", balanced("RoundRobin")))
        .await?;
    let mut controller = cluster.controller_with("one", &[])?;
    controller.line("xDS at").await?;
    let policy_is = async |name: &str, status: &str, reason: &str| {
        let wanted = (json!("edge"), json!(status), json!(reason));
        cluster
            .until(OURS, "TrafficPolicy", "default", name, |policy| {
                told(policy) == wanted
            })
            .await
    };
    policy_is("first", "True", "Accepted").await?;
    // A second policy for the Service, while the first is there.
    server
        .put(backend_policy("second", balanced("Random")))
        .await?;
    let second = policy_is("second", "False", "Conflicted").await?;
    let ancestor = &second["status"]["ancestors"][0];
    let message = condition(ancestor, "Accepted").map(|told| told["message"].to_string());
    assert!(
        message
            .as_ref()
            .is_some_and(|text| text.contains("has TrafficPolicy first")),
        "{message:?}"
    );
    server
        .api(OURS, "TrafficPolicy", "default")
        .await?
        .delete("first", &Default::default())
        .await?;
    policy_is("second", "True", "Accepted").await?;
    // One for a port that the Service does not have.
    let mut spec = balanced("Random");
    spec["targetRefs"] =
        json!([{"group": "", "kind": "Service", "name": "web", "sectionName": "none"}]);
    server.put(backend_policy("third", spec)).await?;
    policy_is("third", "False", "TargetNotFound").await?;
    // The same object becomes a policy of the route.
    let address = json!({"header": {"name": "X-Key"}, "maxClients": 10});
    server
        .put(backend_policy(
            "third",
            on_route(limited("Header", address)),
        ))
        .await?;
    let third = policy_is("third", "True", "Accepted").await?;
    let ancestor = &third["status"]["ancestors"][0];
    let message = condition(ancestor, "Accepted").map(|told| told["message"].to_string());
    assert!(
        message
            .as_ref()
            .is_some_and(|text| text.contains("each Envoy counts for itself")),
        "{message:?}"
    );
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
