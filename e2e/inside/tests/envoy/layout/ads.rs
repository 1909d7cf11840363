//! A delta ADS server just large enough for these tests: it sends its resources and records
//! rejections.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Result, bail};
use envoy_types::pb::envoy::service::discovery::v3 as xds;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::google::protobuf::Any;
use futures::Stream;
use prost::{Message, Name};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// The order in which a change is sent.
const ORDER: [&str; 6] = [
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
    "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
    "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    "type.googleapis.com/envoy.config.listener.v3.Listener",
];

#[derive(Default)]
struct State {
    resources: BTreeMap<(String, String), (u64, Any)>,
    generation: u64,
    /// The newest generation that was sent, and the number of responses without an ACK.
    sent: u64,
    waiting: usize,
    refused: Vec<String>,
    asked: BTreeSet<(String, String)>,
}

/// The server, on a Unix socket in a directory of its own; stopped on drop.
pub(crate) struct Ads {
    dir: tempfile::TempDir,
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Ads {
    pub(crate) fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let listener = UnixListener::bind(dir.path().join("xds.sock"))?;
        let state = Arc::new(Mutex::new(State::default()));
        let changed = watch::Sender::new(0);
        let service = Service {
            state: state.clone(),
            changed: changed.clone(),
        };
        let task = tokio::spawn(async move {
            let server = tonic::transport::Server::builder()
                .add_service(AggregatedDiscoveryServiceServer::new(service));
            server
                .serve_with_incoming(UnixListenerStream::new(listener))
                .await
                .expect("the test's server serves");
        });
        Ok(Self {
            dir,
            state,
            changed,
            task,
        })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        Path::join(self.dir.path(), "xds.sock")
    }

    /// Adds or changes a resource; `push` sends it.
    pub(crate) fn set<M: Message + Name>(&self, name: &str, message: &M) {
        let any = Any {
            type_url: M::type_url(),
            value: message.encode_to_vec(),
        };
        let mut state = self.state();
        let version = state.generation + 1;
        state
            .resources
            .insert((M::type_url(), name.to_owned()), (version, any));
    }

    /// Sends the changes, and returns when all are acknowledged.
    pub(crate) async fn push(&self) -> Result<()> {
        let generation = {
            let mut state = self.state();
            state.generation += 1;
            state.generation
        };
        self.changed.send_replace(generation);
        self.acknowledged().await
    }

    /// Waits until nothing is unsent or unacknowledged.
    pub(crate) async fn acknowledged(&self) -> Result<()> {
        for _ in 0..24_000 {
            {
                let state = self.state();
                if !state.refused.is_empty() {
                    bail!("Envoy refused: {}", state.refused.join("\n"));
                }
                if state.sent == state.generation && state.waiting == 0 {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("not everything was acknowledged")
    }

    /// Returns true if Envoy ever subscribed to a resource of this name.
    pub(crate) fn was_asked<M: Name>(&self, name: &str) -> bool {
        self.state()
            .asked
            .contains(&(M::type_url(), name.to_owned()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no test panics while it holds the state")
    }
}

impl Drop for Ads {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Service {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Subscription {
    wildcard: bool,
    /// Subscribed names, each with true once it was answered.
    names: BTreeMap<String, bool>,
    sent: BTreeMap<String, u64>,
    answered: bool,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Answers<xds::DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<xds::DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        _: Request<Streaming<xds::DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("delta only"))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<xds::DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let mut requests = request.into_inner();
        let (answers, stream) = mpsc::channel(64);
        let state = self.state.clone();
        let mut changed = self.changed.subscribe();
        tokio::spawn(async move {
            let mut subscriptions: BTreeMap<String, Subscription> = BTreeMap::new();
            let mut nonce = 0;
            loop {
                tokio::select! {
                    request = requests.message() => match request {
                        Ok(Some(request)) => take(&state, &mut subscriptions, request),
                        _ => return,
                    },
                    Ok(()) = changed.changed() => {}
                }
                for response in due(&state, &mut subscriptions, &mut nonce) {
                    if answers.send(Ok(response)).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

fn take(
    state: &Mutex<State>,
    subscriptions: &mut BTreeMap<String, Subscription>,
    request: xds::DeltaDiscoveryRequest,
) {
    let mut state = state
        .lock()
        .expect("no test panics while it holds the state");
    let first = !subscriptions.contains_key(&request.type_url);
    let subscription = subscriptions.entry(request.type_url.clone()).or_default();
    subscription.wildcard |= first && request.resource_names_subscribe.is_empty();
    for name in request.resource_names_subscribe {
        state.asked.insert((request.type_url.clone(), name.clone()));
        subscription.wildcard |= name == "*";
        subscription.sent.remove(&name);
        subscription.names.insert(name, false);
    }
    for name in request.resource_names_unsubscribe {
        subscription.names.remove(&name);
        subscription.sent.remove(&name);
    }
    if !request.response_nonce.is_empty() {
        state.waiting = state.waiting.saturating_sub(1);
        if let Some(error) = request.error_detail {
            state.refused.push(error.message);
        }
    }
}

fn due(
    state: &Mutex<State>,
    subscriptions: &mut BTreeMap<String, Subscription>,
    nonce: &mut u64,
) -> Vec<xds::DeltaDiscoveryResponse> {
    let mut state = state
        .lock()
        .expect("no test panics while it holds the state");
    let mut responses = Vec::new();
    for type_url in ORDER {
        let Some(subscription) = subscriptions.get_mut(type_url) else {
            continue;
        };
        let mut resources = Vec::new();
        for ((of, name), (version, any)) in &state.resources {
            let wanted = subscription.wildcard || subscription.names.contains_key(name);
            if of == type_url && wanted && subscription.sent.get(name) != Some(version) {
                subscription.sent.insert(name.clone(), *version);
                let (name, version) = (name.clone(), version.to_string());
                resources.push(xds::Resource {
                    name,
                    version,
                    resource: Some(any.clone()),
                    ..Default::default()
                });
            }
        }
        let known = |name: &str| {
            state
                .resources
                .contains_key(&(type_url.to_owned(), name.to_owned()))
        };
        let mut removed = Vec::new();
        for (name, answered) in &mut subscription.names {
            if !std::mem::replace(answered, true) && !known(name) && name != "*" {
                removed.push(name.clone());
            }
        }
        let first = subscription.wildcard && !std::mem::replace(&mut subscription.answered, true);
        if resources.is_empty() && removed.is_empty() && !first {
            continue;
        }
        *nonce += 1;
        state.waiting += 1;
        responses.push(xds::DeltaDiscoveryResponse {
            type_url: type_url.to_owned(),
            nonce: nonce.to_string(),
            resources,
            removed_resources: removed,
            ..Default::default()
        });
    }
    state.sent = state.generation;
    responses
}
