//! The persistent records of first claims: ConfigMaps that every replica watches and that only the
//! lease holder writes.
//!
//! Entries are divided by their hash over ConfigMaps (`shards.rs`), so that the write of a new entry
//! is small however many there are. A write is conditional on the resource version that it was
//! decided upon. An entry that the API server refuses holds up no other (`refusals.rs`).

mod entry;
mod refusals;
mod shards;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::warn;

pub use self::entry::CompleteInputs;
use self::refusals::{Refusals, Waiting};
use self::shards::Shards;
use super::FIELD_MANAGER;
use crate::format;
use crate::metrics::Writes;
use crate::watch::observed::newer;
use crate::watch::peers::{PeerEvent, follow};
use crate::write::failure::Failure;
use crate::write::request::{failed, in_time};
use crate::write::worker::Worker;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::ownership::{Ownable, OwnerRecord};
use gatewright_core::pipeline::Pipeline;
use gatewright_core::translate::{Change, Fact};

/// The label of these ConfigMaps.
const LABEL: (&str, &str) = ("gatewright.io/keeps", "hostname-claims");
/// The annotation of a ConfigMap that is split.
const SPLIT: &str = "gatewright.io/split";
/// The maximum number of concurrent writes.
const AT_ONCE: usize = 4;
/// The shortest pause before refused entries are tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// An event of the watch.
pub type ClaimEvent = PeerEvent<ConfigMap>;

/// The record, with the queue of its writes.
pub struct Claims {
    client: Client,
    namespace: String,
    shards: Shards,
    synced: bool,
    /// The ConfigMaps that a newer version wrote, with the message about each: they are not read,
    /// and not written.
    newer: BTreeMap<String, String>,
    /// The entries to be written, by ConfigMap.
    asked: BTreeMap<String, BTreeSet<Ownable>>,
    /// The entries that an operator releases, until they are removed from the record.
    released: BTreeSet<Ownable>,
    /// The refused writes, by ConfigMap.
    refusals: BTreeMap<String, Refusals>,
    worker: Worker<String, WriteOutcome>,
    logged: BTreeMap<String, String>,
}

/// The outcome of a write; `None` when a delayed retry is due.
pub(super) struct WorkerEvent(Option<WriteOutcome>);

struct WriteOutcome {
    name: String,
    /// The entries that the write has.
    batch: Vec<Waiting>,
    answer: Result<Answer, Failure>,
}

/// The ConfigMap after a write.
enum Answer {
    Written(Box<ConfigMap>),
    /// Another one than the write was decided upon. Nothing was written.
    Found(Box<ConfigMap>),
}

/// The patch of a ConfigMap, and the entries in it.
#[derive(Debug, PartialEq)]
struct Write {
    document: Value,
    batch: Vec<Waiting>,
}

