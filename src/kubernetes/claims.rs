//! The persistent records of first claims: ConfigMaps that every replica watches and that only the lease holder writes.
//!
//! There are two records: the owner of each hostname among the tenants of TenantGateways, and the namespace that owns
//! hostnames, ports and the like on addresses of the shared fleet. Entries are sharded over ConfigMaps by their hash,
//! so that the write of a new entry is small however many there are. A write is conditional on the resource version
//! that it was decided upon.

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
use tracing::warn;

use super::FIELD_MANAGER;
use crate::format;
use crate::metrics::Writes;
use crate::watch::observed::newer;
use crate::watch::peers::{PeerEvent, follow};
use crate::write::failure::Failure;
use crate::write::request::{failed, in_time};
use crate::write::worker::Worker;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::pipeline::Pipeline;
use gatewright_core::tenancy::{self, Record};
use gatewright_core::translate::{self, Ownable, OwnerRecord};

/// The label of these ConfigMaps.
const LABEL: (&str, &str) = ("gatewright.io/keeps", "hostname-claims");
/// The name prefixes of the ConfigMaps: for tenants of TenantGateways, and for addresses.
const TENANTS: &str = "gatewright-claims-";
const ADDRESSES: &str = "gatewright-owners-";
/// The prefix that replaces `*.` in the key of a ConfigMap, where `*` is not allowed; no hostname has a `_`.
const WILDCARD: &str = "_.";
/// The maximum number of concurrent writes.
const AT_ONCE: usize = 4;

/// An event of the watch.
pub type ClaimEvent = PeerEvent<ConfigMap>;

/// The subject of an entry of the record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// A hostname, among the tenants of TenantGateways.
    Tenants(Hostname),
    /// Something that a namespace owns on addresses that namespaces share.
    Addresses(Ownable),
}

/// The recorded owner.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    Tenant(Record),
    Namespace(OwnerRecord),
}

/// A change of the record, for the stage that reads it.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "changes are few and short-lived")]
pub enum Recorded {
    /// A change for tenancy.
    Tenancy(tenancy::Change),
    /// A change for translation.
    Translation(translate::Change),
}

impl Entry {
    /// Returns the name of the ConfigMap that has the entry.
    fn shard(&self) -> String {
        let (prefix, key) = match self {
            Entry::Tenants(hostname) => (TENANTS, hostname.as_str().to_owned()),
            Entry::Addresses(what) => (ADDRESSES, what.to_string()),
        };
        format!("{prefix}{:02x}", Sha256::digest(key.as_bytes())[0])
    }

