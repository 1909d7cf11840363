//! Writes the Services of Gateways of the dedicated fleet, and what is behind them; takes back what is not wanted any
//! more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, GroupVersionKind, Patch, PatchParams, Preconditions};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tracing::warn;

use super::FIELD_MANAGER;
use super::exposure::{Step, steps};
use super::failure::Failure;
use super::queue::Queue;
use super::request::{NONE_YET, ended_or_due, in_time};
use super::seen::Seen;
use crate::inputs::{Kind, Object, ObjectKey};
use crate::model::ObjectName;
use crate::store::Store;
use crate::translate::ServiceIntent;

/// How many Gateways at the same time.
const AT_ONCE: usize = 4;

/// The Services that we made and are to make.
pub(super) struct Services {
    client: Client,
    intents: BTreeMap<ObjectName, ServiceIntent>,
    /// The Gateways by the Services that are wanted.
    wanted: BTreeMap<ObjectName, ObjectName>,
    /// The Services of ours that are there, with their Gateways and UIDs.
    ours: BTreeMap<ObjectName, (ObjectName, String)>,
    queue: Queue<ObjectName>,
    tasks: JoinSet<(ObjectName, Result<(), Failure>)>,
    told: BTreeMap<ObjectName, String>,
    writes: u64,
}

/// How work for one Gateway ended; `None` when the next one's turn has come.
pub(super) struct Ended(Option<(ObjectName, Result<(), Failure>)>);

