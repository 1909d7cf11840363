//! All watches: one for each kind that is served, or for each namespace that is looked at, started when it appears and started anew in another version.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::ApiResource;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use gatewright_control::event::WATCH;

use crate::REQUEST_TIMEOUT;
use crate::watch::discovery::{discover, is_ready};
use crate::watch::last_heard::LastHeard;
use crate::watch::missing_kinds::MissingKinds;
use crate::watch::scope::{Part, Parts};
use crate::watch::{Lists, Names, WatchEvent, watch};
use gatewright_core::inputs::Kind;
use gatewright_core::namespaces::Namespaces;

/// How often the server is asked what it serves.
const DISCOVERY: Duration = Duration::from_secs(10);
/// How soon again when it did not answer, or lacks something that it may serve in a moment.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The first server whose streaming lists are on without a flag.
const STREAMING: u32 = 34;

/// Runs until the receiver is gone.
pub async fn run(
    client: Client,
    kinds: Vec<Kind>,
    namespaces: Namespaces,
    heard: LastHeard,
    out: mpsc::Sender<WatchEvent>,
) {
    let mut running: BTreeMap<Kind, (ApiResource, Vec<AbortHandle>)> = BTreeMap::new();
    let mut begun: BTreeMap<Kind, Instant> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let names = Names::default();
    let watches = |kind: &Kind| {
        let parts = Parts::new(*kind, &namespaces, heard.clone(), out.clone());
        let each: Vec<(Part, Names)> = parts.each().map(|part| (part, names.of_another())).collect();
        (*kind, (parts, each))
    };
    let watches: BTreeMap<Kind, (Parts, Vec<(Part, Names)>)> = kinds.iter().map(watches).collect();
    let mut told = BTreeMap::new();
    let mut absence = MissingKinds::default();
    // What the first answer lacks counts as well.
    let mut unsure = true;
    let mut lists = None;
    loop {
        // In this order: what a server serves that has just come up may lack something.
        let ready = unsure && is_ready(&client).await;
        let found = match discover(&client, &kinds).await {
            Ok(found) => found,
            Err(error) => {
                debug!("asking the API server what it serves: {error}");
                for kind in kinds.iter().filter(|kind| !running.contains_key(kind)) {
                    if told.insert(*kind, true) != Some(true)
                        && out.send(WatchEvent::Trouble(*kind, error.to_string())).await.is_err()
                    {
                        return;
                    }
                }
                tokio::select! {
                    () = sleep(RETRY_DELAY) => continue,
                    () = out.closed() => return,
                }
            }
        };
        let lists = match lists {
            Some(lists) => lists,
            None => *lists.insert(lists_of(&client).await),
        };
        let silent = heard.silent(Instant::now());
        for kind in &kinds {
            // A watch of which nothing is heard hangs, or has not ended as it should: the server is asked anew, from the start.
            let hangs = silent.get(kind).filter(|_| begun.get(kind).is_some_and(|at| at.elapsed() > heard.limit()));
            match (found.resource(*kind), running.get(kind)) {
                (Some(resource), Some((current, _))) if resource == current && hangs.is_none() => absence.has(*kind),
                (Some(resource), replaced) => {
                    absence.has(*kind);
                    if let Some((old, handles)) = replaced {
                        let why = match hangs {
                            Some(age) => format!("nothing was heard of it for {} s: it is watched anew", age.as_secs()),
                            None => format!("is served as {} and no longer as {}", resource.version, old.version),
                        };
                        warn!(event = WATCH, kind = kind.as_str(), "{}: {why}", kind.as_str());
                        end(handles, &mut tasks).await;
                    }
                    let (parts, each) = &watches[kind];
                    parts.begin();
                    begun.insert(*kind, Instant::now());
                    let start = |(part, names): &(Part, Names)| {
                        tasks.spawn(watch(client.clone(), resource.clone(), lists, names.clone(), part.clone()))
                    };
                    running.insert(*kind, (resource.clone(), each.iter().map(start).collect()));
                    if told.remove(kind).is_some() && out.send(WatchEvent::Listing(*kind)).await.is_err() {
                        return;
                    }
                }
                (None, watched) => {
                    if !absence.lacks(*kind, watched.is_some(), ready) {
                        continue;
                    }
                    // What was seen of it stays: that a kind is not served says nothing of its objects.
                    if let Some((_, handles)) = running.remove(kind) {
                        end(&handles, &mut tasks).await;
                        watches[kind].0.end();
                    }
                    if told.insert(*kind, false) != Some(false) && out.send(WatchEvent::Missing(*kind)).await.is_err() {
                        return;
                    }
                }
            }
        }
        unsure = absence.is_unsure();
        tokio::select! {
            () = sleep(if unsure { RETRY_DELAY } else { DISCOVERY }.min(heard.limit())) => {}
            () = out.closed() => return,
            Some(ended) = tasks.join_next() => look_at(ended),
        }
    }
}

/// A watch that panicked would be a kind that nothing is heard of any more: whoever waits for this task is told.
fn look_at(ended: Result<(), JoinError>) {
    if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
        std::panic::resume_unwind(panic);
    }
}

/// Ends the watches of a kind, and waits until they have: the next ones go on from what these told.
async fn end(handles: &[AbortHandle], tasks: &mut JoinSet<()>) {
    handles.iter().for_each(AbortHandle::abort);
    while !handles.iter().all(AbortHandle::is_finished) {
        if let Some(ended) = tasks.join_next().await {
            look_at(ended);
        }
    }
}

/// Streaming lists are asked for where the server has them: one that lacks them refuses the request.
async fn lists_of(client: &Client) -> Lists {
    let version = timeout(REQUEST_TIMEOUT, client.apiserver_version()).await;
    let minor = version.ok().and_then(Result::ok).and_then(|v| v.minor.trim_end_matches('+').parse::<u32>().ok());
    if minor.is_some_and(|minor| minor >= STREAMING) { Lists::Streamed } else { Lists::Paged }
}
