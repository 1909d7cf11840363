//! An xDS client without a data plane: speaks delta or state-of-the-world ADS, keeps the resources,
//! acknowledges or refuses as the test decides, and counts.
//!
//! It uses the generated messages and clients of `envoy-types`, not the server's own wire types.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::rpc::Status as ErrorDetail;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Status, Streaming};

/// The type URL of the resources of CDS.
pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Those of EDS.
pub const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Those of RDS.
pub const ROUTE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// Those of SRDS.
pub const SCOPE: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
/// Those of LDS.
pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Those of SDS.
pub const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// All types of which a server may send resources.
const TYPES: [&str; 9] = [
    CLUSTER,
    ENDPOINTS,
    ROUTE,
    SCOPE,
    LISTENER,
    SECRET,
    "type.googleapis.com/envoy.config.route.v3.VirtualHost",
    "type.googleapis.com/envoy.service.runtime.v3.Runtime",
    "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
];

/// Returns the type of a response.
fn known(type_url: &str) -> Result<&'static str, Status> {
    TYPES
        .into_iter()
        .find(|known| *known == type_url)
        .ok_or_else(|| Status::internal(format!("unknown type {type_url}")))
}

/// Connects to an xDS server on a Unix socket.
pub async fn unix_channel(path: impl Into<PathBuf>) -> Result<Channel, tonic::transport::Error> {
    let path = path.into();
    Endpoint::from_static("http://xds.invalid")
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move {
                Ok::<_, std::io::Error>(TokioIo::new(tokio::net::UnixStream::connect(path).await?))
            }
        }))
        .await
}

/// The resources and counters of a client, of one type.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Version by name.
    pub versions: BTreeMap<String, String>,
    /// Encoded message by name.
    pub bodies: BTreeMap<String, Vec<u8>>,
    /// Names that the server reported as not existing.
    pub absent: BTreeSet<String>,
    /// Responses received.
    pub responses: usize,
    /// Resources received.
    pub resources: usize,
    /// Bytes of the resources received.
    pub bytes: usize,
    /// Responses refused.
    pub nacks: usize,
}

/// Decides on a resource of a response, by its type, name and body: Err refuses it.
pub type Judge = Box<dyn Fn(&str, &str, &[u8]) -> Result<(), String> + Send>;

/// A delta ADS client.
pub struct DeltaClient {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
    node: Option<Node>,
    held: HashMap<&'static str, Held>,
    judge: Option<Judge>,
    /// True to apply the accepted resources of a refused response, as Envoy does with clusters and
    /// listeners.
    pub partial: bool,
    counting: bool,
}

impl DeltaClient {
    /// Opens a stream as `node`.
    pub async fn open(channel: Channel, node: &str) -> Result<DeltaClient, Status> {
        let node = Node {
            id: node.to_owned(),
            ..Default::default()
        };
        DeltaClient::start(channel, Some(node), None).await
    }

    /// Opens a stream as `node` with a wildcard subscription to `kind`, for servers that send
    /// nothing, not even headers, before the first request.
    pub async fn open_with(
        channel: Channel,
        node: &str,
        kind: &'static str,
    ) -> Result<DeltaClient, Status> {
        let node = Node {
            id: node.to_owned(),
            ..Default::default()
        };
        let first = DeltaDiscoveryRequest {
            node: Some(node),
            type_url: kind.to_owned(),
            ..Default::default()
        };
        DeltaClient::start(channel, None, Some(first)).await
    }

    async fn start(
        channel: Channel,
        node: Option<Node>,
        first: Option<DeltaDiscoveryRequest>,
    ) -> Result<DeltaClient, Status> {
        let (requests, outgoing) = mpsc::channel(1024);
        if let Some(first) = first {
            requests.try_send(first).expect("the channel is new");
        }
        let mut client =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(64 << 20);
        let responses = client
            .delta_aggregated_resources(ReceiverStream::new(outgoing))
            .await?
            .into_inner();
        Ok(DeltaClient {
            requests,
            responses,
            node,
            held: HashMap::new(),
            judge: None,
            partial: false,
            counting: false,
        })
    }

