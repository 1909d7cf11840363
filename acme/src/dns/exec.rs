//! A DNS provider that runs a program: it reads one JSON object on standard input and answers by
//! its exit code.
//!
//! Input: `{"version":1,"action":"zone"|"present"|"cleanup","name":…,"value":…,"ttl":…}` (no value
//! and ttl for `zone`). Exit code 0 is success; `zone` then prints `{"zone":"example.com"}`. 65
//! means that it has no zone for the name, 75 that the call may be retried (`EX_TEMPFAIL`), 77 that
//! the credentials are refused (`EX_NOPERM`); any other code is a refusal. Its standard error
//! becomes the message. Adding a value that exists, and removing one that does not, must succeed;
//! only the one value may be removed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::api::quote;
use super::secret::Secret;
use crate::challenge::dns::{DnsError, DnsProvider, TxtRecord};

const PROVIDER: &str = "exec";
/// Most bytes that are kept of each output.
const OUTPUT_LIMIT: u64 = 64 * 1024;

/// The settings for the program.
pub struct ExecConfig {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, in addition to `PATH`.
    pub env: BTreeMap<String, Secret>,
    /// Time limit of one call, after which the program is killed, with the programs that it
    /// started.
    pub limit: Duration,
}

/// The DNS provider that runs a program.
pub struct Exec {
    config: ExecConfig,
}

/// Exit code and outputs of the program. The code is None after a signal.
struct Ended {
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
}

impl Exec {
    /// Checks the configuration; runs nothing yet.
    pub fn new(config: ExecConfig) -> Result<Self, DnsError> {
        let program = config.program.display();
        if !config.program.is_absolute() {
            return Err(wrong(format!(
                "program: {program} must be an absolute path"
            )));
        }
        if !config.program.is_file() {
            return Err(wrong(format!(
                "program: {program} is not a file; mount it into this container"
            )));
        }
        Ok(Self { config })
    }

    async fn run(&self, name: &str, input: &Value) -> Result<Vec<u8>, DnsError> {
        let program = self.config.program.display();
        let ended = match timeout(self.config.limit, self.child(input)).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => return Err(unavailable(format!("running {program}: {error}"))),
            Err(_) => {
                return Err(unavailable(format!(
                    "{program} did not end within {} s",
                    self.config.limit.as_secs_f32()
                )));
            }
        };
        let said = self
            .config
            .env
            .values()
            .fold(ended.stderr, |said, secret| secret.blot(&said));
        let said = quote(&said);
        let message = if said.is_empty() {
            format!("{program} says nothing")
        } else {
            said
        };
        let provider = PROVIDER.to_owned();
        let name = name.to_owned();
        match ended.code {
            Some(0) => Ok(ended.stdout),
            Some(65) => Err(DnsError::NoZone {
                provider,
                name,
                message,
            }),
            Some(75) => Err(DnsError::Unavailable { provider, message }),
            Some(77) => Err(DnsError::Credentials { provider, message }),
            Some(code) => Err(DnsError::Refused {
                provider,
                name,
                message: format!("{message} (exit code {code})"),
            }),
            None => Err(unavailable(format!("{program} was killed: {message}"))),
        }
    }

    async fn child(&self, input: &Value) -> std::io::Result<Ended> {
        let mut command = Command::new(&self.config.program);
        command.args(&self.config.args).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs(
            self.config
                .env
                .iter()
                .map(|(name, value)| (name, value.expose())),
        );
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.process_group(0).spawn()?;
        let mut group = Group::of(&child);
        let mut stdin = child.stdin.take().expect("standard input was asked for");
        let stdout = child.stdout.take().expect("standard output was asked for");
        let stderr = child.stderr.take().expect("standard error was asked for");
        let feed = async move {
            // A program may close its input unread.
            let _unread = stdin.write_all(input.to_string().as_bytes()).await;
        };
        let ((), stdout, stderr) = tokio::join!(feed, drain(stdout), drain(stderr));
        // The number of the group is free for others only after this.
        let status = child.wait().await;
        group.forget();
        let stderr = String::from_utf8_lossy(&stderr?).into_owned();
        Ok(Ended {
            code: status?.code(),
            stdout: stdout?,
            stderr,
        })
    }
}

fn wrong(message: String) -> DnsError {
    DnsError::Config {
        provider: PROVIDER.to_owned(),
        message,
    }
}

/// The process group of a program: the program and those that it started. Killed on drop.
struct Group(Option<Pid>);

impl Group {
    fn of(leader: &Child) -> Self {
        Self(
            leader
                .id()
                .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)),
        )
    }

    fn forget(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads to the end, so that the program never blocks on a full pipe, and keeps the beginning.
async fn drain(mut pipe: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    (&mut pipe)
        .take(OUTPUT_LIMIT)
        .read_to_end(&mut kept)
        .await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    Ok(kept)
}

#[async_trait]
impl DnsProvider for Exec {
    fn name(&self) -> &str {
        PROVIDER
    }

    async fn zone_of(&self, name: &str) -> Result<String, DnsError> {
        let stdout = self.run(name, &question(name)).await?;
        read_zone(PROVIDER, name, &stdout)
    }

    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError> {
        self.run(&record.name, &order("present", record))
            .await
            .map(|_| ())
    }

    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError> {
        self.run(&record.name, &order("cleanup", record))
            .await
            .map(|_| ())
    }
}

/// Returns the request for the zone of a name; the webhook has the same format.
pub(crate) fn question(name: &str) -> Value {
    json!({"version": 1, "action": "zone", "name": name})
}

/// Returns the request to add or remove a record.
pub(crate) fn order(action: &str, record: &TxtRecord) -> Value {
    json!({"version": 1, "action": action, "name": record.name, "value": record.value, "ttl": record.ttl})
}

/// Parses the answer to [`question`]; a zone that does not contain the name is rejected.
pub(crate) fn read_zone(provider: &str, name: &str, body: &[u8]) -> Result<String, DnsError> {
    #[derive(Deserialize)]
    struct Answer {
        zone: String,
    }
    let answer: Answer = serde_json::from_slice(body).map_err(|_| DnsError::Protocol {
        provider: provider.to_owned(),
        message: "the answer to \"zone\" must be {\"zone\":\"example.com\"}".to_owned(),
    })?;
    let zone = answer.zone.trim_end_matches('.').to_ascii_lowercase();
    if super::api::zone_candidates(name).any(|candidate| candidate == zone) {
        return Ok(zone);
    }
    let message = format!(
        "it named the zone {}, which does not hold the name",
        quote(&zone)
    );
    Err(DnsError::NoZone {
        provider: provider.to_owned(),
        name: name.to_owned(),
        message,
    })
}

fn unavailable(message: String) -> DnsError {
    DnsError::Unavailable {
        provider: PROVIDER.to_owned(),
        message,
    }
}
