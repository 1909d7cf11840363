//! A real Envoy with a bootstrap of the test's choice.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};

use crate::callgrind::{self, Callgrind};
use crate::process::Process;
use crate::usage;

const START_LIMIT: Duration = Duration::from_secs(120);
const ADMIN_LIMIT: usize = 256 * 1024 * 1024;

/// A running Envoy; killed on drop, its log shown when the test panics.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    admin: PathBuf,
}

impl Envoy {
    /// Starts Envoy with the bootstrap, whose admin address is replaced by a Unix socket in a
    /// private directory, also where its clusters lead there, and returns when the admin interface
    /// answers. Call it on the test's own
    /// thread: Envoy is killed with that thread.
    pub async fn start(bootstrap: &str) -> Result<Self> {
        Self::start_with(bootstrap, &[]).await
    }

    /// Starts Envoy with further command line arguments.
    pub async fn start_with(bootstrap: &str, args: &[&str]) -> Result<Self> {
        let args: Vec<&str> = ["--concurrency", "2"].iter().chain(args).copied().collect();
        Self::launch(
            private_directory()?,
            (binary()?, Vec::new()),
            bootstrap,
            &args,
        )
        .await
    }

    /// Starts Envoy with one worker under Callgrind. It is slower by a factor of three until
    /// [`Envoy::count`], and then of fifty.
    ///
    /// # Errors
    /// When Valgrind is not installed, or Envoy does not start.
    pub async fn start_counted(bootstrap: &str) -> Result<Self> {
        let dir = private_directory()?;
        let (valgrind, mut before) = callgrind::launcher(dir.path())?;
        before.push(binary()?.display().to_string());
        Self::launch(dir, (valgrind, before), bootstrap, &["--concurrency", "1"]).await
    }

    /// Begins to count the instructions of an Envoy that [`Envoy::start_counted`] has started.
    ///
    /// # Errors
    /// When it does not run under Callgrind.
    pub fn count(&self) -> Result<Callgrind> {
        Callgrind::begin(self.pid(), self.dir())
    }

    /// Starts a program, with the arguments before Envoy's own and after them.
    async fn launch(
        dir: TempDir,
        (program, before): (PathBuf, Vec<String>),
        bootstrap: &str,
        after: &[&str],
    ) -> Result<Self> {
        let admin = dir.path().join("admin.sock");
        let mut document: Value =
            serde_yaml_ng::from_str(bootstrap).context("the bootstrap is not YAML")?;
        ensure!(document.is_object(), "the bootstrap is not a mapping");
        let replaced = std::mem::replace(
            &mut document["admin"],
            json!({"address": {"pipe": {"path": admin, "mode": 0o600}}}),
        );
        lead_to(&mut document, &replaced["address"], &admin);
        refuse_deprecated(&mut document);
        let config = dir.path().join("bootstrap.json");
        std::fs::write(&config, serde_json::to_vec(&document)?).context("writing the bootstrap")?;
        let own = [
            "--use-dynamic-base-id",
            "--log-level",
            "info",
            "--component-log-level",
            "oauth2:off",
            "--file-flush-interval-msec",
            "1000",
            "--drain-time-s",
            "5",
        ];
        let mut arguments = before;
        arguments.extend(own.map(str::to_owned));
        arguments.extend(["--config-path".to_owned(), config.display().to_string()]);
        arguments.extend(after.iter().map(|arg| (*arg).to_owned()));
        let process = Process::start(&program, &arguments, dir)?;
        let mut envoy = Self { process, admin };
        envoy.until("the admin socket answers", |_, _| true).await?;
        Ok(envoy)
    }

    /// Waits until Envoy is LIVE: all of its first configuration has arrived.
    pub async fn ready(&mut self) -> Result<()> {
        self.until("Envoy is live", |status, _| status == 200).await
    }

    /// Sends a GET to the admin interface and returns the body of its 200.
    pub async fn admin(&self, path: &str) -> Result<String> {
        let (status, body) = self.ask(Method::GET, path).await?;
        ensure!(
            status == 200,
            "GET {path} of Envoy's admin answered {status}: {body}"
        );
        Ok(body)
    }

    /// Sends a POST to the admin interface (`/logging?level=debug`, `/drain_listeners`).
    pub async fn admin_post(&self, path: &str) -> Result<String> {
        let (status, body) = self.ask(Method::POST, path).await?;
        ensure!(
            status == 200,
            "POST {path} of Envoy's admin answered {status}: {body}"
        );
        Ok(body)
    }

