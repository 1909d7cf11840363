//! One program takes the place of another on a private directory, while Envoy serves on.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use gatewright_control::{AdminError, tell};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::info;

use super::{Lifetime, PrivateDir, PrivateDirError};

/// How long the program before may take to end.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Why a program that asks for the place of this one does not get it.
const REFUSED: &str = "Envoy ends with that program (--envoy-lifetime with-program): stop it, and start this one then";

/// Why the private directory of a running program cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// The directory.
    #[error(transparent)]
    Directory(#[from] PrivateDirError),
    /// The program that uses it refuses, or does not answer.
    #[error("--take-over: {0}")]
    AdminRequest(#[from] AdminError),
}

/// What is added to the admin socket: `asked` is told when another program wants the place of this one. It is refused where
/// Envoy could not serve on meanwhile.
pub fn routes(lifetime: Lifetime, asked: mpsc::Sender<()>) -> Router {
    let answer = async move || -> Response {
        match lifetime {
            Lifetime::WithProgram => (StatusCode::CONFLICT, REFUSED).into_response(),
            Lifetime::Independent => {
                // Full when another asked already, closed when this program ends: both are what is wanted.
                let _ = asked.try_send(());
                "Envoy serves on\n".into_response()
            }
        }
    };
    Router::new().route("/hand-over", post(answer))
}

/// Opens the private directory, and has the program that uses it, if one does, leave its Envoy running and end.
///
/// # Errors
/// When that program refuses or does not end in time, or the directory cannot be used.
pub async fn take_over(path: &Path, admin: &Path) -> Result<PrivateDir, HandOverError> {
    match PrivateDir::open(path) {
        Err(PrivateDirError::InUse { .. }) => {}
        other => return Ok(other?),
    }
    tell(admin, "/hand-over").await?;
    info!("the program that uses {} hands over", path.display());
    let began = Instant::now();
    loop {
        match PrivateDir::open(path) {
            Err(PrivateDirError::InUse { .. }) if began.elapsed() < TIMEOUT => sleep(POLL_INTERVAL).await,
            other => return Ok(other?),
        }
    }
}