    fn key(&self) -> String {
        match self {
            Entry::Tenants(hostname) | Entry::Addresses(Ownable::Hostname(hostname)) => key(hostname),
            Entry::Addresses(Ownable::Port(port)) => format!("_port.{}", port.to_string().replace('/', ".")),
            Entry::Addresses(Ownable::Socket(ip, port)) => {
                format!("_socket.{}.{}", ip.to_string().replace(':', "_"), port.to_string().replace('/', "."))
            }
            // The text would be too long for a key, so the key is its digest; the value has the full text.
            Entry::Addresses(what @ (Ownable::Admitted(..) | Ownable::Secret(_))) => {
                let digest = Sha256::digest(what.to_string().as_bytes());
                format!("_at.{}", digest[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            }
        }
    }

    fn value(&self, owner: &Owner) -> String {
        match (self, owner) {
            (Entry::Addresses(what), Owner::Namespace(owner)) => what.line(Some(owner)),
            (_, Owner::Namespace(owner)) => format!("{} {}", owner.since, owner.namespace),
            (_, Owner::Tenant(Record { namespace, since, released: None })) => format!("{since} {namespace}"),
            (_, Owner::Tenant(Record { namespace, since, released: Some(released) })) => {
                format!("{since} {namespace} {released}")
            }
        }
    }

    /// Parses an entry of a ConfigMap; `None` where it is not ours.
    fn parse(shard: &str, key: &str, value: &str) -> Option<(Self, Owner)> {
        if shard.starts_with(ADDRESSES) {
            let (what, owner) = Ownable::parse(value).ok()?;
            let entry = Entry::Addresses(what);
            return (entry.key() == key && entry.shard() == shard).then_some((entry, Owner::Namespace(owner?)));
        }
        let hostname = match key.strip_prefix(WILDCARD) {
            Some(rest) => Hostname::parse(&format!("*.{rest}")),
            None => Hostname::parse(key),
        };
        let mut words = value.split(' ');
        let (since, namespace) = (words.next()?.parse().ok()?, Arc::from(words.next()?));
        let released = words.next().map(str::parse).transpose().ok()?;
        let record = Record { namespace, since, released };
        let hostname = hostname.ok().filter(|hostname| !hostname.is_any())?;
        Some((Entry::Tenants(hostname), Owner::Tenant(record)))
    }

    fn recorded(&self, owner: Option<&Owner>) -> Recorded {
        match self {
            Entry::Tenants(hostname) => {
                let record = match owner {
                    Some(Owner::Tenant(record)) => Some(record.clone()),
                    Some(Owner::Namespace(_)) | None => None,
                };
                Recorded::Tenancy(tenancy::Change::Fact(tenancy::Fact::Recorded(hostname.clone(), record)))
            }
            Entry::Addresses(what) => {
                let owner = match owner {
                    Some(Owner::Namespace(owner)) => Some(owner.clone()),
                    Some(Owner::Tenant(_)) | None => None,
                };
                Recorded::Translation(translate::Change::Fact(translate::Fact::Recorded(what.clone(), owner)))
            }
        }
    }

    /// Returns the owner that the entry should have (`Some(None)`: the entry is to be removed); `None` where the record
    /// is right.
    fn proposal(&self, pipeline: &Pipeline) -> Option<Option<Owner>> {
        match self {
            Entry::Tenants(hostname) => {
                pipeline.tenancy().proposal(hostname).map(|record| record.cloned().map(Owner::Tenant))
            }
            Entry::Addresses(what) => {
                pipeline.engine().record_proposal(what).map(|owner| owner.cloned().map(Owner::Namespace))
            }
        }
    }
}

/// The entries whose inputs are completely known. Others are not written, since unclaimed entries are removed from the
/// record.
#[derive(Clone, Copy, Debug)]
pub struct CompleteInputs {
    /// TenantGateways and all objects that refer to them are known.
    pub tenants: bool,
    /// Gateways, ListenerSets and their classes are known.
    pub addresses: bool,
    /// These, and routes, are known.
    pub routes: bool,
}

impl CompleteInputs {
    fn covers(self, entry: &Entry) -> bool {
        match entry {
            Entry::Tenants(_) => self.tenants,
            Entry::Addresses(Ownable::Admitted(..)) => self.routes,
            Entry::Addresses(_) => self.addresses,
        }
    }
}

fn key(hostname: &Hostname) -> String {
    match hostname.as_str().strip_prefix("*.") {
        Some(rest) => format!("{WILDCARD}{rest}"),
        None if hostname.is_any() => "_any".to_owned(),
        None => hostname.as_str().to_owned(),
    }
}

/// A ConfigMap of the record, as last seen.
#[derive(Debug, Default)]
struct Shard {
    version: String,
    records: BTreeMap<Entry, Owner>,
}

/// The record, with the queue of its writes.
pub struct Claims {
    client: Client,
    namespace: String,
    shards: BTreeMap<String, Shard>,
    synced: bool,
    /// The ConfigMaps that a newer version wrote, with the message about each: they are not read, and not written.
    newer: BTreeMap<String, String>,
    /// The entries to be written, by ConfigMap.
    asked: BTreeMap<String, BTreeSet<Entry>>,
    /// The entries that an operator releases, until they are removed from the record.
    released: BTreeSet<Entry>,
    worker: Worker<String, WriteOutcome>,
    logged: BTreeMap<String, String>,
}

/// The outcome of a write; `None` when a delayed retry is due.
pub(super) struct WorkerEvent(Option<WriteOutcome>);

type WriteOutcome = (String, Result<Box<ConfigMap>, Failure>);

impl Claims {
    /// Creates an empty record, before the first event.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            shards: BTreeMap::new(),
            synced: false,
            newer: BTreeMap::new(),
            asked: BTreeMap::new(),
            released: BTreeSet::new(),
            worker: Worker::new(AT_ONCE),
            logged: BTreeMap::new(),
        }
    }

