//! A client of HTTP/3: aioquic, which the program reaches by lines of JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// Longer than the patience of the client itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection; closed on drop.
#[derive(Debug)]
pub struct Quic {
    /// SHA-256 of the server's certificate, in hex.
    pub certificate: String,
    _process: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// An answer.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
    /// The most early data that each session ticket of the connection admits, in bytes.
    pub early_data: Vec<u64>,
}

#[derive(Deserialize)]
struct Connected {
    /// Missing if the server refuses the connection.
    certificate: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answered {
    Answer(Answer),
    Closed { closed: String },
}

impl Quic {
    /// Connects with an SNI. `None` if the server refuses the connection.
    ///
    /// # Errors
    /// When the client is not installed, or ends.
    pub async fn connect(address: SocketAddr, sni: &str) -> Result<Option<Self>> {
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools");
        let library = tools.join("aioquic");
        ensure!(
            library.exists(),
            "{} is missing; run: e2e/tools install aioquic",
            library.display()
        );
        let mut process = Command::new(tools.join("venv/bin/python"))
            .args(["-c", include_str!("quic/client.py")])
            .args([&address.ip().to_string(), &address.port().to_string(), sni])
            .env("PYTHONPATH", library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting Python")?;
        let requests = process.stdin.take().context("piped")?;
        let stdout = process.stdout.take().context("piped")?;
        let mut answers = BufReader::new(stdout).lines();
        let Connected { certificate } = told(&mut answers).await?;
        Ok(certificate.map(|certificate| Self {
            certificate,
            _process: process,
            requests,
            answers,
        }))
    }

    /// Sends a request for `/` of a host.
    ///
    /// # Errors
    /// When the connection is closed.
    pub async fn get(&mut self, authority: &str) -> Result<Answer> {
        let request = json!({"authority": authority, "path": "/"});
        self.requests
            .write_all(format!("{request}\n").as_bytes())
            .await?;
        match told(&mut self.answers).await? {
            Answered::Answer(answer) => Ok(answer),
            Answered::Closed { closed } => bail!("the connection is closed: {closed}"),
        }
    }
}

async fn told<T: DeserializeOwned>(answers: &mut Lines<BufReader<ChildStdout>>) -> Result<T> {
    let line = timeout(PATIENCE, answers.next_line())
        .await
        .context("the client says nothing")??;
    let line = line.context("the client has ended")?;
    serde_json::from_str(&line).with_context(|| line.clone())
}
