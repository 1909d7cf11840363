//! The task that answers requests while this replica holds the Lease.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::stream::{BoxStream, select_all};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::Object;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Config, Event, watcher};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;
use tracing::debug;
use xds::Cache;

use gatewright_control::AdminRequest;
use gatewright_control::certificates::ManagerWatch;
use gatewright_core::model::ObjectName;
use gatewright_core::namespaces::Namespaces;

use super::pace::Pace;
use super::request::{ReportOutcome, ReportSpec, ReportStatus, report_resource};
use super::requests::{Requests, Seen, Todo};
use super::sources::{Answer, Refusal, Sources};
use crate::FIELD_MANAGER;
use crate::lease::{Term, leads};
use crate::write::failure::Failure;
use crate::write::request::in_time;
use crate::write::worker::{RequestCounts, Worker};

/// The number of requests that are answered at a time, and the pace over all namespaces.
const AT_ONCE: usize = 4;
const INTERVAL: Duration = Duration::from_millis(50);
const BURST: u32 = 20;

/// Counters of what was done about requests. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ReportCounts(pub(super) RequestCounts);

/// Answers requests.
pub struct Reporter {
    /// The API server.
    pub client: Client,
    /// The namespace of the installation, whose requests see everything.
    pub installation: String,
    /// The name of this replica.
    pub identity: String,
    /// The namespaces whose requests are answered.
    pub namespaces: Namespaces,
    /// Questions to the main loop.
    pub asks: mpsc::Sender<AdminRequest>,
    /// The certificate manager, while it runs here.
    pub manager: ManagerWatch,
    /// The streams of Envoys.
    pub cache: Cache,
    /// The term of this replica.
    pub term: watch::Receiver<Term>,
    /// Counters.
    pub counts: ReportCounts,
}

/// An object without its answer.
type Asked = Object<ReportSpec, Observed>;

/// What is read of a status.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Observed {
    observed_generation: Option<i64>,
}

/// The end of the work about an item.
struct Done {
    item: ObjectName,
    /// The request that is answered now.
    answered: Option<Seen>,
    outcome: Result<(), Failure>,
}

impl Reporter {
    /// Runs until `stop`.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut term = self.term.clone();
        loop {
            tokio::select! {
                led = term.wait_for(|term| leads(*term)) => if led.is_err() { return },
                _ = stop.wait_for(|stop| *stop) => return,
            }
            tokio::select! {
                () = self.answer_all() => {}
                // A renewal of the Lease changes the term as well.
                lost = term.wait_for(|term| !leads(*term)) => if lost.is_err() { return },
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Answers requests, for as long as this replica holds the Lease.
    async fn answer_all(&self) {
        let sources = Sources {
            client: self.client.clone(),
            installation: self.installation.as_str().into(),
            asks: self.asks.clone(),
            manager: self.manager.clone(),
            cache: self.cache.clone(),
        };
        let mut events = pin!(self.watch());
        let mut requests = Requests::default();
        let mut worker: Worker<ObjectName, Done> =
            Worker::counted_by(self.counts.0.clone(), AT_ONCE);
        let mut pace = Pace::new(INTERVAL, BURST, Instant::now());
        loop {
            let now = Instant::now();
            let free = pace.next(now);
            if free <= now
                && let Some(item) = worker.take(now)
            {
                match requests.todo(&item, now) {
                    Some(todo) => {
                        pace.take(now);
                        self.begin(&mut worker, &sources, item, todo);
                    }
                    None => worker.done(&item),
                }
                continue;
            }
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => self.take_in(&mut requests, &mut worker, event),
                    None => return,
                },
                done = worker.next(), if free <= now => {
                    finish(&mut requests, &mut worker, done);
                }
                () = sleep_until(free.into()), if free > now => {}
            }
        }
    }

    /// Watches the objects of all namespaces whose requests are answered.
    fn watch(&self) -> impl Stream<Item = watcher::Result<Event<Asked>>> + Send + use<> {
        let resource = report_resource();
        let apis: Vec<Api<Asked>> = match &self.namespaces {
            Namespaces::All => vec![Api::all_with(self.client.clone(), &resource)],
            Namespaces::Listed(names) => names
                .iter()
                .map(|name| Api::namespaced_with(self.client.clone(), name, &resource))
                .collect(),
        };
        let watches = apis.into_iter().map(|api| {
            let events: BoxStream<'static, _> =
                watcher(api, Config::default()).default_backoff().boxed();
            events
        });
        select_all(watches)
    }

    /// Takes in an event of the watch.
    fn take_in(
        &self,
        requests: &mut Requests,
        worker: &mut Worker<ObjectName, Done>,
        event: watcher::Result<Event<Asked>>,
    ) {
        match event {
            Ok(Event::Apply(asked) | Event::InitApply(asked)) => {
                // One that is being removed is held by a finalizer of somebody.
                let is_ours = asked.metadata.deletion_timestamp.is_none()
                    && asked.spec.installation == self.installation;
                if is_ours
                    && let Some(seen) = seen(asked)
                    && let Some((item, at)) = requests.see(seen, Instant::now())
                {
                    worker.want(item, at);
                }
            }
            Ok(Event::Delete(asked)) => {
                if let Some(name) = name(&asked) {
                    requests.gone(&name);
                    worker.drop(&name);
                }
            }
            Ok(Event::Init | Event::InitDone) => {}
            // The definition may not be installed.
            Err(error) => debug!("watching requests for reports: {error}"),
        }
    }

