//! The routes of the admin socket about certificates.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;

use super::manager::CertificateManager;
use super::manager_watch::ManagerWatch;

#[derive(Deserialize)]
struct Host {
    host: String,
}

#[derive(Deserialize)]
struct Name {
    issuer: String,
}

const ELSEWHERE: &str = "this replica issues no certificates: run the command at the lease holder, which `kubectl get lease` names in the controller's namespace";

fn manager(at: &ManagerWatch) -> Result<Arc<CertificateManager>, String> {
    at.manager().ok_or_else(|| ELSEWHERE.to_owned())
}

/// `GET /certs`, `POST /certs/renew?host=`, `GET /certs/check?host=`,
/// `POST /certs/change-key?issuer=`, `POST /certs/new-account?issuer=`.
pub fn routes(at: ManagerWatch) -> Router {
    Router::new()
        .route(
            "/certs",
            get(|State(at): State<ManagerWatch>| async move {
                response(at.report().map(Json).ok_or_else(|| ELSEWHERE.to_owned()))
            }),
        )
        .route(
            "/certs/renew",
            post(
                |State(at): State<ManagerWatch>, Query(asked): Query<Host>| async move {
                    response(
                        manager(&at)
                            .and_then(|manager| manager.renew(&asked.host))
                            .map(Json),
                    )
                },
            ),
        )
        .route(
            "/certs/check",
            get(
                |State(at): State<ManagerWatch>, Query(asked): Query<Host>| async move {
                    response(async { manager(&at)?.check(&asked.host).await.map(Json) }.await)
                },
            ),
        )
        .route(
            "/certs/change-key",
            post(
                |State(at): State<ManagerWatch>, Query(asked): Query<Name>| async move {
                    response(
                        async { manager(&at)?.change_key(&asked.issuer).await.map(Json) }.await,
                    )
                },
            ),
        )
        .route(
            "/certs/new-account",
            post(
                |State(at): State<ManagerWatch>, Query(asked): Query<Name>| async move {
                    response(
                        async { manager(&at)?.new_account(&asked.issuer).await.map(Json) }.await,
                    )
                },
            ),
        )
        .with_state(at)
}

fn response<T: IntoResponse>(answer: Result<T, String>) -> Response {
    match answer {
        Ok(answer) => answer.into_response(),
        Err(text) => (StatusCode::BAD_REQUEST, text).into_response(),
    }
}
