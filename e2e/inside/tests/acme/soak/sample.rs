//! What the program and its Envoy hold at one time, and whether that grows.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::usage;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::churn::Churn;
use crate::certs::site::LIMIT;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Measured values, and by how much the median of the last quarter of a run may exceed that of the
/// second quarter, whatever the length of the run: the longer it is, the smaller a leak is found.
/// An hour of 30,000 steps finds 840 bytes a step of the program, 140 of Envoy's heap, and one
/// descriptor in 3,750 steps; the table of a run has its own figures. Resident memory has pages of
/// the program's file as well, which come whenever code runs for the first time, so that anonymous
/// memory is measured.
const MEASURED: [(&str, u64); 18] = [
    // Each thread has heaps of the allocator, and a busy machine makes the runtime start threads
    // for file operations: the memory of a run rises by up to 12 MB at once, and stays there.
    ("program: anonymous memory", 12 * MIB),
    // Connections to Pebble are kept for the next order.
    ("program: sockets", 16),
    ("program: other descriptors", 4),
    ("program: threads", 8),
    ("program: tasks", 8),
    ("program: published resources", 0),
    ("program: subscribed names", 8),
    ("program: certificates", 0),
    ("Envoy: anonymous memory", 6 * MIB),
    ("Envoy: heap in use", 2 * MIB),
    ("Envoy: sockets", 32),
    ("Envoy: other descriptors", 4),
    ("Envoy: threads", 0),
    ("Envoy: clusters", 0),
    ("Envoy: secrets", 8),
    ("Envoy: statistics", 32),
    ("storage: files", 24),
    ("storage: bytes without those below", 128 * KIB),
];

/// Files of the private directory that grow by design until they are written anew, or replaced by
/// an empty one, and the most bytes that each may have, with its predecessor.
const BOUNDED: [(&str, u64); 7] = [
    ("journal", 18 * MIB),
    ("history.jsonl", 18 * MIB),
    ("last-good", 18 * MIB),
    ("first-seen", 2 * MIB),
    ("ownership", 2 * MIB),
    ("access.log", 130 * MIB),
    ("envoy.log", 130 * MIB),
];

/// The gauges of Envoy that are zero once it has taken everything over.
const AT_REST: [&str; 4] = [
    "cluster_manager.warming_clusters",
    "listener_manager.total_listeners_draining",
    "listener_manager.total_listeners_warming",
    "listener_manager.total_filter_chains_draining",
];

/// The measured values at one time, by the names of [`MEASURED`].
pub(super) struct Sample {
    /// The time since the start.
    pub(super) at: Duration,
    /// The number of steps before.
    pub(super) steps: u64,
    values: BTreeMap<&'static str, u64>,
}

impl Sample {
    /// Measures while no request is sent, once nothing is on its way.
    pub(super) async fn take(churn: &Churn) -> Result<Self> {
        let _paused = churn.clients.pause().await;
        at_rest(churn).await?;
        let program = churn.site.program.as_ref().context("it runs")?.pid();
        let mut values = BTreeMap::new();
        for (pid, memory, sockets, others, threads) in [
            (
                program,
                "program: anonymous memory",
                "program: sockets",
                "program: other descriptors",
                "program: threads",
            ),
            (
                churn.envoy,
                "Envoy: anonymous memory",
                "Envoy: sockets",
                "Envoy: other descriptors",
                "Envoy: threads",
            ),
        ] {
            let descriptors = usage::descriptors(pid)?;
            values.insert(memory, usage::memory(pid, "RssAnon")?);
            values.insert(sockets, descriptors.sockets);
            values.insert(others, descriptors.others);
            values.insert(threads, usage::threads(pid)?);
        }
        let metrics = of_program(churn, "/metrics").await?;
        for (name, metric) in [
            ("program: tasks", "gatewright_tasks"),
            ("program: published resources", "gatewright_xds_resources"),
            (
                "program: subscribed names",
                "gatewright_xds_subscribed_names",
            ),
            ("program: certificates", "gatewright_certificates"),
        ] {
            values.insert(name, sum(&metrics, metric));
        }
        let heap: Value = serde_json::from_str(&of_envoy(churn, "/memory").await?)?;
        let heap = heap["allocated"].as_str().context("a number")?.parse()?;
        values.insert("Envoy: heap in use", heap);
        let statistics = of_envoy(churn, "/stats").await?;
        let clusters = gauge(&statistics, "cluster_manager.active_clusters");
        values.insert("Envoy: clusters", clusters);
        values.insert("Envoy: statistics", statistics.lines().count() as u64);
        let secrets = "/config_dump?resource=dynamic_active_secrets";
        let secrets: Value = serde_json::from_str(&of_envoy(churn, secrets).await?)?;
        let secrets = secrets["configs"].as_array().map_or(0, Vec::len);
        values.insert("Envoy: secrets", secrets as u64);
        let mut stored = Stored::default();
        stored.add(churn.site.state.path())?;
        for (name, most) in BOUNDED {
            let bytes = stored.bounded.get(name).copied().unwrap_or(0);
            ensure!(bytes <= most, "{name} has {bytes} bytes");
            values.insert(name, bytes);
        }
        values.insert("storage: files", stored.files);
        values.insert("storage: bytes without those below", stored.bytes);
        Ok(Self {
            at: churn.clients.elapsed(),
            steps: churn.steps,
            values,
        })
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let program = self.values["program: anonymous memory"];
        let envoy = self.values["Envoy: heap in use"];
        let (program, envoy) = (program / KIB, envoy / KIB);
        write!(f, "program {program} KiB, heap of Envoy {envoy} KiB")
    }
}

