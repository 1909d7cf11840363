//! The route of the admin socket that waits until hostnames change, for pages that follow them. It
//! asks nothing of the main loop.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::host_query::{CHANGED, HostQuery, HostRevisions, HostsChange};

/// The longest wait: a question has an answer within 30 s.
const WAIT: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct Watched {
    revisions: watch::Receiver<HostRevisions>,
    stop: watch::Receiver<bool>,
}

/// Returns the route. No question waits beyond `stop`.
pub fn routes(revisions: watch::Receiver<HostRevisions>, stop: watch::Receiver<bool>) -> Router {
    Router::new()
        .route(CHANGED, get(changed))
        .with_state(Watched { revisions, stop })
}

async fn changed(
    State(Watched {
        mut revisions,
        mut stop,
    }): State<Watched>,
    Query(HostQuery { after }): Query<HostQuery>,
) -> Json<HostsChange> {
    let after = after.unwrap_or_default();
    let change = timeout(WAIT, revisions.wait_for(|of| of.newest != after));
    tokio::select! {
        changed = change => Json(match changed {
            Ok(Ok(of)) if of.are_all_changed_after(after) => HostsChange::All,
            Ok(Ok(_)) => HostsChange::Some,
            Ok(Err(_)) | Err(_) => HostsChange::Nothing,
        }),
        // An error means that the sender was dropped.
        _ = stop.wait_for(|stop| *stop) => Json(HostsChange::Nothing),
    }
}
