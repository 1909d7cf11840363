//! AccessPolicies with users on a real API server and a real Envoy: the definition's checks, the
//! Secrets by their own watch, with a grant in another namespace, and what their loss does.

use std::net::SocketAddr;

use anyhow::Result;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{BACKEND, Cluster, condition};
use e2e::echo::Echo;
use e2e::probe::Probe;
use serde_json::{Value, json};

use crate::edge::plain_edge;
use crate::pods::until_served;

pub(crate) const OURS: &str = "gatewright.io/v1alpha1";
const HOST: &str = "app.example.org";
/// `secret` by SHA-1, and `other`.
pub(crate) const SECRET: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
const OTHER: &str = "{SHA}0JQeaNqPOBUf+Gph/Fn3xc+fyqI=";
/// The user `alice` with the password `secret`.
pub(crate) const ALICE: &str = "Basic YWxpY2U6c2VjcmV0";

/// The policy `people` of the route `app` with more in its `spec`.
pub(crate) fn policy(more: Value) -> Value {
    let mut spec = more;
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app"});
    spec["targetRefs"] = json!([target]);
    json!({"apiVersion": OURS, "kind": "AccessPolicy", "metadata": {"name": "people", "namespace": "default"},
        "spec": spec})
}

/// A Secret `people` with the user `alice`.
pub(crate) fn users(namespace: &str, kind: &str, hash: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {"name": "people", "namespace": namespace},
        "stringData": {".htpasswd": format!("alice:{hash}\n")}})
}

/// Status, reason and message of `Accepted`.
pub(crate) fn told(policy: &Value) -> (bool, String, String) {
    let accepted = condition(&policy["status"]["ancestors"][0], "Accepted");
    let accepted = accepted.cloned().unwrap_or_default();
    let text = |field: &str| accepted[field].as_str().unwrap_or_default().to_owned();
    (
        accepted["status"] == "True",
        text("reason"),
        text("message"),
    )
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn users_of_secrets_pass_and_those_of_lost_ones_do_not() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    let web = Echo::start_on("web", BACKEND).await?;
    let port = plain_edge(server, HOST, web.address().port()).await?;
    for (spec, expected) in [
        (json!({}), "is needed"),
        (json!({"basicAuth": {}}), "users: Required value"),
        (
            json!({"basicAuth": {"users": {"name": "people"}}, "enforcement": "Report"}),
            "enforcement Report",
        ),
        (
            json!({"basicAuth": {"users": {"name": "people"}, "credentials": "Keep"}}),
            "Unsupported value",
        ),
        (
            json!({"basicAuth": {"users": {"name": "people"}, "forwardUsernameHeader": "x_user"}}),
            "should match",
        ),
    ] {
        let text = match server.dry_run(policy(spec.clone())).await {
            Ok(_) => String::new(),
            Err(error) => format!("{error:#}"),
        };
        assert!(text.contains(expected), "{spec}: {text}");
    }
    // A Secret of the type that people know is not even listed.
    server.put(users("default", "Opaque", SECRET)).await?;
    let own =
        json!({"basicAuth": {"users": {"name": "people"}, "forwardUsernameHeader": "X-User"}});
    server.put(policy(own)).await?;
    let mut controller = cluster.controller_with("one", &[])?;
    controller.line("xDS at").await?;
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    envoy.ready().await?;
    let is = async |good: bool, reason: &str, words: &str| {
        cluster
            .until(OURS, "AccessPolicy", "default", "people", |policy| {
                let (is_good, why, text) = told(policy);
                is_good == good && why == reason && text.contains(words)
            })
            .await
    };
    let nobody = Probe::http(SocketAddr::from(([127, 0, 0, 1], port)), HOST);
    let alice = nobody.clone().header("authorization", ALICE);
    let delete = async |namespace: &str| -> Result<()> {
        let secrets = server.api("v1", "Secret", namespace).await?;
        secrets.delete("people", &Default::default()).await?;
        Ok(())
    };
    let missing = "there is no Secret default/people of type gatewright.io/htpasswd";
    is(false, "Invalid", missing).await?;
    until_served(&alice, 500).await?;

    // Made again with the other type, it is found by its own watch.
    delete("default").await?;
    server
        .put(users("default", "gatewright.io/htpasswd", SECRET))
        .await?;
    is(true, "Accepted", "").await?;
    until_served(&nobody, 401).await?;
    until_served(&alice, 200).await?;
    let answer = alice.send().await?;
    let request: Value = serde_json::from_slice(&answer.body)?;
    assert_eq!(request["headers"]["x-user"], json!(["alice"]), "{request}");

    // Another password, a hash of another kind, and the first password again.
    for (hash, status) in [(OTHER, 401), ("$2y$05$abc", 500), (SECRET, 200)] {
        server
            .put(users("default", "gatewright.io/htpasswd", hash))
            .await?;
        until_served(&alice, status).await?;
    }
    delete("default").await?;
    until_served(&alice, 500).await?;

    // Users of another namespace, without a grant and with one.
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "people"}}))
        .await?;
    server
        .put(users("people", "gatewright.io/htpasswd", SECRET))
        .await?;
    let lent = json!({"basicAuth": {"users": {"name": "people", "namespace": "people"}}});
    server.put(policy(lent)).await?;
    is(false, "RefNotPermitted", "no ReferenceGrant permits").await?;
    until_served(&alice, 500).await?;
    server
        .put(json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
            "metadata": {"name": "people", "namespace": "people"}, "spec": {
                "from": [{"group": "gatewright.io", "kind": "AccessPolicy", "namespace": "default"}],
                "to": [{"group": "", "kind": "Secret"}]}}))
        .await?;
    is(true, "Accepted", "").await?;
    until_served(&alice, 200).await?;
    until_served(&nobody, 401).await?;
    assert!(!controller.output().contains(&SECRET[5..]), "no log has it");
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