async fn of_envoy(churn: &Churn, path: &str) -> Result<String> {
    Ok(gatewright_control::ask(&churn.socket("envoy-admin.sock"), path).await?)
}

async fn of_program(churn: &Churn, path: &str) -> Result<String> {
    Ok(gatewright_control::ask(&churn.socket("admin.sock"), path).await?)
}

/// Waits until Envoy has taken everything over, and has told so.
async fn at_rest(churn: &Churn) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let statistics = of_envoy(churn, "/stats").await?;
        let metrics = of_program(churn, "/metrics").await?;
        let busy: Vec<&str> = AT_REST
            .into_iter()
            .filter(|name| gauge(&statistics, name) > 0)
            .collect();
        let behind = sum(&metrics, "gatewright_xds_proxies_behind");
        let unanswered = sum(&metrics, "gatewright_xds_unanswered");
        if busy.is_empty() && behind + unanswered == 0 {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "no rest: {busy:?}, {behind} Envoys behind, {unanswered} responses unanswered"
        );
        sleep(Duration::from_millis(20)).await;
    }
}

/// Returns a gauge of Envoy; 0 if it has none.
fn gauge(statistics: &str, name: &str) -> u64 {
    let value = statistics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// Returns the sum of a metric of the program, over all its labels.
fn sum(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labelled) => labelled.rsplit("} ").next()?,
            None => rest.strip_prefix(' ')?,
        };
        value.parse::<u64>().ok()
    });
    values.sum()
}

/// The content of the program's private directory.
#[derive(Default)]
struct Stored {
    files: u64,
    /// Bytes of all files but those of [`BOUNDED`].
    bytes: u64,
    bounded: BTreeMap<&'static str, u64>,
}

impl Stored {
    /// Adds the content of a directory.
    fn add(&mut self, directory: &Path) -> Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // A file may be replaced meanwhile.
            let Ok(data) = fs::symlink_metadata(entry.path()) else {
                continue;
            };
            if data.is_dir() {
                self.add(&entry.path())?;
                continue;
            }
            self.files += 1;
            let file = entry.file_name().to_string_lossy().into_owned();
            match BOUNDED.iter().find(|(name, _)| file.starts_with(name)) {
                Some((name, _)) => *self.bounded.entry(name).or_default() += data.len(),
                None => self.bytes += data.len(),
            }
        }
        Ok(())
    }
}

/// Returns the median of a value over some samples.
fn median(samples: &[Sample], name: &str) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(|sample| sample.values[name]).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// What a run has held in its second and its last quarter, in a table, and what of it has grown.
pub(super) struct Comparison {
    pub(super) table: String,
    pub(super) grown: Vec<String>,
}

/// Compares the second quarter of a run with its last. The first one is a warm-up: histories and
/// pools fill.
pub(super) fn compare(samples: &[Sample]) -> Comparison {
    let quarter = samples.len() / 4;
    let (second, last) = (
        &samples[quarter..2 * quarter],
        &samples[samples.len() - quarter..],
    );
    let steps = (last[quarter / 2].steps - second[quarter / 2].steps).max(1);
    let mut table = format!(
        "{} samples; between the medians of the second and the last quarter are {steps} steps\n\
         {:<36} {:>13} {:>13} {:>13} {:>11} {:>16}\n",
        samples.len(),
        "",
        "first",
        "second",
        "last",
        "may grow",
        "found, per step"
    );
    let mut grown = Vec::new();
    for (name, allowed) in MEASURED {
        let (first, before, after) = (
            samples[0].values[name],
            median(second, name),
            median(last, name),
        );
        let found = allowed as f64 / steps as f64;
        table += &format!(
            "{name:<36} {first:>13} {before:>13} {after:>13} {allowed:>11} {found:>16.3}\n"
        );
        if after > before + allowed {
            grown.push(format!("{name}: {before}, then {after}"));
        }
    }
    for (name, most) in BOUNDED {
        let (first, before, after) = (
            samples[0].values[name],
            median(second, name),
            median(last, name),
        );
        table +=
            &format!("storage: {name:<27} {first:>13} {before:>13} {after:>13} (at most {most})\n");
    }
    Comparison { table, grown }
}

#[test]
fn what_grows_with_each_step_is_found() {
    let sample = |number: u64, leaked: u64| Sample {
        at: Duration::from_secs(number),
        steps: number * 20,
        values: MEASURED
            .into_iter()
            .chain(BOUNDED)
            .map(|(name, _)| (name, 1000 + leaked * number))
            .collect(),
    };
    let flat: Vec<Sample> = (0..40).map(|number| sample(number, 0)).collect();
    assert_eq!(compare(&flat).grown, Vec::<String>::new());
    let leaking: Vec<Sample> = (0..40).map(|number| sample(number, MIB)).collect();
    assert_eq!(
        compare(&leaking).grown.len(),
        MEASURED.len(),
        "each grows by 20 MiB"
    );
}
