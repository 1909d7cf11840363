//! The record of who claimed a hostname first: ConfigMaps that every replica watches, and the holder of the Lease writes.
//!
//! A hostname stands in the ConfigMap that its hash names, so that a new one costs a small write however many there are. A
//! write holds only for the version that it was decided upon.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::warn;

use super::FIELD_MANAGER;
use super::failure::Failure;
use super::follow::{self, follow};
use super::queue::Queue;
use super::request::{ended_or_due, in_time};
use super::seen::newer;
use crate::model::Hostname;
use crate::tenancy::{Change, Record, Tenancy};

/// Which of our ConfigMaps these are.
const LABEL: (&str, &str) = ("gatewright.io/keeps", "hostname-claims");
const PREFIX: &str = "gatewright-claims-";
/// How a wildcard begins as the key of a ConfigMap, which has no `*`; no hostname has a `_`.
const WILDCARD: &str = "_.";
/// How many at the same time.
const AT_ONCE: usize = 4;

/// What the watch tells.
pub type Told = follow::Told<ConfigMap>;

/// The ConfigMap of a hostname.
fn shard(hostname: &Hostname) -> String {
    format!("{PREFIX}{:02x}", Sha256::digest(hostname.as_str().as_bytes())[0])
}

fn key(hostname: &Hostname) -> String {
    match hostname.as_str().strip_prefix("*.") {
        Some(rest) => format!("{WILDCARD}{rest}"),
        None => hostname.as_str().to_owned(),
    }
}

fn value(record: &Record) -> String {
    format!("{} {}", record.since, record.namespace)
}

/// One entry; `None` where it is none of ours.
fn parse(key: &str, value: &str) -> Option<(Hostname, Record)> {
    let hostname = match key.strip_prefix(WILDCARD) {
        Some(rest) => Hostname::parse(&format!("*.{rest}")),
        None => Hostname::parse(key),
    };
    let (since, namespace) = value.split_once(' ')?;
    let record = Record { namespace: Arc::from(namespace), since: since.parse().ok()? };
    Some((hostname.ok().filter(|hostname| !hostname.is_any())?, record))
}

/// One ConfigMap, as last seen.
#[derive(Debug, Default)]
struct Shard {
    version: String,
    records: BTreeMap<Hostname, Record>,
}

/// The record.
pub struct Claims {
    client: Client,
    namespace: String,
    shards: BTreeMap<String, Shard>,
    complete: bool,
    /// Hostnames that are to be recorded anew, by ConfigMap.
    asked: BTreeMap<String, BTreeSet<Hostname>>,
    queue: Queue<String>,
    tasks: JoinSet<Written>,
    told: BTreeMap<String, String>,
}

/// How a write ended; `None` when the next one's turn has come.
pub(super) struct Ended(Option<Written>);

type Written = (String, Result<Box<ConfigMap>, Failure>);

