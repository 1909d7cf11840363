//! What the admin socket is asked about certificates.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use tokio::sync::watch;

use super::desk::Desk;

#[derive(Deserialize)]
struct Host {
    host: String,
}

#[derive(Deserialize)]
struct Name {
    issuer: String,
}

/// Where the desk is, while there is one here.
type AtDesk = watch::Receiver<Option<Arc<Desk>>>;

fn desk(at: &AtDesk) -> Result<Arc<Desk>, String> {
    at.borrow()
        .clone()
        .ok_or_else(|| "no certificates are issued here: ask the replica that holds the lease".to_owned())
}

/// `GET /certs`, `POST /certs/renew?host=`, `GET /certs/check?host=`, `POST /certs/change-key?issuer=`,
/// `POST /certs/new-account?issuer=`.
pub fn routes(at: AtDesk) -> Router {
    Router::new()
        .route("/certs", get(|State(at): State<AtDesk>| async move { told(desk(&at).map(|desk| Json(desk.tell()))) }))
        .route(
            "/certs/renew",
            post(|State(at): State<AtDesk>, Query(asked): Query<Host>| async move {
                told(desk(&at).and_then(|desk| desk.renew(&asked.host)).map(Json))
            }),
        )
        .route(
            "/certs/check",
            get(|State(at): State<AtDesk>, Query(asked): Query<Host>| async move {
                told(async { desk(&at)?.check(&asked.host).await.map(Json) }.await)
            }),
        )
        .route(
            "/certs/change-key",
            post(|State(at): State<AtDesk>, Query(asked): Query<Name>| async move {
                told(async { desk(&at)?.change_key(&asked.issuer).await.map(Json) }.await)
            }),
        )
        .route(
            "/certs/new-account",
            post(|State(at): State<AtDesk>, Query(asked): Query<Name>| async move {
                told(async { desk(&at)?.new_account(&asked.issuer).await.map(Json) }.await)
            }),
        )
        .with_state(at)
}

fn told<T: IntoResponse>(answer: Result<T, String>) -> Response {
    match answer {
        Ok(answer) => answer.into_response(),
        Err(text) => (StatusCode::BAD_REQUEST, text).into_response(),
    }
}
