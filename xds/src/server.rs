//! The gRPC server.

use std::path::Path;
use std::pin::Pin;

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use futures::Stream;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, info, warn};

use crate::session::{Limits, Session};
use crate::{Cache, View};

/// Serves one view of a cache.
#[derive(Clone)]
pub struct Server {
    cache: Cache,
    view: View,
    limits: Limits,
}

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket cannot be made.
    #[error("cannot listen on {path}: {source}")]
    Listen {
        /// Where.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The transport failed.
    #[error("xDS server: {0}")]
    Serve(#[source] tonic::transport::Error),
}

impl Server {
    /// A server of `view`.
    pub fn new(cache: Cache, view: View, limits: Limits) -> Self {
        Self { cache, view, limits }
    }

    /// Serves on a Unix socket until `stop` ends. Who may open the socket is its directory's matter: it must be
    /// private to the user.
    ///
    /// # Errors
    /// When the socket cannot be made or the transport fails.
    pub async fn serve_unix(self, path: &Path, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let listen = |source| ServeError::Listen { path: path.display().to_string(), source };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(listen(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(listen)?;
        let limit = self.limits.message;
        let service = AggregatedDiscoveryServiceServer::new(self).max_decoding_message_size(limit);
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
            .await
            .map_err(ServeError::Serve)
    }

    async fn stream(self, mut requests: Streaming<DeltaDiscoveryRequest>, answers: mpsc::Sender<Answer>) {
        let mut session = Session::new(self.view.clone(), self.limits);
        let mut changed = self.cache.watch();
        let client = self.cache.connect(session.progress());
        loop {
            let request = tokio::select! {
                request = requests.message() => match request {
                    Ok(Some(request)) => Some(request),
                    Ok(None) => break,
                    Err(status) => {
                        debug!(%status, "client left");
                        break;
                    }
                },
                changed = changed.changed() => match changed {
                    Ok(()) => None,
                    Err(_) => break,
                },
            };
            if let Some(error) = request.as_ref().and_then(|request| request.error_detail.as_ref()) {
                warn!(text = %error.message, "client refused a response");
            }
            changed.mark_unchanged();
            let responses = self.cache.look(&self.view, |now, shelves| {
                if let Some(request) = request {
                    session.take(request, now, shelves)?;
                }
                Ok::<_, String>(session.due(now, shelves))
            });
            self.cache.advance(client, session.progress());
            match responses {
                Ok(responses) => {
                    for response in responses {
                        if answers.send(Ok(response)).await.is_err() {
                            break;
                        }
                    }
                }
                Err(text) => {
                    info!(%text, "stream ended");
                    // The client may be gone already, which is as good.
                    let _ = answers.send(Err(Status::invalid_argument(text))).await;
                    break;
                }
            }
        }
        self.cache.disconnect(client);
    }
}

type Answer = Result<DeltaDiscoveryResponse, Status>;
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Server {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        _: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("use DeltaAggregatedResources: api_type DELTA_GRPC"))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let (answers, stream) = mpsc::channel(ResponseBuffer::SIZE);
        tokio::spawn(self.clone().stream(request.into_inner(), answers));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// At most one response of each type is under way.
struct ResponseBuffer;

impl ResponseBuffer {
    const SIZE: usize = crate::ResourceType::ALL.len();
}