    /// Sets the judge: responses with a resource that it refuses are refused.
    pub fn judge(&mut self, judge: Judge) {
        self.judge = Some(judge);
    }

    /// Returns the client's resources of `kind`.
    pub fn held(&self, kind: &str) -> Held {
        self.held.get(kind).cloned().unwrap_or_default()
    }

    /// Keeps counts only, for loads with many clients in one process.
    pub fn forget_bodies(&mut self) {
        self.counting = true;
    }

    /// Returns the number of received resources of `kind`.
    pub fn counted(&self, kind: &str) -> usize {
        self.held.get(kind).map_or(0, |held| held.resources)
    }

    /// Starts with the resources of an earlier stream, like a client that reconnects.
    pub fn inherit(&mut self, earlier: &HashMap<&'static str, Held>) {
        for (kind, held) in earlier {
            let held = Held {
                versions: held.versions.clone(),
                bodies: held.bodies.clone(),
                ..Default::default()
            };
            self.held.insert(*kind, held);
        }
    }

    /// Closes the stream and returns the resources.
    pub fn close(self) -> HashMap<&'static str, Held> {
        self.held
    }

    /// Sends a request unchanged, except for the node.
    pub async fn request(&mut self, mut request: DeltaDiscoveryRequest) -> Result<(), Status> {
        request.node = self.node.take();
        self.requests
            .send(request)
            .await
            .map_err(|_| Status::unavailable("the stream is closed"))
    }

    /// Subscribes to names, or to everything if there are none; reports the versions of its
    /// resources.
    pub async fn subscribe(&mut self, kind: &'static str, names: &[&str]) -> Result<(), Status> {
        let initial = self.held(kind).versions.into_iter().collect();
        self.request(DeltaDiscoveryRequest {
            type_url: kind.to_owned(),
            resource_names_subscribe: names.iter().map(|n| (*n).to_owned()).collect(),
            initial_resource_versions: initial,
            ..Default::default()
        })
        .await
    }

    /// Unsubscribes from names and drops their resources.
    pub async fn unsubscribe(&mut self, kind: &'static str, names: &[&str]) -> Result<(), Status> {
        let held = self.held.entry(kind).or_default();
        for name in names {
            held.versions.remove(*name);
            held.bodies.remove(*name);
        }
        self.request(DeltaDiscoveryRequest {
            type_url: kind.to_owned(),
            resource_names_unsubscribe: names.iter().map(|n| (*n).to_owned()).collect(),
            ..Default::default()
        })
        .await
    }

    /// Returns the next response, neither applied nor answered.
    pub async fn receive(&mut self) -> Result<DeltaDiscoveryResponse, Status> {
        self.responses
            .message()
            .await?
            .ok_or_else(|| Status::unavailable("the server closed the stream"))
    }

    /// Applies and answers a response by the judge. Returns the kind, and true if it was accepted.
    pub async fn answer(
        &mut self,
        response: DeltaDiscoveryResponse,
    ) -> Result<(&'static str, bool), Status> {
        let kind = known(&response.type_url)?;
        let held = self.held.entry(kind).or_default();
        held.responses += 1;
        held.resources += response.resources.len();
        held.bytes += response
            .resources
            .iter()
            .map(Message::encoded_len)
            .sum::<usize>();
        let mut faults = Vec::new();
        let mut good = Vec::new();
        for resource in &response.resources {
            let body = resource
                .resource
                .as_ref()
                .map(|any| any.value.as_slice())
                .unwrap_or_default();
            match self
                .judge
                .as_ref()
                .map_or(Ok(()), |judge| judge(kind, &resource.name, body))
            {
                Ok(()) => good.push((resource, body)),
                Err(fault) => faults.push(fault),
            }
        }
        if (faults.is_empty() || self.partial) && !self.counting {
            for (resource, body) in good {
                held.versions
                    .insert(resource.name.clone(), resource.version.clone());
                held.bodies.insert(resource.name.clone(), body.to_vec());
                held.absent.remove(&resource.name);
            }
            for name in &response.removed_resources {
                held.versions.remove(name);
                held.bodies.remove(name);
                held.absent.insert(name.clone());
            }
        }
        let accepted = faults.is_empty();
        held.nacks += usize::from(!accepted);
        self.request(DeltaDiscoveryRequest {
            type_url: response.type_url,
            response_nonce: response.nonce,
            error_detail: (!accepted).then(|| ErrorDetail {
                code: 3,
                message: faults.join("; "),
                details: vec![],
            }),
            ..Default::default()
        })
        .await?;
        Ok((kind, accepted))
    }

    /// Receives and answers until nothing has arrived for `quiet`.
    pub async fn settle(&mut self, quiet: Duration) -> Result<(), Status> {
        while let Ok(response) = tokio::time::timeout(quiet, self.receive()).await {
            self.answer(response?).await?;
        }
        Ok(())
    }

    /// Receives and answers until `done`.
    pub async fn run_until(&mut self, done: impl Fn(&DeltaClient) -> bool) -> Result<(), Status> {
        while !done(self) {
            let response = self.receive().await?;
            self.answer(response).await?;
        }
        Ok(())
    }
}

