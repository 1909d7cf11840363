//! The streams on which clients report what they met: access logs, and the load of endpoints.
//!
//! A client opens them beside its streams of resources, with the same credentials. They have counts
//! of their own, so that no report takes the place of a stream of resources, and they end when
//! nothing comes, since each worker of Envoy has a connection for its log.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
pub use envoy_types::pb::envoy::config::endpoint::v3::ClusterStats;
pub use envoy_types::pb::envoy::service::accesslog::v3::stream_access_logs_message::LogEntries;
use envoy_types::pb::envoy::service::accesslog::v3::{
    StreamAccessLogsMessage, StreamAccessLogsResponse,
};
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf;
use futures::stream::{self, Stream};
use hyper::body::{Frame, Incoming};
use prost::Message;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::codec::BufferSettings;
use tonic::codegen::http::Request as HttpRequest;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use crate::decoder::FieldLimit;
use crate::identity::{Authenticate, Grant};
use crate::service::{StreamPermit, message, trailers};
use crate::{Limits, View};

/// The streams of reports that clients may open, as a multiple of those of resources: each worker
/// of an Envoy has two, one for requests and one for connections.
const STREAMS: usize = 32;
/// The most bytes of a message; Envoy sends an access log in batches of 16 KiB.
const MESSAGE_BYTES: usize = 1 << 20;
/// The initial size of the buffer for messages.
const BUFFER_BYTES: usize = 4 << 10;
/// The least time between two messages of a stream. What comes faster waits, and then Envoy drops
/// entries: no client uses more than this of the server.
const INTERVAL: Duration = Duration::from_millis(10);
/// The time without an entry after which a stream ends. The next entry opens a new one.
const LOG_IDLE: Duration = Duration::from_secs(60);
/// The interval at which the load of watched clusters is reported, in seconds.
const LOAD_SECONDS: i64 = 1;
/// The same while no cluster is watched.
const NO_LOAD_SECONDS: i64 = 300;
/// The least time between two lists of watched clusters, and the same for each cluster of the list:
/// one of a thousand is sent every 1.2 s.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
const WATCH_INTERVAL_OF_CLUSTER: Duration = Duration::from_millis(1);
/// The most bytes of what a client calls itself.
const NODE_BYTES: usize = 256;

/// The origin of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// The view that the client may read.
    pub view: View,
    /// The node of its credential, or what the client calls itself, which proves nothing and
    /// tells clients of a view apart.
    pub node: Arc<str>,
}

/// A receiver of reports. Its methods are called by the tasks of the streams, and must not block.
pub trait Reports: Send + Sync + 'static {
    /// Takes in entries of an access log.
    fn log(&self, reporter: &Reporter, entries: LogEntries);

    /// Takes in what the endpoints of clusters did since the last report; nothing if none of those
    /// that are watched did anything.
    fn load(&self, reporter: &Reporter, clusters: Vec<ClusterStats>);

    /// The clusters of a view whose load clients report.
    fn watched(&self, view: &View) -> watch::Receiver<Arc<[String]>>;
}

/// A receiver that no report reaches.
pub(crate) struct NoReports;

impl Reports for NoReports {
    fn log(&self, _: &Reporter, _: LogEntries) {}

    fn load(&self, _: &Reporter, _: Vec<ClusterStats>) {}

    fn watched(&self, _: &View) -> watch::Receiver<Arc<[String]>> {
        watch::channel(Arc::default()).1
    }
}

/// The limits of streams of reports.
pub(crate) fn limits(limits: &Limits) -> Limits {
    Limits {
        streams_per_identity: limits.streams_per_identity.saturating_mul(STREAMS),
        streams_per_instance: limits.streams_per_instance.saturating_mul(STREAMS),
        streams_per_address: limits.streams_per_address.saturating_mul(STREAMS),
        streams_per_network: limits.streams_per_network.saturating_mul(STREAMS),
        ..limits.clone()
    }
}

/// The parameters of a new stream.
pub(crate) struct Opening {
    pub(crate) reports: Arc<dyn Reports>,
    pub(crate) grant: Grant,
    pub(crate) authenticator: Arc<dyn Authenticate>,
    pub(crate) shutdown: watch::Receiver<bool>,
    /// Counts the stream until it ends.
    pub(crate) permit: StreamPermit,
}

type Frames = Result<Frame<Bytes>, Status>;

impl Opening {
    fn reporter(&self, node: Option<String>) -> Reporter {
        let node = node.filter(|node| node.len() <= NODE_BYTES);
        let proven = self.grant.instance.as_ref();
        Reporter {
            view: self.grant.view.clone(),
            node: match proven {
                Some(instance) => instance.node.clone(),
                None => node.unwrap_or_default().into(),
            },
        }
    }

