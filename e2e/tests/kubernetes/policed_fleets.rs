//! Each field of the policies of routes, as Envoys of Gateways with ports of their own (fleet
//! Dedicated) and with pods of their own (Isolated) carry it out. Those of the shared fleet are
//! what the tests in `e2e/inside/tests/envoy` have.

use std::net::SocketAddr;

use anyhow::Result;
use e2e::apiserver::ApiServer;
use e2e::cluster::{BACKEND, Cluster, NAMESPACE, condition, service};
use e2e::echo::Echo;
use e2e::issuer::{ISSUER, Issuer};
use e2e::oidc::{CLIENT_SECRET, client_secret, login};
use e2e::probe::Probe;
use hyper::Method;
use serde_json::{Value, json};

use crate::fleet::{GATEWAY, dedicated, target, tenant as tenant_of_dedicated};
use crate::isolated::{class, deployed, gateway, parameters, tenant, until_programmed};
use crate::pods::{LIMIT, until_served};
use crate::users::{ALICE, OURS, SECRET, told, users};

/// A kind of policies, a field of it, and its value.
type Guarded = (&'static str, &'static str, Value);

fn guarded(keys: &Value) -> [Guarded; 11] {
    let keys = json!({"keys": [keys]}).to_string();
    let once = json!({"limit": {"requests": 1, "per": "Hour"}, "by": {"type": "Everyone"}});
    let page = json!({"match": {"statusCodes": [{"value": 500}]},
        "response": {"statusCode": 503, "contentType": "text/plain", "body": {"inline": "sorry"}}});
    let known = json!({"name": "x-asked", "value": {"type": "Host"}});
    [
        (
            "AccessPolicy",
            "clientAddress",
            json!({"allow": ["192.0.2.0/24"]}),
        ),
        (
            "AccessPolicy",
            "basicAuth",
            json!({"users": {"name": "people"}}),
        ),
        (
            "AccessPolicy",
            "jwt",
            json!({"issuer": ISSUER, "jwks": {"inline": keys}}),
        ),
        ("AccessPolicy", "oidc", login()),
        ("TrafficPolicy", "rateLimit", json!([once])),
        ("TrafficPolicy", "requestBody", json!({"maxBytes": 10})),
        ("TrafficPolicy", "compression", json!({"minBytes": 64})),
        ("TrafficPolicy", "responseOverride", json!([page])),
        (
            "TrafficPolicy",
            "rewrite",
            json!({"path": {"pattern": "/(.*)", "substitution": r"/new/\1"}}),
        ),
        ("TrafficPolicy", "headers", json!({"response": [known]})),
        (
            "TrafficPolicy",
            "bandwidthLimit",
            json!({"responseKibPerSecond": 1024}),
        ),
    ]
}

fn rule_of(field: &str) -> String {
    field.to_lowercase()
}

/// The objects of a namespace with a route `web` for a host: a rule for each field with its policy,
/// and one that answers by itself.
fn objects(namespace: &str, host: &str, keys: &Value) -> Vec<Value> {
    let all = guarded(keys);
    let mut rules: Vec<Value> = all
        .iter()
        .map(|(_, field, _)| {
            let path = |value: &str| json!({"path": {"value": value}});
            let mut matches = vec![path(&format!("/{}", rule_of(field)))];
            if *field == "oidc" {
                matches.push(path("/oauth2/callback"));
            }
            // A rule without a backend is answered 500.
            let backends = match *field {
                "responseOverride" => json!([]),
                _ => json!([{"name": "web", "port": 80}]),
            };
            json!({"name": rule_of(field), "matches": matches, "backendRefs": backends})
        })
        .collect();
    let by_itself = json!({"group": "gatewright.io", "kind": "DirectResponse", "name": "away"});
    rules.push(
        json!({"name": "directresponse", "matches": [{"path": {"value": "/directresponse"}}],
        "filters": [{"type": "ExtensionRef", "extensionRef": by_itself}]}),
    );
    rules.push(json!({"backendRefs": [{"name": "web", "port": 80}]}));
    let metadata = |name: &str| json!({"namespace": namespace, "name": name});
    let mut made = vec![
        json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": metadata("web"),
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [host], "rules": rules}}),
        json!({"apiVersion": OURS, "kind": "DirectResponse", "metadata": metadata("away"),
            "spec": {"statusCode": 418}}),
        users(namespace, "gatewright.io/htpasswd", SECRET),
        client_secret(namespace, "login", CLIENT_SECRET),
        // The provider, which nobody asks here.
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata("id"),
            "spec": {"ports": [{"name": "https", "port": 443}]}}),
    ];
    made.extend(all.into_iter().map(|(kind, field, value)| {
        let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute",
            "name": "web", "sectionName": rule_of(field)});
        let mut spec = json!({"targetRefs": [target]});
        spec[field] = value;
        json!({"apiVersion": OURS, "kind": kind, "metadata": metadata(&rule_of(field)),
            "spec": spec})
    }));
    made
}

