//! cert-manager's real controllers, and a stand-in for the node that runs the pods of its HTTP-01 solver.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{ListParams, Patch};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::apiserver::ApiServer;
use crate::cluster::BACKEND;
use crate::process::Process;

const LIMIT: Duration = Duration::from_secs(30);
/// The label of everything that serves a challenge.
pub const SOLVER: &str = "acme.cert-manager.io/http01-solver=true";

/// Running controllers; killed on drop, with every solver that was started.
pub struct CertManager {
    _controllers: Process,
    solvers: BTreeMap<String, Process>,
}

impl CertManager {
    /// Installs the definitions, starts the controllers and returns when they run. They look names up at `nameserver`
    /// before they tell the CA to look.
    pub async fn start(server: &ApiServer, nameserver: SocketAddr) -> Result<Self> {
        Self::run(server, nameserver, &[]).await
    }

    /// The same; they trust these roots, as where the CA of an installation is in the image's bundle.
    pub async fn start_trusting(server: &ApiServer, nameserver: SocketAddr, roots: &[u8]) -> Result<Self> {
        Self::run(server, nameserver, roots).await
    }

    async fn run(server: &ApiServer, nameserver: SocketAddr, roots: &[u8]) -> Result<Self> {
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/cert-manager-crds");
        ensure!(crds.exists(), "no CRDs at {}; run: e2e/tools install cert-manager", crds.display());
        server.install_crds(&crds).await?;
        let kubeconfig = server.kubeconfig("cert-manager", &["system:masters"])?;
        let dir = tempfile::Builder::new().prefix("cert-manager").tempdir()?;
        let mut arguments = Vec::new();
        if !roots.is_empty() {
            let bundle = dir.path().join("roots.pem");
            std::fs::write(&bundle, roots)?;
            arguments.push(format!("SSL_CERT_FILE={}", bundle.display()));
        }
        arguments.push(binary("cert-manager")?.display().to_string());
        arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
        arguments.push(format!("--nameservers={nameserver}"));
        let mut controllers = Process::start(Path::new("env"), &arguments, dir)?;
        let deadline = Instant::now() + LIMIT;
        while !controllers.log().contains("cert-manager runs") {
            ensure!(controllers.ended()?.is_none(), "cert-manager ended:\n{}", controllers.tail());
            ensure!(Instant::now() < deadline, "cert-manager does not run:\n{}", controllers.tail());
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { _controllers: controllers, solvers: BTreeMap::new() })
    }

    /// Runs the solver pods that were not run yet, and puts each behind its Service, as a node and the controllers of
    /// Kubernetes would; stops those whose pods are gone.
    pub async fn run_solvers(&mut self, server: &ApiServer, namespace: &str) -> Result<()> {
        let pods = server.api("v1", "Pod", namespace).await?;
        let mut there = Vec::new();
        for pod in pods.list(&ListParams::default().labels(SOLVER)).await?.items {
            let name = pod.metadata.name.clone().context("a pod has a name")?;
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            there.push(name.clone());
            if self.solvers.contains_key(&name) {
                continue;
            }
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            let mut services =
                server.api("v1", "Service", namespace).await?.list(&ListParams::default().labels(SOLVER)).await?.items;
            services.retain(|service| {
                service.data["spec"]["selector"].as_object().is_some_and(|selector| {
                    selector.iter().all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
                })
            });
            // A pod comes before its Service; it is run when both are there.
            let Some(service) = services.pop() else { continue };
            let arguments: Vec<String> =
                serde_json::from_value(pod.data["spec"]["containers"][0]["args"].clone()).context("its arguments")?;
            let port = pod.data["spec"]["containers"][0]["ports"][0]["containerPort"].as_i64().context("its port")?;
            let dir = tempfile::Builder::new().prefix("solver").tempdir()?;
            self.solvers.insert(name.clone(), Process::start(&binary("acmesolver")?, &arguments, dir)?);
            let ready = json!({"status": {"phase": "Running", "podIP": BACKEND, "podIPs": [{"ip": BACKEND}],
                "conditions": [{"type": "Ready", "status": "True"}]}});
            pods.patch_status(&name, &Default::default(), &Patch::Merge(&ready)).await?;
            let service_name = service.metadata.name.clone().context("a Service has a name")?;
            let port_name = service.data["spec"]["ports"][0]["name"].as_str().unwrap_or_default().to_owned();
            server.put(slice(namespace, &service_name, &port_name, port)).await?;
        }
        self.solvers.retain(|name, _| there.contains(name));
        Ok(())
    }
}

fn slice(namespace: &str, service: &str, port_name: &str, port: i64) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{service}-1"), "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"addresses": [BACKEND], "conditions": {"ready": true}}],
        "ports": [{"name": port_name, "port": port, "protocol": "TCP"}]})
}

fn binary(name: &str) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools").join(name);
    ensure!(path.exists(), "no {name} at {}; run: e2e/tools install cert-manager", path.display());
    Ok(path)
}