impl Claims {
    /// Nothing seen yet.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            shards: BTreeMap::new(),
            complete: false,
            asked: BTreeMap::new(),
            queue: Queue::default(),
            tasks: JoinSet::new(),
            told: BTreeMap::new(),
        }
    }

    /// Whether the record was seen whole: before that nobody has anything.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes in what the watch tells.
    pub(super) fn take_in(&mut self, told: Told) -> Vec<Change> {
        match told {
            Told::There(map) => self.see(&map),
            // Who deletes it frees no name: what it said holds, and is written again.
            Told::Gone(name) => {
                if let Some(gone) = self.shards.get_mut(&name) {
                    gone.version.clear();
                    self.queue.want(name, Instant::now());
                }
                Vec::new()
            }
            Told::Complete => {
                self.complete = true;
                Vec::new()
            }
        }
    }

    fn see(&mut self, map: &ConfigMap) -> Vec<Change> {
        let (name, version) = (map.name_any(), map.resource_version().unwrap_or_default());
        let before = self.shards.entry(name.clone()).or_default();
        if !newer(&version, &before.version) {
            return Vec::new();
        }
        before.version = version;
        let mut records = BTreeMap::new();
        for (key, value) in map.data.iter().flatten() {
            match parse(key, value) {
                Some((hostname, record)) => drop(records.insert(hostname, record)),
                None => {
                    warn!("configmap {name}: {key}: {value:?}: expected a number and a namespace; it is passed over")
                }
            }
        }
        let before = std::mem::replace(&mut before.records, records);
        let now = &self.shards[&name].records;
        let gone = before.keys().filter(|hostname| !now.contains_key(*hostname));
        let gone = gone.map(|hostname| Change::Recorded(hostname.clone(), None));
        let new = now.iter().filter(|(hostname, record)| before.get(*hostname) != Some(*record));
        let new = new.map(|(hostname, record)| Change::Recorded(hostname.clone(), Some(record.clone())));
        let changes = gone.chain(new).collect();
        self.want(name);
        changes
    }

    fn want(&mut self, shard: String) {
        if self.asked.contains_key(&shard) || self.is_lost(&shard) {
            self.queue.want(shard, Instant::now());
        }
    }

    /// Whether a ConfigMap was deleted that said something.
    fn is_lost(&self, shard: &str) -> bool {
        self.shards.get(shard).is_some_and(|shard| shard.version.is_empty() && !shard.records.is_empty())
    }

    /// Everything that is not as it should be is looked at: it was not ours to write until now.
    pub(super) fn look_at_everything(&mut self, tenancy: &Tenancy) {
        self.ask(tenancy.proposals().map(|(hostname, _)| hostname.clone()));
        for name in self.shards.keys().filter(|name| self.is_lost(name)).cloned().collect::<Vec<_>>() {
            self.queue.want(name, Instant::now());
        }
    }

    /// Something else is to be recorded of these hostnames.
    pub(super) fn ask(&mut self, hostnames: impl IntoIterator<Item = Hostname>) {
        for hostname in hostnames {
            let shard = shard(&hostname);
            self.asked.entry(shard.clone()).or_default().insert(hostname);
            self.queue.want(shard, Instant::now());
        }
    }

    /// Begins the writes whose turn has come; those of replicas that may not write are forgotten, and asked for again when
    /// they may.
    pub(super) fn write(&mut self, tenancy: &Tenancy, may_write: bool) {
        while self.tasks.len() < AT_ONCE
            && let Some(name) = self.queue.take(Instant::now())
        {
            let document = self.document(&name, tenancy).filter(|_| may_write);
            let Some(document) = document else {
                self.queue.done(&name);
                continue;
            };
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
            let there = self.shards.get(&name).is_some_and(|shard| !shard.version.is_empty());
            self.tasks.spawn(async move {
                let outcome = in_time(write(&api, &name, there, document)).await.map(Box::new);
                (name, outcome)
            });
        }
    }

    /// What is to be written to a ConfigMap; nothing where all that was asked for is settled.
    fn document(&mut self, name: &str, tenancy: &Tenancy) -> Option<Value> {
        let asked = self.asked.entry(name.to_owned()).or_default();
        asked.retain(|hostname| tenancy.proposal(hostname).is_some());
        if asked.is_empty() {
            self.asked.remove(name);
        }
        let there = self.shards.get(name);
        let lost = there.filter(|_| self.is_lost(name)).map(|shard| &shard.records);
        let held = lost.into_iter().flatten().map(|(hostname, record)| (key(hostname), json!(value(record))));
        let entry = |hostname: &Hostname| {
            let record = tenancy.proposal(hostname)?;
            // What is not there need not be taken away.
            let known = there.is_some_and(|shard| shard.records.contains_key(hostname));
            (record.is_some() || known).then(|| (key(hostname), json!(record.map(value))))
        };
        let asked = self.asked.get(name).into_iter().flatten();
        let data: serde_json::Map<String, Value> = held.chain(asked.filter_map(entry)).collect();
        let version = there.map(|shard| shard.version.clone()).filter(|version| !version.is_empty());
        (!data.is_empty()).then(|| json!({"metadata": {"resourceVersion": version}, "data": data}))
    }

    /// Waits until a write has ended, or the next one's turn has come.
    pub(super) async fn next(&mut self) -> Ended {
        let due = self.queue.next().filter(|_| self.tasks.len() < AT_ONCE);
        Ended(ended_or_due(&mut self.tasks, due).await)
    }

    /// Takes in how it ended.
    pub(super) fn take_ended(&mut self, ended: Ended) -> Vec<Change> {
        let Some((name, outcome)) = ended.0 else { return Vec::new() };
        match outcome {
            Ok(map) => {
                self.told.remove(&name);
                self.queue.done(&name);
                self.see(&map)
            }
            Err(failure) => {
                let text = failure.to_string();
                let usual = matches!(failure, Failure::Conflict | Failure::Gone);
                if !usual && self.told.insert(name.clone(), text.clone()).as_ref() != Some(&text) {
                    warn!(
                        "configmap {}/{name}: {text}; new hostnames have no owner until it is written",
                        self.namespace
                    );
                }
                self.queue.failed(&name, Instant::now(), |failures| failure.pause(failures));
                Vec::new()
            }
        }
    }

    /// Ends what is being written. Nothing more is begun.
    pub(super) async fn stop(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn write(api: &Api<ConfigMap>, name: &str, there: bool, mut document: Value) -> kube::Result<ConfigMap> {
    if there {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        return api.patch(name, &params, &Patch::Merge(document)).await;
    }
    document["metadata"] = json!({"name": name,
        "labels": {"app.kubernetes.io/managed-by": "gatewright", LABEL.0: LABEL.1}});
    let map: ConfigMap = serde_json::from_value(document).map_err(kube::Error::SerdeError)?;
    api.create(&PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }, &map).await
}

/// Watches the record until the receiver is gone.
pub async fn watch(client: Client, namespace: String, out: mpsc::Sender<Told>) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let config = Config::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    follow(api, config, "who claimed hostnames first", out, Some).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written_and_is_a_key_that_a_config_map_takes() {
        for name in ["a.example.org", "*.example.org", "xn--bcher-kva.example"] {
            let hostname = Hostname::parse(name).expect("a hostname");
            let record = Record { namespace: "tenant-a".into(), since: 42 };
            let key = key(&hostname);
            assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')), "{key}");
            assert_eq!(parse(&key, &value(&record)), Some((hostname, record)));
        }
        for (key, value) in [("a.example.org", "tenant-a"), ("a.example.org", "x tenant-a"), ("", "1 a"), ("_.", "1 a")]
        {
            assert_eq!(parse(key, value), None, "{key} {value}");
        }
    }
}
