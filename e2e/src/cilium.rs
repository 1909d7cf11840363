//! Cilium's own Gateway API controllers, without agents: they serve nothing, and write all
//! statuses.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::apiserver::ApiServer;
use crate::process::Process;

const LIMIT: Duration = Duration::from_secs(180);

/// Cilium's controller name in the status of routes.
pub const CONTROLLER: &str = "io.cilium/gateway-controller";

/// The running controllers; they are killed on drop.
pub struct Cilium {
    process: Process,
}

impl Cilium {
    /// Installs Cilium's CRDs and its GatewayClass, and starts the controllers. The Gateway API has
    /// to be installed.
    pub async fn start(server: &ApiServer) -> Result<Self> {
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools");
        let program = tools.join("cilium");
        ensure!(
            program.exists(),
            "no {}; run: e2e/tools install cilium",
            program.display()
        );
        let definitions = tempfile::tempdir()?;
        for name in [
            "v2/ciliumenvoyconfigs.yaml",
            "v2alpha1/ciliumgatewayclassconfigs.yaml",
        ] {
            let from = tools.join("cilium-crds").join(name);
            std::fs::copy(&from, definitions.path().join(name.replace('/', "-")))?;
        }
        server.install_crds(definitions.path()).await?;
        server.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cilium-secrets"}})).await?;
        server
            .put(
                json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
                "metadata": {"name": "cilium"}, "spec": {"controllerName": CONTROLLER}}),
            )
            .await?;
        let kubeconfig = server.kubeconfig("cilium", &["system:masters"])?;
        let dir = tempfile::Builder::new().prefix("cilium").tempdir()?;
        let mut process = Process::start(&program, &[kubeconfig.display().to_string()], dir)?;
        let deadline = Instant::now() + LIMIT;
        while !process.log().contains("started") {
            if let Some(status) = process.ended()? {
                anyhow::bail!("cilium ended ({status}):\n{}", process.tail());
            }
            ensure!(
                Instant::now() < deadline,
                "cilium did not start:\n{}",
                process.tail()
            );
            sleep(Duration::from_millis(50)).await;
        }
        Ok(Self { process })
    }

    /// Gives a Gateway's Service an address, as a load balancer would: without one the Gateway is
    /// not programmed.
    pub async fn give_address(
        &self,
        server: &ApiServer,
        namespace: &str,
        gateway: &str,
    ) -> Result<()> {
        let services = server.api("v1", "Service", namespace).await?;
        let name = format!("cilium-gateway-{gateway}");
        let deadline = Instant::now() + LIMIT;
        while services.get_opt(&name).await?.is_none() {
            ensure!(
                Instant::now() < deadline,
                "there is no Service {namespace}/{name}:\n{}",
                self.process.tail()
            );
            sleep(Duration::from_millis(50)).await;
        }
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
        services
            .patch_status(
                &name,
                &Default::default(),
                &kube::api::Patch::Merge(&status),
            )
            .await?;
        Ok(())
    }

    /// Returns the controllers' output, for messages.
    pub fn log(&self) -> String {
        self.process.tail()
    }
}

/// Returns the clusters of requests for a hostname, by the virtual hosts of a CiliumEnvoyConfig
/// with this domain, or else with a wildcard that covers it.
pub fn backends(config: &Value, hostname: &str) -> Vec<String> {
    let resources = config["spec"]["resources"].as_array().into_iter().flatten();
    let hosts: Vec<&Value> = resources
        .filter_map(|resource| resource["virtualHosts"].as_array())
        .flatten()
        .collect();
    let serve = |name: &str| -> Vec<String> {
        let named = hosts.iter().filter(|host| {
            host["domains"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|domain| {
                    domain
                        .as_str()
                        .is_some_and(|domain| domain.split(':').next() == Some(name))
                })
        });
        let mut found: Vec<String> = named.flat_map(|host| clusters(host)).collect();
        found.sort();
        found.dedup();
        found
    };
    let wildcards = hostname
        .char_indices()
        .filter(|(_, c)| *c == '.')
        .map(|(at, _)| format!("*{}", &hostname[at..]));
    let mut names = std::iter::once(hostname.to_owned()).chain(wildcards);
    names
        .find_map(|name| Some(serve(&name)).filter(|found| !found.is_empty()))
        .unwrap_or_default()
}

/// Returns every `cluster` below a value, including weighted ones.
fn clusters(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let own = fields
                .get("cluster")
                .and_then(Value::as_str)
                .map(str::to_owned);
            let weighted = fields
                .get("weightedClusters")
                .and_then(|weighted| weighted["clusters"].as_array());
            let weighted = weighted
                .into_iter()
                .flatten()
                .filter_map(|cluster| cluster["name"].as_str());
            own.into_iter()
                .chain(weighted.map(str::to_owned))
                .chain(fields.values().flat_map(clusters))
                .collect()
        }
        Value::Array(items) => items.iter().flat_map(clusters).collect(),
        _ => Vec::new(),
    }
}