impl Services {
    /// Nothing to write yet.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            intents: BTreeMap::new(),
            wanted: BTreeMap::new(),
            ours: BTreeMap::new(),
            queue: Queue::default(),
            tasks: JoinSet::new(),
            told: BTreeMap::new(),
            writes: 0,
        }
    }

    /// What Gateways are to have from now on.
    pub(super) fn take_in(&mut self, services: BTreeMap<ObjectName, Option<ServiceIntent>>) {
        for (gateway, intent) in services {
            if let Some(name) = intent.as_ref().and_then(ServiceIntent::name) {
                self.wanted.insert(name.clone(), gateway.clone());
            }
            let before = match intent {
                Some(intent) => self.intents.insert(gateway.clone(), intent),
                None => self.intents.remove(&gateway),
            };
            let (before, now) = (before.as_ref().and_then(ServiceIntent::name), self.intents.get(&gateway));
            if let Some(old) = before.filter(|old| now.and_then(ServiceIntent::name) != Some(*old)) {
                self.wanted.remove(old);
            }
            self.queue.want(gateway, Instant::now());
        }
    }

    /// Notes what a watch told of a Service or a slice.
    pub(super) fn see(&mut self, object: &Object) {
        match object {
            Object::Service(service) => {
                self.forget(&service.meta.name);
                if let Some(exposure) = &service.exposure {
                    let name = service.meta.name.clone();
                    self.ours.insert(name, (exposure.gateway.clone(), exposure.uid.clone()));
                    self.queue.want(exposure.gateway.clone(), Instant::now());
                }
            }
            Object::EndpointSlice(slice) => {
                if let Some(service) = &slice.service {
                    self.look_at(service);
                }
            }
            _ => {}
        }
    }

    /// Notes that a Service is gone.
    pub(super) fn forget(&mut self, service: &ObjectName) {
        self.look_at(service);
        self.ours.remove(service);
    }

    /// A slice is gone; it carries the name of its Service at its front.
    pub(super) fn forget_slice(&mut self, slice: &ObjectName) {
        if let Some((service, _)) = slice.name.rsplit_once("-v") {
            self.look_at(&ObjectName::new(slice.namespace.clone(), service));
        }
    }

    fn look_at(&mut self, service: &ObjectName) {
        if let Some(gateway) = self.wanted.get(service) {
            self.queue.want(gateway.clone(), Instant::now());
        }
    }

    /// Everything is to be compared once: we did not write until now.
    pub(super) fn look_at_everything(&mut self) {
        let all: BTreeSet<ObjectName> =
            self.intents.keys().chain(self.ours.values().map(|(gateway, _)| gateway)).cloned().collect();
        for gateway in all {
            self.queue.want(gateway, Instant::now());
        }
    }

    /// Begins what can be begun. `seen` has the UIDs of the Gateways that are there.
    pub(super) fn write(&mut self, store: &Store, seen: &BTreeMap<ObjectKey, Box<Seen>>, may_write: bool) {
        let uid = |gateway: &ObjectName| {
            seen.get(&ObjectKey::new(Kind::Gateway, gateway.clone())).map(|seen| seen.uid.clone())
        };
        while self.tasks.len() < AT_ONCE
            && let Some(gateway) = self.queue.take(Instant::now())
        {
            let work = if may_write { self.work(store, &gateway, uid(&gateway)) } else { Vec::new() };
            if work.is_empty() {
                self.queue.done(&gateway);
                continue;
            }
            self.writes += work.len() as u64;
            let client = self.client.clone();
            self.tasks.spawn(async move {
                for step in work {
                    if let Err(failure) = in_time(step.run(&client)).await {
                        return (gateway, Err(failure));
                    }
                }
                (gateway, Ok(()))
            });
        }
    }

    fn work(&self, store: &Store, gateway: &ObjectName, uid: Option<Box<str>>) -> Vec<Work> {
        let intent = self.intents.get(gateway);
        let mut work = Vec::new();
        if let (Some(ServiceIntent::Wanted(wish)), Some(uid)) = (intent, uid) {
            let slices = store.slices(&wish.name).map(|slice| (slice.meta.name.clone(), slice.as_ref())).collect();
            let service = store.service(&wish.name).map(AsRef::as_ref);
            work.extend(steps(wish, &uid, service, &slices).into_iter().map(Work::Write));
        }
        if !matches!(intent, Some(ServiceIntent::Left)) {
            let wanted = intent.and_then(ServiceIntent::name);
            // They are in the Gateway's own namespace.
            let start = ObjectName::new(gateway.namespace.clone(), "");
            let near = self.ours.range(start..).take_while(|(name, _)| name.namespace == gateway.namespace);
            for (name, (_, uid)) in near.filter(|(name, (of, _))| of == gateway && Some(*name) != wanted) {
                let slices = store.slices(name).filter(|slice| slice.meta.name.name.starts_with(&*name.name));
                work.extend(slices.map(|slice| Work::DeleteSlice(slice.meta.name.clone())));
                work.push(Work::Delete(name.clone(), uid.clone()));
            }
        }
        work
    }

    /// Waits until something has ended, or the next Gateway's turn has come.
    pub(super) async fn next(&mut self) -> Ended {
        let due = self.queue.next().filter(|_| self.tasks.len() < AT_ONCE);
        Ended(ended_or_due(&mut self.tasks, due).await)
    }

    /// Takes in how it ended.
    pub(super) fn take_ended(&mut self, ended: Ended) {
        let Some((gateway, outcome)) = ended.0 else { return };
        match outcome {
            Ok(()) => {
                self.told.remove(&gateway);
                self.queue.done(&gateway);
            }
            Err(failure) => {
                let text = failure.to_string();
                let usual = matches!(failure, Failure::Conflict | Failure::Gone);
                if !usual && self.told.insert(gateway.clone(), text.clone()).as_ref() != Some(&text) {
                    warn!("the Service of gateway {gateway}: {text}");
                }
                self.queue.failed(&gateway, Instant::now(), |failures| failure.pause(failures));
            }
        }
    }

    /// How many Services and slices were written.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// Ends what is being written. Nothing more is begun.
    pub(super) async fn stop(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// One request.
enum Work {
    Write(Step),
    Delete(ObjectName, String),
    DeleteSlice(ObjectName),
}

impl Work {
    async fn run(self, client: &Client) -> kube::Result<()> {
        match self {
            Work::Write(Step::Create(mut document)) => {
                document["metadata"]["resourceVersion"] = json!(NONE_YET);
                apply(client, document).await
            }
            Work::Write(Step::Apply(document)) => apply(client, document).await,
            Work::Delete(name, uid) => {
                let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
                let params = DeleteParams { preconditions, ..DeleteParams::default() };
                delete(&api(client, "", "Service", &name.namespace), &name, &params).await
            }
            Work::DeleteSlice(name) => {
                let slices = api(client, "discovery.k8s.io", "EndpointSlice", &name.namespace);
                delete(&slices, &name, &DeleteParams::default()).await
            }
        }
    }
}

async fn apply(client: &Client, document: Value) -> kube::Result<()> {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let version = text("/apiVersion");
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let api = api(client, group, &text("/kind"), &text("/metadata/namespace"));
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&text("/metadata/name"), &params, &Patch::Apply(&document)).await.map(drop)
}

async fn delete(api: &Api<DynamicObject>, name: &ObjectName, params: &DeleteParams) -> kube::Result<()> {
    match api.delete(&name.name, params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

fn api(client: &Client, group: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}