/// A state-of-the-world ADS client.
pub struct SotwClient {
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
    node: Option<Node>,
    names: HashMap<&'static str, Vec<String>>,
    accepted: HashMap<&'static str, String>,
    nonces: HashMap<&'static str, String>,
    held: HashMap<&'static str, Vec<Vec<u8>>>,
}

impl SotwClient {
    /// Opens a stream as `node`.
    pub async fn open(channel: Channel, node: &str) -> Result<SotwClient, Status> {
        let (requests, outgoing) = mpsc::channel(1024);
        let mut client =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(64 << 20);
        let responses = client
            .stream_aggregated_resources(ReceiverStream::new(outgoing))
            .await?
            .into_inner();
        let node = Node {
            id: node.to_owned(),
            ..Default::default()
        };
        Ok(SotwClient {
            requests,
            responses,
            node: Some(node),
            names: HashMap::new(),
            accepted: HashMap::new(),
            nonces: HashMap::new(),
            held: HashMap::new(),
        })
    }

    /// Returns the bodies of the last accepted response of `kind`.
    pub fn held(&self, kind: &str) -> &[Vec<u8>] {
        self.held.get(kind).map_or(&[], Vec::as_slice)
    }

    async fn send(&mut self, kind: &'static str, error: Option<String>) -> Result<(), Status> {
        let request = DiscoveryRequest {
            node: self.node.take(),
            type_url: kind.to_owned(),
            version_info: self.accepted.get(kind).cloned().unwrap_or_default(),
            response_nonce: self.nonces.get(kind).cloned().unwrap_or_default(),
            resource_names: self.names.get(kind).cloned().unwrap_or_default(),
            error_detail: error.map(|message| ErrorDetail {
                code: 3,
                message,
                details: vec![],
            }),
            ..Default::default()
        };
        self.requests
            .send(request)
            .await
            .map_err(|_| Status::unavailable("the stream is closed"))
    }

    /// Replaces the subscription of `kind`.
    pub async fn subscribe(&mut self, kind: &'static str, names: &[&str]) -> Result<(), Status> {
        self.names
            .insert(kind, names.iter().map(|n| (*n).to_owned()).collect());
        self.send(kind, None).await
    }

    /// Receives the next response and answers it; refuses it if `judge` does.
    pub async fn step(
        &mut self,
        judge: impl Fn(&str, &DiscoveryResponse) -> Result<(), String>,
    ) -> Result<(&'static str, DiscoveryResponse), Status> {
        let response = self
            .responses
            .message()
            .await?
            .ok_or_else(|| Status::unavailable("the server closed the stream"))?;
        let kind = known(&response.type_url)?;
        self.nonces.insert(kind, response.nonce.clone());
        match judge(kind, &response) {
            Ok(()) => {
                self.accepted.insert(kind, response.version_info.clone());
                self.held.insert(
                    kind,
                    response
                        .resources
                        .iter()
                        .map(|any| any.value.clone())
                        .collect(),
                );
                self.send(kind, None).await?;
            }
            Err(text) => self.send(kind, Some(text)).await?,
        }
        Ok((kind, response))
    }
}
