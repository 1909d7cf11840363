//! Take-over of a private directory from a running program, while Envoy serves on.

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

/// The maximum time until the running program ends.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which its end is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The message of the refusal to hand over.
const REFUSED: &str = "Envoy ends with that program (--envoy-lifetime with-program): stop it, and start this one then";

/// The reason for which the private directory of a running program cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] PrivateDirError),
    /// The running program refuses, or does not answer.
    #[error("--take-over: {0}")]
    AdminRequest(#[from] AdminError),
}

/// Returns the route of the admin socket by which another program requests the take-over; `asked`
/// is notified of it. It is refused where Envoy could not serve on meanwhile.
pub fn routes(lifetime: Lifetime, asked: mpsc::Sender<()>) -> Router {
    let answer = async move || -> Response {
        match lifetime {
            Lifetime::WithProgram => (StatusCode::CONFLICT, REFUSED).into_response(),
            Lifetime::Independent => {
                // Full when another program asked already, closed when this program ends: it ends
                // in either case.
                let _ = asked.try_send(());
                "Envoy serves on\n".into_response()
            }
        }
    };
    Router::new().route("/hand-over", post(answer))
}

/// Opens the private directory. If a running program uses it, that program leaves its Envoy running
/// and ends.
///
/// # Errors
/// When the running program refuses or does not end in time, or the directory cannot be used.
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
            Err(PrivateDirError::InUse { .. }) if began.elapsed() < TIMEOUT => {
                sleep(POLL_INTERVAL).await
            }
            other => return Ok(other?),
        }
    }
}