    /// Returns why the record is not completely known: before that nothing has an owner.
    pub(super) fn pending(&self) -> Option<String> {
        match self.newer.values().next() {
            Some(text) => Some(text.clone()),
            None => (!self.synced).then(|| "who claimed hostnames first: not listed yet".to_owned()),
        }
    }

    /// Takes in an event of the watch.
    pub(super) fn take_in(&mut self, event: ClaimEvent) -> Vec<Recorded> {
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

    fn see(&mut self, map: &ConfigMap) -> Vec<Recorded> {
        let (name, version) = (map.name_any(), map.resource_version().unwrap_or_default());
        if let Err(newer) = format::check(&map.metadata) {
            let text = format!("configmap {}/{name}: {newer}", self.namespace);
            if self.newer.insert(name, text.clone()).as_ref() != Some(&text) {
                warn!("{text}");
            }
            return Vec::new();
        }
        self.newer.remove(&name);
        let before = self.shards.entry(name.clone()).or_default();
        if !newer(&version, &before.version) {
            return Vec::new();
        }
        before.version = version;
        let mut records = BTreeMap::new();
        for (key, value) in map.data.iter().flatten() {
            match Entry::parse(&name, key, value) {
                Some((entry, owner)) => drop(records.insert(entry, owner)),
                None => warn!("configmap {name}: {key}: {value:?}: expected a record of ownership; it is ignored"),
            }
        }
        let before = std::mem::replace(&mut before.records, records);
        let now = &self.shards[&name].records;
        let gone = before.keys().filter(|entry| !now.contains_key(*entry));
        let gone = gone.map(|entry| entry.recorded(None));
        let new = now.iter().filter(|(entry, owner)| before.get(*entry) != Some(*owner));
        let new = new.map(|(entry, owner)| entry.recorded(Some(owner)));
        let changes = gone.chain(new).collect();
        self.want(name);
        changes
    }

    fn want(&mut self, shard: String) {
        if self.asked.contains_key(&shard) || self.is_lost(&shard) {
            self.worker.want(shard, Instant::now());
        }
    }

    /// Returns whether a ConfigMap with entries was deleted.
    fn is_lost(&self, shard: &str) -> bool {
        self.shards.get(shard).is_some_and(|shard| shard.version.is_empty() && !shard.records.is_empty())
    }

    /// Queues every entry that differs from the record: other replicas wrote it until now.
    pub(super) fn enqueue_all(&mut self, pipeline: &Pipeline) {
        self.ask(pipeline.tenancy().proposals().map(|(hostname, _)| Entry::Tenants(hostname.clone())));
        self.ask(pipeline.engine().record_proposals().map(|(what, _)| Entry::Addresses(what.clone())));
        for name in self.shards.keys().filter(|name| self.is_lost(name)).cloned().collect::<Vec<_>>() {
            self.worker.want(name, Instant::now());
        }
    }

    /// Queues the writes of these entries, whose proposals have changed.
    pub(super) fn ask(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            let shard = entry.shard();
            self.asked.entry(shard.clone()).or_default().insert(entry);
            self.worker.want(shard, Instant::now());
        }
    }

    /// Queues the removal of an entry from the record, whatever its proposal is.
    pub(super) fn release(&mut self, entry: Entry) {
        self.worker.want(entry.shard(), Instant::now());
        self.released.insert(entry);
    }

    /// Starts the queued writes, up to the limit. Without permission to write they are dropped;
    /// [`Self::enqueue_all`] queues them again.
    pub(super) fn write(&mut self, pipeline: &Pipeline, may_write: bool, complete: CompleteInputs) {
        while let Some(name) = self.worker.take(Instant::now()) {
            let document = self.document(&name, pipeline, complete).filter(|_| may_write);
            let Some(document) = document else {
                self.worker.done(&name);
                continue;
            };
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
            let there = self.shards.get(&name).is_some_and(|shard| !shard.version.is_empty());
            let object = format!("configmap {}/{name}", self.namespace);
            self.worker.begin("owners", &object, async move {
                let outcome = in_time(write(&api, &name, there, document)).await.map(Box::new);
                (name, outcome)
            });
        }
    }

