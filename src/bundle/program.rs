//! The bundle of a running program: its answers, those of its Envoy, its manifests, and logs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gatewright_control::ask;
use serde_json::Value;

use super::archive::Bundle;
use super::contents::{Contents, Of, State};
use super::site;
use crate::request_log::end_of;
use crate::standalone::access_log;

/// The answers of a program: the file, the path of the admin socket, and what it is.
pub(super) const ANSWERS: [(&str, &str, &str); 8] = [
    (
        "program.json",
        "/about",
        "version, command and configuration",
    ),
    (
        "status.json",
        "/status",
        "statuses of all objects, and use of quotas",
    ),
    ("history.json", "/history", "history of changes"),
    (
        "certificates.json",
        "/certs",
        "certificates of issuers, and their next steps",
    ),
    (
        "brought.json",
        "/certs/brought",
        "certificates that no issuer renews",
    ),
    ("owners.json", "/owners", "record of ownership"),
    ("envoys.json", "/envoys", "connected Envoys"),
    (
        "xds.json",
        "/debug/xds",
        "publications and acknowledgements",
    ),
];
/// The same of its texts.
const TEXTS: [(&str, &str, &str); 2] = [
    ("ready.txt", "/readyz", "what the program waits for"),
    ("metrics.txt", "/metrics", "metrics"),
];
/// What Envoy says.
const OF_ENVOY: [(&str, &str, &str); 6] = [
    (
        "envoy/server_info.json",
        "/server_info",
        "version, uptime and command line of Envoy",
    ),
    (
        "envoy/config_dump.json",
        "/config_dump?include_eds",
        "configuration as Envoy has it",
    ),
    (
        "envoy/clusters.txt",
        "/clusters",
        "backends with their endpoints",
    ),
    ("envoy/listeners.txt", "/listeners", "listening addresses"),
    ("envoy/stats.txt", "/stats", "statistics"),
    ("envoy/memory.json", "/memory", "memory"),
];
/// The bytes of a log that are read from its end.
const LOG_BYTES: u64 = 4 << 20;

/// Where a program is.
pub struct Place {
    /// Its private directory.
    pub state: PathBuf,
    /// Its admin socket.
    pub admin: PathBuf,
    /// That of its Envoy.
    pub envoy_admin: PathBuf,
}

/// Asks a program and its Envoy.
///
/// # Errors
/// When the program does not answer at all.
pub async fn of_program(place: &Place) -> Result<Bundle> {
    let about = ask(&place.admin, "/about").await?;
    let about: Value = serde_json::from_str(&about).context("/about")?;
    let mut bundle = Bundle::new(Contents::new(Of::Program));
    for (path, question, what) in ANSWERS {
        bundle.add_json(path, what, document(&place.admin, question).await);
    }
    for (path, question, what) in TEXTS {
        let text = ask(&place.admin, question).await.map_err(Into::into);
        bundle.add_text(path, what, text);
    }
    let what = "manifests, without the content of Secrets";
    match about["manifests"].as_str() {
        Some(directory) => bundle.add_json("site.json", what, site::read(Path::new(directory))),
        None => {
            let why = "the program reads no directory: gatewright support-bundle --context NAME has the objects of the cluster";
            let why = why.to_owned();
            bundle.leave_out("site.json", what, State::NotAsked { why });
        }
    }
    for (path, question, what) in OF_ENVOY {
        if path.ends_with(".json") {
            bundle.add_json(path, what, document(&place.envoy_admin, question).await);
        } else {
            let text = ask(&place.envoy_admin, question).await.map_err(Into::into);
            bundle.add_text(path, what, text);
        }
    }
    let logs = [
        (
            access_log(&place.state),
            "logs/access.log",
            "requests that failed",
        ),
        (
            place.state.join("envoy.log"),
            "logs/envoy.log",
            "log of Envoy",
        ),
    ];
    for (file, path, what) in logs {
        let what = format!("{what}, the last {} MiB", LOG_BYTES >> 20);
        bundle.add_text(
            path,
            &what,
            end_of(&file, LOG_BYTES).with_context(|| file.display().to_string()),
        );
    }
    let why = "the program logs to standard error: add what journalctl, docker logs or kubectl logs has of it";
    let why = why.to_owned();
    bundle.leave_out(
        "logs/gatewright.log",
        "log of the program",
        State::NotAsked { why },
    );
    Ok(bundle)
}

async fn document(socket: &Path, question: &str) -> Result<Value> {
    let text = ask(socket, question).await?;
    serde_json::from_str(&text).with_context(|| question.to_owned())
}