impl Claims {
    /// Creates an empty record, before the first event.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            shards: Shards::default(),
            synced: false,
            newer: BTreeMap::new(),
            asked: BTreeMap::new(),
            released: BTreeSet::new(),
            refusals: BTreeMap::new(),
            worker: Worker::new(AT_ONCE),
            logged: BTreeMap::new(),
        }
    }

    /// Returns why the record is not completely known: before that nothing has an owner.
    pub(super) fn pending(&self) -> Option<String> {
        match self.newer.values().next() {
            Some(text) => Some(text.clone()),
            None => {
                (!self.synced).then(|| "who claimed hostnames first: not listed yet".to_owned())
            }
        }
    }

    /// Takes in an event of the watch.
    pub(super) fn take_in(&mut self, event: ClaimEvent) -> Vec<Change> {
        match event {
            ClaimEvent::Applied(map) => self.see(&map),
            // Deleting a ConfigMap does not release its entries: they are kept and written again.
            ClaimEvent::Deleted(name) => {
                if let Some(gone) = self.shards.get_mut(&name) {
                    gone.version.clear();
                    self.worker.want(name, Instant::now());
                }
                Vec::new()
            }
            ClaimEvent::Synced => {
                self.synced = true;
                Vec::new()
            }
        }
    }

    fn see(&mut self, map: &ConfigMap) -> Vec<Change> {
        let version = map.resource_version().unwrap_or_default();
        let known = self
            .shards
            .get(&map.name_any())
            .map(|shard| shard.version.as_str());
        if newer(&version, known.unwrap_or_default()) {
            self.replace(map)
        } else {
            Vec::new()
        }
    }

    /// Takes a ConfigMap for the present one, whatever its version.
    fn replace(&mut self, map: &ConfigMap) -> Vec<Change> {
        let name = map.name_any();
        if let Err(newer) = format::check(&map.metadata) {
            let text = format!("configmap {}/{name}: {newer}", self.namespace);
            if self.newer.insert(name, text.clone()).as_ref() != Some(&text) {
                warn!("{text}");
            }
            return Vec::new();
        }
        self.newer.remove(&name);
        let mut records = BTreeMap::new();
        for (key, value) in map.data.iter().flatten() {
            match entry::parse(&name, key, value) {
                Some((what, owner)) => {
                    records.insert(what, owner);
                }
                None => warn!(
                    "configmap {name}: {key}: {value:?}: expected a record of ownership; it is ignored"
                ),
            }
        }
        let shard = self.shards.entry(&name);
        shard.version = map.resource_version().unwrap_or_default();
        shard.is_split = map.annotations().contains_key(SPLIT);
        let before = std::mem::replace(&mut shard.records, records);
        let now = &self.shards.entry(&name).records;
        let gone = before.keys().filter(|entry| !now.contains_key(*entry));
        let new = now
            .iter()
            .filter(|(entry, owner)| before.get(*entry) != Some(*owner))
            .map(|(entry, _)| entry);
        let changed: Vec<Ownable> = gone.chain(new).cloned().collect();
        self.want(name);
        changed
            .into_iter()
            .map(|what| {
                let owner = self.shards.owner(&what).cloned();
                Change::Fact(Fact::Recorded(what, owner))
            })
            .collect()
    }

    fn want(&mut self, shard: String) {
        if self.asked.contains_key(&shard) || self.is_lost(&shard) {
            self.worker.want(shard, Instant::now());
        }
    }

    fn is_lost(&self, name: &str) -> bool {
        self.shards.get(name).is_some_and(|shard| shard.is_lost())
    }

    /// Queues every entry that differs from the record: other replicas wrote it until now.
    pub(super) fn enqueue_all(&mut self, pipeline: &Pipeline) {
        self.ask(pipeline.proposed().cloned());
        for name in self.shards.lost() {
            self.worker.want(name.clone(), Instant::now());
        }
    }

    /// Queues the writes of these entries, whose proposals have changed.
    pub(super) fn ask(&mut self, entries: impl IntoIterator<Item = Ownable>) {
        for entry in entries {
            let name = self.shards.place(&entry);
            self.asked.entry(name.clone()).or_default().insert(entry);
            self.worker.want(name, Instant::now());
        }
    }

    /// Queues the removal of an entry from the record, whatever its proposal is.
    pub(super) fn release(&mut self, entry: Ownable) {
        self.worker.want(self.shards.place(&entry), Instant::now());
        self.released.insert(entry);
    }

    /// Returns whether the record has begun where an entry belongs. An entry that is missing there
    /// is new: nothing was served for it before.
    pub(super) fn has_begun(&self, entry: &Ownable) -> bool {
        self.shards.has_begun(entry)
    }

    /// Returns whether the API server refused to record an entry.
    pub(super) fn is_refused(&self, entry: &Ownable) -> bool {
        let refusals = self.refusals.get(&self.shards.place(entry));
        refusals.is_some_and(|refusals| refusals.why(entry).is_some())
    }

    /// Returns the number of entries that the API server refused to record.
    pub(super) fn refused(&self) -> usize {
        self.refusals.values().map(Refusals::len).sum()
    }

    /// Returns a message about entries that the API server refused to record.
    pub(super) fn trouble(&self) -> Option<String> {
        let (name, _) = self
            .refusals
            .iter()
            .find(|(_, refusals)| refusals.len() > 0)?;
        let object = format!("configmap {}/{name}", self.namespace);
        let count = self.refused();
        let text = self
            .logged
            .get(name)
            .map(String::as_str)
            .unwrap_or_default();
        Some(format!(
            "{count} hostnames or ports have no owner and are not served: {object} cannot be written: {text}"
        ))
    }

    /// Starts the queued writes, up to the limit. Without permission to write they are dropped;
    /// [`Self::enqueue_all`] queues them again.
    pub(super) fn write(&mut self, pipeline: &Pipeline, may_write: bool, complete: CompleteInputs) {
        let now = Instant::now();
        while let Some(name) = self.worker.take(now) {
            let write = self
                .next_write(&name, pipeline, complete, now)
                .filter(|_| may_write);
            let Some(Write { document, batch }) = write else {
                self.worker.done(&name);
                if let Some(again) = self
                    .refusals
                    .get(&name)
                    .and_then(Refusals::next)
                    .filter(|_| may_write)
                {
                    self.worker.want(name, again.max(now + AGAIN));
                }
                continue;
            };
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
            let exists = self.shards.get(&name).is_some_and(|shard| shard.exists());
            let object = format!("configmap {}/{name}", self.namespace);
            self.worker.begin("owners", &object, async move {
                let answer = in_time(write_or_read(&api, &name, exists, document)).await;
                WriteOutcome {
                    name,
                    batch,
                    answer,
                }
            });
        }
    }

    /// Returns the next write of a ConfigMap; `None` where nothing is to be changed now, or the
    /// inputs are not completely known.
    fn next_write(
        &mut self,
        name: &str,
        pipeline: &Pipeline,
        complete: CompleteInputs,
        now: Instant,
    ) -> Option<Write> {
        if self.newer.contains_key(name) {
            return None;
        }
        self.forget_written(name, pipeline);
        let shard = self.shards.get(name);
        let lost = shard
            .filter(|shard| shard.is_lost())
            .map(|shard| &shard.records);
        let mut data: serde_json::Map<String, Value> = lost
            .into_iter()
            .flatten()
            .map(|(what, owner)| (entry::key(what), text(what, Some(owner))))
            .collect();
        let waiting = self
            .asked
            .get(name)
            .into_iter()
            .flatten()
            .filter(|entry| complete.covers(entry));
        let mut waiting = waiting
            .filter_map(|entry| self.waiting(entry, pipeline))
            .peekable();
        let splits = waiting.peek().is_some()
            && shard.is_some_and(|shard| shard.is_full() && !shard.is_split);
        // The write that splits has no new entry: these belong into other ConfigMaps afterwards.
        let waiting = waiting.filter(|(_, entry)| !splits || has(entry, &shard));
        let none = Refusals::default();
        let batch = self
            .refusals
            .get(name)
            .unwrap_or(&none)
            .choose(waiting, now);
        for (_, what) in &batch {
            let owner = pipeline.proposal(what).flatten();
            data.insert(entry::key(what), text(what, owner));
        }
        let released = self.released.iter().filter(|entry| has(entry, &shard));
        data.extend(released.map(|what| (entry::key(what), Value::Null)));
        let version = shard
            .filter(|shard| shard.exists())
            .map(|shard| &shard.version);
        if version.is_none() {
            data.retain(|_, value| !value.is_null());
        }
        if data.is_empty() && !splits {
            return None;
        }
        let mut annotations = json!({format::ANNOTATION: format::FORMAT.to_string()});
        if splits || shard.is_some_and(|shard| shard.is_split) {
            annotations[SPLIT] = json!("true");
        }
        let metadata = json!({"resourceVersion": version, "annotations": annotations});
        Some(Write {
            document: json!({"metadata": metadata, "data": data}),
            batch,
        })
    }

    /// Returns an entry that differs from the record with the namespace that it is for. An absent
    /// entry need not be removed.
    fn waiting(&self, entry: &Ownable, pipeline: &Pipeline) -> Option<Waiting> {
        let proposal = pipeline.proposal(entry)?;
        let recorded = self.shards.owner(entry);
        // A record that was written may not be applied yet.
        let owner = proposal.or(recorded).filter(|_| proposal != recorded)?;
        Some((owner.namespace.to_string(), entry.clone()))
    }

    /// Forgets the entries of a ConfigMap that are as they should be, and moves those that belong
    /// into another one since it was split.
    fn forget_written(&mut self, name: &str, pipeline: &Pipeline) {
        let mut asked = self.asked.remove(name).unwrap_or_default();
        asked.retain(|entry| pipeline.proposal(entry).is_some());
        let (here, elsewhere): (BTreeSet<Ownable>, BTreeSet<Ownable>) = asked
            .into_iter()
            .partition(|entry| self.shards.place(entry) == name);
        self.ask(elsewhere);
        self.released
            .retain(|entry| self.shards.owner(entry).is_some());
        if let Some(refusals) = self.refusals.get_mut(name) {
            refusals.retain(|entry| here.contains(entry));
            if here.is_empty() {
                self.refusals.remove(name);
            }
        }
        if !here.is_empty() {
            self.asked.insert(name.to_owned(), here);
        }
    }

    /// Returns whether a write of the record is running.
    pub(super) fn is_writing(&self) -> bool {
        !self.worker.is_idle()
    }

    /// Waits until a write has ended or a delayed retry is due.
    pub(super) async fn next(&mut self) -> WorkerEvent {
        WorkerEvent(self.worker.next().await)
    }

    /// Takes in the outcome of a write.
    pub(super) fn take_event(&mut self, event: WorkerEvent, pipeline: &Pipeline) -> Vec<Change> {
        let Some(WriteOutcome {
            name,
            batch,
            answer,
        }) = event.0
        else {
            return Vec::new();
        };
        match answer {
            Ok(Answer::Written(map)) => {
                self.logged.remove(&name);
                self.worker.done(&name);
                if let Some(refusals) = self.refusals.get_mut(&name) {
                    refusals.written(&batch);
                }
                self.see(&map)
            }
            Ok(Answer::Found(map)) => {
                self.worker
                    .failed(&name, &Failure::Conflict, Instant::now());
                self.replace(&map)
            }
            Err(failure) => {
                self.take_failure(name, &batch, &failure, pipeline);
                Vec::new()
            }
        }
    }

    fn take_failure(
        &mut self,
        name: String,
        batch: &[Waiting],
        failure: &Failure,
        pipeline: &Pipeline,
    ) {
        let text = failure.to_string();
        let is_gone = matches!(failure, Failure::Gone);
        if !is_gone && self.logged.insert(name.clone(), text.clone()).as_ref() != Some(&text) {
            let object = ObjectKey::new(
                Kind::ConfigMap,
                ObjectName::new(self.namespace.as_str(), name.as_str()),
            );
            let text = format!("{object}: {text}; new hostnames have no owner until it is written");
            failed(&object, failure.class(), text);
        }
        if batch.is_empty() || !matches!(failure, Failure::Refused(_) | Failure::Forbidden(_)) {
            self.worker.failed(&name, failure, Instant::now());
            return;
        }
        let asked = self.asked.get(&name).into_iter().flatten();
        let waiting: Vec<Waiting> = asked
            .filter_map(|entry| self.waiting(entry, pipeline))
            .collect();
        self.refusals.entry(name.clone()).or_default().refused(
            batch,
            &waiting,
            &text,
            Instant::now(),
        );
        // The next write has other entries, so it need not wait.
        self.worker.count_failure(failure);
        self.worker.done(&name);
        self.worker.want(name, Instant::now());
    }

    /// Returns the number of writes that were started, and of failures by class.
    pub(super) fn metrics(&self) -> Writes {
        self.worker.metrics()
    }

    /// Waits for the writes in progress, and starts no more.
    pub(super) async fn stop(self) {
        self.worker.finish().await;
    }
}