    /// Returns the patch of a ConfigMap; `None` where nothing is to be changed, or the inputs are not completely known.
    fn document(&mut self, name: &str, pipeline: &Pipeline, complete: CompleteInputs) -> Option<Value> {
        if self.newer.contains_key(name) {
            return None;
        }
        let asked = self.asked.entry(name.to_owned()).or_default();
        asked.retain(|entry| entry.proposal(pipeline).is_some());
        if asked.is_empty() {
            self.asked.remove(name);
        }
        let there = self.shards.get(name);
        let lost = there.filter(|_| self.is_lost(name)).map(|shard| &shard.records);
        let held = lost.into_iter().flatten().map(|(entry, owner)| (entry.key(), json!(entry.value(owner))));
        let line = |entry: &Entry| {
            let owner = entry.proposal(pipeline)?;
            // An absent entry need not be removed.
            let is_there = there.is_some_and(|shard| shard.records.contains_key(entry));
            (owner.is_some() || is_there).then(|| (entry.key(), json!(owner.map(|owner| entry.value(&owner)))))
        };
        let asked = self.asked.get(name).into_iter().flatten().filter(|entry| complete.covers(entry));
        let there_yet = |entry: &&Entry| there.is_some_and(|shard| shard.records.contains_key(*entry));
        self.released.retain(|entry| entry.shard() != name || there_yet(&entry));
        let released =
            self.released.iter().filter(|entry| entry.shard() == name).map(|entry| (entry.key(), Value::Null));
        let data: serde_json::Map<String, Value> = held.chain(asked.filter_map(line)).chain(released).collect();
        let version = there.map(|shard| shard.version.clone()).filter(|version| !version.is_empty());
        let annotations = json!({format::ANNOTATION: format::FORMAT.to_string()});
        let metadata = json!({"resourceVersion": version, "annotations": annotations});
        (!data.is_empty()).then(|| json!({"metadata": metadata, "data": data}))
    }

    /// Waits until a write has ended or a delayed retry is due.
    pub(super) async fn next(&mut self) -> WorkerEvent {
        WorkerEvent(self.worker.next().await)
    }

    /// Takes in the outcome of a write.
    pub(super) fn take_event(&mut self, event: WorkerEvent) -> Vec<Recorded> {
        let Some((name, outcome)) = event.0 else { return Vec::new() };
        match outcome {
            Ok(map) => {
                self.logged.remove(&name);
                self.worker.done(&name);
                self.see(&map)
            }
            Err(failure) => {
                let text = failure.to_string();
                let usual = matches!(failure, Failure::Conflict | Failure::Gone);
                if !usual && self.logged.insert(name.clone(), text.clone()).as_ref() != Some(&text) {
                    let object =
                        ObjectKey::new(Kind::ConfigMap, ObjectName::new(self.namespace.as_str(), name.as_str()));
                    let text = format!("{object}: {text}; new hostnames have no owner until it is written");
                    failed(&object, failure.class(), text);
                }
                self.worker.failed(&name, &failure, Instant::now());
                Vec::new()
            }
        }
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

async fn write(api: &Api<ConfigMap>, name: &str, there: bool, mut document: Value) -> kube::Result<ConfigMap> {
    if there {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        return api.patch(name, &params, &Patch::Merge(document)).await;
    }
    document["metadata"] = json!({"name": name, "annotations": document["metadata"]["annotations"],
        "labels": {"app.kubernetes.io/managed-by": "gatewright", LABEL.0: LABEL.1}});
    let map: ConfigMap = serde_json::from_value(document).map_err(kube::Error::SerdeError)?;
    api.create(&PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }, &map).await
}

/// Watches the record until the receiver is dropped.
pub async fn watch(client: Client, namespace: String, out: mpsc::Sender<ClaimEvent>) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let config = Config::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    follow(api, config, "who claimed hostnames first", out, Some).await;
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::{Transport, TransportPort};
    use gatewright_core::pipeline::Written;
    use gatewright_core::translate::ListenersOf;
    use hyper::{Request, Response};
    use kube::client::Body;

