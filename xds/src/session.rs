//! One stream: requests in, responses out. Pure; the server moves the bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource as Wire};
use envoy_types::pb::google::protobuf::Any;

use crate::cache::Shelf;
use crate::subscription::{Item, Subscription};
use crate::{Generation, Progress, ResourceType, View};

/// What a client may ask of us.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Names subscribed to by one stream and type.
    pub names: usize,
    /// Bytes of one request.
    pub message: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { names: 100_000, message: 16 << 20 }
    }
}

/// The state of one delta stream.
pub(crate) struct Session {
    view: View,
    node: Arc<str>,
    limits: Limits,
    subscriptions: BTreeMap<ResourceType, Subscription>,
    nonce: u64,
    seen: Generation,
}

type Shelves = BTreeMap<ResourceType, Shelf>;

impl Session {
    pub(crate) fn new(view: View, limits: Limits) -> Self {
        Self { view, node: Arc::from("unknown"), limits, subscriptions: BTreeMap::new(), nonce: 0, seen: 0 }
    }

    /// Takes a request. An error ends the stream.
    pub(crate) fn take(
        &mut self,
        request: DeltaDiscoveryRequest,
        now: Generation,
        shelves: &Shelves,
    ) -> Result<(), String> {
        if let Some(node) = &request.node {
            self.node = Arc::from(node.id.chars().take(128).collect::<String>());
        }
        let Some(kind) = ResourceType::of(&request.type_url) else {
            return Err(format!("type {:?} is not served", request.type_url));
        };
        let shelf = shelves.get(&kind);
        let first = !self.subscriptions.contains_key(&kind);
        let subscription = self.subscriptions.entry(kind).or_default();
        if subscription.names() + request.resource_names_subscribe.len() > self.limits.names {
            return Err(format!("more than {} names of one type", self.limits.names));
        }
        if first {
            let versions = request.initial_resource_versions;
            subscription.begin(kind, &request.resource_names_subscribe, versions, shelf, now);
        } else {
            subscription.subscribe(kind, &request.resource_names_subscribe, shelf, now);
        }
        subscription.unsubscribe(&request.resource_names_unsubscribe);
        if !request.response_nonce.is_empty() {
            let refusal = request.error_detail.as_ref().map(|status| status.message.as_str());
            subscription.answered(kind, &request.response_nonce, refusal);
        }
        Ok(())
    }

    /// Everything that can be sent now.
    ///
    /// Order ("Eventual consistency considerations"): clusters and endpoints, then scopes and routes, then listeners,
    /// each once what it refers to is acknowledged; removals the other way round. Secrets go any time.
    pub(crate) fn due(&mut self, now: Generation, shelves: &Shelves) -> Vec<DeltaDiscoveryResponse> {
        for (kind, subscription) in &mut self.subscriptions {
            subscription.look(shelves.get(kind), now);
        }
        self.seen = now;
        let mut responses = Vec::new();
        for kind in ResourceType::ALL {
            use ResourceType::{Cluster, Endpoints, Listener, Routes, Scope, Secret};
            let adding = |kinds: &[ResourceType]| {
                kinds.iter().any(|k| self.subscriptions.get(k).is_some_and(|s| s.adding(shelves.get(k))))
            };
            let busy = |kinds: &[ResourceType]| {
                kinds.iter().any(|k| self.subscriptions.get(k).is_some_and(Subscription::busy))
            };
            let (add, remove) = match kind {
                Cluster => (true, !busy(&[Scope, Routes, Listener])),
                Endpoints => (true, true),
                Secret => (true, !adding(&[Listener])),
                Scope | Routes => (!adding(&[Cluster]), !busy(&[Listener])),
                Listener => (!adding(&[Cluster, Scope]), true),
            };
            let nonce = (self.nonce + 1).to_string();
            let Some(subscription) = self.subscriptions.get_mut(&kind) else { continue };
            if let Some(items) = subscription.next(shelves.get(&kind), &nonce, add, remove) {
                self.nonce += 1;
                responses.push(response(kind, nonce, items));
            }
        }
        responses
    }

    pub(crate) fn progress(&self) -> Progress {
        let acknowledged = self.subscriptions.values().map(Subscription::acknowledged).min().unwrap_or(0);
        Progress {
            view: self.view.clone(),
            node: self.node.clone(),
            acknowledged: acknowledged.min(self.seen),
            rejections: self.subscriptions.values().flat_map(Subscription::rejections).cloned().collect(),
        }
    }
}

fn response(kind: ResourceType, nonce: String, items: Vec<Item>) -> DeltaDiscoveryResponse {
    let mut response = DeltaDiscoveryResponse { type_url: kind.url().to_owned(), nonce, ..Default::default() };
    for item in items {
        match item {
            Item::Removed(name) => response.removed_resources.push(name.to_string()),
            Item::Resource(resource) => response.resources.push(Wire {
                name: resource.name.to_string(),
                version: resource.version.to_string(),
                resource: Some(Any { type_url: kind.url().to_owned(), value: resource.body.to_vec() }),
                ..Default::default()
            }),
        }
    }
    response
}