    /// Ends with the credential, or with the server.
    async fn ended(&self) {
        let mut shutdown = self.shutdown.clone();
        let expires = self.grant.expires;
        let left = expires.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        tokio::select! {
            () = crate::stream::wait_for_shutdown(&mut shutdown) => {}
            () = sleep(left.unwrap_or_default()), if left.is_some() => {
                self.permit.connection().expire();
            }
        }
    }

    fn is_granted(&self) -> bool {
        self.authenticator.still_granted(&self.grant)
    }
}

fn requests<M, R>(request: HttpRequest<Incoming>) -> Streaming<R>
where
    M: Message + Default + Send + 'static,
    R: Message + Default + Send + 'static,
{
    let buffer = BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES);
    let decoder = ProstCodec::<M, R>::raw_decoder(buffer);
    let decoder = FieldLimit::new(decoder, MESSAGE_BYTES);
    Streaming::new_request(decoder, request.into_body(), None, Some(MESSAGE_BYTES))
}

/// Serves an access log: reads it to its end, and answers with the status alone.
pub(crate) fn log(
    opening: Opening,
    request: HttpRequest<Incoming>,
) -> impl Stream<Item = Frames> + Send + 'static {
    let requests = requests::<StreamAccessLogsResponse, StreamAccessLogsMessage>(request);
    stream::once(async move {
        let read = read_log(&opening, requests);
        let status = tokio::select! {
            read = read => read.err(),
            () = opening.ended() => None,
        };
        trailers(&status.unwrap_or_else(|| Status::new(tonic::Code::Ok, "")))
    })
}

async fn read_log(
    opening: &Opening,
    mut requests: Streaming<StreamAccessLogsMessage>,
) -> Result<(), Status> {
    let mut reporter = opening.reporter(None);
    while let Ok(Some(message)) = timeout(LOG_IDLE, requests.message())
        .await
        .unwrap_or(Ok(None))
    {
        if !opening.is_granted() {
            return Err(Status::permission_denied("this client may report no more"));
        }
        if let Some(identifier) = message.identifier {
            reporter = opening.reporter(identifier.node.map(|node| node.id));
        }
        if let Some(entries) = message.log_entries {
            opening.reports.log(&reporter, entries);
        }
        sleep(INTERVAL).await;
    }
    Ok(())
}

/// A stream about the load of clusters.
struct LoadStream {
    opening: Opening,
    requests: Streaming<LoadStatsRequest>,
    watched: watch::Receiver<Arc<[String]>>,
    reporter: Reporter,
}

/// Serves reports of load: says which clusters are watched, and reads what they did.
pub(crate) fn load(
    opening: Opening,
    request: HttpRequest<Incoming>,
) -> impl Stream<Item = Frames> + Send + 'static {
    let requests = requests::<LoadStatsResponse, LoadStatsRequest>(request);
    let mut watched = opening.reports.watched(&opening.grant.view);
    // The list at the beginning is sent too.
    watched.mark_changed();
    let reporter = opening.reporter(None);
    let first = LoadStream {
        opening,
        requests,
        watched,
        reporter,
    };
    stream::unfold(Some(Box::new(first)), |stream| async {
        let mut stream = stream?;
        Some(match stream.next().await {
            Ok(Some(response)) => (message(&response), Some(stream)),
            Ok(None) => (trailers(&Status::new(tonic::Code::Ok, "")), None),
            Err(status) => (trailers(&status), None),
        })
    })
}

impl LoadStream {
    fn watch_interval(&self) -> Duration {
        let clusters = self.watched.borrow().len();
        let of_clusters = u32::try_from(clusters).unwrap_or(u32::MAX);
        WATCH_INTERVAL + WATCH_INTERVAL_OF_CLUSTER.saturating_mul(of_clusters)
    }

    /// Reads reports until the next list of watched clusters; `None` at the end.
    async fn next(&mut self) -> Result<Option<LoadStatsResponse>, Status> {
        loop {
            tokio::select! {
                () = self.opening.ended() => return Ok(None),
                Ok(()) = self.watched.changed() => {
                    sleep(self.watch_interval()).await;
                    return Ok(Some(response(&self.watched.borrow_and_update())));
                }
                request = self.requests.message() => {
                    let Some(request) = request? else { return Ok(None) };
                    if !self.opening.is_granted() {
                        return Err(Status::permission_denied("this client may report no more"));
                    }
                    if let Some(node) = request.node {
                        self.reporter = self.opening.reporter(Some(node.id));
                    }
                    self.opening.reports.load(&self.reporter, request.cluster_stats);
                    sleep(INTERVAL).await;
                }
            }
        }
    }
}

fn response(clusters: &[String]) -> LoadStatsResponse {
    let seconds = if clusters.is_empty() {
        NO_LOAD_SECONDS
    } else {
        LOAD_SECONDS
    };
    LoadStatsResponse {
        clusters: clusters.to_vec(),
        load_reporting_interval: Some(protobuf::Duration { seconds, nanos: 0 }),
        report_endpoint_granularity: true,
        ..Default::default()
    }
}