    /// Begins the work about an item.
    fn begin(
        &self,
        worker: &mut Worker<ObjectName, Done>,
        sources: &Sources,
        item: ObjectName,
        todo: Todo,
    ) {
        let object = format!("reportrequest {item}");
        let resource = report_resource();
        let api: Api<Asked> = Api::namespaced_with(self.client.clone(), &item.namespace, &resource);
        let identity = self.identity.clone();
        match todo {
            Todo::Answer(seen) => {
                let sources = sources.clone();
                worker.begin("answer", &object, async move {
                    let answer = sources.answer(&seen.name.namespace, &seen.spec).await;
                    let status = status(&seen, &identity, answer);
                    let outcome = write(&api, &seen, &status).await;
                    let answered = Some(seen);
                    Done {
                        item,
                        answered,
                        outcome,
                    }
                });
            }
            Todo::Refuse(seen, wait) => worker.begin("refuse", &object, async move {
                let status = ReportStatus {
                    outcome: ReportOutcome::RateLimited,
                    message: Some("the namespace asks too often".to_owned()),
                    retry_after_seconds: Some(wait.as_secs() + 1),
                    ..about(&seen, &identity)
                };
                let outcome = write(&api, &seen, &status).await;
                let answered = Some(seen);
                Done {
                    item,
                    answered,
                    outcome,
                }
            }),
            Todo::Remove(uid) => worker.begin("remove", &object, async move {
                let preconditions = Preconditions {
                    uid: Some(uid),
                    resource_version: None,
                };
                let params = DeleteParams::default().preconditions(preconditions);
                let outcome = in_time(api.delete(&item.name, &params)).await.map(drop);
                Done {
                    item,
                    answered: None,
                    outcome,
                }
            }),
            Todo::Sweep => worker.begin("sweep", &object, async move {
                let params = DeleteParams::default();
                let all = ListParams::default();
                let removed = in_time(api.delete_collection(&params, &all)).await;
                let outcome = removed.map(drop);
                Done {
                    item,
                    answered: None,
                    outcome,
                }
            }),
        }
    }
}

/// Takes in the end of the work about an item; `None` if another is due.
fn finish(requests: &mut Requests, worker: &mut Worker<ObjectName, Done>, done: Option<Done>) {
    let Some(Done {
        item,
        answered,
        outcome,
    }) = done
    else {
        return;
    };
    let now = Instant::now();
    match outcome {
        Ok(()) => {
            worker.done(&item);
            let removed_at = answered.and_then(|seen| requests.answered(&seen, now));
            if let Some(at) = removed_at {
                worker.want(item, at);
            }
        }
        // Whoever asked has removed it.
        Err(Failure::Gone | Failure::Conflict) => {
            worker.done(&item);
            requests.gone(&item);
        }
        Err(failure) => {
            debug!("reportrequest {item}: {failure}");
            worker.failed(&item, &failure, now);
        }
    }
}

fn name(asked: &Asked) -> Option<ObjectName> {
    let meta = &asked.metadata;
    Some(ObjectName::new(
        meta.namespace.as_deref()?,
        meta.name.as_deref()?,
    ))
}

fn seen(asked: Asked) -> Option<Seen> {
    Some(Seen {
        name: name(&asked)?,
        uid: asked.metadata.uid?,
        generation: asked.metadata.generation?,
        answered: asked.status.and_then(|status| status.observed_generation),
        spec: asked.spec,
    })
}

/// A status without an answer.
fn about(seen: &Seen, identity: &str) -> ReportStatus {
    ReportStatus {
        observed_generation: Some(seen.generation),
        answered_by: identity.to_owned(),
        answered_at: Some(Timestamp::now()),
        ..ReportStatus::default()
    }
}

fn status(seen: &Seen, identity: &str, answer: Result<Answer, Refusal>) -> ReportStatus {
    let about = about(seen, identity);
    match answer {
        Ok(Answer {
            document,
            omitted,
            after,
        }) => ReportStatus {
            outcome: ReportOutcome::Answered,
            answer: Some(document.to_string()),
            omitted,
            after,
            ..about
        },
        Err(Refusal { message, retry }) => ReportStatus {
            outcome: ReportOutcome::Unavailable,
            message: Some(message),
            retry_after_seconds: Some(retry.as_secs()),
            ..about
        },
    }
}

/// Writes the status of the object that was seen, and of no other one of its name.
async fn write(api: &Api<Asked>, seen: &Seen, status: &ReportStatus) -> Result<(), Failure> {
    let resource = report_resource();
    let document: Value = json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": &*seen.name.name, "uid": seen.uid},
        "status": status,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    in_time(api.patch_status(&seen.name.name, &params, &Patch::Apply(&document)))
        .await
        .map(drop)
}
