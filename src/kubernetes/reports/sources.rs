//! What answers requests: the control plane by its main loop, the certificate manager, and the logs
//! of Envoys.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use xds::Cache;

use gatewright_control::certificates::{ManagerWatch, Row};
use gatewright_control::envoys;
use gatewright_control::history::{HistoryAnswer, HistoryQuery};
use gatewright_control::request_line::RequestFilter;
use gatewright_control::{AdminQuery, AdminRequest, Visibility};

use super::envoy_logs::{self, LogQuery};
use super::part::{Cut, cut, cut_beside};
use super::request::{ReportKind, ReportSpec};

/// The time in which the main loop answers.
const LIMIT: Duration = Duration::from_secs(20);
/// The time after which a request may be repeated whose source is not there.
const RETRY: Duration = Duration::from_secs(2);

/// The sources of a replica.
#[derive(Clone)]
pub(super) struct Sources {
    pub(super) client: Client,
    /// The namespace of the installation: its requests see everything.
    pub(super) installation: Arc<str>,
    pub(super) asks: mpsc::Sender<AdminRequest>,
    pub(super) manager: ManagerWatch,
    pub(super) cache: Cache,
}

/// An answer that has room in a status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) document: Value,
    /// The number of items that have no room.
    pub(super) omitted: usize,
    /// Of logs, the place up to which it goes.
    pub(super) after: Option<String>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) retry: Duration,
}

impl Refusal {
    pub(super) fn unavailable(message: String) -> Self {
        Self {
            message,
            retry: RETRY,
        }
    }
}

impl Sources {
    /// Answers a request of a namespace.
    ///
    /// # Errors
    /// When a source is not there.
    pub(super) async fn answer(
        &self,
        namespace: &Arc<str>,
        spec: &ReportSpec,
    ) -> Result<Answer, Refusal> {
        let visibility = if *namespace == self.installation {
            Visibility::Everything
        } else {
            Visibility::Namespace(namespace.clone())
        };
        match spec.report {
            ReportKind::History => self.history(spec, visibility).await,
            ReportKind::Certificates => self.certificates(spec, visibility).await,
            ReportKind::Claims => self.claims(spec, visibility).await,
            ReportKind::Logs => {
                let query = LogQuery {
                    filter: RequestFilter {
                        host: spec.about.as_ref().map(|host| host.to_ascii_lowercase()),
                        namespace: spec.namespace.clone(),
                        errors: spec.errors,
                    },
                    since: spec.since,
                    lines: spec.lines,
                    after: spec.after.clone(),
                };
                envoy_logs::read(&self.client, &self.installation, &query, &visibility).await
            }
            ReportKind::Envoys => self.envoys(&visibility),
        }
    }

    async fn history(&self, spec: &ReportSpec, visibility: Visibility) -> Result<Answer, Refusal> {
        let query = HistoryQuery {
            what: spec.about.clone(),
            namespace: spec.namespace.clone(),
            since: spec.since,
            until: spec.until,
        };
        let HistoryAnswer { changes, forgotten } =
            self.ask(AdminQuery::History(query, visibility)).await?;
        let mut changes: Vec<Value> = changes.iter().map(|change| json!(change)).collect();
        let omitted = cut(&mut changes, Cut::First);
        Ok(Answer {
            document: json!({"changes": changes, "forgotten": forgotten}),
            omitted,
            after: None,
        })
    }

    async fn certificates(
        &self,
        spec: &ReportSpec,
        visibility: Visibility,
    ) -> Result<Answer, Refusal> {
        // The main loop answers once everything is read: then it is known what is wanted.
        let brought: Vec<Row> = self
            .ask(AdminQuery::BroughtCertificates(visibility.clone()))
            .await?;
        let report = self.manager.report().ok_or_else(|| {
            Refusal::unavailable("the certificate manager is starting".to_owned())
        })?;
        let report = match visibility.namespace() {
            Some(namespace) => report.seen_by(namespace),
            None => report,
        };
        let report = report.with_brought(brought);
        let report = match &spec.namespace {
            Some(namespace) => report.of_namespace(namespace),
            None => report,
        };
        let about = spec.about.as_ref();
        let rows = report
            .certificates
            .iter()
            .filter(|row| about.is_none_or(|host| row.hosts.contains(host)));
        let mut rows: Vec<Value> = rows.map(|row| json!(row)).collect();
        let mut budgets: Vec<Value> = report.budgets.iter().map(|budget| json!(budget)).collect();
        let omitted = cut(&mut rows, Cut::Last);
        cut_beside(&mut budgets);
        let mut document = json!({"certificates": rows, "budgets": budgets});
        if !report.troubles.is_empty() {
            document["troubles"] = json!(report.troubles);
        }
        Ok(Answer {
            document,
            omitted,
            after: None,
        })
    }

    async fn claims(&self, spec: &ReportSpec, visibility: Visibility) -> Result<Answer, Refusal> {
        let mut rows: Vec<Value> = self.ask(AdminQuery::Owners(visibility)).await?;
        if let Some(namespace) = &spec.namespace {
            rows.retain(|row| row["namespace"] == **namespace);
        }
        if let Some(about) = &spec.about {
            rows.retain(|row| names(&row["what"], about) || names(&row["message"], about));
        }
        let omitted = cut(&mut rows, Cut::Last);
        Ok(Answer {
            document: Value::Array(rows),
            omitted,
            after: None,
        })
    }

    /// The Envoys that are connected to this replica; of a namespace, those of its own Gateways.
    fn envoys(&self, visibility: &Visibility) -> Result<Answer, Refusal> {
        let rows = envoys::rows(&self.cache.debug()).into_iter();
        let rows = rows.filter(|row| match visibility {
            Visibility::Everything => true,
            Visibility::Namespace(namespace) => {
                let mut path = row.fleet.split('/');
                path.next() == Some("isolated") && path.next() == Some(&**namespace)
            }
        });
        let mut rows: Vec<Value> = rows.map(|row| json!(row)).collect();
        let omitted = cut(&mut rows, Cut::Last);
        Ok(Answer {
            document: Value::Array(rows),
            omitted,
            after: None,
        })
    }

    /// Asks the main loop.
    async fn ask<T: DeserializeOwned>(&self, what: AdminQuery) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            self.asks.send(AdminRequest { what, answer }).await.ok()?;
            answered.await.ok()
        };
        let text = timeout(LIMIT, asked).await.ok().flatten();
        let text = text.ok_or_else(|| {
            Refusal::unavailable("the controller is busy, or is ending".to_owned())
        })?;
        Ok(serde_json::from_str(&text).expect("the control plane writes what it reads"))
    }
}

/// Returns whether a text has a hostname as a word.
fn names(text: &Value, hostname: &str) -> bool {
    let text = text.as_str().unwrap_or_default();
    text.split([' ', ':', ',']).any(|word| word == hostname)
}