/// Returns the value of an entry; null where it is to be removed.
fn text(what: &Ownable, owner: Option<&OwnerRecord>) -> Value {
    json!(owner.map(|owner| what.line(Some(owner))))
}

fn has(entry: &Ownable, shard: &Option<&shards::Shard>) -> bool {
    shard.is_some_and(|shard| shard.records.contains_key(entry))
}

/// Writes a ConfigMap. Where another version than that of the document exists, it is read: a watch
/// may never bring it, if a restored API server counts versions anew.
async fn write_or_read(
    api: &Api<ConfigMap>,
    name: &str,
    exists: bool,
    document: Value,
) -> kube::Result<Answer> {
    match write(api, name, exists, document).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            api.get(name).await.map(Box::new).map(Answer::Found)
        }
        written => written.map(Box::new).map(Answer::Written),
    }
}

async fn write(
    api: &Api<ConfigMap>,
    name: &str,
    exists: bool,
    mut document: Value,
) -> kube::Result<ConfigMap> {
    if exists {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        return api.patch(name, &params, &Patch::Merge(document)).await;
    }
    document["metadata"] = json!({"name": name, "annotations": document["metadata"]["annotations"],
        "labels": {"app.kubernetes.io/managed-by": "gatewright", LABEL.0: LABEL.1}});
    let map: ConfigMap = serde_json::from_value(document).map_err(kube::Error::SerdeError)?;
    api.create(
        &PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        },
        &map,
    )
    .await
}

