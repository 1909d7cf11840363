//! Where the page has its answers from: the admin socket of a running program, or a cluster as its
//! user may read it, and its controller tells it. The answers are those of the commands with `-o
//! json`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use gatewright_control::certificates::Report;
use gatewright_control::history::HistoryQuery;
use gatewright_control::request_line::{FailedRequest, RequestLine};
use gatewright_control::tasks::blocking;
use gatewright_control::{AskedUrl, Form, HostQuery, HostsAnswer, HostsChange, StatusQuery};
use gatewright_core::inputs::{ChangeKind, Kind};
use gatewright_core::statuses::{ConditionRow, Selection, condition_rows};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use crate::answer::answer;
use crate::cli;
use crate::client::{ClusterView, LoggedFailures};
use crate::explain_command;
use crate::request_log::{FAILED, last_failed};
use crate::run;
use crate::standalone::access_log;
use gatewright_kubernetes::reader::Changes;
use gatewright_kubernetes::reports::{ReportKind, ReportSpec};

use super::reports::Reports;

/// The time between two questions to a running program: changes in between are one answer.
const POLL: Duration = Duration::from_millis(20);
/// The time until a program that does not answer is asked again.
const RETRY: Duration = Duration::from_millis(500);
/// The least time between two reads of a cluster.
const PAUSE: Duration = Duration::from_secs(1);

/// A source of answers.
pub(super) enum Source {
    /// A running program.
    Program(cli::RunningProgram),
    /// A cluster.
    Cluster(Box<ClusterSource>),
}

/// A cluster, what was read of it last, and what its controller said.
pub(super) struct ClusterSource {
    options: cli::Ui,
    last: Mutex<Option<Reading>>,
    reports: Reports,
}

struct Reading {
    view: Arc<ClusterView>,
    changes: Arc<Changes>,
}

/// An answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Answer {
    /// What the source says.
    Known(Value),
    /// The source cannot say it; the text is the reason.
    Unknown(String),
}

impl Answer {
    fn of(value: impl Serialize) -> Result<Self> {
        Ok(Self::Known(serde_json::to_value(value)?))
    }
}

impl Source {
    /// The source that options name. A cluster is read at once, so that an error ends the command.
    pub(super) async fn of(options: &cli::Ui) -> Result<Self> {
        if !options.cluster.is_asked() {
            return Ok(Self::Program(options.program()));
        }
        let source = ClusterSource {
            options: options.clone(),
            last: Mutex::new(None),
            reports: Reports::default(),
        };
        source.view().await?;
        Ok(Self::Cluster(Box::new(source)))
    }

    /// What the page is about, with what its user may not read.
    pub(super) async fn about(&self) -> Result<Value> {
        match self {
            Self::Program(_) => Ok(json!({"source": "the program on this machine", "marks": []})),
            Self::Cluster(cluster) => {
                let context = cluster.options.cluster.context.as_deref();
                let source = context
                    .map_or("the cluster of the current context".to_owned(), |of| {
                        format!("context {of}")
                    });
                let marks = cluster.view().await?.marks();
                Ok(json!({"source": source, "marks": marks}))
            }
        }
    }

    /// The hostnames that changed after a revision; all without one.
    pub(super) async fn hosts(&self, after: Option<u64>) -> Result<HostsAnswer> {
        match self {
            Self::Program(program) => answer(program, &HostQuery { after }.path()).await,
            Self::Cluster(cluster) => {
                let hosts = cluster.read().await?.hosts().await?;
                Ok(HostsAnswer::new(0, None, hosts))
            }
        }
    }

    /// Waits until something may have changed since the last answer.
    pub(super) async fn changed(&self, last: &Asked) {
        match self {
            Self::Program(program) => {
                sleep(POLL).await;
                let query = HostQuery {
                    after: last.revision,
                };
                match answer(program, &query.path_of_change()).await {
                    // That is computed for every host, where the rest is less work than the change.
                    Ok(HostsChange::All) => sleep_until(last.rest).await,
                    Ok(HostsChange::Some | HostsChange::Nothing) => {}
                    // The next question has the error.
                    Err(_) => sleep(RETRY).await,
                }
            }
            Self::Cluster(cluster) => {
                let pause = sleep(PAUSE);
                cluster.changed().await;
                pause.await;
                sleep_until(last.rest).await;
            }
        }
    }

