//! A real kube-apiserver with its etcd on loopback: RBAC on, audit log on, no nodes.

mod audit;
pub mod etcd;
mod identity;
pub mod manifests;
pub mod proxy;
mod rights;
mod seed;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

pub use audit::{Request, is_write};
use identity::Authority;
pub use seed::Definitions;

use crate::port::free_port;
use crate::process::Process;

const START_LIMIT: Duration = Duration::from_secs(180);
/// The folder of etcd's data, beside the keys.
const DATA: &str = "etcd";

/// Controllers of kube-controller-manager that tests need.
const CONTROLLERS: &str = "namespace-controller,garbage-collector-controller,serviceaccount-controller,\
root-ca-certificate-publisher-controller,clusterrole-aggregation-controller";

/// Controllers that make pods of Deployments, DaemonSets and Jobs, and EndpointSlices of Services.
const OF_PODS: &str = "deployment-controller,replicaset-controller,daemonset-controller,job-controller,endpointslice-controller,\
horizontal-pod-autoscaler-controller";

/// A running kube-apiserver; it and its etcd are killed on drop.
pub struct ApiServer {
    server: Option<Process>,
    controllers: Option<Process>,
    etcd: Process,
    etcd_port: u16,
    address: SocketAddr,
    authority: Authority,
    /// Keys, certificates and the audit log; they survive a restart of the server.
    dir: TempDir,
    client: Client,
    audit: audit::Log,
    /// Further arguments of kube-apiserver.
    more: Vec<String>,
}

impl ApiServer {
    /// Starts both and returns when the server is ready. Call it on the test's own thread: the
    /// server is killed with that thread.
    pub async fn start() -> Result<Self> {
        Self::with(&[]).await
    }

    /// Starts both, with these kinds.
    pub async fn with(definitions: &[Definitions]) -> Result<Self> {
        Self::with_arguments(definitions, &[]).await
    }

    /// Starts both, with these kinds and further arguments of kube-apiserver.
    pub async fn with_arguments(definitions: &[Definitions], more: &[&str]) -> Result<Self> {
        let seed = Box::pin(seed::data(definitions)).await?;
        Self::start_from(Some(&seed), more).await
    }

    async fn start_from(seed: Option<&Path>, more: &[&str]) -> Result<Self> {
        // The TLS library of kube's client chooses no crypto provider by itself.
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::Builder::new()
            .prefix("apiserver")
            .tempdir()
            .context("making a directory")?;
        let authority = Authority::new(dir.path())?;
        let etcd_port = free_port()?;
        let data = dir.path().join(DATA);
        if let Some(seed) = seed {
            seed::copy(seed, &data)?;
        }
        let etcd = start_etcd(&data, etcd_port)?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let client = connect(&authority.kubeconfig(address, "admin", &["system:masters"])?).await?;
        std::fs::write(dir.path().join("audit.yaml"), audit::POLICY)?;
        let mut all = Self {
            server: None,
            controllers: None,
            etcd,
            etcd_port,
            address,
            authority,
            dir,
            client,
            audit: audit::Log::default(),
            more: more.iter().map(|argument| (*argument).to_owned()).collect(),
        };
        all.resume().await?;
        all.until_kinds_are_served().await?;
        Ok(all)
    }

    /// Starts the controllers of garbage collection, namespaces and service accounts. Call it when
    /// the test's kinds are installed: garbage collection includes the kinds that exist at its
    /// start, and later ones only half a minute or more afterwards.
    pub fn start_controllers(&mut self) -> Result<()> {
        self.run_controllers(CONTROLLERS)
    }

    /// Starts these controllers, and those of pods and endpoints.
    pub fn start_controllers_of_pods(&mut self) -> Result<()> {
        self.run_controllers(&format!("{CONTROLLERS},{OF_PODS}"))
    }