/// Returns the label selector of the record.
pub(super) fn selector() -> String {
    format!("{}={}", LABEL.0, LABEL.1)
}

/// Watches the record until the receiver is dropped.
pub async fn watch(client: Client, namespace: String, out: mpsc::Sender<ClaimEvent>) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let config = Config::default().labels(&selector());
    follow(api, config, "who claimed hostnames first", out, Some).await;
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::Hostname;
    use gatewright_core::pipeline::Written;
    use gatewright_core::{tenancy, translate};
    use hyper::Response;
    use kube::client::Body;

    use super::*;

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).expect("a hostname")
    }

    /// A record of an API server that never answers.
    fn claims() -> Claims {
        Claims::new(
            Client::new(
                tower::service_fn(|_| {
                    std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
                }),
                "default",
            ),
            "gatewright-system",
        )
    }

    fn pipeline() -> Pipeline {
        let settings = translate::Settings::new("c", Vec::new());
        Pipeline::new(
            settings,
            tenancy::Settings::default(),
            Written::ToTheCluster,
        )
    }

    #[tokio::test]
    async fn a_record_of_a_newer_version_is_neither_read_nor_written() {
        let mut claims = claims();
        let entry = Ownable::Hostname(host("a.example.org"));
        let place = entry::path(&entry).next().expect("a name");
        let map = |version: &str, format: &str, owner: &str| {
            let line = json!({"hostname": "a.example.org", "namespace": owner, "since": 42});
            let document = json!({"metadata": {"name": &place, "resourceVersion": version,
                "annotations": {format::ANNOTATION: format}}, "data": {"a.example.org": line.to_string()}});
            ClaimEvent::Applied(serde_json::from_value(document).expect("a ConfigMap"))
        };
        assert_eq!(claims.take_in(map("5", "1", "alice")).len(), 1);
        assert!(claims.take_in(ClaimEvent::Synced).is_empty() && claims.pending().is_none());
        assert!(claims.take_in(map("6", "2", "bob")).is_empty());
        let why = claims.pending().expect("it waits");
        assert!(why.contains(&place) && why.contains("format 2"), "{why}");
        let complete = CompleteInputs {
            tenants: true,
            addresses: true,
            routes: true,
        };
        claims.release(entry.clone());
        let pipeline = pipeline();
        assert_eq!(
            claims.next_write(&place, &pipeline, complete, Instant::now()),
            None
        );
        assert_eq!(claims.take_in(map("7", "1", "bob")).len(), 1);
        assert!(
            claims.pending().is_none()
                && claims
                    .next_write(&place, &pipeline, complete, Instant::now())
                    .is_some()
        );
    }
}
