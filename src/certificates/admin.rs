//! What the admin socket is asked about certificates.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;

use super::desk::Desk;

#[derive(Deserialize)]
struct Host {
    host: String,
}

#[derive(Deserialize)]
struct Name {
    issuer: String,
}

/// `GET /certs`, `POST /certs/renew?host=`, `GET /certs/check?host=`, `POST /certs/change-key?issuer=`.
pub fn routes(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/certs", get(|State(desk): State<Arc<Desk>>| async move { Json(desk.tell()) }))
        .route(
            "/certs/renew",
            post(|State(desk): State<Arc<Desk>>, Query(asked): Query<Host>| async move {
                told(desk.renew(&asked.host).map(Json))
            }),
        )
        .route(
            "/certs/check",
            get(|State(desk): State<Arc<Desk>>, Query(asked): Query<Host>| async move {
                told(desk.check(&asked.host).await.map(Json))
            }),
        )
        .route(
            "/certs/change-key",
            post(|State(desk): State<Arc<Desk>>, Query(asked): Query<Name>| async move {
                told(desk.change_key(&asked.issuer).await.map(Json))
            }),
        )
        .with_state(desk)
}

fn told<T: IntoResponse>(answer: Result<T, String>) -> Response {
    match answer {
        Ok(answer) => answer.into_response(),
        Err(text) => (StatusCode::BAD_REQUEST, text).into_response(),
    }
}
