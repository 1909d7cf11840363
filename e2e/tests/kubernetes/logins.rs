//! AccessPolicies with a login on a real API server and a real Envoy: the definition's checks, the
//! Secret of the client by its own watch, and what its change and its loss do.

use anyhow::Result;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::Cluster;
use e2e::oidc::{CLIENT_SECRET, client_secret, login};
use e2e::probe::Probe;
use serde_json::{Value, json};

use crate::edge::{edge, route};
use crate::pods::until_served;
use crate::users::{OURS, policy, told};

const HOST: &str = "app.example.org";

/// The Secret of the client with another type.
fn opaque() -> Value {
    let mut secret = client_secret("default", "login", CLIENT_SECRET);
    secret["type"] = json!("Opaque");
    secret
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_login_opens_with_the_secret_of_its_client_and_closes_without_it() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    let (_web, address) = edge(&cluster).await?;
    server.put(route("app", HOST)).await?;
    let mut insecure = login();
    insecure["provider"]["tokenEndpoint"] = json!("http://id.example.org/token");
    for (oidc, expected) in [(json!({}), "Required value"), (insecure, "tokenEndpoint")] {
        let text = match server.dry_run(policy(json!({"oidc": oidc}))).await {
            Ok(_) => String::new(),
            Err(error) => format!("{error:#}"),
        };
        assert!(text.contains(expected), "{oidc}: {text}");
    }
    // The provider, which nobody asks here.
    server
        .put(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "id", "namespace": "default"},
            "spec": {"ports": [{"name": "https", "port": 443}]}}),
        )
        .await?;
    // A Secret of the type that people know is not even listed.
    server.put(opaque()).await?;
    server.put(policy(json!({"oidc": login()}))).await?;
    let mut controller = cluster.controller_with("one", &[])?;
    controller.line("xDS at").await?;
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    envoy.ready().await?;
    let is = async |good: bool, words: &str| {
        cluster
            .until(OURS, "AccessPolicy", "default", "people", |policy| {
                let (is_good, _, text) = told(policy);
                is_good == good && text.contains(words)
            })
            .await
    };
    let page = Probe::https(address, HOST).header("accept", "text/html");
    let missing = "there is no Secret default/login of type gatewright.io/oidc-client";
    is(false, missing).await?;
    until_served(&page, 500).await?;
    let secrets = server.api("v1", "Secret", "default").await?;
    // Made again with the other type, it is found by its own watch.
    secrets.delete("login", &Default::default()).await?;
    for (text, good, status) in [
        (CLIENT_SECRET, true, 302),
        ("short", false, 500),
        ("another-secret-of-this-client", true, 302),
    ] {
        server.put(client_secret("default", "login", text)).await?;
        is(good, "").await?;
        until_served(&page, status).await?;
    }
    secrets.delete("login", &Default::default()).await?;
    is(false, missing).await?;
    until_served(&page, 500).await?;
    server
        .put(client_secret("default", "login", CLIENT_SECRET))
        .await?;
    until_served(&page, 302).await?;
    assert!(
        !controller.output().contains(CLIENT_SECRET),
        "no log has it"
    );
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
