//! A gRPC backend with two services that answers with its name and a header of the request. The
//! services are two with available messages: `envoy.service.auth.v3.Authorization` and
//! `envoy.service.ratelimit.v3.RateLimitService`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::service::auth::v3::authorization_server::{
    Authorization, AuthorizationServer,
};
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{CheckRequest, CheckResponse, DeniedHttpResponse};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::rpc::Status as RpcStatus;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

/// The response header with the name of the backend.
pub const SERVED_BY: &str = "x-served-by";
/// The header that an answer repeats from the request.
pub const SENT: &str = "x-sent";

/// The header of a request that the authorization server does not permit. It is answered
/// [`DENIAL`], with the same header.
pub const DENIED: &str = "x-denied";
/// The status of that answer.
pub const DENIAL: u16 = 402;

/// A running backend; stopped on drop.
#[derive(Debug)]
pub struct Grpc {
    address: SocketAddr,
    calls: Arc<AtomicU64>,
    serving: JoinHandle<()>,
}

/// Serves on a free port of loopback until the end of the task.
pub(crate) async fn serve(server: Router) -> Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        // It ends with the test.
        let _ended = server
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await;
    });
    Ok((address, serving))
}

#[derive(Clone)]
struct Backend {
    name: &'static str,
    calls: Arc<AtomicU64>,
}

impl Grpc {
    /// Starts a cleartext backend on loopback.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(name: &'static str) -> Result<Self> {
        let calls = Arc::new(AtomicU64::new(0));
        let backend = Backend {
            name,
            calls: calls.clone(),
        };
        let server = Server::builder()
            .add_service(AuthorizationServer::new(backend.clone()))
            .add_service(RateLimitServiceServer::new(backend));
        let (address, serving) = serve(server).await?;
        Ok(Self {
            address,
            calls,
            serving,
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of calls that it received.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Drop for Grpc {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Backend {
    fn answer<T>(&self, sent: &MetadataMap, message: T) -> Response<T> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut response = Response::new(message);
        let name = self.name.parse().expect("names of backends are plain");
        response.metadata_mut().insert(SERVED_BY, name);
        if let Some(value) = sent.get(SENT) {
            response.metadata_mut().insert(SENT, value.clone());
        }
        response
    }
}

fn denial() -> CheckResponse {
    let header = HeaderValue {
        key: DENIED.to_owned(),
        value: "by the server".to_owned(),
        ..Default::default()
    };
    let response = DeniedHttpResponse {
        status: Some(HttpStatus {
            code: DENIAL.into(),
        }),
        headers: vec![HeaderValueOption {
            header: Some(header),
            ..Default::default()
        }],
        ..Default::default()
    };
    CheckResponse {
        status: Some(RpcStatus {
            code: tonic::Code::PermissionDenied.into(),
            ..Default::default()
        }),
        http_response: Some(HttpResponse::DeniedResponse(response)),
        ..Default::default()
    }
}

#[tonic::async_trait]
impl Authorization for Backend {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let http = request
            .get_ref()
            .attributes
            .as_ref()
            .and_then(|attributes| attributes.request.as_ref()?.http.as_ref());
        let is_denied = http.is_some_and(|http| http.headers.contains_key(DENIED));
        let response = if is_denied {
            denial()
        } else {
            CheckResponse::default()
        };
        Ok(self.answer(request.metadata(), response))
    }
}

#[tonic::async_trait]
impl RateLimitService for Backend {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(self.answer(request.metadata(), RateLimitResponse::default()))
    }
}
