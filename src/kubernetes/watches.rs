//! All watches: one for each kind that is served, started when it appears and started anew in another version.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::api::ApiResource;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::discovery::discover;
use super::watch::{Lists, Names, News, watch};
use crate::inputs::Kind;

/// How often the server is asked what it serves.
const DISCOVERY: Duration = Duration::from_secs(10);
/// How soon again when it did not answer.
const AGAIN: Duration = Duration::from_secs(1);
/// The first server whose streaming lists are on without a flag.
const STREAMING: u32 = 34;

/// Runs until the receiver is gone.
pub async fn run(client: Client, kinds: Vec<Kind>, out: mpsc::Sender<News>) {
    let mut running: BTreeMap<Kind, (ApiResource, tokio::task::AbortHandle)> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let names = Names::default();
    let names: BTreeMap<Kind, Names> = kinds.iter().map(|kind| (*kind, names.of_another())).collect();
    let mut told = BTreeMap::new();
    let mut lists = None;
    loop {
        let found = match discover(&client, &kinds).await {
            Ok(found) => found,
            Err(error) => {
                debug!("asking the API server what it serves: {error}");
                for kind in kinds.iter().filter(|kind| !running.contains_key(kind)) {
                    if told.insert(*kind, true) != Some(true)
                        && out.send(News::Trouble(*kind, unanswered(&error))).await.is_err()
                    {
                        return;
                    }
                }
                tokio::select! {
                    () = sleep(AGAIN) => continue,
                    () = out.closed() => return,
                }
            }
        };
        let lists = match lists {
            Some(lists) => lists,
            None => *lists.insert(lists_of(&client).await),
        };
        for kind in &kinds {
            match (found.resource(*kind), running.get(kind)) {
                (Some(resource), Some((current, _))) if resource == current => {}
                (Some(resource), replaced) => {
                    if let Some((old, handle)) = replaced {
                        warn!("{} is served as {} and no longer as {}", kind.as_str(), resource.version, old.version);
                        handle.abort();
                    }
                    let names = names[kind].clone();
                    let task = watch(client.clone(), *kind, resource.clone(), lists, names, out.clone());
                    running.insert(*kind, (resource.clone(), tasks.spawn(task)));
                    if told.remove(kind).is_some() && out.send(News::Listing(*kind)).await.is_err() {
                        return;
                    }
                }
                // What was seen of it stays: that a kind is not served says nothing of its objects.
                (None, Some((_, handle))) => {
                    handle.abort();
                    running.remove(kind);
                }
                (None, None) => {}
            }
            let missing = found.resource(*kind).is_none() && told.insert(*kind, false) != Some(false);
            if missing && out.send(News::Missing(*kind)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = sleep(DISCOVERY) => {}
            () = out.closed() => return,
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// Streaming lists are asked for where the server has them: one that lacks them refuses the request.
async fn lists_of(client: &Client) -> Lists {
    let version = client.apiserver_version().await.ok();
    let minor = version.and_then(|v| v.minor.trim_end_matches('+').parse::<u32>().ok());
    if minor.is_some_and(|minor| minor >= STREAMING) { Lists::Streamed } else { Lists::Paged }
}

fn unanswered(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            format!("the API server does not know us: {}", status.message)
        }
        error => format!("the API server does not answer: {error}"),
    }
}
