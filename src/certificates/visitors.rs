//! Connections of strangers, who ask one thing each: so many at a time, each for so long.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

/// Connections at the same time; what comes on top is closed, and asks again.
const MOST: usize = 256;
/// After a connection that could not be taken.
const AGAIN: Duration = Duration::from_millis(100);

/// Receives visitors until `stop` says so; `what` they are for is told with what goes wrong. Whoever takes longer than
/// `limit` is sent away.
pub(super) async fn receive<F, E>(
    listener: TcpListener,
    what: &'static str,
    limit: Duration,
    mut stop: watch::Receiver<bool>,
    answer: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send,
{
    let room = Arc::new(Semaphore::new(MOST));
    let mut connections = JoinSet::new();
    while !*stop.borrow() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.changed() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // Too many open files: those that are open end soon.
            Err(error) => {
                warn!("{what}: {error}");
                sleep(AGAIN).await;
                continue;
            }
        };
        let Ok(place) = room.clone().try_acquire_owned() else { continue };
        let answered = answer(stream);
        connections.spawn(async move {
            if let Ok(Err(error)) = timeout(limit, answered).await {
                debug!("{what}: {error}");
            }
            drop(place);
        });
    }
    connections.shutdown().await;
}
