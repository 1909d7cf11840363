//! What lies in `deploy/`, applied as it is to a cluster that runs its pods: controller and Envoys start from their
//! manifests, a Gateway of our class is served, and pods are replaced without anybody noticing.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::ApiServer;
use e2e::apiserver::manifests::documents;
use e2e::cluster::{NAMESPACE, condition, is_true, service};
use e2e::echo::Echo;
use e2e::kubelet::Kubelet;
use e2e::probe::Probe;
use kube::ResourceExt;
use kube::api::{ListParams, Patch};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const LIMIT: Duration = Duration::from_secs(60);
/// What a load balancer gives the Envoys.
const ADDRESS: &str = "203.0.113.7";
const HOST: &str = "web.example.org";

async fn apply_all(server: &ApiServer) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| name.to_owned());
    let index = documents(&read("kustomization.yaml")?)?.pop().context("an index")?;
    for name in index["resources"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        for object in documents(&read(name)?)? {
            if object["kind"] == "CustomResourceDefinition" {
                server.install_crds(&folder.join("crds")).await?;
            } else {
                server.put(object).await?;
            }
        }
    }
    Ok(())
}

/// The pods of a component that are ready, with their addresses.
async fn ready(server: &ApiServer, component: &str) -> Result<Vec<(String, String)>> {
    let pods = server.api("v1", "Pod", NAMESPACE).await?;
    let wanted = ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
    let all = pods
        .list(&wanted)
        .await?
        .items
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && is_true(&pod.data["status"], "Ready"));
    Ok(all.map(|pod| (pod.name_any(), pod.data["status"]["podIP"].as_str().unwrap_or_default().to_owned())).collect())
}

async fn until_ready(server: &ApiServer, component: &str, count: usize) -> Result<Vec<(String, String)>> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let pods = ready(server, component).await?;
        if pods.len() == count {
            return Ok(pods);
        }
        if Instant::now() > deadline {
            let all = server.api("v1", "Pod", NAMESPACE).await?.list(&ListParams::default()).await?.items;
            let statuses: Vec<String> =
                all.iter().map(|pod| format!("{} {}", pod.name_any(), pod.data["status"])).collect();
            panic!("{} of {count} pods of {component} are ready:\n{}", pods.len(), statuses.join("\n"));
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn until_served(envoy: SocketAddr, status: u16) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = Probe::http(envoy, HOST).limit(Duration::from_secs(2)).send().await;
        if answer.as_ref().is_ok_and(|answer| answer.status == status) {
            return Ok(());
        }
        assert!(Instant::now() < deadline, "{envoy}: {answer:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn programs() -> Result<[(&'static str, PathBuf); 2]> {
    let envoy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/envoy");
    ensure!(envoy.exists(), "no Envoy at {}; run: e2e/tools install envoy", envoy.display());
    Ok([("gatewright", e2e::gatewright::binary()?), ("envoyproxy/envoy", envoy)])
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy, and root for the network of pods: e2e/tools install"]
async fn what_is_deployed_runs_and_serves() -> Result<()> {
    let mut server = ApiServer::start().await?;
    server.install_gateway_api().await?;
    server.start_controllers_of_pods()?;
    let kubelet = Kubelet::start(&server, &programs()?).await?;
    apply_all(&server).await?;
    let controllers = until_ready(&server, "controller", 2).await?;
    let envoys = until_ready(&server, "envoy", 1).await?;

    // What a cloud or MetalLB does.
    let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}});
    let services = server.api("v1", "Service", NAMESPACE).await?;
    services.patch_status("gatewright-envoy", &Default::default(), &Patch::Merge(&given)).await?;

    let echo = Echo::start_on("web", &kubelet.host().to_string()).await?;
    let [web, mut slice] = service("default", "web", echo.address().port());
    slice["endpoints"] = json!([{"addresses": [kubelet.host()]}]);
    for object in [web, slice] {
        server.put(object).await?;
    }
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright",
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}))
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [HOST],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    let envoy: SocketAddr = format!("{}:80", envoys[0].1).parse()?;
    until_served(envoy, 200).await?;
    let programmed = |gateway: &Value| {
        is_true(&gateway["status"], "Programmed") && gateway["status"]["addresses"][0]["value"] == ADDRESS
    };
    let gateway = server.until((GATEWAY, "Gateway", "default"), "edge", LIMIT, programmed).await?;
    assert!(condition(&gateway["status"], "Accepted").is_some());

    // Every replica of the controller is replaced; Envoy serves meanwhile, and hears of changes afterwards.
    let pods = server.api("v1", "Pod", NAMESPACE).await?;
    for (name, _) in &controllers {
        pods.delete(name, &Default::default()).await?;
        assert_eq!(Probe::http(envoy, HOST).send().await?.status, 200);
    }
    let replaced = Instant::now() + LIMIT;
    loop {
        assert_eq!(Probe::http(envoy, HOST).send().await?.status, 200);
        let now = until_ready(&server, "controller", 2).await?;
        if now.iter().all(|(name, _)| controllers.iter().all(|(old, _)| old != name)) {
            break;
        }
        assert!(Instant::now() < replaced, "{now:?} are of old");
        sleep(Duration::from_millis(100)).await;
    }
    server.api(GATEWAY, "HTTPRoute", "default").await?.delete("web", &Default::default()).await?;
    until_served(envoy, 404).await?;
    Ok(())
}
