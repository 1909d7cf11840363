//! The routes of the admin socket about certificates.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use tokio::sync::watch;

use super::manager::CertificateManager;
use super::report::Report;

#[derive(Deserialize)]
struct Host {
    host: String,
}

#[derive(Deserialize)]
struct Name {
    issuer: String,
}

/// The state of the routes: the certificate manager, while it runs here.
type OfManager = watch::Receiver<Option<Arc<CertificateManager>>>;

fn manager(at: &OfManager) -> Result<Arc<CertificateManager>, String> {
    at.borrow()
        .clone()
        .ok_or_else(|| "this replica issues no certificates: run the command at the lease holder, which `kubectl get lease` names in the controller's namespace".to_owned())
}

/// `GET /certs`, `POST /certs/renew?host=`, `GET /certs/check?host=`,
/// `POST /certs/change-key?issuer=`, `POST /certs/new-account?issuer=`.
///
/// `has_work` is whether a manager is needed: where none is, no certificate is wanted, which is an
/// answer.
pub fn routes(at: OfManager, has_work: watch::Receiver<bool>) -> Router {
    Router::new()
        .route(
            "/certs",
            get(|State(at): State<OfManager>| async move {
                response(match manager(&at) {
                    Ok(manager) => Ok(Json(manager.tell())),
                    Err(_) if !*has_work.borrow() => Ok(Json(Report::default())),
                    Err(why) => Err(why),
                })
            }),
        )
        .route(
            "/certs/renew",
            post(
                |State(at): State<OfManager>, Query(asked): Query<Host>| async move {
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
                |State(at): State<OfManager>, Query(asked): Query<Host>| async move {
                    response(async { manager(&at)?.check(&asked.host).await.map(Json) }.await)
                },
            ),
        )
        .route(
            "/certs/change-key",
            post(
                |State(at): State<OfManager>, Query(asked): Query<Name>| async move {
                    response(
                        async { manager(&at)?.change_key(&asked.issuer).await.map(Json) }.await,
                    )
                },
            ),
        )
        .route(
            "/certs/new-account",
            post(
                |State(at): State<OfManager>, Query(asked): Query<Name>| async move {
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