    /// The steps that a request takes.
    pub(super) async fn explain(&self, asked: AskedUrl) -> Result<Answer> {
        match self {
            Self::Program(program) => {
                Answer::of(answer::<Value>(program, &explain_command::path(asked)).await?)
            }
            Self::Cluster(cluster) => {
                let question = asked.question().map_err(Error::msg)?;
                let logged = LoggedFailures::not_asked();
                Answer::of(cluster.view().await?.explain(&question, &logged).await?)
            }
        }
    }

    /// The conditions of objects: what is wrong, and counts.
    pub(super) async fn status(&self, selection: Selection) -> Result<Answer> {
        let query = StatusQuery {
            selection,
            form: Form::Summary,
            ..StatusQuery::default()
        };
        match self {
            Self::Program(program) => Answer::of(answer::<Value>(program, &query.path()).await?),
            Self::Cluster(cluster) => Answer::of(cluster.view().await?.status(&query).await?),
        }
    }

    /// The policies, with their conditions that are not as desired.
    pub(super) async fn policies(&self) -> Result<Answer> {
        let kinds: Vec<Kind> = Kind::ALL.iter().copied().filter(is_policy).collect();
        let mut lists: Vec<Value> = Vec::new();
        match self {
            Self::Program(program) => {
                for kind in &kinds {
                    lists.push(answer(program, &documents(Some(*kind)).path()).await?);
                }
            }
            // Each query of a cluster evaluates all of it.
            Self::Cluster(cluster) => {
                lists.push(cluster.view().await?.status(&documents(None)).await?)
            }
        }
        let items = lists
            .iter()
            .flat_map(|list| list["items"].as_array().into_iter().flatten());
        let policies = items.filter(|item| kinds.iter().any(|kind| item["kind"] == kind.as_str()));
        Answer::of(policies.map(policy).collect::<Vec<Value>>())
    }

    /// What changed about a hostname.
    pub(super) async fn history(&self, host: String) -> Result<Answer> {
        match self {
            Self::Program(program) => {
                let query = HistoryQuery {
                    what: Some(host),
                    ..HistoryQuery::default()
                };
                Answer::of(answer::<Value>(program, &query.path()).await?)
            }
            Self::Cluster(cluster) => {
                let spec = ReportSpec {
                    about: Some(host),
                    ..cluster.spec(ReportKind::History)
                };
                Ok(cluster.report(spec).await)
            }
        }
    }

    /// The last requests for a hostname that failed.
    pub(super) async fn errors(&self, host: String) -> Result<Answer> {
        match self {
            Self::Program(program) => {
                let path = log_of(program)?;
                let read = blocking("last failed requests", move || last_failed(&path, &host));
                Answer::of(read.await.map_err(|error| anyhow!("{error}"))??)
            }
            Self::Cluster(cluster) => {
                let spec = ReportSpec {
                    about: Some(host),
                    errors: true,
                    lines: Some(FAILED),
                    ..cluster.spec(ReportKind::Logs)
                };
                match cluster.report(spec).await {
                    Answer::Known(document) => Answer::of(failed_of(&document)),
                    unknown => Ok(unknown),
                }
            }
        }
    }

    /// The certificates, with what happens to each next.
    pub(super) async fn certificates(&self) -> Result<Answer> {
        match self {
            Self::Program(program) => {
                let report: Report = answer(program, "/certs").await?;
                let brought = answer(program, "/certs/brought").await?;
                Answer::of(report.with_brought(brought))
            }
            Self::Cluster(cluster) => {
                Ok(cluster.report(cluster.spec(ReportKind::Certificates)).await)
            }
        }
    }

    /// The owners of hostnames and ports.
    pub(super) async fn owners(&self) -> Result<Answer> {
        match self {
            Self::Program(program) => Answer::of(answer::<Value>(program, "/owners").await?),
            Self::Cluster(cluster) => match cluster.view().await?.owners().await? {
                Some(owners) => Answer::of(owners),
                None => Ok(Answer::Unknown("you may not read it".to_owned())),
            },
        }
    }

    /// The connected Envoys.
    pub(super) async fn envoys(&self) -> Result<Answer> {
        match self {
            Self::Program(program) => Answer::of(answer::<Value>(program, "/envoys").await?),
            Self::Cluster(cluster) => Ok(cluster.report(cluster.spec(ReportKind::Envoys)).await),
        }
    }
}

