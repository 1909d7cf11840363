//! HTTP servers of tests.

use std::error::Error;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::tls_backend::TestRoot;

/// Answers the requests of all connections, by HTTP/1.1 and HTTP/2, until it is aborted.
pub async fn serve<F, E>(
    listener: TcpListener,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
) where
    F: Future<Output = Result<Response<Full<Bytes>>, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    accept(listener, |stream| connection(stream, answer.clone())).await;
}

/// A response of JSON.
pub fn json(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// Serves in the same way over TLS, by a certificate of this root for 127.0.0.1.
///
/// # Errors
/// When there is no certificate.
pub fn serve_tls<F, E>(
    listener: TcpListener,
    root: &TestRoot,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> Result<impl Future<Output = ()> + Send + 'static>
where
    F: Future<Output = Result<Response<Full<Bytes>>, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    let pair = root.issue("127.0.0.1", None)?;
    let key = PrivateKeyDer::try_from(pair.key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![pair.certificate.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Ok(accept(listener, move |stream| {
        let acceptor = acceptor.clone();
        let answer = answer.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                connection(stream, answer).await;
            }
        }
    }))
}

async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve(stream));
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn connection<F, E>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    F: Future<Output = Result<Response<Full<Bytes>>, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    // The client may disconnect at any time.
    let _ended = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}
