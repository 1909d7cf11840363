//! Answers HTTP-01 challenges where Envoy is not ours: any replica answers any challenge of a known host.

use std::sync::Arc;

use acme::challenge::http::answer;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::desk::Desk;

/// Serves until `stop` says so.
///
/// # Errors
/// When the listener breaks.
pub async fn respond(listener: TcpListener, desk: Arc<Desk>, mut stop: watch::Receiver<bool>) -> std::io::Result<()> {
    let router = Router::new().fallback(challenge).with_state(desk);
    let stopped = async move {
        // An error means that whoever could stop us is gone.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await
}

async fn challenge(State(desk): State<Arc<Desk>>, headers: HeaderMap, uri: Uri) -> Response {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(host, _)| host);
    let body = desk.thumbprint_of(&host.to_ascii_lowercase()).and_then(|thumbprint| answer(uri.path(), &thumbprint));
    match body {
        Some(body) => {
            let fields = [(header::CONTENT_TYPE, "text/plain"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
            (fields, body).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
