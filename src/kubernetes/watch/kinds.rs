//! Runs all watches: one for each served kind, or for each listed namespace of it. A watch is
//! started when its kind appears, and started again when the version changes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gatewright_control::tasks::{joined, named};
use kube::Client;
use kube::api::ApiResource;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use gatewright_control::event::WATCH;

use crate::REQUEST_TIMEOUT;
use crate::watch::discovery::{discover, is_ready};
use crate::watch::last_heard::LastHeard;
use crate::watch::missing_kinds::MissingKinds;
use crate::watch::scope::{KindWatches, ScopedWatch};
use crate::watch::sync::Trouble;
use crate::watch::{Lists, Names, WatchEvent, watch};
use gatewright_core::inputs::Kind;
use gatewright_core::namespaces::Namespaces;

/// The interval of discovery.
const DISCOVERY: Duration = Duration::from_secs(10);
/// The interval of discovery after a failure, or while a kind is missing that may soon be served.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The minor version of Kubernetes since which streaming lists are on by default.
const STREAMING: u32 = 34;

/// Runs until the receiver is dropped.
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
        let of_kind = KindWatches::new(*kind, &namespaces, heard.clone(), out.clone());
        let each: Vec<(ScopedWatch, Names)> = of_kind
            .each()
            .map(|scoped| (scoped, names.of_another()))
            .collect();
        (*kind, (of_kind, each))
    };
    let watches: BTreeMap<Kind, (KindWatches, Vec<(ScopedWatch, Names)>)> =
        kinds.iter().map(watches).collect();
    let mut reported = BTreeMap::new();
    let mut missing_kinds = MissingKinds::default();
    // True at first, so that a kind that the first answer lacks counts as well.
    let mut unsure = true;
    let mut lists = None;
    loop {
        // Readiness is asked before discovery: discovery of a server that became ready in between
        // may lack something.
        let ready = unsure && is_ready(&client).await;
        let found = match discover(&client, &kinds).await {
            Ok(found) => found,
            Err(error) => {
                debug!("asking the API server what it serves: {error}");
                for kind in kinds.iter().filter(|kind| !running.contains_key(kind)) {
                    if reported.insert(*kind, true) != Some(true)
                        && out
                            .send(WatchEvent::Trouble(
                                *kind,
                                Trouble::Failed(error.to_string()),
                            ))
                            .await
                            .is_err()
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
            // A silent watch hangs, or its end was lost: it is started again with a new list.
            let hangs = silent.get(kind).filter(|_| {
                begun
                    .get(kind)
                    .is_some_and(|at| at.elapsed() > heard.limit())
            });
            match (found.resource(*kind), running.get(kind)) {
                (Some(resource), Some((current, _))) if resource == current && hangs.is_none() => {
                    missing_kinds.has(*kind);
                }
                (Some(resource), replaced) => {
                    missing_kinds.has(*kind);
                    if let Some((old, handles)) = replaced {
                        let why = match hangs {
                            Some(age) => format!(
                                ": watch silent for {} s: it is started again",
                                age.as_secs()
                            ),
                            None => format!(
                                " is served as {} and no longer as {}",
                                resource.version, old.version
                            ),
                        };
                        warn!(
                            event = WATCH,
                            kind = kind.as_str(),
                            "{}{why}",
                            kind.as_str()
                        );
                        end(handles, &mut tasks).await;
                    }
                    let (of_kind, each) = &watches[kind];
                    of_kind.begin();
                    begun.insert(*kind, Instant::now());
                    running.insert(
                        *kind,
                        (
                            resource.clone(),
                            each.iter()
                                .map(|(scoped, names)| {
                                    let watch = watch(
                                        client.clone(),
                                        resource.clone(),
                                        lists,
                                        names.clone(),
                                        scoped.clone(),
                                    );
                                    tasks.spawn(named("watch of a kind", watch))
                                })
                                .collect(),
                        ),
                    );
                    if reported.remove(kind).is_some()
                        && out.send(WatchEvent::Listing(*kind)).await.is_err()
                    {
                        return;
                    }
                }
                (None, watched) => {
                    if !missing_kinds.lacks(*kind, watched.is_some(), ready) {
                        continue;
                    }
                    // The names that were seen are kept: an unserved kind says nothing about its
                    // objects.
                    if let Some((_, handles)) = running.remove(kind) {
                        end(&handles, &mut tasks).await;
                        watches[kind].0.end();
                    }
                    if reported.insert(*kind, false) != Some(false)
                        && out.send(WatchEvent::Missing(*kind)).await.is_err()
                    {
                        return;
                    }
                }
            }
        }
        unsure = missing_kinds.is_unsure();
        tokio::select! {
            () = sleep(if unsure { RETRY_DELAY } else { DISCOVERY }.min(heard.limit())) => {}
            () = out.closed() => return,
            Some(ended) = tasks.join_next() => {
                joined(ended);
            }
        }
    }
}

/// Aborts the watches of a kind, and waits for their end: the next ones continue from the names
/// that these noted.
async fn end(handles: &[AbortHandle], tasks: &mut JoinSet<()>) {
    handles.iter().for_each(AbortHandle::abort);
    while !handles.iter().all(AbortHandle::is_finished) {
        if let Some(ended) = tasks.join_next().await {
            joined(ended);
        }
    }
}

/// Chooses streaming lists where the server's version has them: an older one refuses the request.
async fn lists_of(client: &Client) -> Lists {
    let version = timeout(REQUEST_TIMEOUT, client.apiserver_version()).await;
    let minor = version
        .ok()
        .and_then(Result::ok)
        .and_then(|v| v.minor.trim_end_matches('+').parse::<u32>().ok());
    if minor.is_some_and(|minor| minor >= STREAMING) {
        Lists::Streamed
    } else {
        Lists::Paged
    }
}
