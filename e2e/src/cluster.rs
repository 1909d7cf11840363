//! A cluster with the controller and one Envoy, with the rights and arguments of the deployment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::apiserver::proxy::Proxy;
use crate::apiserver::{ApiServer, Definitions, Request, is_write};
use crate::clock::Clock;
use crate::envoy::Envoy;
use crate::gatewright::Gatewright;
use crate::kubelet::mount;
use crate::port::free_port;
use crate::xds_ca::PemPair;

/// The namespace of the deployment.
pub const NAMESPACE: &str = "gatewright-system";
/// The Secret that Envoy's pods mount.
const ENVOY_SECRET: &str = "gatewright-envoy";
/// The user name of the controller.
pub const ACCOUNT: &str = "system:serviceaccount:gatewright-system:gatewright-controller";

const LIMIT: Duration = Duration::from_secs(180);
/// Time without writes after which the controller counts as quiet: longer than its debounce.
const QUIET: Duration = Duration::from_secs(3);

/// An API server with the Gateway API and our own manifests.
pub struct Cluster {
    /// The API server.
    pub server: ApiServer,
    xds: SocketAddr,
    /// The address at which Gateways are reached; None for that of the Envoys' Service.
    address: Option<IpAddr>,
}

impl Cluster {
    /// Starts the API server with the Gateway API and applies the prerequisites of the controller.
    pub async fn start() -> Result<Self> {
        Self::with(&[]).await
    }

    /// Starts the same with further kinds.
    pub async fn with(further: &[Definitions]) -> Result<Self> {
        let definitions = [&[Definitions::GatewayApi], further].concat();
        Self::over(ApiServer::with(&definitions).await?).await
    }

    /// Applies the prerequisites of the controller, except for the Gateway API.
    pub async fn over(server: ApiServer) -> Result<Self> {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        for file in [
            "namespace.yaml",
            "rbac.yaml",
            "policies/controller-rights.yaml",
            "certificates/rbac.yaml",
        ] {
            server
                .apply(
                    &std::fs::read_to_string(deploy.join(file)).with_context(|| file.to_owned())?,
                )
                .await?;
        }
        Self::prepared(server)
    }

    /// Uses a server on which all prerequisites are installed already.
    pub fn prepared(server: ApiServer) -> Result<Self> {
        Ok(Self {
            server,
            xds: SocketAddr::from(([127, 0, 0, 1], free_port()?)),
            address: Some(Ipv4Addr::LOCALHOST.into()),
        })
    }