/// A query for the documents of a kind, or of all.
fn documents(kind: Option<Kind>) -> StatusQuery {
    StatusQuery {
        selection: Selection {
            kind,
            ..Selection::default()
        },
        form: Form::Documents,
        ..StatusQuery::default()
    }
}

/// Returns whether objects of a kind say something about requests to others, and have a status.
fn is_policy(kind: &Kind) -> bool {
    kind.change() == ChangeKind::Policy && kind.status().is_some()
}

/// A policy with what is wrong with it, from its document.
fn policy(document: &Value) -> Value {
    let metadata = &document["metadata"];
    let [kind, namespace, name] = [&document["kind"], &metadata["namespace"], &metadata["name"]]
        .map(|field| field.as_str().unwrap_or_default());
    let policy = format!("{} {namespace}/{name}", kind.to_lowercase());
    let rows = condition_rows(document).into_iter();
    let faults: Vec<ConditionRow> = rows.filter(|row| !row.ok).collect();
    json!({"policy": policy, "faults": faults})
}

/// The failed requests of a report about logs, the newest first.
fn failed_of(document: &Value) -> Vec<FailedRequest> {
    let lines = document["lines"].as_array().into_iter().flatten().rev();
    lines
        .filter_map(|line| Some(RequestLine::parse(&line.to_string())?.failed()))
        .collect()
}

/// The access log of the Envoy that a running program starts: beside its admin socket.
fn log_of(program: &cli::RunningProgram) -> Result<PathBuf> {
    let dir = match program.admin.as_deref().and_then(|socket| socket.parent()) {
        Some(dir) => dir.to_owned(),
        None => run::state_dir(&program.state())?,
    };
    Ok(access_log(&dir))
}

impl ClusterSource {
    /// A request for a whole report.
    fn spec(&self, kind: ReportKind) -> ReportSpec {
        ReportSpec::new(kind, &self.options.cluster.installation)
    }

    /// What the controller says.
    async fn report(&self, spec: ReportSpec) -> Answer {
        match self.reports.get(&self.options, spec).await {
            Ok(document) => Answer::Known(document),
            Err(why) => Answer::Unknown(why),
        }
    }

    /// What was read last; reads it if nothing was.
    async fn view(&self) -> Result<Arc<ClusterView>> {
        let last = self.last.lock().await;
        if let Some(reading) = &*last {
            return Ok(reading.view.clone());
        }
        drop(last);
        self.read().await
    }

    /// Reads the cluster again.
    async fn read(&self) -> Result<Arc<ClusterView>> {
        let cli::Ui {
            cluster, namespace, ..
        } = &self.options;
        let (client, own) = cluster.connect().await?;
        let namespace = namespace.as_deref().unwrap_or(&own);
        let view = ClusterView::of(client, namespace, &cluster.installation).await?;
        let view = Arc::new(view);
        let mut last = self.last.lock().await;
        let changes = last.as_ref().map(|reading| reading.changes.clone());
        let changes = match changes.filter(|changes| changes.are_of(&view.view)) {
            Some(changes) => changes,
            None => Arc::new(view.watched().await?),
        };
        *last = Some(Reading {
            view: view.clone(),
            changes,
        });
        Ok(view)
    }

    /// Waits until what was read last has changed.
    async fn changed(&self) {
        let last = self.last.lock().await;
        let changes = last.as_ref().map(|reading| reading.changes.clone());
        drop(last);
        match changes {
            Some(changes) => changes.next().await,
            None => sleep(PAUSE).await,
        }
    }
}

/// What a source was asked last.
pub(super) struct Asked {
    /// The revision of its last answer; `None` after an error.
    revision: Option<u64>,
    /// The time until which it is not asked for all hostnames again: whoever answers gives a tenth
    /// of its time.
    rest: Instant,
}

/// Follows a source as long as pages follow the feed.
pub(super) async fn follow(source: &Source, feed: &super::feed::Feed) {
    let mut last = Asked {
        revision: None,
        rest: Instant::now(),
    };
    loop {
        feed.followed().await;
        let asked = Instant::now();
        match source.hosts(last.revision).await {
            Ok(answer) => {
                last.revision = Some(answer.revision);
                if answer.whole {
                    last.rest = Instant::now() + 10 * asked.elapsed();
                }
                feed.take(answer);
            }
            Err(error) => {
                last.revision = None;
                last.rest = Instant::now() + RETRY;
                feed.fail(format!("{error:#}"));
            }
        }
        source.changed(&last).await;
    }
}