    use super::*;

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).expect("a hostname")
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_and_is_a_key_that_a_config_map_takes() {
        let tenants = ["a.example.org", "*.example.org", "xn--bcher-kva.example"].map(|name| {
            (
                Entry::Tenants(host(name)),
                Owner::Tenant(Record { namespace: "tenant-a".into(), since: 42, released: None }),
            )
        });
        let owner = |protocol, released| {
            Owner::Namespace(OwnerRecord { namespace: "tenant-a".into(), since: 42, protocol, released })
        };
        let dns = TransportPort { number: 53, transport: Transport::Udp };
        let at = |place: &str| Arc::new(ListenersOf { namespace: "infra".into(), place: place.into() });
        let addresses = [
            (Ownable::Hostname(host("a.example.org")), owner(None, None)),
            (Ownable::Hostname(host("*.example.org")), owner(None, Some(7))),
            (Ownable::Hostname(Hostname::any()), owner(None, None)),
            (Ownable::Port(TransportPort::tcp(8443)), owner(Some(translate::Family::Tls), None)),
            (Ownable::Port(dns), owner(Some(translate::Family::Udp), None)),
            (Ownable::Socket([127, 0, 0, 1].into(), dns), owner(None, None)),
            (Ownable::Socket([127, 0, 0, 1].into(), TransportPort::tcp(80)), owner(None, None)),
            (Ownable::Socket("::1".parse().expect("an address"), TransportPort::tcp(80)), owner(None, None)),
            (Ownable::Admitted(at("infra/edge"), host("a.example.org")), owner(None, Some(7))),
            (Ownable::Secret(host("a.example.org")), owner(None, None)),
            (Ownable::Admitted(at("shared"), Hostname::any()), owner(None, None)),
        ];
        let addresses = addresses.into_iter().map(|(what, owner)| (Entry::Addresses(what), owner));
        for (entry, owner) in tenants.into_iter().chain(addresses) {
            let (shard, key) = (entry.shard(), entry.key());
            assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')), "{key}");
            let value = entry.value(&owner);
            assert_eq!(Entry::parse(&shard, &key, &value), Some((entry, owner)), "{value}");
        }
        for (key, value) in [("a.example.org", "tenant-a"), ("a.example.org", "x tenant-a"), ("", "1 a"), ("_.", "1 a")]
        {
            assert_eq!(Entry::parse("gatewright-claims-00", key, value), None, "{key} {value}");
        }
        let line = Ownable::Port(TransportPort::tcp(81)).line(None);
        assert_eq!(Entry::parse("gatewright-owners-00", "_port.80", &line), None, "another key's");
    }

    #[tokio::test]
    async fn a_record_of_a_newer_version_is_neither_read_nor_written() {
        let nobody = |_: Request<Body>| std::future::pending::<Result<Response<Body>, std::convert::Infallible>>();
        let client = Client::new(tower::service_fn(nobody), "default");
        let mut claims = Claims::new(client, "gatewright-system");
        let entry = Entry::Tenants(host("a.example.org"));
        let map = |version: &str, format: &str, owner: &str| {
            let document = json!({"metadata": {"name": entry.shard(), "resourceVersion": version,
                "annotations": {format::ANNOTATION: format}}, "data": {"a.example.org": format!("42 {owner}")}});
            ClaimEvent::Applied(serde_json::from_value(document).expect("a ConfigMap"))
        };
        assert_eq!(claims.take_in(map("5", "1", "alice")).len(), 1);
        assert!(claims.take_in(ClaimEvent::Synced).is_empty() && claims.pending().is_none());
        assert!(claims.take_in(map("6", "2", "bob")).is_empty());
        let why = claims.pending().expect("it waits");
        assert!(why.contains(&entry.shard()) && why.contains("format 2"), "{why}");
        let complete = CompleteInputs { tenants: true, addresses: true, routes: true };
        claims.release(entry.clone());
        let pipeline = Pipeline::new(
            translate::Settings::new("c", Vec::new()),
            tenancy::Settings::default(),
            Written::ToTheCluster,
        );
        assert_eq!(claims.document(&entry.shard(), &pipeline, complete), None);
        assert_eq!(claims.take_in(map("7", "1", "bob")).len(), 1);
        assert!(claims.pending().is_none() && claims.document(&entry.shard(), &pipeline, complete).is_some());
    }
}
