//! The running controller with Cilium's own controllers, on one API server: each writes its part,
//! the tenant's status comes to include Cilium's verdict, and both become quiet.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::{ApiServer, Request, is_write};
use e2e::cilium::{CONTROLLER, Cilium};
use e2e::cluster::{ACCOUNT, Cluster, condition, tls_secret};
use e2e::tenants::DEFINITIONS;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const TENANT: &str = "gateway.cozystack.io/v1alpha1";
/// The controller name under which routes have the status of their claims.
const CLAIMS: &str = "gateway.cozystack.io/tenantgateway-controller";
/// More than the listeners of a Gateway.
const HOSTS: usize = 70;

async fn start() -> Result<(Cluster, Cilium)> {
    let mut server = ApiServer::with(&DEFINITIONS).await?;
    server.start_controllers()?;
    let cilium = Cilium::start(&server).await?;
    Ok((Cluster::over(server).await?, cilium))
}

fn route(namespace: &str, name: &str, hostnames: &[&str]) -> Value {
    let gateway = json!({"name": "cozystack", "namespace": "tenant-a"});
    let set = json!({"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": "cozystack-overflow-1",
        "namespace": "tenant-a"});
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [gateway, set], "hostnames": hostnames,
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

/// Acts as cert-manager: fills the Secret of every Certificate. Returns their number.
async fn issue(server: &ApiServer) -> Result<usize> {
    let certificates = server
        .api("cert-manager.io/v1", "Certificate", "tenant-a")
        .await?;
    let secrets = server.api("v1", "Secret", "tenant-a").await?;
    let all = certificates.list(&ListParams::default()).await?.items;
    for certificate in &all {
        let name = certificate.data["spec"]["secretName"]
            .as_str()
            .context("a name")?;
        if secrets.get_metadata_opt(name).await?.is_none() {
            let names = certificate.data["spec"]["dnsNames"]
                .as_array()
                .context("names")?;
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            server.put(tls_secret("tenant-a", name, &names)?).await?;
        }
    }
    Ok(all.len())
}

/// Repeats that until there are so many.
async fn issue_all(server: &ApiServer, count: usize) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(240);
    while issue(server).await? < count {
        ensure!(
            Instant::now() < deadline,
            "not every host has a Certificate"
        );
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Waits until nobody but this test has written for five seconds, and returns the writes until
/// then.
async fn rest(server: &ApiServer) -> Result<Vec<Request>> {
    let deadline = Instant::now() + Duration::from_secs(180);
    let mut before = 0;
    let mut since = Instant::now();
    loop {
        let all: Vec<Request> = server
            .requests()?
            .into_iter()
            .filter(|request| {
                is_write(request)
                    && !matches!(&*request.resource, "leases" | "events")
                    && (request.user == ACCOUNT || request.user == "cilium")
            })
            .collect();
        if all.len() != before {
            (before, since) = (all.len(), Instant::now());
        } else if since.elapsed() > Duration::from_secs(5) {
            return Ok(all);
        }
        let last: Vec<String> = all
            .iter()
            .rev()
            .take(6)
            .map(|r| format!("{} {} {}", r.user, r.verb, r.uri))
            .collect();
        ensure!(
            Instant::now() < deadline,
            "they do not come to rest: {last:#?}"
        );
        sleep(Duration::from_millis(200)).await;
    }
}

/// Returns the conditions of a route by a controller, at a parent of this kind.
fn told(route: &Value, controller: &str, kind: &str) -> Option<Value> {
    let entry = route["status"]["parents"]
        .as_array()?
        .iter()
        .find(|parent| {
            let of = parent["parentRef"]["kind"].as_str().unwrap_or("Gateway");
            parent["controllerName"] == controller && of == kind
        })?;
    Some(condition(entry, "Accepted")?["reason"].clone())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn two_that_write_come_to_rest_and_say_the_same() -> Result<()> {
    let (cluster, cilium) = start().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    for name in ["tenant-a", "tenant-b"] {
        let labels = json!({"namespace.cozystack.io/gateway": "tenant-a", "namespace.cozystack.io/host": "a.org"});
        server
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}))
            .await?;
        server
            .put(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": name},
                "spec": {"ports": [{"name": "http", "port": 80}]}}))
            .await?;
    }
    server
        .put(json!({"apiVersion": TENANT, "kind": "TenantGateway", "metadata": {"name": "cozystack", "namespace": "tenant-a"},
            "spec": {"apex": "a.org"}}))
        .await?;
    server
        .put(route("tenant-a", "app", &["app.a.org", "contested.a.org"]))
        .await?;
    server
        .put(route("tenant-b", "thief", &["contested.a.org"]))
        .await?;
    let hosts: Vec<String> = (0..HOSTS)
        .map(|number| format!("h{number:02}.a.org"))
        .collect();
    for (number, chunk) in hosts.chunks(14).enumerate() {
        let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
        server
            .put(route("tenant-b", &format!("many-{number}"), &chunk))
            .await?;
    }
    cilium.give_address(server, "tenant-a", "cozystack").await?;
    issue_all(server, HOSTS + 2).await?;

    let limit = Duration::from_secs(240);
    server
        .until(
            (TENANT, "TenantGateway", "tenant-a"),
            "cozystack",
            limit,
            |object| {
                let ready = condition(&object["status"], "Ready");
                ready.is_some_and(|ready| {
                    ready["message"] == format!("all {} listeners are ready", HOSTS + 3)
                })
            },
        )
        .await
        .with_context(|| cilium.log())?;
    rest(server).await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "tenant-b", "thief", |route| {
            told(route, CLAIMS, "Gateway") == Some(json!("HostnameConflict"))
                && told(route, CONTROLLER, "Gateway") == Some(json!("NotAllowedByListeners"))
        })
        .await?;
    let taken = |kind: &'static str| {
        move |route: &Value| {
            [CLAIMS, CONTROLLER]
                .iter()
                .all(|controller| told(route, controller, kind) == Some(json!("Accepted")))
        }
    };
    cluster
        .until(GATEWAY, "HTTPRoute", "tenant-a", "app", taken("Gateway"))
        .await?;

    // One more host is one write of one object each, and then the controllers are quiet again.
    let before = rest(server).await?.len();
    server
        .put(route("tenant-b", "late", &["late.a.org"]))
        .await?;
    issue_all(server, HOSTS + 3).await?;
    cluster
        .until(
            GATEWAY,
            "HTTPRoute",
            "tenant-b",
            "late",
            taken("ListenerSet"),
        )
        .await?;
    let written = rest(server).await?.split_off(before);
    let ours: Vec<&str> = written
        .iter()
        .filter(|r| r.user == ACCOUNT)
        .map(|r| &*r.resource)
        .collect();
    assert!(
        ours.iter()
            .filter(|resource| **resource == "listenersets")
            .count()
            == 1,
        "{ours:?}"
    );
    assert!(!ours.contains(&"gateways") && ours.len() <= 10, "{ours:?}");

    // A restarted controller has nothing to do.
    drop(controller);
    let before = rest(server).await?.len();
    let mut controller = cluster.controller("two")?;
    controller.line("holding the lease").await?;
    let written = rest(server).await?.split_off(before);
    assert!(written.is_empty(), "{written:?}");
    Ok(())
}