    fn run_controllers(&mut self, controllers: &str) -> Result<()> {
        let dir = tempfile::Builder::new()
            .prefix("controllers")
            .tempdir()
            .context("making a directory")?;
        let user =
            self.authority
                .kubeconfig(self.address, "system:kube-controller-manager", &[])?;
        let config = dir.path().join("kubeconfig");
        std::fs::write(&config, user)?;
        let file = |name: &str| self.dir.path().join(name).display().to_string();
        let arguments = [
            format!("--kubeconfig={}", config.display()),
            format!("--controllers={controllers}"),
            // Without it the single user of all controllers lacks the rights of most of them.
            "--use-service-account-credentials=true".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                file("accounts.key")
            ),
            format!("--root-ca-file={}", file("ca.crt")),
            "--leader-elect=false".to_owned(),
            "--horizontal-pod-autoscaler-sync-period=1s".to_owned(),
            format!("--secure-port={}", free_port()?),
            "--bind-address=127.0.0.1".to_owned(),
        ];
        self.controllers = Some(start("kube-controller-manager", &arguments, dir)?);
        Ok(())
    }

    /// Backs up the data of etcd; the server is down for a moment.
    pub async fn back_up(&mut self) -> Result<()> {
        self.kill();
        self.etcd.stop();
        let data = self.data();
        seed::copy(&data, &self.dir.path().join("backup"))?;
        self.etcd = start_etcd(&data, self.etcd_port)?;
        self.resume().await
    }

    /// Restores the state of [`ApiServer::back_up`]: resource versions continue from there. The
    /// controllers of Kubernetes would remember objects that never existed; restoring a cluster
    /// requires a restart of them.
    pub async fn restore(&mut self) -> Result<()> {
        self.kill();
        let had_controllers = self.controllers.take().is_some();
        self.etcd.stop();
        let data = self.data();
        let backup = self.dir.path().join("backup");
        std::fs::remove_dir_all(&data)?;
        std::fs::rename(&backup, &data).context("there is no backup")?;
        self.etcd = start_etcd(&data, self.etcd_port)?;
        self.resume().await?;
        if had_controllers {
            self.start_controllers()?;
        }
        Ok(())
    }

    /// The folder of etcd's data.
    fn data(&self) -> PathBuf {
        self.dir.path().join(DATA)
    }

    /// Kills the server; etcd keeps its data.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Kills etcd, which keeps its data on disk; the server continues without it.
    pub fn kill_etcd(&mut self) {
        self.etcd.stop();
    }

    /// Starts etcd after [`ApiServer::kill_etcd`], and returns when the server is ready again.
    pub async fn resume_etcd(&mut self) -> Result<()> {
        self.etcd = start_etcd(&self.data(), self.etcd_port)?;
        self.until_ready().await
    }

    /// Starts the server, also after [`ApiServer::kill`], at the same address.
    pub async fn resume(&mut self) -> Result<()> {
        let dir = tempfile::Builder::new()
            .prefix("apiserver")
            .tempdir()
            .context("making a directory")?;
        let file = |name: &str| self.dir.path().join(name).display().to_string();
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--bind-address={}", self.address.ip()),
            format!("--secure-port={}", self.address.port()),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--service-account-key-file={}", file("accounts.pub")),
            format!(
                "--service-account-signing-key-file={}",
                file("accounts.key")
            ),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            format!(
                "--kubelet-client-certificate={}",
                file("kubelet-client.crt")
            ),
            format!("--kubelet-client-key={}", file("kubelet-client.key")),
            format!("--audit-policy-file={}", file("audit.yaml")),
            format!("--audit-log-path={}", file("audit.log")),
            // One file, for the longest benchmark.
            "--audit-log-maxsize=4096".to_owned(),
            // There is no second server whose address Endpoints would have to contain.
            "--endpoint-reconciler-type=none".to_owned(),
            "--profiling=false".to_owned(),
        ];
        arguments.extend(self.more.iter().cloned());
        self.server = Some(start("kube-apiserver", &arguments, dir)?);
        self.until_ready().await
    }

    async fn until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let server = self.server.as_mut().context("the server was not started")?;
        loop {
            if let Some(status) = server.ended()? {
                bail!("kube-apiserver ended ({status}):\n{}", server.tail());
            }
            let asked = hyper::Request::get("/readyz").body(Vec::new())?;
            if self.client.request_text(asked).await.is_ok() {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "kube-apiserver is not ready:\n{}",
                server.tail()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Connects to etcd directly, bypassing the server.
    pub async fn etcd(&self) -> Result<etcd::Etcd> {
        etcd::Etcd::connect(SocketAddr::from(([127, 0, 0, 1], self.etcd_port))).await
    }

    /// Returns a client with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns a client of a user with the rights that RBAC grants to the name and the groups.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client> {
        connect(&self.authority.kubeconfig(self.address, user, groups)?).await
    }

    /// Writes a kubeconfig of a user.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let path = self
            .dir
            .path()
            .join(format!("{}.kubeconfig", user.replace(':', "-")));
        std::fs::write(
            &path,
            self.authority.kubeconfig(self.address, user, groups)?,
        )?;
        Ok(path)
    }

    /// Writes a kubeconfig that authenticates by the token in a file, which is read again and
    /// again.
    pub fn kubeconfig_with_token(&self, token: &Path) -> Result<PathBuf> {
        let mut config: Value =
            serde_json::from_str(&self.authority.kubeconfig(self.address, "token", &[])?)?;
        config["users"][0]["user"] = json!({"tokenFile": token});
        let path = self.dir.path().join("token.kubeconfig");
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Returns all finished requests so far; watches that are still open are missing.
    pub fn requests(&self) -> Result<Vec<Request>> {
        self.audit.read(&self.dir.path().join("audit.log"))
    }

    /// Returns the requests of a user that were denied by RBAC and not allowed later: a role takes
    /// effect some time after it was written.
    pub fn denied(&self, user: &str) -> Result<Vec<Request>> {
        let mut all = self.requests()?;
        all.retain(|request| request.user == user);
        let same = |one: &Request, other: &Request| {
            (&one.verb, &one.resource, &one.object) == (&other.verb, &other.resource, &other.object)
        };
        let is_denied = |at: usize, one: &Request| {
            one.code == 403
                && !all[at..]
                    .iter()
                    .any(|later| same(one, later) && later.code != 403)
        };
        Ok(all
            .iter()
            .enumerate()
            .filter(|(at, one)| is_denied(*at, one))
            .map(|(_, one)| one.clone())
            .collect())
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the output of etcd, the server and the controllers, for messages.
    pub fn log(&self) -> String {
        let server = self.server.as_ref().map(Process::tail).unwrap_or_default();
        let controllers = self
            .controllers
            .as_ref()
            .map(Process::tail)
            .unwrap_or_default();
        format!("{}\n{server}\n{controllers}", self.etcd.tail())
    }
}

fn start_etcd(data: &Path, clients: u16) -> Result<Process> {
    let peers = free_port()?;
    let dir = tempfile::Builder::new()
        .prefix("etcd")
        .tempdir()
        .context("making a directory")?;
    let arguments = [
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls=http://127.0.0.1:{clients}"),
        format!("--advertise-client-urls=http://127.0.0.1:{clients}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{peers}"),
        format!("--initial-cluster=default=http://127.0.0.1:{peers}"),
        // The data needs no durability: it is discarded with the test.
        "--unsafe-no-fsync=true".to_owned(),
        // The objects of the largest benchmark, and their histories.
        "--quota-backend-bytes=17179869184".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    start("etcd", &arguments, dir)
}

/// Starts a program of Kubernetes. It collects its garbage rarely, which halves the processor time
/// of a server that lives for a minute.
fn start(name: &str, arguments: &[String], dir: TempDir) -> Result<Process> {
    let mut all = vec!["GOGC=400".to_owned(), binary(name)?.display().to_string()];
    all.extend_from_slice(arguments);
    Process::start(Path::new("env"), &all, dir)
}

async fn connect(kubeconfig: &str) -> Result<Client> {
    let config = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    config.connect_timeout = Some(Duration::from_secs(30));
    Ok(Client::try_from(config)?)
}

/// Returns the path of a program in `KUBEBUILDER_ASSETS`, else of the one that
/// `e2e/tools install kubernetes` installed.
fn binary(name: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("KUBEBUILDER_ASSETS") {
        let path = PathBuf::from(dir).join(name);
        // setup-envtest has no kube-controller-manager.
        if path.exists() {
            return Ok(path);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../.tools")
        .join(name);
    ensure!(
        path.exists(),
        "no {name} at {}; run: e2e/tools install kubernetes",
        path.display()
    );
    Ok(path)
}