    /// Sets another loopback address at which Gateways are reached.
    pub fn reached_at(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Has Gateways reached at the address of the Envoys' Service, as deployed.
    pub fn reached_by_its_service(mut self) -> Self {
        self.address = None;
        self
    }

    /// Returns the address of the controller's xDS server.
    pub fn xds(&self) -> SocketAddr {
        self.xds
    }

    /// Starts the controller, which Envoys connect to, under its service account.
    pub fn controller(&self, identity: &str) -> Result<Gatewright> {
        self.controller_at(identity, self.xds)
    }

    /// Starts another replica.
    pub fn replica(&self, identity: &str) -> Result<Gatewright> {
        self.controller_at(identity, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Starts another replica with an xDS address for Envoys of its own; returns the address, too.
    pub fn replica_with_xds(&self, identity: &str) -> Result<(Gatewright, SocketAddr)> {
        self.replica_with_xds_and(identity, &[])
    }

    /// Starts such a replica with further arguments.
    pub fn replica_with_xds_and(
        &self,
        identity: &str,
        more: &[&str],
    ) -> Result<(Gatewright, SocketAddr)> {
        let xds = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        Ok((
            self.start_controller(identity, xds, more, self.server.kubeconfig(ACCOUNT, &[])?)?,
            xds,
        ))
    }

    /// Starts the controller with further arguments.
    pub fn controller_with(&self, identity: &str, more: &[&str]) -> Result<Gatewright> {
        self.start_controller(
            identity,
            self.xds,
            more,
            self.server.kubeconfig(ACCOUNT, &[])?,
        )
    }

    /// Starts another replica that connects to the API server through a proxy.
    pub fn replica_through(&self, identity: &str, proxy: &Proxy) -> Result<Gatewright> {
        self.replica_through_with(identity, proxy, &[])
    }

    /// Starts such a replica with further arguments.
    pub fn replica_through_with(
        &self,
        identity: &str,
        proxy: &Proxy,
        more: &[&str],
    ) -> Result<Gatewright> {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        self.start_controller(identity, anywhere, more, proxy.kubeconfig().to_owned())
    }

    /// Starts such a replica at the xDS address that Envoys connect to, with a simulated wall
    /// clock.
    pub fn replica_through_at(
        &self,
        identity: &str,
        proxy: &Proxy,
        xds: SocketAddr,
        more: &[&str],
        clock: &Clock,
    ) -> Result<Gatewright> {
        let arguments = self.arguments(identity, xds, more, proxy.kubeconfig());
        Gatewright::start_by(
            clock,
            &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    }

    /// Starts another replica with another kubeconfig.
    pub fn replica_as(&self, identity: &str, kubeconfig: &Path) -> Result<Gatewright> {
        self.start_controller(
            identity,
            SocketAddr::from(([127, 0, 0, 1], 0)),
            &[],
            kubeconfig.to_owned(),
        )
    }

    fn controller_at(&self, identity: &str, xds: SocketAddr) -> Result<Gatewright> {
        self.start_controller(identity, xds, &[], self.server.kubeconfig(ACCOUNT, &[])?)
    }

    fn start_controller(
        &self,
        identity: &str,
        xds: SocketAddr,
        more: &[&str],
        kubeconfig: PathBuf,
    ) -> Result<Gatewright> {
        let arguments = self.arguments(identity, xds, more, &kubeconfig);
        Gatewright::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn arguments(
        &self,
        identity: &str,
        xds: SocketAddr,
        more: &[&str],
        kubeconfig: &Path,
    ) -> Vec<String> {
        let (kubeconfig, xds) = (kubeconfig.display().to_string(), xds.to_string());
        let address = self.address.map(|address| address.to_string());
        let mut arguments = vec![
            "controller",
            "--kubeconfig",
            &kubeconfig,
            "--namespace",
            NAMESPACE,
            "--identity",
            identity,
            "--xds",
            &xds,
            "--probes",
            "127.0.0.1:0",
        ];
        let address = address.map(|address| format!("envoys.addresses=['{address}']"));
        arguments.extend(address.iter().flat_map(|address| ["--set", address]));
        let sets = |field: &str| more.iter().any(|argument| argument.starts_with(field));
        if !sets("lease.seconds=") {
            arguments.extend(["--set", "lease.seconds=3"]);
        }
        if !sets("limits.namespace.routes=") {
            // Benchmarks have all routes in one namespace.
            arguments.extend([
                "--set",
                "limits.namespace.routes=100000",
                "--set",
                "limits.namespace.clusters=100000",
            ]);
            arguments.extend([
                "--set",
                "limits.namespace.envoyMib=4096",
                "--set",
                "limits.namespace.programMib=4096",
            ]);
        }
        arguments.extend(more);
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// Starts an Envoy with the bootstrap and the Secret of its pod.
    pub async fn envoy(&self, node: &str) -> Result<(Envoy, TempDir)> {
        self.envoy_of(node, self.xds).await
    }

    /// Starts an Envoy that connects to one replica.
    pub async fn envoy_of(&self, node: &str, xds: SocketAddr) -> Result<(Envoy, TempDir)> {
        self.envoy_in(NAMESPACE, node, xds).await
    }

    /// Starts an Envoy of an installation in another namespace.
    pub async fn envoy_in(
        &self,
        namespace: &str,
        node: &str,
        xds: SocketAddr,
    ) -> Result<(Envoy, TempDir)> {
        self.envoy_from(namespace, node, xds, |bootstrap| bootstrap)
            .await
    }

    /// Starts an Envoy with a lower limit of regular expressions than in our bootstrap: it refuses
    /// some that we accept.
    pub async fn strict_envoy(&self, node: &str) -> Result<(Envoy, TempDir)> {
        self.envoy_from(NAMESPACE, node, self.xds, |bootstrap| {
            bootstrap.replace("_level\":10000", "_level\":500")
        })
        .await
    }

    async fn envoy_from(
        &self,
        namespace: &str,
        node: &str,
        xds: SocketAddr,
        change: impl FnOnce(String) -> String,
    ) -> Result<(Envoy, TempDir)> {
        let tls = tempfile::Builder::new().prefix("tls").tempdir()?;
        self.bring_keys_of(namespace, tls.path()).await?;
        let envoy = self.start_envoy(tls.path(), node, xds, change).await?;
        Ok((envoy, tls))
    }

    /// Starts an Envoy of one replica with a client certificate of its own.
    pub async fn envoy_with(
        &self,
        node: &str,
        xds: SocketAddr,
        pair: &PemPair,
        roots: &str,
    ) -> Result<(Envoy, TempDir)> {
        let tls = tempfile::Builder::new().prefix("tls").tempdir()?;
        let files = [
            ("tls.crt", &*pair.certificate),
            ("tls.key", &*pair.key),
            ("ca.crt", roots),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        mount(tls.path(), &files.into(), None)?;
        let envoy = self
            .start_envoy(tls.path(), node, xds, |bootstrap| bootstrap)
            .await?;
        Ok((envoy, tls))
    }

    /// Starts an Envoy of one replica with the client certificate in a directory, which the caller
    /// maintains.
    pub async fn envoy_at(&self, tls: &Path, node: &str, xds: SocketAddr) -> Result<Envoy> {
        self.start_envoy(tls, node, xds, |bootstrap| bootstrap)
            .await
    }

    async fn start_envoy(
        &self,
        tls: &Path,
        node: &str,
        xds: SocketAddr,
        change: impl FnOnce(String) -> String,
    ) -> Result<Envoy> {
        let dir = tls.display().to_string();
        let file = tls.join("bootstrap.json").display().to_string();
        let xds = xds.to_string();
        let made = Gatewright::run(&[
            "bootstrap",
            "--node",
            node,
            "--xds",
            &xds,
            "--tls-dir",
            &dir,
            "--envoy-admin",
            "/unused",
            "--file",
            &file,
        ])?;
        ensure!(
            made.status.success(),
            "gatewright bootstrap: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        Envoy::start(&change(std::fs::read_to_string(file)?)).await
    }

    /// Deletes the keys of Envoys; the controller makes new ones.
    pub async fn forget_keys(&self) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.server.client(), NAMESPACE);
        secrets.delete(ENVOY_SECRET, &Default::default()).await?;
        Ok(())
    }

    /// Writes the keys of Envoys into a directory, as a kubelet does.
    pub async fn bring_keys(&self, tls: &Path) -> Result<()> {
        self.bring_keys_of(NAMESPACE, tls).await
    }

    async fn bring_keys_of(&self, namespace: &str, tls: &Path) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.server.client(), namespace);
        let deadline = Instant::now() + LIMIT;
        let secret = loop {
            if let Some(secret) = secrets.get_opt(ENVOY_SECRET).await? {
                break secret;
            }
            ensure!(
                Instant::now() < deadline,
                "the controller made no keys for Envoy"
            );
            sleep(Duration::from_millis(50)).await;
        };
        let data = secret.data.context("the secret has no data")?;
        mount(
            tls,
            &data
                .into_iter()
                .map(|(name, bytes)| (name, bytes.0))
                .collect(),
            None,
        )?;
        Ok(())
    }

    /// Waits until an object satisfies a predicate, and returns it.
    ///
    /// # Panics
    /// When it does not within the time limit.
    pub async fn until(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        good: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let found = self
            .server
            .until((api_version, kind, namespace), name, LIMIT, good)
            .await;
        // A panic makes the programs print their output.
        Ok(found.unwrap_or_else(|error| panic!("{error:#}")))
    }

    /// Waits until the controller has written nothing for three seconds; returns the number of its
    /// writes.
    ///
    /// # Panics
    /// When it does not stop.
    pub async fn quiet(&self) -> Result<usize> {
        let deadline = Instant::now() + LIMIT;
        let mut before = self.writes()?.len();
        let mut since = Instant::now();
        while since.elapsed() < QUIET {
            sleep(Duration::from_millis(200)).await;
            let all = self.writes()?;
            if all.len() != before {
                (before, since) = (all.len(), Instant::now());
            }
            let last = &all[all.len().saturating_sub(6)..];
            assert!(Instant::now() < deadline, "it writes and writes: {last:#?}");
        }
        Ok(before)
    }

    /// Returns the writes of the controller so far, without its Lease and Events.
    pub fn writes(&self) -> Result<Vec<Request>> {
        let mut all = self.server.requests()?;
        all.retain(|request| {
            request.user == ACCOUNT
                && is_write(request)
                && !matches!(&*request.resource, "leases" | "events")
        });
        Ok(all)
    }

    /// Returns the requests of the controller that RBAC denied.
    pub fn denied(&self) -> Result<Vec<Request>> {
        self.server.denied(ACCOUNT)
    }
}

/// Returns a condition of an object, or of one of its listeners or parents.
pub fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// Returns true if a condition is `True`.
pub fn is_true(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|condition| condition["status"] == "True")
}

/// A Service, its EndpointSlice and the pod behind it, at one loopback address.
pub fn service(namespace: &str, name: &str, port: u16) -> [Value; 3] {
    let pod = format!("{name}-1");
    [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
            "spec": {"ports": [{"name": "http", "port": 80}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": &pod, "namespace": namespace,
                "labels": {"kubernetes.io/service-name": name}},
            // The API server rejects loopback addresses in a slice.
            "endpoints": [{"addresses": [BACKEND],
                "targetRef": {"kind": "Pod", "namespace": namespace, "name": &pod}}],
            "ports": [{"name": "http", "port": port}]}),
        self::pod(namespace, &pod, BACKEND),
    ]
}

/// A running pod at an address, with the status that a kubelet would write.
pub fn pod(namespace: &str, name: &str, address: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        // The namespace of the deployment requires the restricted level.
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "none",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}})
}

/// An address of this machine that is valid in an EndpointSlice: 198.18.0.0/15 is for tests (RFC
/// 2544).
pub const BACKEND: &str = "198.18.0.1";

/// A TLS Secret with a new self-signed certificate for some names.
pub fn tls_secret(namespace: &str, name: &str, hostnames: &[&str]) -> Result<Value> {
    let made = rcgen::generate_simple_self_signed(
        hostnames
            .iter()
            .map(|h| (*h).to_owned())
            .collect::<Vec<_>>(),
    )?;
    Ok(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {"tls.crt": made.cert.pem(), "tls.key": made.signing_key.serialize_pem()}}),
    )
}
