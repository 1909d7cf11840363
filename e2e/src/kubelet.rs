//! A small kubelet: runs the pods of one node as processes with the network, files, user and
//! arguments of their manifests. There is no image store: a table maps images to programs.
//!
//! It also simulates the access to Services: every pod has their names in its `/etc/hosts`, with
//! addresses that forward to a ready pod; and, on request, a load balancer.

mod balancer;
mod logs;
mod mounted;
mod network;
mod pod;
mod services;
mod volume;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::apiserver::ApiServer;
use balancer::Balancer;
use logs::{LogServer, Logs};
pub use mounted::mount;
use network::Network;
use pod::Running;
use services::{Services, forward};

/// The interval of its loop.
const EVERY: Duration = Duration::from_millis(200);
/// The name of the node.
pub const NODE: &str = "node-a";
/// The zone of the node.
pub const ZONE: &str = "eu-1a";

/// A running kubelet; on drop all its pods are killed and their network is removed.
pub struct Kubelet {
    host: Ipv4Addr,
    usable: Ipv4Addr,
    working: JoinHandle<()>,
    forwarding: JoinHandle<()>,
    _logs: LogServer,
}

/// The environment of pods.
struct Surroundings {
    client: Client,
    /// Program and first arguments by the image's name without its tag, of any registry.
    images: BTreeMap<&'static str, PathBuf>,
    network: Network,
    logs: Logs,
    /// The port of the API server.
    api_port: u16,
}

impl Kubelet {
    /// Registers a node and runs all pods. Call it on the test's own thread: the pods are killed
    /// with that thread.
    pub async fn start(server: &ApiServer, images: &[(&'static str, PathBuf)]) -> Result<Self> {
        Self::start_with(server, images, None).await
    }

    /// Starts it with a load balancer that gives every Service of type LoadBalancer an address of
    /// this machine. It runs on the test's runtime, which should have several threads.
    pub async fn start_with_balancer(
        server: &ApiServer,
        images: &[(&'static str, PathBuf)],
    ) -> Result<Self> {
        Self::start_with(server, images, Some(Balancer::default())).await
    }

    async fn start_with(
        server: &ApiServer,
        images: &[(&'static str, PathBuf)],
        balancer: Option<Balancer>,
    ) -> Result<Self> {
        let client = server.client();
        let network =
            Network::new().context("a network for pods; it takes root and the package iproute2")?;
        let host = network.host();
        let listener = TcpListener::bind((host, 0)).await?;
        let api_port = listener.local_addr()?.port();
        let forwarding = {
            let api = server.address();
            tokio::spawn(forward(listener, move || Some(api)))
        };
        let logs = Logs::default();
        let log_server = logs.serve(host).await?;
        register(&client, host, log_server.port).await?;
        let images = images.iter().cloned().collect();
        let usable = network.balanced(255);
        let around = Arc::new(Surroundings {
            client,
            images,
            network,
            logs,
            api_port,
        });
        let working = tokio::spawn(work(around, balancer));
        Ok(Self {
            host,
            usable,
            working,
            forwarding,
            _logs: log_server,
        })
    }

    /// Returns an address that the load balancer assigns on request only.
    pub fn usable(&self) -> Ipv4Addr {
        self.usable
    }

    /// Returns the address of the node, which pods can reach.
    pub fn host(&self) -> Ipv4Addr {
        self.host
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.working.abort();
        self.forwarding.abort();
    }
}

async fn register(client: &Client, host: Ipv4Addr, port: u16) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let labels = json!({"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": ZONE});
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}});
    nodes
        .create(&PostParams::default(), &serde_json::from_value(node)?)
        .await?;
    let capacity = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
    let status = json!({"status": {"capacity": capacity, "allocatable": capacity,
        "addresses": [{"type": "InternalIP", "address": host}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]}});
    nodes
        .patch_status(NODE, &Default::default(), &Patch::Merge(&status))
        .await?;
    // A new node is tainted until it is ready; DaemonSets wait for that.
    let taints = json!({"spec": {"taints": null}});
    nodes
        .patch(NODE, &Default::default(), &Patch::Merge(&taints))
        .await?;
    Ok(())
}

#[allow(
    clippy::print_stderr,
    reason = "a failing test shows why its pods did not run"
)]
async fn work(around: Arc<Surroundings>, mut balancer: Option<Balancer>) {
    let mut running = BTreeMap::new();
    let mut services = Services::default();
    let mut told = String::new();
    loop {
        // The API server may be down for a moment.
        if let Err(error) = look(&around, &mut running, &mut services, balancer.as_mut()).await {
            let text = format!("{error:#}");
            if text != told {
                eprintln!("kubelet: {text}");
                told = text;
            }
        }
        sleep(EVERY).await;
    }
}

/// One iteration: handles new, changed and deleted pods.
async fn look(
    around: &Surroundings,
    running: &mut BTreeMap<String, Running>,
    services: &mut Services,
    balancer: Option<&mut Balancer>,
) -> Result<()> {
    let all: Api<Pod> = Api::all(around.client.clone());
    let pods = all.list(&ListParams::default()).await?.items;
    services.look(&around.client, &around.network).await?;
    if let Some(balancer) = balancer {
        balancer.look(&around.client, &around.network).await?;
    }
    let api = format!(
        "127.0.0.1 localhost\n{} kubernetes.default.svc\n",
        around.network.host()
    );
    let hosts = api + &services.hosts();
    running.retain(|uid, _| {
        pods.iter()
            .any(|pod| pod.metadata.uid.as_ref() == Some(uid))
    });
    for pod in pods {
        let namespace = pod.namespace().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(around.client.clone(), &namespace);
        let name = pod.name_any();
        let uid = pod.uid().unwrap_or_default();
        let spec = pod.spec.as_ref().context("a pod has a specification")?;
        if spec.node_name.is_none() {
            bind(around, &namespace, &name).await?;
            continue;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            if let Some(running) = running.get_mut(&uid)
                && let Some(told) = running.stop(&pod).await?
            {
                if let Some(status) = told {
                    api.patch_status(
                        &name,
                        &Default::default(),
                        &Patch::Merge(&json!({"status": status})),
                    )
                    .await?;
                }
                continue;
            }
            let preconditions = Some(Preconditions {
                uid: Some(uid),
                resource_version: None,
            });
            let now = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions,
                ..DeleteParams::default()
            };
            api.delete(&name, &now).await?;
            continue;
        }
        if !running.contains_key(&uid) {
            running.insert(uid.clone(), Running::new(around, &pod)?);
        }
        let here = running.get_mut(&uid).expect("just made");
        here.hosts(&hosts)?;
        if let Some(status) = here.advance(around, &pod).await? {
            api.patch_status(
                &name,
                &Default::default(),
                &Patch::Merge(&json!({"status": status})),
            )
            .await?;
        }
    }
    Ok(())
}

async fn bind(around: &Surroundings, namespace: &str, name: &str) -> Result<()> {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE}});
    let uri = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
    let request = hyper::Request::post(uri)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&binding)?)?;
    around.client.request::<Value>(request).await?;
    Ok(())
}
