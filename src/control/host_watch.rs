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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_waits_until_something_changed_or_the_program_stops() {
        let at = |newest| HostRevisions {
            newest,
            forgotten: 3,
        };
        let (revisions, watched) = watch::channel(at(5));
        let (stopper, stop) = watch::channel(false);
        let ask = |after| {
            let watched = Watched {
                revisions: watched.clone(),
                stop: stop.clone(),
            };
            let query = HostQuery { after: Some(after) };
            let asked = tokio::spawn(changed(State(watched), Query(query)));
            async { asked.await.expect("it does not panic").0 }
        };
        assert_eq!(ask(4).await, HostsChange::Some, "a step is known");
        assert_eq!(ask(2).await, HostsChange::All, "it is forgotten");
        assert_eq!(ask(9).await, HostsChange::All, "it is of another run");
        let waiting = ask(5);
        revisions.send_replace(at(6));
        assert_eq!(waiting.await, HostsChange::Some, "a step came");
        let waiting = ask(6);
        stopper.send_replace(true);
        assert_eq!(waiting.await, HostsChange::Nothing, "the program stops");
    }
}