    /// Returns the complete config dump, including endpoints.
    pub async fn config_dump(&self) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.admin("/config_dump?include_eds").await?,
        )?)
    }

    /// Returns one counter or gauge; 0 if Envoy has not created it yet.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        let all = self
            .admin(&format!("/stats?filter=^{}$", name.replace('.', "\\.")))
            .await?;
        match all
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        {
            Some(value) => value
                .parse()
                .with_context(|| format!("the stat {name} is not a number: {value}")),
            None => Ok(0),
        }
    }

    /// Returns the address that a listener is bound to (also if its port was 0).
    pub async fn listener(&self, name: &str) -> Result<SocketAddr> {
        let all: Value = serde_json::from_str(&self.admin("/listeners?format=json").await?)?;
        let found = all["listener_statuses"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|one| one["name"] == name);
        let address = &found.with_context(|| format!("Envoy has no listener {name}: {all}"))?["local_address"]
            ["socket_address"];
        let ip = address["address"]
            .as_str()
            .with_context(|| format!("listener {name} has no IP address: {all}"))?;
        let port = address["port_value"]
            .as_u64()
            .with_context(|| format!("listener {name} has no port: {all}"))?;
        Ok(SocketAddr::new(ip.parse()?, u16::try_from(port)?))
    }

    /// Returns the CPU time of the main thread, which applies configuration.
    pub fn main_thread_cpu(&self) -> Result<Duration> {
        usage::main_thread_time(self.pid())
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> Result<u64> {
        usage::memory(self.pid(), "VmRSS")
    }

    /// Stops it (SIGSTOP): connections stay open and are not answered.
    pub fn freeze(&self) -> Result<()> {
        self.process.signal("STOP")
    }

    /// Continues it (SIGCONT).
    pub fn thaw(&self) -> Result<()> {
        self.process.signal("CONT")
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its private directory.
    pub fn dir(&self) -> &Path {
        self.process.dir()
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    async fn until(&mut self, what: &str, done: impl Fn(u16, &str) -> bool) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.process.ended()? {
                bail!(
                    "Envoy ended ({status}) before {what}:\n{}",
                    self.process.tail()
                );
            }
            let asked = timeout_at(deadline, self.ask(Method::GET, "/ready")).await;
            if matches!(&asked, Ok(Ok((status, body))) if done(*status, body)) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "not within {START_LIMIT:?}: {what}; last answer {asked:?}; log:\n{}",
                self.process.tail()
            );
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn ask(&self, method: Method, path: &str) -> Result<(u16, String)> {
        let stream = UnixStream::connect(&self.admin)
            .await
            .context("connecting to Envoy's admin socket")?;
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "admin")
            .body(Empty::<Bytes>::new())?;
        let exchange = async {
            let answer = client.send_request(request).await?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), ADMIN_LIMIT)
                .collect()
                .await
                .map_err(anyhow::Error::from_boxed)?;
            Ok((
                status,
                String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            ))
        };
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            ended = connection => { ended?; exchange.await }
        }
    }
}

fn private_directory() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("envoy")
        .tempdir()
        .context("making a directory for Envoy")
}

/// Leads the static clusters of one address to a Unix socket.
fn lead_to(bootstrap: &mut Value, from: &Value, socket: &Path) {
    let mut from = from.clone();
    if let Some(pipe) = from.pointer_mut("/pipe").and_then(Value::as_object_mut) {
        pipe.remove("mode");
    }
    let clusters = bootstrap["static_resources"]["clusters"].as_array_mut();
    for cluster in clusters.into_iter().flatten() {
        let address =
            cluster.pointer_mut("/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address");
        if let Some(address) = address.filter(|address| **address == from) {
            *address = json!({"pipe": {"path": socket}});
        }
    }
}

/// Makes Envoy refuse a deprecated field, which it would log a warning about and its next release
/// may not know.
fn refuse_deprecated(bootstrap: &mut Value) {
    let layer = json!({
        "name": "no-deprecated-fields",
        "static_layer": {"envoy.features.fail_on_any_deprecated_feature": true},
    });
    match bootstrap.pointer_mut("/layered_runtime/layers") {
        Some(Value::Array(layers)) => layers.insert(0, layer),
        _ => bootstrap["layered_runtime"] = json!({"layers": [layer]}),
    }
}

/// Returns the path of Envoy: `$GATEWRIGHT_ENVOY`, else the one that `e2e/tools install envoy`
/// installed.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("GATEWRIGHT_ENVOY") {
        return Ok(path.into());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/envoy");
    ensure!(
        path.exists(),
        "no Envoy at {}; run: e2e/tools install envoy",
        path.display()
    );
    Ok(path)
}
