//! Prometheus, from its Debian package: it scrapes what a test says, and evaluates queries.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::port::free_port;
use crate::probe::Probe;
use crate::process::Process;

const LIMIT: Duration = Duration::from_secs(180);
/// The interval of scrapes: the port of an Envoy answers one every two seconds in the long run.
const INTERVAL: &str = "2s";

/// A target of scrapes.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address.
    pub address: SocketAddr,
    /// The path of its metrics.
    pub path: &'static str,
    /// Name and password of basic authentication.
    pub user: Option<(String, String)>,
    /// The labels of its series, as the operator of Prometheus adds them.
    pub labels: Vec<(&'static str, &'static str)>,
}

/// A running Prometheus; killed on drop.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts it, and returns when it has scraped every target.
    pub async fn start(targets: &[Target]) -> Result<Self> {
        let binary =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/prometheus/usr/bin/prometheus");
        ensure!(
            binary.exists(),
            "no {}; run: e2e/tools install promtool",
            binary.display()
        );
        let dir = tempfile::Builder::new()
            .prefix("prometheus")
            .tempdir()
            .context("making a directory")?;
        let jobs: Vec<Value> = targets.iter().enumerate().map(job).collect();
        let file = dir.path().join("prometheus.yaml");
        let configuration = json!({"global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL}, "scrape_configs": jobs});
        std::fs::write(&file, configuration.to_string())?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", dir.path().join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let process = Process::start(&binary, &arguments, dir)?;
        let mut prometheus = Self { process, address };
        let all = format!("count(up == 1) == {}", targets.len());
        prometheus.until(&all).await?;
        Ok(prometheus)
    }

    /// Returns the series of an expression now.
    ///
    /// # Errors
    /// When Prometheus refuses it; the error says why.
    pub async fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let expression = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        let path = format!("/api/v1/query?query={expression}");
        let answer = Probe::http(self.address, "prometheus")
            .path(&path)
            .send()
            .await?;
        let answer: Value = serde_json::from_slice(&answer.body)?;
        ensure!(answer["status"] == "success", "{answer}");
        let found = answer["data"]["result"].as_array();
        Ok(found.context("series")?.clone())
    }

    /// Waits until an expression has a series, and returns all that it has.
    pub async fn until(&mut self, expression: &str) -> Result<Vec<Value>> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.process.ended()? {
                bail!("Prometheus ended ({status}):\n{}", self.process.tail());
            }
            let found = self.query(expression).await;
            if let Ok(series) = &found
                && !series.is_empty()
            {
                return found;
            }
            ensure!(
                Instant::now() < deadline,
                "{expression}: {found:?} after {LIMIT:?}; targets {:?}\n{}",
                self.query("up").await,
                self.process.tail()
            );
            sleep(Duration::from_millis(200)).await;
        }
    }
}

fn job((number, target): (usize, &Target)) -> Value {
    let Target {
        address,
        path,
        user,
        labels,
    } = target;
    let labels: serde_json::Map<String, Value> = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect();
    let mut job = json!({"job_name": format!("job-{number}"), "metrics_path": path,
        "static_configs": [{"targets": [address.to_string()], "labels": labels}]});
    if let Some((name, password)) = user {
        job["basic_auth"] = json!({"username": name, "password": password});
    }
    job
}