/// Expects that each policy is carried out at an address, and that rules without one are served.
async fn carried_out(at: SocketAddr, host: &str, issuer: &Issuer) -> Result<()> {
    let probe = |field: &str| Probe::https(at, host).path(&format!("/{}", rule_of(field)));
    let bearer = format!("Bearer {}", issuer.token(json!({}))?);
    let page = probe("oidc").header("accept", "text/html");
    let upload = probe("requestBody").method(Method::POST);
    for (probe, status) in [
        (probe("clientAddress"), 403),
        (probe("basicAuth"), 401),
        (probe("basicAuth").header("authorization", ALICE), 200),
        (probe("jwt"), 401),
        (probe("jwt").header("authorization", &bearer), 200),
        (page, 302),
        // Each Envoy has counted one request, at most.
        (probe("rateLimit"), 429),
        (upload.clone().body(vec![b'x'; 10]), 200),
        (upload.body(vec![b'x'; 11]), 413),
        (probe("responseOverride"), 503),
        (probe("bandwidthLimit"), 200),
        (probe("directResponse"), 418),
        (probe("other"), 200),
    ] {
        until_served(&probe, status).await?;
    }
    let rewritten = probe("rewrite").send().await?.echoed("path")?;
    assert_eq!(rewritten, "/new/rewrite", "the path of the backend");
    let asked = probe("headers").send().await?;
    assert!(asked.header("x-asked").is_some(), "{asked:?}");
    let answer = probe("compression").header("accept-encoding", "gzip");
    let answer = answer.send().await?;
    assert_eq!(
        (answer.status, answer.header("content-encoding")),
        (200, Some("gzip")),
        "{answer:?}"
    );
    Ok(())
}

/// Expects that all policies of a namespace are accepted, and that the route names them.
async fn accepted(server: &ApiServer, namespace: &str, keys: &Value) -> Result<()> {
    for (kind, field, _) in guarded(keys) {
        let name = rule_of(field);
        server
            .until((OURS, kind, namespace), &name, LIMIT, |policy| {
                told(policy).0
            })
            .await?;
    }
    let all = guarded(keys).map(|(_, field, _)| format!("{namespace}/{}", rule_of(field)));
    server
        .until((GATEWAY, "HTTPRoute", namespace), "web", LIMIT, |route| {
            let affected = condition(
                &route["status"]["parents"][0],
                "gatewright.io/PolicyAffected",
            );
            let text = affected.and_then(|affected| affected["message"].as_str());
            text.is_some_and(|text| all.iter().all(|name| text.contains(name)))
        })
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn policies_are_carried_out_at_ports_of_a_gateways_own() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    dedicated(&cluster).await?;
    let web = Echo::start_on("web", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let (issuer, host) = (Issuer::new()?, "policed.example.org");
    tenant_of_dedicated(&cluster, "policed", "own", 443, &[host]).await?;
    for object in service("policed", "web", web.address().port()) {
        server.put(object).await?;
    }
    for object in objects("policed", host, &issuer.jwk()) {
        server.put(object).await?;
    }
    let made = cluster
        .until("v1", "Service", "policed", "edge-own", |o| {
            target(o).is_some()
        })
        .await?;
    let port = target(&made).unwrap_or_default();
    accepted(server, "policed", &issuer.jwk()).await?;
    carried_out(SocketAddr::from(([127, 0, 0, 1], port)), host, &issuer).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes, Helm and Envoy, and root for the network of pods: e2e/tools install"]
async fn policies_are_carried_out_by_envoys_of_a_gateways_own() -> Result<()> {
    let (server, kubelet) = deployed().await?;
    let one = json!({"fleet": "Isolated", "isolated": {"replicas": 1, "maxReplicas": 1}});
    server.put(parameters(NAMESPACE, "isolated", one)).await?;
    server.put(class("isolated")).await?;
    let echo = Echo::start_on("web", &kubelet.host().to_string()).await?;
    tenant(&server, &kubelet, "shop", &echo).await?;
    let (issuer, host) = (Issuer::new()?, "shop.example.org");
    for object in objects("shop", host, &issuer.jwk()) {
        server.put(object).await?;
    }
    server.put(gateway("shop", "isolated", None)).await?;
    let address = until_programmed(&server, "shop").await?;
    accepted(&server, "shop", &issuer.jwk()).await?;
    carried_out((address, 443).into(), host, &issuer).await
}
